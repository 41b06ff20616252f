"""Two intervals between snapshots, A and B, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.results.claim import Claim
    from dbdyno.model.results.interval import IntervalFigures


@dataclass(frozen=True)
class IntervalSide:
    """One interval of a comparison. ``blocks`` has a table ``statements`` of the growth between each pair of
    successive snapshots, with the ``transactions`` of all databases. It is empty if no snapshot lies within
    the interval."""

    figures: IntervalFigures
    blocks: Sequence[pl.DataFrame] = ()


@dataclass(frozen=True)
class IntervalComparison:
    """Tables sorted by the largest change. Columns ``*_a`` and ``*_b`` belong to the two intervals; ratios
    are B / A."""

    a: IntervalSide
    b: IntervalSide
    load: pl.DataFrame
    """``database``, ``figure``, ``unit`` (count | blocks | bytes | s), each per second and per transaction,
    with both ratios. ``low`` and ``high`` are the 95 % interval of the ratio of transactions per second,
    from the variation over blocks."""
    statements: pl.DataFrame
    """``change`` (new | gone | slower | faster | same | ? without a spread), calls and time in s per second
    and per transaction, ``mean_ns_*`` and its ratio with 95 % interval, ``text``, ``status`` (ok | lower
    bound)."""
    relations: pl.DataFrame
    """``change`` (new | gone | both), and logical reads, rows read and rows written, per second and per
    transaction."""
    claims: tuple[Claim, ...]
