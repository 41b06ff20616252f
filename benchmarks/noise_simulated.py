"""Simulated noise measurements with known variances, and the comparisons that they promise something about.

A measurement's throughput is the product of a slow random walk over time, a factor of the server's start, a
factor of its sessions, and the mean of seconds that resemble their neighbours (first-order autoregression).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.account.noise import noise
from dbdyno.conclude.compare.effects import BY_NAME, CellFigures
from dbdyno.conclude.compare.table import Match, metric_table
from dbdyno.model.plan.plan import Experiment, NoiseSpec, Plan
from dbdyno.model.results.comparison import Contrast
from dbdyno.model.schema.tables import rows
from dbdyno.stats.autocorrelation import correlated
from dbdyno.stats.steps import correlated_noise

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator], float]
RATE = 1000.0
DIFFERENT = ("better", "worse")


def normal(chance: np.random.Generator) -> float:
    return float(chance.normal())


def heavy(chance: np.random.Generator) -> float:
    """Draws from Student's t of 4 degrees, scaled to a standard deviation of 1."""
    return float(chance.standard_t(4)) / math.sqrt(2)


def modes(chance: np.random.Generator) -> float:
    """Draws one of two equally likely modes."""
    return 1.0 if chance.random() < 0.5 else -1.0


@dataclass(frozen=True)
class NoisyWorld:
    """A population of measurements; deviations are relative."""

    starts: float = 0.01
    sessions: float = 0.008
    seconds: float = 0.03
    neighbours: float = 0.5
    """Correlation of a second with the one before."""
    drift: float = 0.002
    """Standard deviation of the change from one measurement to the next, which accumulates."""
    slope: float = 0.0
    """Change from one measurement to the next."""
    draw: Draw = normal
    """Law of the factor of the sessions."""
    overhead_s: float = 2.0


class Place(NamedTuple):
    """How a noise measurement is made."""

    starts: int = 6
    per_start: int = 5
    window_s: int = 5
    windows: int = 2


def _seconds(world: NoisyWorld, level: float, length_s: float, chance: np.random.Generator) -> Floats:
    n = max(1, round(length_s))
    wave = correlated_noise(chance, 1, n, world.neighbours)[0]
    return np.asarray(RATE * np.exp(level + world.seconds * wave))


def measured(world: NoisyWorld, place: Place, chance: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Returns the tables of a noise measurement, from seconds to plans, by the code that derives a run."""
    windows, rates, over_time = [], [], []
    at_s, level, start = 0.0, 0.0, 0.0
    length_s = place.window_s * place.windows
    for n in range(place.starts * place.per_start):
        if n % place.per_start == 0:
            start = world.starts * normal(chance)
        level += world.drift * normal(chance) + world.slope
        values = _seconds(world, level + start + world.sessions * world.draw(chance), length_s, chance)
        key = {"cell": f"{n:04}", "workload": "w", "variant": "base", "sessions": 1, "repeat": n + 1}
        ends = {"t0_ns": round(at_s * 1e9), "t1_ns": round((at_s + length_s) * 1e9), "wall_s": length_s}
        windows.append(key | ends | {"status": "ok", "reason": None, "rate_per_s": None})
        figure = {"scope": "rung", "name": "calls_per_s", "unit": "1/s", "value": float(values.mean())}
        rates.append(key | figure | {"status": "ok", "source": "simulated"})
        over_time += [
            key
            | {"start_s": float(s), "end_s": s + 1.0, "calls": round(v), "errors": 0, "calls_per_s": float(v)}
            | {"response_mean_ns": 1e9 / float(v)}
            for s, v in enumerate(values)
        ]
        at_s += length_s + world.overhead_s
    spec = NoiseSpec(
        window=f"{place.window_s}s",
        windows=place.windows,
        restarts=place.starts - 1,
        per_start=place.per_start,
    )
    plan = Plan(experiment=Experiment(noise=spec), cpus=2, call_target_ns=None, cells=(), expected_ns=0)
    return noise(rows("windows", windows), rows("rates", rates), rows("over_time", over_time), plan)


def compared(
    world: NoisyWorld,
    repeats: int,
    length_s: float,
    effect: float,
    chance: np.random.Generator,
    *,
    restarts: bool = False,
) -> Contrast:
    """Returns the verdict on two variants that take turns, the second ``effect`` faster, by the code of
    ``dbdyno compare``."""
    groups: dict[str, dict[int, CellFigures]] = {"a": {}, "b": {}}
    level = 0.0
    for repeat in range(1, repeats + 1):
        for name in groups if repeat % 2 else reversed(groups):
            level += world.drift * normal(chance) + world.slope
            own = level + world.sessions * world.draw(chance) + (math.log1p(effect) if name == "b" else 0.0)
            own += world.starts * normal(chance) if restarts else 0.0
            values = _seconds(world, own, length_s, chance)
            figures: dict[str, float | None] = {"calls_per_s": float(values.mean())}
            if (known := correlated(values.tolist())) is not None:
                figures |= {"calls_per_s_se": known.std_err, "effective_bins": known.effective}
            groups[name][repeat] = CellFigures("", figures)
    margin = min(0.02, abs(effect)) if effect else 0.0
    match = Match("w", 1, "a", groups, paired=True)
    return metric_table(BY_NAME["calls_per_s"], [match], margin, "work").claims[0]


class Promise(NamedTuple):
    """How often promises held, over many noise measurements."""

    plans: int
    kept: int
    """Promised effects that were found."""
    false: int
    """Differences that were found without an effect."""
    comparisons: int
    """Number of comparisons of each kind."""
    repeats: float
    """Mean of those planned."""


def promise(
    world: NoisyWorld, see: float, plans: int, each: int, seed: int, *, restarts: bool = False
) -> Promise:
    """Plans ``plans`` times by a new noise measurement, and compares ``each`` times as planned, with the
    effect and without."""
    chance = np.random.default_rng(seed)
    kept = false = done = 0
    repeats = []
    for row in _plans(world, see, plans, chance, restarts=restarts):
        repeats.append(row["repeats"])
        for _ in range(each):
            done += 1
            verdict, same = (
                compared(world, row["repeats"], row["measure_s"], effect, chance, restarts=restarts).verdict
                for effect in (see, 0.0)
            )
            kept += verdict == "better"
            false += same in DIFFERENT
    return Promise(len(repeats), kept, false, done, float(np.mean(repeats)))


def _plans(
    world: NoisyWorld, see: float, plans: int, chance: np.random.Generator, *, restarts: bool
) -> Iterator[dict[str, Any]]:
    for _ in range(plans):
        table = measured(world, Place(), chance)["noise_plan"]
        found = table.filter(pl.col("difference").is_close(see) & (pl.col("restarts") == restarts)).to_dicts()
        if found and found[0]["repeats"] is not None:
            yield found[0]


QUIET = NoisyWorld(starts=0.004, sessions=0.003, seconds=0.01, drift=0.001)
WORLDS = {
    "quiet": QUIET,
    "noisy": NoisyWorld(),
    "noisy, drift as large as the noise": NoisyWorld(drift=0.008),
    "noisy, heavy tails": NoisyWorld(draw=heavy),
    "noisy, two modes of the sessions": NoisyWorld(draw=modes),
    "noisy, seconds alike (0.85)": NoisyWorld(neighbours=0.85),
    "nearly all noise within the window": replace(NoisyWorld(), sessions=0.0005, seconds=0.06),
}
