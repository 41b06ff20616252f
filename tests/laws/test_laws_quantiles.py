"""Law of the quantiles' intervals: at most a few of a hundred are wrong, also if calls are slow together.

Truth is the quantile of the law by which the calls are made. An interval that is refused is not wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dbdyno.stats.tail_intervals import design_effect, effect_of_groups, ranks

RATE, TRIES = 400, 150
WRONG = 0.09
"""Of 150 intervals that hold in 95 of 100, more than this share are wrong once in fifty."""
Calls = tuple[NDArray[np.int64], NDArray[np.float64]]
Law = Callable[[np.random.Generator, int], Calls]


def independent(rng: np.random.Generator, seconds: int) -> Calls:
    n = rng.poisson(RATE, seconds)
    return np.repeat(np.arange(seconds), n), rng.lognormal(0, 1, n.sum())


def drifting(rng: np.random.Generator, seconds: int) -> Calls:
    """Each second has a level of its own, which half of the next one's depends on."""
    level = np.empty(seconds)
    level[0] = rng.normal(0, 0.3)
    for i in range(1, seconds):
        level[i] = 0.5 * level[i - 1] + rng.normal(0, 0.3 * np.sqrt(0.75))
    n = rng.poisson(RATE * np.exp(-level))
    return np.repeat(np.arange(seconds), n), np.exp(np.repeat(level, n)) * rng.lognormal(0, 1, n.sum())


def stalls(rng: np.random.Generator, seconds: int) -> Calls:
    """Every other second, on average, 16 calls are slow at once."""
    second, time = independent(rng, seconds)
    hit = rng.integers(0, seconds, rng.poisson(0.5 * seconds))
    slow = np.repeat(rng.uniform(20, 60, len(hit)), 16)
    return np.concatenate([second, np.repeat(hit, 16)]), np.concatenate([time, slow])


def _holds(time: NDArray[np.float64], q: float, effect: float | None, truth: float) -> bool | None:
    """Returns whether the truth lies in the interval; None if there is none."""
    between = None if effect is None else ranks(len(time), q, effect)
    if between is None or between.low is None or between.high is None:
        return None
    ordered = np.sort(time)
    return bool(ordered[between.low - 1] <= truth <= ordered[between.high - 1])


@pytest.mark.parametrize("law", [independent, drifting, stalls])
@pytest.mark.parametrize("q", [0.5, 0.99, 0.999])
def test_few_intervals_are_wrong(law: Law, q: float) -> None:
    rng = np.random.default_rng(11)
    truth = float(np.quantile(law(rng, 10_000)[1], q))
    within, repeats = [], []
    for _ in range(TRIES):
        second, time = law(rng, 60)
        slow = time > np.sort(time)[int(np.ceil(q * len(time))) - 1]
        effect = design_effect(np.bincount(second[slow], minlength=60), np.bincount(second, minlength=60))
        within.append(_holds(time, q, effect, truth))
        windows = [law(rng, 20)[1] for _ in range(4)]
        whole = np.concatenate(windows)
        value = np.sort(whole)[int(np.ceil(q * len(whole))) - 1]
        effect = effect_of_groups([int((w > value).sum()) for w in windows], [len(w) for w in windows])
        repeats.append(_holds(whole, q, effect, truth))
    for tried in (within, repeats):
        assert tried.count(False) / TRIES <= WRONG
        if law is independent and q < 0.999:  # with hundreds of calls above, they are not refused
            assert tried.count(True) / TRIES >= 0.8


def test_ranks_of_independent_calls_are_those_of_the_binomial_distribution() -> None:
    """Of 10,000 calls, 10 lie above p99.9 on average, and in 95 of 100 cases 4 to 17 (Poisson's table)."""
    between = ranks(10_000, 0.999, 1.0)
    assert between is not None and between.low is not None and between.high is not None
    assert 10_000 - between.high + 1 in (4, 5) and 10_000 - between.low + 1 in (17, 18)


def test_one_burst_of_slow_calls_has_no_interval() -> None:
    above = np.zeros(60)
    above[17] = 60
    effect = design_effect(above, np.full(60, 1000.0))
    assert effect is not None and effect > 50
    assert ranks(60_000, 0.999, effect) is None
