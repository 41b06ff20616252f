"""What is claimed of a ladder after the choice of model, against the truth that made it: how often intervals
hold it, and how many knees and peaks are claimed where there is none."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from dbdyno.stats.scaling.averaged import averaged_all
from dbdyno.stats.scaling.models import MODELS
from dbdyno.stats.scaling.points import Points

LADDERS = 100
BATCH = 25
DRIFT = 0.01
"""Standard deviation from climb to climb, relative, where there are several."""
TRUTHS = {
    "linear": (900.0,),
    "amdahl": (900.0, 0.04),
    "usl": (900.0, 0.03, 1e-3),
    "queue": (900.0, 9.3),
    "plateau": (900.0, 10.7),
    "one-knee": (900.0, 8.6, 0.3),
    "two-knees": (900.0, 7.0, 0.4, 18.0, -0.1),
}
KNEED = ("queue", "plateau", "one-knee", "two-knees")
PEAKED = ("usl", "two-knees")
RUNGS = (12, 8, 7, 20)
POWER = np.array((1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32), dtype=float)


class Condition(NamedTuple):
    rungs: int
    spacing: str
    noise: float
    proportional: bool
    climbs: int

    @property
    def loads(self) -> np.ndarray:
        if self.spacing == "dense":
            return np.round(np.linspace(1, 32, self.rungs))
        return np.round(np.geomspace(1, 64, self.rungs), 1)

    def __str__(self) -> str:
        law = "in proportion" if self.proportional else "of one size"
        climbs = f"{self.climbs} climb{'s' if self.climbs > 1 else ''}"
        return f"{self.rungs} {self.spacing} | {self.noise:.0%} {law} | {climbs}"


def conditions() -> list[Condition]:
    kinds = product(RUNGS, ("dense", "doubling"), (0.01, 0.03, 0.1), (True, False), (1, 3))
    return [Condition(*k) for k in kinds]


def ladders(
    law: str,
    p: tuple[float, ...],
    loads: np.ndarray,
    c: Condition,
    count: int,
    chance: np.random.Generator,
) -> list[Points]:
    """``count`` ladders of ``law`` at ``loads``, with the noise and the climbs of ``c``."""
    exact, made = MODELS[law].curve(loads, np.array(p)), []
    for _ in range(count):
        drift = 1 + (chance.normal(0, DRIFT, (c.climbs, 1)) if c.climbs > 1 else 0.0)
        size = exact if c.proportional else exact.max()
        x = exact * drift + c.noise * size * chance.normal(size=(c.climbs, len(loads)))
        repeat = np.tile(np.arange(1.0, c.climbs + 1), len(loads))
        made.append(Points(np.repeat(loads, c.climbs), np.maximum(x, exact.min() / 1000).T.ravel(), repeat))
    return made


def true_figures(law: str) -> dict[str, float]:
    p, model = np.array(TRUTHS[law]), MODELS[law]
    found = {"rate": float(p[0])}
    if law in KNEED:
        found["knee"] = float(p[1])
    if law in PEAKED and model.peak is not None and model.top is not None:
        found |= {"peak": float(model.peak.of(p)), "peak throughput": float(model.top.of(p))}
    return found


def piece(law: str, c: Condition, seed: int, count: int) -> Counter[tuple[str, str]]:
    """Of each figure how often it was claimed, and held where there is such a thing."""
    loads, told = c.loads, Counter[tuple[str, str]]()
    chance = np.random.default_rng((seed, c.rungs, c.climbs))
    truth, exact = true_figures(law), MODELS[law].curve(loads, np.array(TRUTHS[law]))
    for made in averaged_all(ladders(law, TRUTHS[law], loads, c, count, chance)):
        for name in ("rate", "knee", "peak", "peak throughput"):
            f = made.figures[name]
            if f.claimed and f.low is not None and f.high is not None:
                told[name, "claimed"] += 1
                told[name, "held"] += bool(name in truth and f.low <= truth[name] <= f.high)
        _, low, high = made.throughput(loads)
        told["throughput", "claimed"] += len(loads)
        told["throughput", "held"] += int(((low <= exact) & (exact <= high)).sum())
    return told


def told_of(law: str, c: Condition, count: int) -> Counter[tuple[str, str]]:
    told = Counter[tuple[str, str]]()
    for seed in range(0, count, BATCH):
        told.update(piece(law, c, seed, min(BATCH, count - seed)))
    return told


def row(law: str, under: str, told: Counter[tuple[str, str]]) -> str:
    truth, cells = true_figures(law), []
    for name in ("rate", "throughput", "knee", "peak", "peak throughput"):
        claimed, held = told[name, "claimed"], told[name, "held"]
        if name in truth or name == "throughput":
            share = f"{held / claimed:.0%}" if claimed else "not claimed"
            cells.append(share if name in ("rate", "throughput") or not claimed else f"{share} of {claimed}")
        else:
            cells.append(f"false: {claimed}" if claimed and name != "peak throughput" else "none")
    return f"| {law} | {under} | {' | '.join(cells)} |"


def power(count: int) -> float:
    """Share of ladders of 14 dense rungs at 1 % noise that give a knee at 8 within 0.5."""
    c = Condition(14, "dense", 0.01, True, 1)
    chance = np.random.default_rng((1, c.rungs, c.climbs))
    made = averaged_all(ladders("one-knee", (900.0, 8.0, 0.3), POWER, c, count, chance))
    return float(
        np.mean([m.figures["knee"].claimed and abs(m.figures["knee"].value - 8) <= 0.5 for m in made])
    )


def main(count: int = LADDERS) -> None:
    print(f"{count} ladders a row; share of claimed intervals that hold the truth\n")
    print("| truth | rungs | noise | climbs | rate | throughput | knee | peak | peak throughput |")
    print("|---|---|---|---|---|---|---|---|---|")
    asked = [(law, c) for c in conditions() for law in TRUTHS]
    pooled: dict[tuple[str, float], Counter[tuple[str, str]]] = {}
    with ProcessPoolExecutor(os.cpu_count() or 1) as workers:
        made = workers.map(told_of, *zip(*asked, strict=True), [count] * len(asked))
        for (law, c), told in zip(asked, made, strict=True):
            print(row(law, str(c), told), flush=True)
            pooled.setdefault((law, c.noise), Counter()).update(told)
    every = count * len(asked) // len(pooled)
    print(f"\nAll rungs, spacings, laws of noise and climbs together: {every} ladders a row\n")
    print(
        "| truth | noise | rate | throughput | knee | peak | peak throughput |\n|---|---|---|---|---|---|---|"
    )
    for (law, noise), told in sorted(pooled.items(), key=lambda item: list(TRUTHS).index(item[0][0])):
        print(row(law, f"{noise:.0%}", told))
    print(f"\nknee at 8 within 0.5 (14 dense rungs, 1 % noise): {power(count):.0%}")
