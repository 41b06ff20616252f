"""Steps within a measurement and along a ladder, and the SMT yield: false alarms, power, coverage.

By simulation:

python -m benchmarks steps [series per case]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats import steps
from dbdyno.stats.cliff import cliff
from dbdyno.stats.estimates import positive_interval
from dbdyno.stats.tied import tied

Floats = NDArray[np.float64]
LADDER7 = (1, 2, 4, 8, 16, 32, 64)
NOISE = 0.03
SEED = 7


def in_time(series: int) -> None:
    """Tests series of ``n`` seconds with noise of 3 % and correlation rho between neighbours; steps
    anywhere."""
    print(
        f"Steps in time, noise {NOISE:.0%}, {series} series: false alarms; found, held by the interval, width"
    )
    for n in (10, 20, 60, 120):
        for rho in (0.0, 0.3, 0.5, 0.7):
            random = np.random.default_rng(SEED)
            rows = NOISE * steps.correlated_noise(random, series, n, rho)
            alarms = np.mean([_significant_step(1 + row) is not None for row in rows])
            results = [_power(1 + rows, shift, random) for shift in (-0.1, -0.2, 0.3)]
            print(f"  n={n:3} rho={rho}: {alarms:.1%}; {'; '.join(results)}", flush=True)


def _significant_step(values: Floats) -> steps.Stretch | None:
    step = steps.change(values.tolist())
    return step if step is not None and step.p < steps.LEVEL else None


def _power(rows: Floats, shift: float, random: np.random.Generator) -> str:
    count, covered, width = 0, 0, 0
    for row in rows:
        at = int(random.integers(steps.SIDE, len(row) - steps.SIDE + 1))
        values = row.copy()
        values[at:] *= 1 + shift
        if (step := _significant_step(values)) is not None:
            count += 1
            covered += step.start95[0] <= at <= step.start95[1]
            width += step.start95[1] - step.start95[0] + 1
    return (
        f"{shift:+.0%} {count / len(rows):.0%}, {covered / max(count, 1):.1%}, {width / max(count, 1):.1f} s"
    )


CURVES: dict[str, Callable[[Floats], Floats]] = {
    "a straight line": lambda n: n,
    "Amdahl's law": lambda n: n / (1 + 0.05 * (n - 1)),
    "USL": lambda n: n / (1 + 0.03 * (n - 1) + 0.001 * n * (n - 1)),
    "plateau": lambda n: np.minimum(n, 10.4),
    "cores, then threads": lambda n: np.minimum(n, 8) + 0.3 * np.clip(np.minimum(n, 16) - 8, 0, None),
    "two knees, the second falls": lambda n: (
        np.minimum(n, 8) + 0.3 * np.clip(np.minimum(n, 16) - 8, 0, None) - 0.02 * np.clip(n - 16, 0, None)
    ),
}
ALONG = {"7 loads": LADDER7, "12 loads": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64), "1 to 20": range(1, 21)}


def along_ladder(series: int) -> None:
    """Counts false alarms on smooth curves, and tests plateaus that fall by 40 % at some load."""
    print("Steps along a ladder, noise of 1, 3 and 10 %: false alarms; found, and where it is")
    for name, loads in ALONG.items():
        n, random = np.array(loads, dtype=float), np.random.default_rng(SEED)
        for title, curve in CURVES.items():
            shares = [
                np.mean([cliff(n.tolist(), _noisy(curve(n), e, random)) is not None for _ in range(series)])
                for e in (0.01, 0.03, 0.10)
            ]
            print(f"  {name}, {title}: {', '.join(f'{s:.1%}' for s in shares)}", flush=True)
        results = [_fall_results(n, e, series, random) for e in (0.01, 0.03, 0.10)]
        print(f"  {name}, falls by 40 %: {'; '.join(results)}", flush=True)


def _noisy(x: Floats, noise: float, random: np.random.Generator) -> list[float]:
    return [float(v) for v in x * np.exp(noise * random.normal(size=len(x)))]


def _fall_results(n: Floats, noise: float, series: int, random: np.random.Generator) -> str:
    count, covered = 0, 0
    for _ in range(series):
        at = int(random.integers(3, len(n)))
        x = np.minimum(n, 8.0) * np.where(np.arange(len(n)) >= at, 0.6, 1.0)
        if (step := cliff(n.tolist(), _noisy(x, noise, random))) is not None:
            count += 1
            covered += step.low <= n[at - 1] and n[at] <= step.high
    return f"{count / series:.0%}, {covered / max(count, 1):.1%}"


LADDERS = {
    "1 to 64 doubling": LADDER7,
    "neither at the cores nor the CPUs": (1, 2, 3, 5, 7, 10, 12, 14, 20, 24),
    "1 to 16": tuple(range(1, 17)),
}


def smt_yield(series: int) -> None:
    """Tests eight cores of two threads with a yield of 1.3, without and with contention (sigma 1 %), one
    climb."""
    print(
        "SMT yield, one climb, noise in proportion: coverage of the tied fit; of the ratio of the two rungs"
    )
    for name, ladder in LADDERS.items():
        for sigma in (0.0, 0.01):
            for noise in (0.01, 0.03, 0.10):
                fit, ratio = _coverage(np.array(ladder, dtype=float), sigma, noise, series)
                print(f"  {name}, sigma {sigma}, noise {noise:.0%}: {fit}; {ratio}", flush=True)


def _law(n: Floats, sigma: float) -> Floats:
    work = np.minimum(n, 8) + 0.3 * np.clip(np.minimum(n, 16) - 8, 0, None)
    return np.asarray(100 * work / (1 + sigma * (n - 1)))


def _coverage(n: Floats, sigma: float, noise: float, series: int) -> tuple[str, str]:
    random, truth = np.random.default_rng(SEED), _law(n, sigma)
    low, high = _law(np.array([8.0, 16.0]), sigma)
    by_fit, by_rungs = [], []
    for _ in range(series):
        x = truth * np.exp(noise * random.normal(size=len(n)))
        fit = tied(n.tolist(), x.tolist(), 8, 2, 16)
        if fit is None or fit.yield95 is None or fit.noise is None:
            continue
        by_fit.append(fit.yield95[0] <= high / low <= fit.yield95[1])
        if {8.0, 16.0} <= set(n):
            value = float(x[n == 16][0] / x[n == 8][0])
            ends = positive_interval(value, fit.noise * 2**0.5 * value, fit.degrees)
            by_rungs.append(ends is not None and ends[0] <= high / low <= ends[1])
    return f"{np.mean(by_fit):.1%}", f"{np.mean(by_rungs):.1%}" if by_rungs else "not measured"


def main(series: int = 1_000) -> None:
    in_time(series)
    along_ladder(max(series // 5, 20))
    smt_yield(series)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
