"""Comparisons of costs without a difference that name one, and differences that are found: simulated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.compare import costs
from dbdyno.conclude.compare.effects import CellFigures
from dbdyno.conclude.compare.table import Match
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.schema.data_sources.costs import CPU, FIGURES, SYSTEM

SPREAD = 0.02
"""Standard deviation of a repeat, and of each of its figures beside."""
KNOWN = 14
"""Figures that a server has in general."""
TRIALS = 150
_SCHEMA = {
    **dict.fromkeys(("cell", "per", "figure", "background_source"), pl.String),
    **dict.fromkeys(("value", "low", "high", "background"), pl.Float64),
}


def main(_pairs: int, _seconds: float) -> None:
    rng = random.Random(7)
    for repeats in (3, 5, 8):
        for ratio in (1.0, 1.1, 1.2):
            found = [_found(rng, repeats, ratio) for _ in range(TRIALS)]
            changed = {CPU, SYSTEM} if ratio != 1 else set()
            false = sum(bool(f - changed) for f in found) / TRIALS
            true = sum(CPU in f for f in found) / TRIALS
            print(
                f"{repeats} repeats, CPU {ratio:.1f} times: named without a difference in {false:.1%} "
                f"(wanted <= 5 %), CPU found in {true:.0%}",
                flush=True,
            )


def _found(rng: random.Random, repeats: int, ratio: float) -> set[str]:
    """Returns the figures that one comparison takes for different."""
    tables = {
        side: pl.DataFrame([*_rows(rng, side, repeats, by)], schema=_SCHEMA)
        for side, by in (("A", 1.0), ("B", ratio))
    }
    groups = {s: {r: CellFigures(f"{s}{r}", {}) for r in range(repeats)} for s in tables}
    match = Match("w", 1, "A", groups, paired=False, of={s: s for s in tables})
    comparison = Comparison(kind="runs", runs=("a", "b"), baseline="A", margin=0.02, metrics=())
    (change,) = costs.changes([match], tables, "call", comparison)
    return {f.figure for f in change.figures if f.contrast.verdict in ("better", "worse")}


def _rows(rng: random.Random, side: str, repeats: int, ratio: float) -> Iterator[dict[str, Any]]:
    for repeat in range(repeats):
        common = rng.gauss(0, SPREAD)
        for figure in FIGURES[:KNOWN]:
            value = 100 * (1 + common + rng.gauss(0, SPREAD)) * (ratio if figure.id in (CPU, SYSTEM) else 1)
            yield {"cell": f"{side}{repeat}", "per": "call", "figure": figure.id, "value": value}
