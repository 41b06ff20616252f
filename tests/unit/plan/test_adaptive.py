"""The auto ladder: which rung comes next, on known laws, with noise, with faults; and a target."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dbdyno.conclude.catalogue import claim
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Adaptive, Goal
from dbdyno.plan import Done, Findings, Seen, next_rung
from dbdyno.plan.adaptive_search import CLIENT_LIMITED, parse_goal
from dbdyno.stats.estimates import wilson_of

S, MS = 1_000_000_000, 1_000_000
Law = Callable[[int], float]


def plateau(cores: int) -> Law:
    return lambda n: 100.0 * min(n, cores)


def usl(sigma: float, kappa: float) -> Law:
    return lambda n: 100.0 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def segments(cores: int, threads: int, smt: float) -> Law:
    return lambda n: 100.0 * (min(n, cores) + smt * max(0, min(n, threads) - cores))


def falling(cores: int, until: int) -> Law:
    return lambda n: 100.0 * min(n, cores) * min(1.0, until / n)


def climb(
    law: Law,
    cpus: int,
    *,
    noise: float = 0.0,
    seed: int = 1,
    most: int = 16,
    top: int | None = None,
    goal: str | None = None,
    response_ms: Law = lambda _n: 0.0,
    fault: Callable[[int], str | None] = lambda _n: None,
    marks: tuple[int, ...] = (),
    calls: Callable[[int], int] | None = None,
) -> tuple[list[int], Done]:
    """Rungs in the order in which they were asked for, and the verdict."""
    chance = random.Random(seed)
    seen: list[Seen] = []
    parsed = None if goal is None else parse_goal(goal)
    top = top or 8 * cpus
    rule = Adaptive(
        top=top,
        most_rungs=most,
        near=min(top, max(2, cpus)),
        repeats=3 if goal else 1,
        goal=parsed,
        marks=marks,
    )
    while len(seen) < 100:
        step = next_rung(Findings(rule, tuple(seen)))
        if isinstance(step, Done):
            return [s.load for s in seen], step
        n, error = step.load, 1 + chance.gauss(0, noise)
        figure = law(n) * error if parsed and parsed.metric == "throughput" else response_ms(n) * MS * error
        few = calls is not None and calls(n) < 1000
        shown = None if few else figure
        seen.append(
            Seen(n, law(n) * error, shown, fault=fault(n), calls=calls(n) if calls else 0, window_s=10)
        )
    pytest.fail("it never ends")


# -- the knee -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "cpus", "knee", "rungs"),
    [
        (plateau(2), 2, 2, 8),
        (plateau(1), 2, 1, 8),
        (plateau(3), 4, 3, 8),
        (plateau(6), 64, 6, 8),  # another limit than the CPUs
        (plateau(16), 16, 16, 8),
        (plateau(40), 16, 40, 8),  # sessions that wait: the knee is above the CPUs
        (plateau(100), 64, 100, 8),
        (segments(2, 4, 0.3), 4, 2, 8),  # cores, then threads
        (segments(8, 16, 0.3), 16, 8, 9),
        (segments(8, 16, 0.6), 16, 16, 8),  # a thread brings more than half
        (falling(8, 10), 8, 8, 8),
        (lambda _n: 100.0, 8, 1, 8),  # nothing runs beside anything
    ],
)
def test_the_knee_is_found_with_few_rungs(law: Law, cpus: int, knee: int, rungs: int) -> None:
    asked, done = climb(law, cpus)
    assert (done.at, done.found) == (knee, True)
    assert len(asked) == len(set(asked)) <= rungs
    assert asked[0] == 1
    assert max(asked) <= 8 * cpus
    assert (done.low or 1) <= knee
    assert done.high is not None
    near = [n for n in asked if n != knee and abs(n - knee) <= max(1, 0.13 * knee)]
    assert len(near) >= (2 if knee > 1 else 1)  # on both sides
    assert (done.id, done.case, done.slots["at"]) == ("auto-ladder", "knee", knee)


@pytest.mark.parametrize(
    ("law", "goal"),
    [
        (segments(8, 16, 0.3), None),
        (plateau(16), None),
        (plateau(3), None),
        (lambda _n: 100.0, None),
        (lambda n: 100.0 * n, None),
        (usl(0.05, 0.002), None),
        (plateau(3), "p95<20ms"),
        (lambda n: 100.0 * n, "p95<1ms"),
        (plateau(16), "throughput>150"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_cores_and_cpus_are_always_measured(law: Law, goal: str | None, noise: float) -> None:
    asked, _ = climb(law, 16, marks=(8, 16), goal=goal, noise=noise, response_ms=lambda n: 5.0 * n)
    assert {8, 16} <= set(asked) and len(set(asked)) <= 16


def test_marks_beyond_a_rung_that_cannot_be_used_are_not_asked_for() -> None:
    asked, done = climb(plateau(3), 16, marks=(8, 16), fault=lambda n: "no room" if n > 10 else None)
    assert 8 in asked and max(asked) <= 16 and done.at == 3


@pytest.mark.parametrize(("sigma", "kappa", "cpus"), [(0.05, 0.002, 16), (0.02, 0.0001, 64), (0.3, 0.01, 4)])
def test_a_rounded_law_bends_where_a_session_brings_half(sigma: float, kappa: float, cpus: int) -> None:
    """The knee is where the USL gains less than half of one session's throughput, by counting."""
    law = usl(sigma, kappa)
    surplus = [law(n) - 50.0 * n for n in range(1, 200)]
    knee = 1 + surplus.index(max(surplus))
    asked, done = climb(law, cpus)
    assert len(asked) <= 12
    assert done.at is not None
    assert done.high is not None
    assert (done.low or 1) <= knee <= done.high
    assert surplus[done.at - 1] > 0.97 * max(surplus)


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("cores", [3, 16, 50])
def test_noise_neither_hides_the_knee_nor_costs_many_rungs(noise: float, cores: int) -> None:
    missed = 0
    for seed in range(40):
        asked, done = climb(plateau(cores), 16, noise=noise, seed=seed)
        assert len(asked) <= 12
        missed += done.high is None or not (done.low or 1) <= cores <= done.high
    assert missed <= (2 if noise == 0.02 else 8)  # one climb takes a noise of 2 % for granted


