"""Laws of modes and of what goes with them: the promised share of false ones, and known ones found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.false_modes import LAWS, seen
from numpy.typing import NDArray
from tests.examples import tries

from dbdyno.stats.association import LEVEL, Activity, associated, regular
from dbdyno.stats.modes import FEWEST, Mode, bucket, low_of, modes

MS = 1e6
Floats = NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Floats]
TICKS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)


def _of(durations_ns: Floats) -> list[Mode]:
    whole = np.maximum(durations_ns, 0).astype(np.int64)
    return modes(whole, np.ones(whole.size, dtype=np.int64))


ONE_HILL: dict[str, Law] = {
    "lognormal 0.1": lambda r, n: MS * np.exp(0.1 * r.standard_normal(n)),
    "lognormal 2": lambda r, n: MS * np.exp(2 * r.standard_normal(n)),
    "gamma 0.3": lambda r, n: MS * r.gamma(0.3, 1, n),
    "gamma 20": lambda r, n: MS * r.gamma(20, 1, n),
    "exponential": lambda r, n: MS * r.exponential(1, n),
    "uniform": lambda r, n: MS * r.uniform(0, 1, n),
    "the same": lambda _, n: MS * np.ones(n),
    "long tail": lambda r, n: MS * (1 + r.pareto(1, n)),
    **{f"ticks up {m}": lambda r, n, m=m: MS * np.ceil(r.exponential(m, n)) for m in TICKS},
    **{f"ticks down {m}": lambda r, n, m=m: MS * np.floor(r.exponential(m, n)) for m in TICKS},
    **{f"ticks of gamma {m}": lambda r, n, m=m: 4 * MS * np.rint(r.gamma(3, m / 3, n)) for m in TICKS},
    **{
        f"ticks and work {m}": lambda r, n, m=m: (
            MS * np.ceil(r.exponential(m, n)) + 0.02 * MS * r.exponential(1, n)
        )
        for m in TICKS
    },
}


@pytest.mark.parametrize("law", ONE_HILL)
def test_one_hill_has_one_mode(law: str):
    """At most 5 % of samples may show a valley. Level and depth leave room: none does here."""
    random = np.random.default_rng(len(law))
    for n in (100, 2_000, 20_000):
        numbers = [len(_of(ONE_HILL[law](random, n))) for _ in range(tries(12))]
        assert max(numbers) == 1, n


@pytest.mark.parametrize("law", LAWS)
def test_heavy_tails_and_mixtures_have_one_mode(law: str):
    """Neither a certain nor an uncertain one more; far calls in at most 5 % of the samples."""
    certain, uncertain, far = seen(LAWS[law], 20_000, tries(10))
    assert (certain, uncertain) == (0, 0)
    assert far <= 0.05 + 2 * (0.05 / tries(10)) ** 0.5


@pytest.mark.parametrize(
    ("spread", "ratio", "share", "n"),
    [(0.1, 4, 0.3, 500), (0.1, 4, 0.01, 10_000), (0.25, 8, 0.05, 2_000), (0.5, 50, 0.05, 5_000)],
)
def test_two_hills_are_found_with_their_place_and_share(spread: float, ratio: float, share: float, n: int):
    """In at least 80 % of samples."""
    random, hits = np.random.default_rng(7), []
    for _ in range(tries(20)):
        slow = random.uniform(size=n) < share
        both = _of(MS * np.exp(spread * random.standard_normal(n)) * np.where(slow, ratio, 1))
        hits.append(len(both) == 2)
        if hits[-1]:
            assert both[1].middle_ns == pytest.approx(ratio * MS, rel=0.2)
            assert both[1].calls == pytest.approx(slow.sum(), rel=0.1)
            assert both[0].calls + both[1].calls == n
    assert np.mean(hits) >= 0.8


def test_few_long_calls_are_a_mode_by_their_time():
    """60 calls of 300 ms are 0.04 % of 150,000 of 1 ms, and a tenth of all time."""
    random = np.random.default_rng(1)
    fast = MS * np.exp(0.5 * random.standard_normal(150_000))
    assert len(_of(np.concatenate([fast, np.full(60, 300 * MS)]))) == 2
    assert len(_of(np.concatenate([fast, np.full(60, 16 * MS)]))) == 1, "neither calls nor time"


def test_few_calls_apart_from_all_others_are_an_uncertain_mode():
    """24 calls of 300 ms among 40,000, none of more than about 60 ms. With 8, a gap may be chance."""
    random = np.random.default_rng(3)
    fast = np.minimum(MS * np.exp(random.standard_normal(40_000)), 60 * MS)
    for few, certain in ((24, [True, False]), (8, [True])):
        both = _of(np.concatenate([fast, random.uniform(250, 350, few) * MS]))
        assert [m.certain for m in both] == certain
    both = _of(np.concatenate([fast, random.uniform(250, 350, 24) * MS]))
    assert both[1].calls == 24 and both[0].longest_ns <= 64 * MS
    assert 230 * MS <= both[1].shortest_ns <= both[1].longest_ns <= 375 * MS


def test_three_hills_are_three_modes_and_fewer_calls_than_needed_are_one():
    three = np.repeat([1 * MS, 10 * MS, 100 * MS], 100)
    assert [m.calls for m in _of(three)] == [100, 100, 100]
    assert [m.calls for m in _of(np.repeat([1 * MS, 100 * MS], FEWEST // 2))] == [FEWEST // 2] * 2
    assert len(_of(np.repeat([1 * MS, 100 * MS], FEWEST // 2 - 1))) == 1
    assert _of(np.array([])) == []


def test_buckets_are_those_of_the_driver():
    """Five binary digits: lowest durations by hand, and an octave is 16 buckets."""
    lows = np.array([0, 31, 32, 33, 34, 1000, 1023, 1024, 10**9], dtype=np.int64)
    assert [low_of(int(b)) for b in bucket(lows)] == [0, 31, 32, 32, 34, 992, 992, 1024, 29 * 2**25]
    assert (bucket(2 * lows[2:]) - bucket(lows[2:]) == 16).all()


# -- what goes with them --


def _smooth(random: np.random.Generator, n: int) -> Floats:
    values = np.zeros(n)
    for i in range(1, n):
        values[i] = 0.9 * values[i - 1] + random.standard_normal()
    return np.maximum(0, values)


def _bursts(random: np.random.Generator, n: int) -> Floats:
    values = np.zeros(n)
    for _ in range(max(2, n // 15)):
        start = random.integers(n)
        values[start : start + random.integers(1, 5)] = random.exponential()
    return values


SERIES: dict[str, Law] = {
    "independent": lambda r, n: np.maximum(0, r.standard_normal(n) - 1),
    "with neighbours alike": _smooth,
    "bursts": _bursts,
    "growing": lambda r, n: np.linspace(0, 1, n) * r.exponential(1, n),
}


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("seconds", [20, 60])
def test_unrelated_activities_seldom_go_with_events(kind: str, seconds: int):
    """Six activities, one answer at most wrong in 5 % of runs (here 12 %: the noise of 60 runs)."""
    random, wrong = np.random.default_rng(seconds), []
    for _ in range(60):  # always: with fewer, the bound would be another
        events = np.floor(10 * SERIES[kind](random, seconds))
        activities = [Activity(SERIES[kind](random, seconds), own=bool(i % 2)) for i in range(6)]
        ps = associated(events, activities)
        wrong.append(any(p is not None and p < LEVEL for p in ps))
    assert np.mean(wrong) <= 0.12


def test_an_activity_in_the_same_seconds_goes_with_events():
    random, hits = np.random.default_rng(2), []
    for _ in range(tries(20)):
        at = random.choice(30, 5, replace=False)
        events, cause = np.zeros(30), 0.02 * random.exponential(1, 30)
        events[at], cause[at] = 16, cause[at] + random.uniform(0.5, 1, 5)
        others = [Activity(random.exponential(1, 30)) for _ in range(5)]
        p, *_ = associated(events, [Activity(cause), *others])
        assert p is not None
        hits.append(p < LEVEL)
    assert np.mean(hits) >= 0.8


def test_a_timer_of_the_same_period_is_no_cause_by_itself():
    """Every fifth second both: a process with a timer of 5 s would fit in one of five phases. Time in the
    calls themselves has no timer."""
    events, values = np.zeros(40), np.zeros(40)
    events[::5], values[::5] = 16, 1.0
    p_process, p_own = associated(events, [Activity(values), Activity(values, own=True)])
    assert p_process == 1 and p_own is not None and p_own < LEVEL


def test_little_is_known_of_few_seconds_and_nothing_of_what_never_changes():
    events = np.zeros(19)
    events[3] = 1
    assert associated(events, [Activity(events)]) == [None]
    long = np.zeros(40)
    long[::7] = 1
    assert associated(long, [Activity(np.ones(40))]) == [None]
    assert associated(np.ones(40), [Activity(long)]) == [None]


def test_a_period_is_stated_if_all_distances_agree():
    marked = np.zeros(60, dtype=bool)
    marked[2::10] = True
    assert regular(marked) == 10
    marked[[12, 15]] = False, True
    assert regular(marked) is None
    assert regular(np.array([True, False, False] * 3)) is None, "three of them may be chance"
