"""The capacity of a ladder of rates: intervals by simulation, then the fake server with a known law."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.unit.conduct.test_paced_fake import _results, paced_climb
from tests.unit.shown import as_html, as_text

from dbdyno import present
from dbdyno.conclude.ladder.ladders import ladders_of
from dbdyno.conclude.scaled import scalings_of
from dbdyno.conclude.scaling.asked import asked
from dbdyno.model.errors import UsageError
from dbdyno.model.results.results import Results
from dbdyno.stats.capacity import Delivered, capacity

pytestmark = pytest.mark.queries

LAW = "call=Timeout/PgSleep:20ms,exponential=on"  # two sessions deliver 100/s
SESSIONS, WINDOW_S = 16, 10.0


def delivery(rng: random.Random, rate: float, level: float, noise: float) -> tuple[float, bool]:
    """Returns the rate delivered with Poisson arrivals in a window, and whether calls are left over."""
    due = max(1.0, rng.gauss(rate * WINDOW_S, math.sqrt(rate * WINDOW_S)))
    able = rng.gauss(level, noise * level) * WINDOW_S
    return min(due, able) / WINDOW_S, due - able > max(SESSIONS, 0.01 * due)


def deliveries_above(
    rng: random.Random, rates: Sequence[float], repeats: int, level: float, noise: float, fall: float
) -> tuple[float, list[Delivered]]:
    """Measurements at the rates above all that are delivered."""
    deliveries = {rate: [delivery(rng, rate, level, noise) for _ in range(repeats)] for rate in rates}
    best = max((r for r, at_rate in deliveries.items() if not any(over for _, over in at_rate)), default=0.0)
    return best, [
        Delivered(r, x * (1 - fall * max(0.0, math.log2(r / level))))
        for r, at_rate in deliveries.items()
        for x, _ in at_rate
        if r > best
    ]


@pytest.mark.parametrize(
    ("rates", "repeats", "noise"),
    [
        ([100.0 * 2**k for k in range(7)], 1, 0.01),
        ([100.0 * 2**k for k in range(7)], 3, 0.03),
        ([700.0 + 25 * k for k in range(20)], 1, 0.03),
        ([700.0 + 25 * k for k in range(20)], 3, 0.01),
    ],
)
def test_95_percent_intervals_hold_the_capacity_in_95_percent(
    rates: list[float], repeats: int, noise: float
) -> None:
    """500 ladders each; wider where a fall cannot be excluded. Standard error of the share: 1 point."""
    rng, held, claimed, kinds = random.Random(7), 0, 0, Counter[str]()
    for _ in range(500):
        level = rng.uniform(800, 1100)
        best, over = deliveries_above(rng, rates, repeats, level, noise, 0.0)
        answer = capacity(over)
        kinds[answer.kind] += 1
        if answer.low is not None and answer.high is not None:
            claimed += 1
            held += answer.low <= level <= max(answer.high, best)
    assert claimed > 450
    assert held / claimed >= 0.92, (held, claimed, kinds)
    assert kinds["falls"] <= 0.05 * 500, "2.5 % are claimed by chance"


@pytest.mark.parametrize(("rates", "repeats"), [(3, 3), (6, 1), (20, 3)])
def test_errors_that_last_along_the_rates_are_in_the_interval(rates: int, repeats: int) -> None:
    """150 ladders each, neighbours correlated by 0.8; independent errors would hold 68 % to 84 %."""
    rng, held = random.Random(3), 0
    for _ in range(150):
        over = []
        for _ in range(repeats):
            error = rng.gauss(0, 1)
            for k in range(rates):
                over.append(Delivered(1200 * 1.2**k, 1000 * (1 + 0.03 * error)))
                error = 0.8 * error + 0.6 * rng.gauss(0, 1)
        answer = capacity(over)
        held += answer.low is None or answer.high is None or answer.low <= 1000 <= answer.high
    assert held >= 0.88 * 150


def test_a_fall_beyond_the_capacity_is_seen_and_does_not_lower_it() -> None:
    """10 % a doubling, 3 repeats: 300 ladders."""
    rng, held, falls = random.Random(3), 0, 0
    for _ in range(300):
        level = rng.uniform(800, 1100)
        _, over = deliveries_above(rng, [100.0 * 2**k for k in range(7)], 3, level, 0.02, 0.1)
        answer = capacity(over)
        lowest = answer.points[0].rate
        falls += answer.kind == "falls"
        assert answer.low is not None and answer.high is not None
        held += answer.low <= level * (1 - 0.1 * max(0.0, math.log2(lowest / level))) <= answer.high
    assert falls > 290
    assert held / 300 >= 0.92


def test_one_measurement_has_no_interval_and_equal_ones_are_not_exact() -> None:
    alone = capacity([Delivered(200.0, 100.0)])
    assert (alone.kind, alone.value, alone.low, alone.high) == ("single", 100.0, None, None)
    same = capacity([Delivered(r, 100.0) for r in (200.0, 300.0, 400.0)])
    assert same.kind == "level"
    assert (same.low, same.high) == pytest.approx((99.9, 100.1))


def test_rates_that_chance_may_have_kept_are_left_out() -> None:
    """At 101/s arrivals, not the server, may have been the limit."""
    far = [Delivered(r, x) for r, x in ((150.0, 98.0), (200.0, 104.0), (300.0, 101.0))]
    answer = capacity([Delivered(101.0, 95.0), *far])
    assert answer.points == tuple(far)


def test_throughput_that_rises_has_no_capacity() -> None:
    answer = capacity([Delivered(r, 0.5 * r) for r in (200.0, 250.0, 300.0, 350.0, 400.0)])
    assert (answer.kind, answer.value, answer.low) == ("rises", 200.0, None)


# -- a run --


def run_at_rates(*rates: float, **more: Any) -> Results:
    return _results(paced_climb(LAW, list(rates), sessions=2, **more))


def test_the_capacity_of_a_run_holds_the_laws_and_agrees_with_the_rate_delivered() -> None:
    results = run_at_rates(60.0, 90.0, 150.0, 250.0, 400.0, measure_s=60)
    (scaling,) = results.scaling
    claims = {a.id: a for a in scaling.answers}
    claim = claims["rate-capacity"]
    assert claim.value is not None and claim.value.low is not None and claim.value.high is not None
    assert claim.value.low <= 100 <= claim.value.high
    assert claim.value.unit == "calls/s"
    best = next(f for f in results.findings if f.id == "paced-capacity").slots["rate"]
    assert best == 90 <= claim.value.high
    assert scaling.fits == () and scaling.ladder.load_unit == "calls/s due" and scaling.ladder.by_rate
    assert set(claims) == {"rate-capacity", "paragraph"}, "nothing is said of numbers of sessions"
    assert ladders_of(results) == ()
    rows = scaling.ladder.points.select("load", "response_s").rows()
    assert [load for load, seconds in rows if seconds is None] == [150.0, 250.0, 400.0], "they have no end"
    top = scaling.curve.sort("load").row(-1, named=True)
    assert top["throughput"] == pytest.approx(claim.value.value)
    assert top["perfect"] == 400


def test_the_capacity_is_shown_on_screen_page_and_in_json() -> None:
    results = run_at_rates(60.0, 90.0, 150.0, 250.0)
    text = as_text(present.scaling(results.scaling), 80)
    assert "Models" not in as_html(present.scaling(results.scaling).blocks)
    assert "calls/s due" in text and "session" not in text and "Capacity 10" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    page = as_html(present.run_document(results).blocks)
    assert page.count("so much is delivered when more calls become due") == 2, "first, and among all answers"
    (record,) = json.loads(json.dumps(present.scaling_json(results.scaling)))["scalings"]
    assert (record["load_unit"], record["best"], record["fits"]) == ("calls/s due", None, [])
    assert record["answers"][0]["value"]["low"] is not None


def test_without_overload_there_is_no_capacity_and_one_overload_gives_no_interval() -> None:
    (all_delivered,), (once,) = run_at_rates(60.0, 80.0).scaling, run_at_rates(60.0, 200.0).scaling
    assert (all_delivered.answers[0].case, all_delivered.answers[0].slots["best"]) == ("none", 80)
    assert all_delivered.answers[0].slots["lower"] is None
    assert all_delivered.answers[0].value is None
    assert once.answers[0].case == "single"
    assert once.answers[0].value is not None and once.answers[0].value.low is None


def test_a_single_rate_is_no_ladder_and_rates_are_not_fitted() -> None:
    assert run_at_rates(60.0).scaling == ()
    results = run_at_rates(60.0, 80.0)
    with pytest.raises(UsageError, match="no model is fitted to rates"):
        scalings_of(results, model="usl")
    with pytest.raises(UsageError, match="no model is fitted to rates"):
        asked(results.scaling[0], loads=[100.0])


def test_a_lower_rate_that_is_not_delivered_is_named_and_not_part_of_the_capacity() -> None:
    results = run_at_rates(60.0, 80.0)
    low = pl.when(pl.col("rate_per_s") == 60).then(400.0).otherwise(pl.col("backlog_end"))
    changed = {**results.tables, "rungs": results.tables["rungs"].with_columns(backlog_end=low)}
    (scaling,) = scalings_of(replace(results, tables=changed))
    assert "60.0/s is not delivered, although 80.0/s is" in scaling.answers[0].text
