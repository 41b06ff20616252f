"""Two intervals between snapshots, side by side: A first, then B."""

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
    """``blocks``: the interval cut at the snapshots in between, each as table ``statements`` of its growth
    with the ``transactions`` of all databases; none: no snapshot lies in between."""

    figures: IntervalFigures
    blocks: Sequence[pl.DataFrame] = ()


@dataclass(frozen=True)
class IntervalComparison:
    """Tables by what changed most. ``*_a``, ``*_b``: of the two intervals; ratios are B to A."""

    a: IntervalSide
    b: IntervalSide
    load: pl.DataFrame
    """``database``, ``figure``, ``unit`` (count | blocks | bytes | s) per second, per transaction, both
    ratios; ``low`` and ``high``: 95 % interval of the ratio per second of transactions over blocks."""
    statements: pl.DataFrame
    """``change`` (new | gone | slower | faster | same | ?: no spread), calls and time (s) per second and
    per transaction, ``mean_ns_*``, its ratio with 95 % interval, ``text``, ``status`` (ok | lower bound)."""
    relations: pl.DataFrame
    """``change`` (new | gone | both): logical reads, rows read and written per second
    and per transaction."""
    claims: tuple[Claim, ...]
