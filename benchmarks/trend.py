"""False alarms, power and coverage of the change points of ``dbdyno trend``, by simulation.

    python benchmarks/trend.py [series per case]

Series of runs with normal noise of 2 %. Without a change: also with correlated neighbours, with outliers of
30 %, with long-tailed noise, with a machine of two modes. With a change of level: after half of the runs, or
before the last four.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.change_points import changes
from dbdyno.stats.steps import correlated_noise

NOISE = 0.02
Floats = NDArray[np.float64]


def normal(random: np.random.Generator, n: int) -> Floats:
    return NOISE * random.normal(size=n)


def with_outliers(random: np.random.Generator, n: int) -> Floats:
    """Returns noise in which one in ten runs, at least one, is off by 30 %."""
    noise = normal(random, n)
    noise[random.choice(n, max(1, n // 10), replace=False)] -= 0.3
    return noise


def long_tails(random: np.random.Generator, n: int) -> Floats:
    return NOISE * random.standard_t(3, size=n)


def two_modes(random: np.random.Generator, n: int) -> Floats:
    return normal(random, n) / 4 + 0.1 * random.integers(0, 2, size=n)


def resembling(rho: float) -> Callable[[np.random.Generator, int], Floats]:
    """Returns noise whose neighbours are correlated by ``rho`` (autoregressive, order 1)."""

    def noise(random: np.random.Generator, n: int) -> Floats:
        return np.asarray(NOISE * correlated_noise(random, 1, n, rho)[0])

    noise.__name__ = f"rho {rho:g}"
    return noise


def false_alarms(noise: Callable[[np.random.Generator, int], Floats], n: int, series: int) -> float:
    random = np.random.default_rng(n)
    return sum(bool(changes(np.exp(noise(random, n)))) for _ in range(series)) / series


def power(n: int, at: int, shift: float, series: int, rho: float = 0.0) -> tuple[float, float, float]:
    """Returns shares of changes found, of these the share whose interval contains the change, and the
    interval's mean width in runs."""
    random = np.random.default_rng(n)
    count, covered, width = 0, 0, 0
    for _ in range(series):
        logs = resembling(rho)(random, n)
        logs[at:] += np.log1p(shift)
        if some := changes(np.exp(logs)):
            count += 1
            covered += any(c.low <= at <= c.high for c in some)
            width += some[0].high - some[0].low + 1
    return count / series, covered / max(count, 1), width / max(count, 1)


def main() -> None:
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(f"False alarms in {series} series without a change")
    for noise in (normal, *map(resembling, (0.3, 0.5, 0.7)), with_outliers, long_tails, two_modes):
        shares = (f"n={n}: {100 * false_alarms(noise, n, series):.1f} %" for n in (6, 8, 12, 20, 50, 100))
        print(f"  {noise.__name__:14} {', '.join(shares)}", flush=True)
    print("Changes found, intervals that hold the change, mean width of the interval in runs")
    for n in (6, 10, 20, 50, 100):
        for at in {n // 2, max(3, n - 4)}:
            for shift, rho in product((-0.05, -0.10), (0.0, 0.3)):
                detected, covered, width = power(n, at, shift, series, rho)
                result = f"{detected:.0%} found, {covered:.0%} held, {width:.1f} runs"
                print(f"  n={n:3} {shift:+.0%} from {at:2} on, rho {rho:g}: {result}", flush=True)


if __name__ == "__main__":
    main()