@pytest.mark.parametrize("cpus", [1, 2, 4, 64])
def test_a_straight_line_ends_at_the_cap_and_has_no_knee(cpus: int) -> None:
    asked, done = climb(lambda n: 100.0 * n, cpus, noise=0.02)
    assert max(asked) == 8 * cpus
    assert (done.at, done.found) == (None, False)
    assert (done.case, done.slots["last"], done.slots["higher"]) == ("none", 8 * cpus, 64 * cpus)
    assert "grows-to-the-limit" in done.parts


def test_a_peak_with_a_fall_behind_it_is_given() -> None:
    _, done = climb(falling(8, 10), 8)
    assert "falls" in done.parts
    assert (done.slots["last"], done.slots["share"]) == (16, 0.625)


def test_rungs_that_cannot_be_used_are_not_climbed_over() -> None:
    asked, done = climb(plateau(100), 16, fault=lambda n: "the driver was starved" if n >= 40 else None)
    assert [n for n in asked if n > 32] == [64, 48, 40]
    assert "blocked" in done.parts
    assert (done.slots["blocked"], done.slots["why"]) == (40, "the driver was starved")
    asked, done = climb(plateau(4), 4, fault=lambda n: "cold" if n == 1 else None)
    assert done.at == 4
    asked, done = climb(plateau(4), 4, fault=lambda _n: "every call ended in an error")
    assert asked == [1, 4, 8]
    assert (done.case, done.slots) == ("unusable", {"fault": "every call ended in an error"})


def test_a_target_met_up_to_where_the_driver_is_the_limit_is_a_lower_bound() -> None:
    for fault, case in ((CLIENT_LIMITED, "at-least"), ("cold", "highest")):
        _, done = climb(plateau(4), 4, goal="p95<5ms", fault=lambda n, why=fault: why if n > 3 else None)
        assert (done.case, done.at, "blocked" in done.parts) == (case, 3, case == "highest")
        assert "3 sessions" in claim(done.id, done.slots, case=done.case, parts=done.parts).text


def test_the_limit_of_rungs_is_kept_and_given() -> None:
    asked, done = climb(usl(0.02, 0.0001), 64, most=5)
    assert len(asked) == 5
    assert "limit" in done.parts and done.slots["limit"] == 5
    assert done.at is not None


def test_noise_is_estimated_from_repeats() -> None:
    rule = Adaptive(top=32, most_rungs=16, near=4, repeats=2)
    quiet = [Seen(n, 100.0 * min(n, 4)) for n in (1, 4, 8, 5, 3, 2, 6, 16)]
    loud = [Seen(n, 100.0 * min(n, 4) * (1 + e)) for n in (1, 4, 8, 5, 3, 2, 6, 16) for e in (-0.3, 0.3)]
    a, b = (next_rung(Findings(rule, tuple(seen))) for seen in (quiet, loud))
    assert isinstance(a, Done)
    assert isinstance(b, Done)
    assert (a.low, a.high) == (3, 5)
    assert b.high is None or b.high > 5
    assert "by repeats" in b.slots["source"]


