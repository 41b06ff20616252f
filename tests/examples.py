"""Numbers of examples per law: few in `make check`, more in `make test`, new ones in `make laws`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

SHARE = "DBDYNO_LAWS"
"""The share of its examples that is tried, 0.5 where it is not set; above 1: new ones, as many times."""
_share = float(os.environ.get(SHARE, 0.5))
AT_RANDOM = _share > 1
settings.register_profile("dbdyno", derandomize=not AT_RANDOM, deadline=None)
settings.load_profile("dbdyno")


def examples(count: int, **more: Any) -> settings:
    """Returns Hypothesis' settings for ``count`` examples, half of them in `make test`."""
    return settings(max_examples=max(1, int(count * _share)), **more)


def tries(count: int) -> int:
    """Returns a number of tries by numbered seeds: all ``count`` in `make test`."""
    return count if AT_RANDOM else max(1, round(count * min(1.0, 2 * _share)))


LADDERS = 500 if AT_RANDOM else tries(50)
"""Random ladders that are tried."""
