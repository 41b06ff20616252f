"""Two spans of an observation, A and B, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class SpanComparison:
    """Tables sorted by the largest change; A is the baseline. Unknown figures and intervals are NULL."""

    events: pl.DataFrame
    """``name``, seconds per second ``a`` and ``b``, ``change`` = B - A with ``low`` and ``high``."""
    statements: pl.DataFrame
    """``query_id``, ``user``, ``database``, ``toplevel``, ``change`` of the time per second, and each with
    ``_a`` and ``_b``: ``time_per_s`` (``time``: DB time | execution time), ``calls_per_s``, ``mean_ns``."""
    load: pl.DataFrame
    """``name``, ``unit``, ``a`` and ``b`` per second (a ratio: as it is), ``ratio`` = B / A with ``low`` and
    ``high`` from the variation over blocks of windows."""
    devices: pl.DataFrame
    """``device``, and each with ``_a`` and ``_b``: requests per second ``requests``, ``read_await_ns``,
    ``write_await_ns``, ``utilisation``."""
    blocks: tuple[int, int]
    """Number of blocks that the windows of A and B were divided into."""
    enough_blocks: bool
    """Whether these are enough on both sides for intervals."""
