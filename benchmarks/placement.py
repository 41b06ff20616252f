"""Groups among sessions that start together: how often they are claimed without any, and found if there
are some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dbdyno.stats.two_groups import groups

RUNS = 200
SHAPES = [(rounds, n) for n in (3, 4, 9, 16) for rounds in (1, 8, 12, 30)]

Draw = Callable[[Any, tuple[int, int]], Any]
POPULATIONS: dict[str, Draw] = {
    "normal, 5 %": lambda c, s: np.exp(c.normal(0, 0.05, s)),
    "normal, 30 %": lambda c, s: np.exp(c.normal(0, 0.3, s)),
    "uniform, 1 to 1.5": lambda c, s: c.uniform(1, 1.5, s),
    "uniform, 1 to 4": lambda c, s: c.uniform(1, 4, s),
    "1 and exponential, 0.3": lambda c, s: 1 + c.exponential(0.3, s),
    "exponential": lambda c, s: c.exponential(1, s),
    "Student's t, 3, 10 %": lambda c, s: np.exp(0.1 * c.standard_t(3, s)),
    "sessions differ by 10 %": lambda c, s: np.exp(c.normal(0, 0.1, s[1])) * np.exp(c.normal(0, 0.01, s)),
    "rounds are of two kinds": lambda c, s: (
        np.where(c.random((s[0], 1)) < 0.4, 1.5, 1) * np.exp(c.normal(0, 0.02, s))
    ),
}


def main(runs: int = RUNS) -> None:
    chance = np.random.default_rng(1)
    print(f"claimed to have groups, of {runs} runs of one population each: all shapes, the worst shape")
    for name, draw in POPULATIONS.items():
        shares = [np.mean([groups(draw(chance, s)).significant for _ in range(runs)]) for s in SHAPES]
        worst = int(np.argmax(shares))
        rounds, n = SHAPES[worst]
        print(
            f"{name:26} {np.mean(shares):6.1%} {shares[worst]:6.1%} ({n} sessions, {rounds} rounds)",
            flush=True,
        )
    for settled in (True, False):
        whose = "the same sessions in all rounds" if settled else "other sessions in each round"
        print(f"found where some take 1.5 times as long, {whose}: rounds 1, 8, 30")
        for n, slow in ((4, 1), (4, 2), (9, 2), (12, 8), (16, 2)):
            for noise in (0.02, 0.05, 0.1):
                rates = [
                    _power(chance, r, n, slow, noise, settled=settled, runs=runs // 2) for r in (1, 8, 30)
                ]
                print(
                    f"{slow:2} of {n:2}, noise {noise:3.0%}: {' '.join(f'{p:5.0%}' for p in rates)}",
                    flush=True,
                )


def _power(chance: Any, rounds: int, n: int, slow: int, noise: float, *, settled: bool, runs: int) -> float:
    count = 0
    for _ in range(runs):
        order = np.argsort(chance.random((rounds, n)), axis=1)
        chosen = (order[:1] if settled else order) < slow
        times = np.exp(chance.normal(0, noise, (rounds, n))) * np.where(chosen, 1.5, 1)
        count += groups(times).significant
    return count / runs


if __name__ == "__main__":
    main()
