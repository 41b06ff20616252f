"""Figures that a search for a target takes from a measurement: a quantile of too few calls is unknown."""

from __future__ import annotations

import polars as pl
import pytest

from dbdyno.conduct.measure.schedule import seen_in
from dbdyno.model.plan.plan import Adaptive
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
