"""Figures that a search for a target takes from a measurement: a quantile of too few calls is unknown."""

from __future__ import annotations

import polars as pl
import pytest

from dbdyno.conclude.catalogue import claim
from dbdyno.conduct.measure.schedule import seen_in, sought
from dbdyno.model.plan.plan import Adaptive, Experiment, Plan
from dbdyno.plan import Findings, Seen, so_far
from dbdyno.plan.adaptive_search import QUANTILES, parse_goal


@pytest.mark.parametrize(
    ("goal", "calls", "known"),
    [
        ("p99<20ms", 999, False),
        ("p99<20ms", 1000, True),
        ("p95<20ms", 199, False),
        ("p95<20ms", 200, True),
        ("p90<20ms", 99, False),
        ("p50<20ms", 1, True),
        ("mean<20ms", 3, True),
    ],
)
def test_a_quantile_of_too_few_calls_is_no_figure(goal: str, calls: int, known: bool) -> None:
    window = {"cell": "c", "variant": "base", "sessions": 1, "status": "ok", "wall_s": 10.0, "reason": None}
    rates = [
        {"cell": "c", "scope": "rung", "name": name, "value": value}
        for name, value in {
            "calls": float(calls),
            "calls_per_s": calls / 10,
            "response_mean_ns": 5e6,
            "response_max_ns": 9e6,
        }.items()
    ]
    histogram = [{"cell": "c", "low_ns": 4_000_000, "high_ns": 8_000_000, "count": calls}]
    tables = {
        "windows": pl.DataFrame([window]),
        "rates": pl.DataFrame(rates),
        "histogram": pl.DataFrame(histogram),
    }
    rule = Adaptive(top=1, most_rungs=4, near=1, repeats=1, goal=parse_goal(goal))
    (load,) = seen_in(tables, rule)["base"]
    assert (load.figure is not None) is known
    assert (load.calls, load.window_s, load.good) == (calls, 10.0, True)


@pytest.mark.parametrize(("goal", "fewest"), [("p99.9<20ms", 10_000), ("p99.99 <= 1s", 100_000)])
def test_far_tails_need_ten_calls_above_them(goal: str, fewest: int) -> None:
    assert QUANTILES[parse_goal(goal).metric] == pytest.approx(1 - 10 / fewest)
    for calls in (fewest - 1, fewest):
        test_a_quantile_of_too_few_calls_is_no_figure(goal, calls, calls == fewest)


@pytest.mark.parametrize(("slow", "misses"), [(0, False), (5, False), (12, True)])
def test_a_load_with_few_calls_misses_a_target_that_too_many_of_them_exceed(slow: int, misses: bool) -> None:
    """6,000 calls: p99.9 is unknown. Of 6 calls above its limit 5 are no more than chance, 12 are."""
    window = {"cell": "c", "variant": "base", "sessions": 4, "status": "ok", "wall_s": 10.0, "reason": None}
    rates = [{"cell": "c", "scope": "rung", "name": n, "value": 6000.0} for n in ("calls", "calls_per_s")]
    histogram = [
        {"cell": "c", "low_ns": 4_000_000, "high_ns": 8_000_000, "count": 6000 - slow},
        {"cell": "c", "low_ns": 300_000_000, "high_ns": 301_000_000, "count": slow},
    ]
    tables = {
        "windows": pl.DataFrame([window]),
        "rates": pl.DataFrame(rates),
        "histogram": pl.DataFrame(histogram),
    }
    rule = Adaptive(top=4, most_rungs=1, near=2, repeats=1, goal=parse_goal("p99.9<50ms"))
    (load,) = seen_in(tables, rule)["base"]
    assert load.figure is None and load.above == slow
    done = so_far(Findings(rule, (load, Seen(1, 10.0, calls=900, window_s=10.0))))
    assert done.case == ("not-met-above" if misses else "unknown")
    text = claim(done.id, done.slots, case=done.case, parts=done.parts).text
    if misses:
        assert "p99.9 < 50 ms is not met at 4 sessions: 12 of 6,000 calls (0.2 %) took longer" in text
        assert "At 1 session p99.9 is unknown" in text


@pytest.mark.parametrize(("call_target_ns", "advised"), [(10_000_000, "--call-target"), (None, "the script")])
def test_advice_for_a_target_that_is_not_met_fits_how_calls_get_their_size(
    call_target_ns: int | None, advised: str
) -> None:
    window = {"cell": "c", "variant": "base", "sessions": 1, "status": "ok", "wall_s": 10.0, "reason": None}
    figures = {"calls": 2000.0, "calls_per_s": 200.0, "response_mean_ns": 5e6, "response_max_ns": 9e6}
    rates = [{"cell": "c", "scope": "rung", "name": n, "value": v} for n, v in figures.items()]
    histogram = [{"cell": "c", "low_ns": 4_000_000, "high_ns": 8_000_000, "count": 2000}]
    tables = {"windows": pl.DataFrame([window]), "rates": pl.DataFrame(rates)}
    rule = Adaptive(top=1, most_rungs=4, near=1, repeats=1, goal=parse_goal("mean<1ms"))
    plan = Plan(
        experiment=Experiment(),
        cpus=2,
        call_target_ns=call_target_ns,
        cells=(),
        expected_ns=0,
        adaptive=rule,
    )
    (found,) = sought(plan, tables | {"histogram": pl.DataFrame(histogram)})
    assert found.case == "not-met" and advised in found.advice
    assert ("--call-target" in found.advice) is (call_target_ns is not None)
