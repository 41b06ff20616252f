"""Compares claims on a ladder, after the choice of model, with the true law: how often intervals contain it,
and how many knees and peaks are claimed where there are none.

All conditions take turns, a few ladders each time, and counts are appended to a file. So an interrupted run
covers all conditions evenly, and the next run with the same file continues it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dbdyno.stats.scaling.averaged import averaged_all
from dbdyno.stats.scaling.models import MODELS
from dbdyno.stats.scaling.points import Points

LADDERS = 100
BATCH = 10
DRIFT = 0.01
"""Relative standard deviation between climbs, if there are several."""
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
RUNGS = (7, 8, 12, 20)
FIGURES = ("rate", "throughput", "knee", "peak", "peak throughput")
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
    """Returns all conditions. The number of rungs changes fastest, then spacing and noise."""
    kinds = product((1, 3), (True, False), (0.01, 0.03, 0.1), ("dense", "doubling"), RUNGS)
    return [Condition(*k[::-1]) for k in kinds]


def ladders(
    law: str,
    p: tuple[float, ...],
    loads: np.ndarray,
    c: Condition,
    count: int,
    chance: np.random.Generator,
) -> list[Points]:
    """Returns ``count`` ladders of ``law`` at ``loads``, with the noise and the climbs of ``c``."""
    exact, simulated = MODELS[law].curve(loads, np.array(p)), []
    for _ in range(count):
        drift = 1 + (chance.normal(0, DRIFT, (c.climbs, 1)) if c.climbs > 1 else 0.0)
        size = exact if c.proportional else exact.max()
        x = exact * drift + c.noise * size * chance.normal(size=(c.climbs, len(loads)))
        repeat = np.tile(np.arange(1.0, c.climbs + 1), len(loads))
        simulated.append(
            Points(np.repeat(loads, c.climbs), np.maximum(x, exact.min() / 1000).T.ravel(), repeat)
        )
    return simulated


def true_figures(law: str) -> dict[str, float]:
    p, model = np.array(TRUTHS[law]), MODELS[law]
    figures = {"rate": float(p[0])}
    if law in KNEED:
        figures["knee"] = float(p[1])
    if law in PEAKED and model.peak is not None and model.top is not None:
        figures |= {"peak": float(model.peak.of(p)), "peak throughput": float(model.top.of(p))}
    return figures


def piece(law: str, c: Condition, seed: int, count: int) -> Counter[tuple[str, str]]:
    """Counts how often each figure is claimed, and how often its interval contains the true one, if that
    exists."""
    loads, counts = c.loads, Counter[tuple[str, str]]()
    chance = np.random.default_rng((seed, *map(ord, str((law, c)))))
    truth, exact = true_figures(law), MODELS[law].curve(loads, np.array(TRUTHS[law]))
    for average in averaged_all(ladders(law, TRUTHS[law], loads, c, count, chance)):
        for name in ("rate", "knee", "peak", "peak throughput"):
            f = average.figures[name]
            if f.claimed and f.low is not None and f.high is not None:
                counts[name, "claimed"] += 1
                counts[name, "held"] += bool(name in truth and f.low <= truth[name] <= f.high)
        _, low, high = average.throughput(loads)
        counts["throughput", "claimed"] += len(loads)
        counts["throughput", "held"] += int(((low <= exact) & (exact <= high)).sum())
    return counts


def counted(task: tuple[str, Condition, int]) -> dict[str, Any]:
    law, c, seed = task
    counts = {" ".join(key): n for key, n in piece(law, c, seed, BATCH).items()}
    return {"law": law, "condition": c, "seed": seed, "ladders": BATCH, "claimed": counts}


def share(counts: Counter[str], name: str, ladders: int, *, true: bool) -> str:
    """Returns the share of claims that contain the truth, with the standard error by ladders; for a figure
    that the law lacks, the share of ladders with a claim."""
    claimed, held = counts[f"{name} claimed"], counts[f"{name} held"]
    if not true:
        return f"false: {claimed / ladders:.1%}" if name != "peak throughput" else ""
    if not claimed:
        return "not claimed"
    part = held / claimed
    error = (part * (1 - part) / min(claimed, ladders)) ** 0.5
    of = "" if name in ("rate", "throughput") else f" of {claimed}"
    return f"{part:.1%} +- {error:.1%}{of}"


def table(records: Sequence[dict[str, Any]], by: str) -> Iterator[str]:
    """Pools the counts by law and by the ``by``th part of the condition."""
    pooled: dict[tuple[str, Any], Counter[str]] = {}
    for r in records:
        key = (r["law"], r["condition"][Condition._fields.index(by)])
        pooled.setdefault(key, Counter()).update(r["claimed"] | {"ladders": r["ladders"]})
    yield f"| truth | {by} | ladders | {' | '.join(FIGURES)} |"
    yield "|---|---|---|" + "---|" * len(FIGURES)
    for (law, value), counts in sorted(pooled.items(), key=lambda i: (list(TRUTHS).index(i[0][0]), i[0][1])):
        truth, n = true_figures(law) | {"throughput": 0.0}, counts["ladders"]
        cells = [share(counts, name, n, true=name in truth) for name in FIGURES]
        yield f"| {law} | {value} | {n:,} | {' | '.join(cells)} |"


def power(count: int) -> float:
    """Returns the share of ladders of 14 dense rungs at 1 % noise that give a knee at 8 within 0.5."""
    c = Condition(14, "dense", 0.01, True, 1)
    chance = np.random.default_rng((1, c.rungs, c.climbs))
    averages = averaged_all(ladders("one-knee", (900.0, 8.0, 0.3), POWER, c, count, chance))
    return float(
        np.mean([m.figures["knee"].claimed and abs(m.figures["knee"].value - 8) <= 0.5 for m in averages])
    )


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the counts so far, without a line that was interrupted."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    return records


def main(count: int = LADDERS, path: Path | None = None) -> None:
    """Simulates ``count`` ladders of each law under each condition, including those in the file ``path``."""
    path = path or Path("claims.jsonl")
    records = read(path)
    done = {(r["law"], Condition(*r["condition"]), r["seed"]) for r in records}
    every = product(range(0, count, BATCH), conditions(), TRUTHS)
    tasks = [task for seed, c, law in every if (task := (law, c, seed)) not in done]
    with ProcessPoolExecutor(os.cpu_count() or 1) as workers, path.open("a") as file:
        file.write("\n" if records else "")  # after a line that was cut short
        for record in workers.map(counted, tasks):
            print(json.dumps(record), file=file, flush=True)
            records.append(record)
    for by in ("noise", "rungs", "climbs", "proportional"):
        print("\n".join(table(records, by)), end="\n\n")
    print(f"knee at 8 within 0.5 (14 dense rungs, 1 % noise): {power(count):.0%}")