def test_a_ladder_that_jumps_about_is_not_believed() -> None:
    """Measured on two CPUs with seven others at work: no law rises like that."""
    seen = {1: 34.0, 2: 38.6, 4: 67.6, 8: 55.4, 6: 112.0, 3: 54.7}
    rule = Adaptive(top=16, most_rungs=6, near=2, repeats=1)
    done = next_rung(Findings(rule, tuple(Seen(n, x) for n, x in seen.items())))
    assert isinstance(done, Done)
    assert "off a smooth curve" in done.slots["source"]
    assert "noisy" in done.parts
    assert (done.low or 1) <= 2
    assert done.high is None or done.high >= 6


@examples(25)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 40), st.integers(3, 20))
def test_it_ends_whatever_is_measured(values: list[float], cpus: int, most: int) -> None:
    asked, _ = climb(lambda n: values[n % len(values)], cpus, most=most)
    assert len(asked) == len(set(asked)) <= most
    assert all(1 <= n <= 8 * cpus for n in asked)


# -- a target -------------------------------------------------------------------------------------


def fair(cpus: int, call_ms: float) -> Law:
    return lambda n: call_ms * max(1.0, n / cpus)


@pytest.mark.parametrize(
    ("goal", "highest"), [("p95<20ms", 39), ("p95<=20ms", 40), ("p99 <= 7.3ms", 14), ("max<2500us", 4)]
)
def test_the_highest_rung_that_meets_a_target(goal: str, highest: int) -> None:
    asked, done = climb(plateau(4), 4, top=128, goal=goal, response_ms=fair(4, 2.0))
    assert (done.at, done.low, done.high) == (highest, highest, highest + 1)
    assert asked.count(highest) == asked.count(highest + 1) == 3
    assert len(set(asked)) <= 12
    assert (done.id, done.case, done.parts) == ("target", "highest", ("other",))
    assert [done.slots[k] for k in ("at", "met", "repeats", "other")] == [highest, 3, 3, highest + 1]


@pytest.mark.parametrize("top", range(40, 80))
def test_a_boundary_just_below_the_highest_load_ends_the_search(top: int) -> None:
    asked, done = climb(plateau(4), 4, top=top, goal="p95<20ms", response_ms=fair(4, 2.0))
    assert (done.at, done.high) == (39, 40)
    assert all(asked.count(n) == 1 for n in asked if n not in (39, 40))


def test_a_boundary_that_noise_moves_is_repeated_and_marked() -> None:
    """True boundary 39|40; a rung is off by 3 %, that is 1.2 sessions."""
    ends = [
        climb(plateau(4), 4, top=128, goal="p95<20ms", response_ms=fair(4, 2.0), noise=0.03, seed=s)[1].at
        or 0
        for s in range(25)
    ]
    assert sum(abs(at - 39) <= 3 for at in ends) >= 22


def test_targets_that_all_or_no_rungs_meet() -> None:
    asked, done = climb(plateau(4), 4, goal="mean<1s", response_ms=fair(4, 2.0))
    assert (done.at, done.high, done.found) == (32, None, True)
    assert done.parts == ("none-higher", "top") and done.slots["allowed"] == 32
    asked, done = climb(plateau(4), 4, goal="mean<1ms", response_ms=fair(4, 2.0))
    assert (done.at, done.found) == (None, False)
    assert asked.count(1) == 3
    assert (done.case, done.slots["at"], done.slots["figure"]) == (
        "not-met",
        1,
        "2.00 ms (2.00 ms to 2.00 ms)",
    )


def test_a_target_with_too_few_rungs_names_the_gap() -> None:
    few, more = (
        climb(plateau(4), 4, top=128, goal="p95<20ms", response_ms=fair(4, 2.0), most=most)[1]
        for most in (4, 7)
    )
    assert (few.at, few.parts, few.slots["limit"]) == (16, ("none-higher", "limit"), 4)
    assert (more.at, more.parts, more.slots["limit"]) == (32, ("other", "gap", "limit"), 7)


def test_loads_of_too_few_calls_below_one_that_meets_the_target_are_no_matter() -> None:
    asked, done = climb(
        plateau(4), 4, top=128, goal="p99<20ms", response_ms=fair(4, 2.0), calls=lambda n: 200 * min(n, 8)
    )
    assert (done.case, done.at) == ("highest", 39)  # those below five sessions play no part
    assert len(asked) < 20 and "few" not in done.parts


def test_a_target_that_only_unjudged_loads_may_meet_is_not_searched_for_among_them() -> None:
    asked, done = climb(
        plateau(4), 4, top=64, goal="p99<1ms", response_ms=fair(4, 2.0), calls=lambda n: 200 * min(n, 8)
    )
    assert (done.case, done.at) == ("not-met-above", None) and "few" in done.parts
    # 1, 2 and 4 sessions: with 6 times the 200 calls of one session in 10 s, all have 1,000.
    assert (done.slots["few_at"], done.slots["calls"], done.slots["needed"]) == (1, 200, 1000)
    assert done.slots["longer"] == "60s"
    assert len(set(asked)) < 12


