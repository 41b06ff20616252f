"""How many examples of a law are tried: in `make test` few, always the same; in `make laws` many new ones."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

MANY = "DBDYNO_LAWS"
"""How many times as many as usual, at random; not set: the same ones each time."""
_times = int(os.environ.get(MANY, 0))
settings.register_profile("dbdyno", derandomize=not _times, deadline=None)
settings.load_profile("dbdyno")


def examples(count: int, **more: Any) -> settings:
    """Hypothesis' settings for ``count`` examples, half of them in `make test`."""
    return settings(max_examples=count * _times or max(1, count // 2), **more)


LADDERS = 500 if _times else 100
"""Random ladders that are tried."""
