"""Share of false modes of response time, on simulated calls of laws with one hill.

For each law and number of calls: the share of samples with a mode that is certain, with one that is
not, and with calls that lie beyond a gap.
``python -m benchmarks false-modes``: ``--ladders`` samples of 10,000 calls, more of fewer calls, fewer of
more. It takes about ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.modes import bucket, low_of, modes

Floats = NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Floats]
TRIES, SIZES = 1000, {1_000: 2.0, 10_000: 1.0, 100_000: 0.2, 1_000_000: 0.05}
"""Number of samples, and by number of calls the factor of it."""
LOWS = np.array([low_of(place) for place in range(44 * 16)], dtype=np.int64)
_MS, _LONGEST = 1e6, 1e13  # ns


def _levels(deviation: float, correlation: float) -> Law:
    """Returns calls of 30 s whose median drifts from second to second, an autoregression of its logarithm."""

    def law(random: np.random.Generator, n: int) -> Floats:
        level, steps = np.zeros(30), random.standard_normal(30) * (1 - correlation**2) ** 0.5
        level[0] = random.standard_normal()
        for second in range(1, 30):
            level[second] = correlation * level[second - 1] + steps[second]
        of_calls = np.repeat(level, -(-n // 30))[:n]
        return np.exp(deviation * of_calls + 0.3 * random.standard_normal(n))

    return law


LAWS: dict[str, Law] = {
    "lognormal, sigma 1": lambda r, n: np.exp(r.standard_normal(n)),
    "lognormal, sigma 2": lambda r, n: np.exp(2 * r.standard_normal(n)),
    "log-Laplace, 0.5": lambda r, n: np.exp(0.5 * r.laplace(0, 1, n)),
    "log-Student of 3 degrees": lambda r, n: np.exp(0.3 * r.standard_t(3, n)),
    "Pareto, exponent 0.5": lambda r, n: 0.01 * (1 + r.pareto(0.5, n)),
    "Pareto, exponent 1": lambda r, n: 1 + r.pareto(1, n),
    "Pareto, exponent 1.5": lambda r, n: 1 + r.pareto(1.5, n),
    "Weibull, k 0.5": lambda r, n: r.weibull(0.5, n),
    "Weibull, k 0.3": lambda r, n: r.weibull(0.3, n),
    "gamma, k 0.3": lambda r, n: r.gamma(0.3, 1, n),
    "two gammas of k 2, one twice as long": lambda r, n: r.gamma(2, 1, n) * (1 + (r.random(n) < 0.5)),
    "90 % gamma of k 4, 10 % exponential": lambda r, n: np.where(
        r.random(n) < 0.9, r.gamma(4, 1, n), r.exponential(4, n)
    ),
    "95 % exponential, 5 % of 10 times that": lambda r, n: np.where(
        r.random(n) < 0.95, r.exponential(1, n), r.exponential(10, n)
    ),
    "gamma of k 8, tail of Pareto 1.2 from 1 % on": lambda r, n: np.where(
        r.random(n) < 0.99, r.gamma(8, 0.25, n), 3 * (1 + r.pareto(1.2, n))
    ),
    "exponential in ticks of its mean": lambda r, n: np.ceil(r.exponential(1, n)),
    "Pareto 1.2 in ticks": lambda r, n: np.rint(1 + r.pareto(1.2, n)),
}
DRIFTING: dict[str, Law] = {
    f"level drifts, deviation {deviation:g}, correlation {correlation:g}": _levels(deviation, correlation)
    for deviation, correlation in ((0.3, 0.9), (0.7, 0.9), (1.0, 0.5), (1.0, 0.9))
}


def seen(law: Law, calls: int, tries: int, seed: int = 3) -> tuple[float, float, float]:
    """Returns the shares of samples with a certain mode too many, an uncertain one, and far calls."""
    random, certain, uncertain, far = np.random.default_rng(seed), 0, 0, 0
    for _ in range(tries):
        durations = np.clip(law(random, calls) * _MS, 0, _LONGEST).astype(np.int64)
        counts = np.bincount(bucket(durations), minlength=LOWS.size)
        _, *more = modes(LOWS, counts)
        certain += any(m.certain for m in more)
        uncertain += not all(m.certain or m.far for m in more)
        far += any(m.far for m in more)
    return certain / tries, uncertain / tries, far / tries


def main(tries: int = TRIES) -> None:
    print("share of samples of one hill with a certain / an uncertain mode more / far calls, by calls")
    print(f"{'':46}" + "".join(f"{n:>20,}" for n in SIZES))
    for name, law in (LAWS | DRIFTING).items():
        shares = [seen(law, n, max(1, round(tries * factor))) for n, factor in SIZES.items()]
        cells = (" / ".join(f"{share:.1%}" for share in each) for each in shares)
        print(f"{name:46}" + "".join(f"{c:>20}" for c in cells), flush=True)
