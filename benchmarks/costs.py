"""Comparisons of costs without a difference that name one, and differences that are found: simulated."""

from __future__ import annotations

import random

from dbdyno.conclude.compare import costs
from dbdyno.conclude.compare.effects import CellFigures
from dbdyno.conclude.compare.table import Match
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.schema.data_sources.costs import CALL, CPU, FIGURES, SYSTEM, metric_of

SPREAD = 0.02
"""Standard deviation of a repeat, and of each of its figures beside."""
KNOWN = 14
"""Figures that a server has in general."""
TRIALS = 150


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
    groups = {side: _cells(rng, side, repeats, by) for side, by in (("A", 1.0), ("B", ratio))}
    match = Match("w", 1, "A", groups, paired=False)
    comparison = Comparison(kind="runs", runs=("a", "b"), baseline="A", margin=0.02, metrics=())
    (change,) = costs.changes([match], (), "call", comparison)
    return {f.figure for f in change.figures if f.contrast.verdict in ("better", "worse")}


def _cells(rng: random.Random, side: str, repeats: int, ratio: float) -> dict[int, CellFigures]:
    cells = {}
    for repeat in range(repeats):
        common = rng.gauss(0, SPREAD)
        rates: dict[str, float | None] = {
            metric_of(f.id, CALL): 100
            * (1 + common + rng.gauss(0, SPREAD))
            * (ratio if f.id in (CPU, SYSTEM) else 1)
            for f in FIGURES[:KNOWN]
        }
        cells[repeat] = CellFigures(f"{side}{repeat}", rates)
    return cells
