"""Simulated runs with known truth: how often a comparison finds a difference where there is none.

A cell's rate is the product of the block's drift (the same for all its variants), a factor of the repeat, and
the mean of a window whose seconds resemble their neighbours (first-order autoregression).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dbdyno.conclude.compare import compare_samples
from dbdyno.conclude.compare.effects import BY_NAME, CellFigures
from dbdyno.conclude.compare.table import ALPHA_STOPPED, Match, metric_table
from dbdyno.model.results.comparison import LEAST_REPEATS, Contrast
from dbdyno.stats.autocorrelation import correlated

Floats = NDArray[np.float64]
RATE = 1000.0
DIFFERENT = ("better", "worse")


@dataclass(frozen=True)
class World:
    """A population of simulated runs."""

    variants: int = 3
    """The first variant is the baseline."""
    rungs: int = 2
    repeats: int = 5
    drift: float = 0.05
    """Relative standard deviation of the change from block to block, which accumulates over blocks."""
    between: float = 0.01
    """Relative standard deviation between repeats of a variant."""
    within: float = 0.05
    """Relative standard deviation between seconds."""
    neighbours: float = 0.6
    """Correlation of a second with the one before."""
    modes: float = 1.0
    """Ratio of the rates of two modes; each cell is in one of them at random, as with placement on CPUs."""
    seconds: int = 10
    effect: float = 1.0
    """Ratio of every variant's rate to the baseline's."""
    paired: bool = True


def claims(world: World, chance: np.random.Generator) -> tuple[Contrast, ...]:
    """Returns the comparisons of one simulated run."""
    matches = [
        Match("simulated", n + 1, "v0", _groups(world, chance), world.paired) for n in range(world.rungs)
    ]
    return metric_table(BY_NAME["calls_per_s"], matches, 0.02, "work").claims


def _groups(world: World, chance: np.random.Generator) -> dict[str, dict[int, CellFigures]]:
    drift = np.exp(np.cumsum(chance.normal(0, world.drift, world.repeats)))
    return {
        f"v{v}": {
            r + 1: _cell(world, drift[r] * (world.effect if v else 1.0), chance) for r in range(world.repeats)
        }
        for v in range(world.variants)
    }


def _cell(world: World, level: float, chance: np.random.Generator) -> CellFigures:
    noise = chance.normal(0, world.within, world.seconds)
    for n in range(1, world.seconds):
        noise[n] = world.neighbours * noise[n - 1] + np.sqrt(1 - world.neighbours**2) * noise[n]
    level *= world.modes if chance.random() < 0.5 else 1.0
    bins = RATE * level * (1 + chance.normal(0, world.between)) * (1 + noise)
    correlation = correlated(bins.tolist())
    rates: dict[str, float | None] = {"calls_per_s": float(bins.mean())}
    if correlation is not None:
        rates |= {"calls_per_s_se": correlation.std_err, "effective_bins": correlation.effective}
    return CellFigures("", rates)


Draw = Callable[[np.random.Generator, int], Floats]
"""Draws a number of values from a population of mean 1."""


def _modes(chance: np.random.Generator, n: int) -> Floats:
    return np.where(chance.random(n) < 0.5, 0.8, 1.2) * chance.normal(1, 0.005, n)


def _hiccups(chance: np.random.Generator, n: int) -> Floats:
    return chance.normal(1, 0.02, n) * np.where(chance.random(n) < 0.05, 10, 1)


POPULATIONS: dict[str, tuple[Draw, Draw]] = {
    "normal": (lambda c, n: c.normal(1, 0.05, n),) * 2,
    "log-normal, as wide as its mean": (lambda c, n: np.exp(c.normal(0, 0.83, n)),) * 2,
    "exponential": (lambda c, n: c.exponential(1, n),) * 2,
    "normal, one side ten times as wide": (
        lambda c, n: c.normal(1, 0.01, n),
        lambda c, n: c.normal(1, 0.1, n).clip(0),
    ),
    "two modes, 1.5 apart": (_modes,) * 2,
    "every twentieth value ten times as large": (_hiccups,) * 2,
    "rounded to steps as wide as their spread": (lambda c, n: np.round(c.normal(20, 1, n)),) * 2,
    "rounded to two values": (lambda c, n: np.round(c.normal(2.5, 0.2, n)),) * 2,
    "counts, Poisson of mean 1": (lambda c, n: c.poisson(1, n).astype(float),) * 2,
    "counts, Poisson of mean 0.1": (lambda c, n: c.poisson(0.1, n).astype(float),) * 2,
}


def samples(
    population: tuple[Draw, Draw], sizes: tuple[int, int], times: int, seed: int = 1
) -> tuple[float, float]:
    """Returns the shares of comparisons of equal samples in which the means differ, and the ranks."""
    chance = np.random.default_rng(seed)
    false = np.zeros(2)
    for _ in range(times):
        sides = (draw(chance, n).tolist() for draw, n in zip(population, sizes, strict=True))
        comparison = compare_samples(*sides)
        false += [comparison.verdict in DIFFERENT, comparison.rank_verdict in DIFFERENT]
    means, ranks = false / times
    return float(means), float(ranks)


@dataclass(frozen=True)
class Outcome:
    """Results of comparisons of simulated runs."""

    runs: int
    false_runs: float
    """Share of runs with at least one claim of a difference."""
    covered: float
    """Share of intervals against the baseline that contain the true ratio."""
    decided: float
    """Share of claims with a verdict other than undecided."""


def outcome(world: World, runs: int, seed: int = 1) -> Outcome:
    """Compares simulated runs. ``false_runs`` is an error only if ``world.effect`` is 1."""
    chance = np.random.default_rng(seed)
    return _counted([claims(world, chance) for _ in range(runs)], world.effect)


def _counted(runs: Sequence[Sequence[Contrast]], effect: float) -> Outcome:
    every = [c for run in runs for c in run]
    against = [c.effect for c in every if not c.neighbours]
    held = [e.low is None or e.high is None or e.low <= effect <= e.high for e in against]  # unbounded: all
    return Outcome(
        runs=len(runs),
        false_runs=float(np.mean([any(c.verdict in DIFFERENT for c in run) for run in runs])),
        covered=float(np.mean(held)),
        decided=float(np.mean([c.verdict != "undecided" for c in every])),
    )


def stopped(world: World, runs: int, target: float, most: int = 40, seed: int = 1) -> tuple[Outcome, float]:
    """Simulates runs of two variants that stop as by ``--until``. Returns their outcome and mean number of
    repeats."""
    chance = np.random.default_rng(seed)
    ended = [next(_until(world, target, most, chance)) for _ in range(runs)]
    return _counted([c for c, _ in ended], world.effect), float(np.mean([n for _, n in ended]))


def _until(
    world: World, target: float, most: int, chance: np.random.Generator
) -> Iterator[tuple[tuple[Contrast, ...], int]]:
    whole = _groups(replace(world, variants=2, repeats=most), chance)
    metric = BY_NAME["calls_per_s"]
    for n in range(LEAST_REPEATS, most + 1):
        first = {v: {r: c for r, c in cells.items() if r <= n} for v, cells in whole.items()}
        match = Match("simulated", 1, "v0", first, paired=True)
        contrasts = metric_table(metric, [match], 0.02, "work", ALPHA_STOPPED).claims
        e = contrasts[0].effect
        tight = e.low is not None and e.high is not None and (e.high - e.low) / 2 <= target * (e.ratio or 1)
        if tight or n == most:
            yield contrasts, n