def test_without_calls_enough_at_any_load_no_target_is_met_or_missed() -> None:
    asked, done = climb(
        plateau(4), 4, top=64, goal="p99<20ms", response_ms=fair(4, 2.0), calls=lambda n: 90 * min(n, 8)
    )
    assert (done.case, done.at, done.found) == ("unknown", None, False)
    slots = done.slots
    assert (slots["most"], slots["calls"], slots["needed"], slots["longer"]) == (720, 90, 1000, "134s")
    assert len(asked) <= 5  # no knee is looked for
    text = claim(done.id, done.slots, case=done.case, parts=done.parts)
    assert "not known at any load up to 8 sessions" in text.text and "--measure 134s" in text.advice


def test_a_rung_whose_repeats_are_short_of_calls_is_not_repeated_for_ever() -> None:
    goal = parse_goal("p99<20ms")
    rule = Adaptive(top=1, most_rungs=16, near=1, repeats=3, goal=goal)
    seen = (Seen(1, 100.0, 5.0 * MS, calls=1000), *(Seen(1, 99.9, None, calls=999) for _ in range(5)))
    assert isinstance(next_rung(Findings(rule, seen)), Done)


def test_a_target_that_is_met_again_higher_up_has_a_note() -> None:
    _, done = climb(plateau(4), 4, goal="p95<20ms", response_ms=lambda n: 25.0 if n == 8 else 2.0, top=64)
    assert done.at == 7
    assert (done.slots["other"], done.parts[-1]) == (8, "meets-again")
    assert done.slots["other_figure"].startswith("25.0 ms") and done.slots["strays"] == "16 (2.00 ms)"


def test_a_throughput_is_reached_by_the_lowest_rung() -> None:
    _, done = climb(plateau(16), 4, goal="throughput>1000")
    assert (done.low, done.at, done.high) == (10, 11, 11)
    assert (done.case, done.slots["goal"]) == ("lowest", "throughput > 1 k calls/s")
    _, done = climb(plateau(8), 4, goal="throughput>=1000")
    assert not done.found
    assert (done.case, done.slots["at"]) == ("too-slow", 8) and done.slots["figure"].startswith("800 calls/s")


def test_failed_calls_are_no_short_calls() -> None:
    rule = Adaptive(top=8, most_rungs=16, near=2, repeats=1, goal=parse_goal("p95<20ms"))
    seen = [Seen(n, 100.0, figure=1.0 * MS, failed=0.3 if n > 2 else 0.0) for n in (1, 2, 4, 3)]
    step = next_rung(Findings(rule, (*seen, Seen(8, 100.0, figure=1.0 * MS, failed=0.3))))
    assert isinstance(step, Done)
    assert step.at == 2
    assert (step.slots["failed"], step.slots["other"], step.slots["other_failed"]) == (0, 3, 0.3)
    assert "other-failed" in step.parts


@pytest.mark.parametrize(
    "text",
    [
        "p95",
        "p95<20",
        "p94<20ms",
        "p95>20ms",
        "throughput<3",
        "p95<0ms",
        "mean<20min",
        "<20ms",
        "p95<-1ms",
        "",
    ],
)
def test_wrong_targets_are_refused_with_the_cure(text: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_goal(text)
    assert "p95<20ms" in str(e.value.cure)


@pytest.mark.parametrize(
    ("text", "limit"), [("p50<20us", 20e3), (" mean <= 1.5s", 1.5e9), ("throughput>2k/s", 2000.0)]
)
def test_a_target_has_its_limit(text: str, limit: float) -> None:
    assert parse_goal(text).limit == pytest.approx(limit)


def test_a_limit_is_met_as_the_relation_says() -> None:
    def goal(relation: str) -> Goal:
        return Goal.model_validate({"metric": "p95", "relation": relation, "limit": 5.0, "text": ""})

    met = {r: [goal(r).met(v) for v in (4.0, 5.0, 6.0)] for r in ("<", "<=", ">", ">=")}
    assert met == {
        "<": [True, False, False],
        "<=": [True, True, False],
        ">": [False, False, True],
        ">=": [False, True, True],
    }


def test_wilsons_interval_is_the_published_one() -> None:
    """Newcombe 1998, Statistics in Medicine 17:857, table I, method 3: 81/263, 15/148, 0/20, 1/29."""
    published = {(81, 263): (0.2553, 0.3662), (15, 148): (0.0624, 0.1605), (0, 20): (0, 0.1611)}
    published[1, 29] = (0.0061, 0.1718)
    for (met, calls), ends in published.items():
        assert wilson_of(met, calls) == pytest.approx(ends, abs=6e-5)
