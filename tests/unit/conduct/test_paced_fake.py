"""Paced load on the fake server, whose queueing law is known, from the arrivals to the claims."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fakery import Climb, climb_one, environment_of, info_of, plan_cell
from tests.unit.shown import as_text

from dbdyno import present
from dbdyno.conclude.compare.comparisons import compare_runs
from dbdyno.conduct.derive.derive import concluded, derive, with_claims
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.model.results.results import Results
from dbdyno.present import report
from dbdyno.present.document.document import Paragraph
from dbdyno.present.run import charts, rungs

S, MS = 1_000_000_000, 1_000_000
pytestmark = pytest.mark.whole


def paced_climb(law: str, rates: list[float], sessions: int = 1, measure_s: int = 10, **pacing: Any) -> Climb:
    server = FakeServer(Target(dsn=f"fake:{law}"))
    planned = [
        plan_cell(sessions, 1, number, measure_s * S).model_copy(
            update={"pacing": Pacing(rate_per_s=rate, **pacing), "seed": number, "settle_ns": 2 * S}
        )
        for number, rate in enumerate(rates, 1)
    ]
    cells = [climb_one(server, cell, os=False) for cell in planned]
    experiment = Experiment(
        workload="lio", engine="fake", rates=",".join(f"{r:g}" for r in rates), sessions=str(sessions)
    )
    plan = Plan(
        experiment=experiment, cpus=server.law.cpus, call_target_ns=None, cells=tuple(planned), expected_ns=1
    )
    return Climb(server, info_of(), plan.sealed(), environment_of(server), cells)


def _results(climbed: Climb) -> Results:
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    return concluded(with_claims(results, []))


def _rungs(climbed: Climb) -> list[dict[str, Any]]:
    return _results(climbed).tables["rungs"].to_dicts()


def test_one_session_with_random_arrivals_and_services_is_m_m_1() -> None:
    """Response times are exponential with rate mu - lambda (Kleinrock, Queueing Systems I (1975), 3.2)."""
    law = "cpus=2,call=Timeout/PgSleep:10ms,exponential=on"
    (rung,) = _rungs(paced_climb(law, [50.0], measure_s=400))
    mean_s = 1 / (100 - 50)
    assert rung["offered_per_s"] == pytest.approx(50, rel=0.05)
    assert rung["response_mean_ns"] / S == pytest.approx(mean_s, rel=0.1)
    assert rung["response_p50_ns"] / S == pytest.approx(mean_s * math.log(2), rel=0.1)
    assert rung["response_p99_ns"] / S == pytest.approx(mean_s * math.log(100), rel=0.15)
    assert rung["service_mean_ns"] / S == pytest.approx(0.01, rel=0.05)
    assert rung["service_p99_ns"] / S == pytest.approx(0.01 * math.log(100), rel=0.1)
    assert rung["lag_mean_ns"] / S == pytest.approx(mean_s - 0.01, rel=0.15)


def test_constant_arrivals_below_the_capacity_never_wait() -> None:
    (rung,) = _rungs(paced_climb("call=Timeout/PgSleep:10ms", [80.0], arrivals="constant", measure_s=14))
    assert rung["response_p99_ns"] == rung["service_p99_ns"] == pytest.approx(10 * MS, rel=0.01)
    assert rung["calls_per_s"] == pytest.approx(80, rel=0.01)
    assert (rung["late"], rung["dropped"], rung["backlog_end"]) == (0, 0, 0)


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
def test_calls_due_apart_from_the_rate_are_explained_by_chance_if_they_are_at_random(arrivals: str) -> None:
    results = _results(paced_climb("call=Timeout/PgSleep:10ms", [20.0], arrivals=arrivals))
    frame = results.tables["rungs"].with_columns(offered_per_s=pl.col("rate_per_s") * 0.97)
    shown = rungs.tables(replace(results, tables={**results.tables, "rungs": frame}))
    explained = any("by chance" in b.text for b in shown if isinstance(b, Paragraph))
    assert explained == (arrivals == "poisson")


def test_every_call_that_became_due_is_begun_dropped_or_left_over() -> None:
    """Arrivals of the window are begun, dropped or left over."""
    for law, limit in (("call=Timeout/PgSleep:30ms", None), ("call=Timeout/PgSleep:30ms", 100 * MS)):
        climbed = paced_climb(law, [90.0], sessions=2, latency_limit_ns=limit)
        pace = climbed.cells[0].tables["pace"].row(0, named=True)
        assert pace["arrivals"] == pace["begun"] + pace["dropped"] + pace["backlog_end"]
        assert climbed.cells[0].tables["backlog_histogram"]["count"].sum() == pace["backlog_end"]


def test_a_rate_above_the_capacity_is_claimed_with_its_backlog() -> None:
    """Two sessions of 20 ms deliver 100 calls/s; at 150/s of constant arrivals 50/s are left over."""
    climbed = paced_climb("call=Timeout/PgSleep:20ms", [60.0, 90.0, 150.0], sessions=2, arrivals="constant")
    results = _results(climbed)
    low, _, high = results.tables["rungs"].to_dicts()
    assert low["calls_per_s"] == pytest.approx(60, rel=0.01)
    assert high["calls_per_s"] == pytest.approx(100, rel=0.02)
    assert high["offered_per_s"] == pytest.approx(150, rel=0.01)
    assert high["backlog_end"] == pytest.approx(10 * 50 + 2 * 50, rel=0.03), "2 s of warm-up come before"
    # the last to be begun waited 12 s x 50 / 150; those left over up to that: no percentile hides them
    assert high["response_p99_ns"] / S == pytest.approx(4.0, rel=0.05)
    claims = {f.id: f for f in results.findings}
    capacity = claims["paced-capacity"]
    assert (capacity.case, capacity.slots["rate"]) == ("up-to", 90)
    assert (capacity.slots["over"], capacity.value and capacity.value.value) == (150, 90)
    assert capacity.slots["growth"] == pytest.approx(50, rel=0.05)
    overload = claims["paced-overload"]
    assert (overload.severity, overload.value and overload.value.value) == ("warning", high["backlog_end"])
    assert overload.cells == (climbed.cells[2].id,)
    assert not {"peak", "scales-to"} & set(claims), "sessions do not scale where a rate was set"


def test_a_window_filled_by_calls_that_were_due_before_it_delivers_an_unknown_rate() -> None:
    """A session of 20 ms is busy with the 2 s of warm-up, at 3,000/s, for much longer than the window."""
    results = _results(paced_climb("call=Timeout/PgSleep:20ms", [3000.0], arrivals="constant", measure_s=3))
    (rung,) = results.tables["rungs"].to_dicts()
    assert (rung["calls"], rung["calls_per_s"]) == (0, None)
    claims = {f.id: f for f in results.findings}
    overload, unknown = claims["paced-overload"], claims["no-calls"]
    assert (overload.case, unknown.case) == ("none", "paced")
    assert "far above what the server delivers" in overload.text and "0/s were" not in overload.text
    assert "a lower rate" in overload.advice and "log" not in unknown.advice


def test_calls_over_the_latency_limit_are_dropped_and_counted() -> None:
    climbed = paced_climb("call=Timeout/PgSleep:20ms", [100.0], arrivals="constant", latency_limit_ns=50 * MS)
    results = _results(climbed)
    (rung,) = results.tables["rungs"].to_dicts()
    assert rung["calls_per_s"] == pytest.approx(50, rel=0.02)
    assert rung["dropped"] == pytest.approx(500, rel=0.03)
    assert rung["response_max_ns"] <= 71 * MS
    claims = {f.id: f for f in results.findings}
    assert claims["paced-dropped"].slots["share"] == pytest.approx(0.5, rel=0.03)
    assert claims["paced-dropped"].slots["limit"] == 50 * MS
    assert claims["paced-capacity"].case == "not"
    assert claims["paced-capacity"].slots["dropped"] == pytest.approx(0.5, rel=0.03)


def test_a_stopped_server_shows_in_the_percentiles_as_theory_says() -> None:
    """No call is served for 2 of 10 s. Durations of those due meanwhile are evenly spread from 0 to 2 s; they
    are a fifth of all calls. A closed loop of 4 sessions would have made 4 such calls."""
    climbed = paced_climb("call=Timeout/PgSleep:1ms,stall=4s+2s", [100.0], sessions=4, arrivals="constant")
    (rung,) = _rungs(climbed)
    assert rung["response_max_ns"] / S == pytest.approx(2.0, rel=0.03)
    assert rung["response_p99_ns"] / S == pytest.approx(2 * (1 - 0.01 / 0.2), rel=0.03)
    assert rung["response_p95_ns"] / S == pytest.approx(2 * (1 - 0.05 / 0.2), rel=0.03)
    assert rung["response_p50_ns"] == pytest.approx(MS, rel=0.02)
    assert rung["late"] == pytest.approx(200, abs=6)
    assert rung["service_p95_ns"] == pytest.approx(MS, rel=0.02), "from the real start only 4 calls took long"


def test_pages_show_figures_by_rate_and_never_pool_rates() -> None:
    climbed = paced_climb("call=Timeout/PgSleep:20ms", [60.0, 90.0, 150.0], sessions=2, arrivals="constant")
    results = _results(climbed)
    drawn = {c.id: c for group in (*charts.main(results), *charts.durations(results)) for c in group.charts}
    assert set(drawn) == {"throughput", "stack-aas", "response", "distribution", "percentiles"}
    for name in ("throughput", "stack-aas", "response"):
        rows = [r for rows in drawn[name].spec["datasets"].values() for r in rows]
        assert {r["rate_per_s"] for r in rows if r.get("rate_per_s")} >= {60.0, 90.0, 150.0}, name
    assert not [g for g in charts.each(results, charts.spread) if g.charts], "chance gives calls to sessions"
    assert drawn["percentiles"].title == "Percentiles at 150 calls/s due"
    durations = drawn["distribution"].spec["datasets"]
    (ended,) = (rows for rows in durations.values() if rows and "calls" in rows[0])
    assert (
        sum(r["calls"] for r in ended)
        == results.tables["histogram"].filter(pl.col("cell") == climbed.cells[2].id)["count"].sum()
    ), "of the highest rate alone"
    together = results.tables["profile"].filter(pl.col("repeat") == 0)
    assert set(together["cell"]) == {"all-60ps", "all-90ps", "all-150ps"}
    figures = {f.name: f.cell.text for f in report.document(results).figures}
    assert figures["Delivered up to"] == "90.0"


def test_runs_are_compared_at_the_rates_that_they_share() -> None:
    law = "call=Timeout/PgSleep:10ms"
    a, b, other = (
        replace(r, info=r.info.model_copy(update={"id": name}))
        for name, rates in (("a", [20.0, 40.0, 80.0]), ("b", [40.0, 160.0]), ("other", [30.0]))
        for r in [_results(paced_climb(law, rates, sessions=2, arrivals="constant"))]
    )
    comparison = compare_runs(a, b)
    lines = [x for t in comparison.metrics if t.metric == "response_p50_ns" for x in t.lines]
    assert {(x.series, x.sessions) for x in lines} == {("40/s", 2)}
    assert comparison.metrics[0].metric == "response_p95_ns" and "calls_per_s" not in {
        t.metric for t in comparison.metrics
    }
    with pytest.raises(UsageError, match="rates 20/s, 40/s, 80/s"):
        compare_runs(a, other)


def test_a_rate_over_several_numbers_of_sessions_names_the_fewest_that_deliver_it() -> None:
    """100 calls/s of 20 ms need 2 sessions."""
    climbed = paced_climb("call=Timeout/PgSleep:20ms", [98.0], arrivals="constant", sessions=1)
    more = paced_climb("call=Timeout/PgSleep:20ms", [98.0], arrivals="constant", sessions=2)
    both = Plan(
        experiment=climbed.plan.experiment,
        cpus=2,
        call_target_ns=None,
        expected_ns=1,
        cells=(*climbed.plan.cells, *more.plan.cells),
    )
    results = _results(replace(climbed, plan=both.sealed(), cells=[*climbed.cells, *more.cells]))
    (capacity,) = (f for f in results.findings if f.id == "paced-capacity")
    assert (capacity.case, capacity.slots["rate"], capacity.slots["sessions"]) == ("delivered", 98, 2)
    (overload,) = (f for f in results.findings if f.id == "paced-overload")
    assert overload.cells == (climbed.cells[0].id,)


def test_a_few_calls_that_wait_at_the_end_are_no_overload() -> None:
    """One session has calls of 1 s; 1 or 2 may wait at any instant."""
    results = _results(paced_climb("call=Timeout/PgSleep:10ms", [99.0], sessions=4, measure_s=1))
    assert not {f.id for f in results.findings} & {"paced-overload"}
    (capacity,) = (f for f in results.findings if f.id == "paced-capacity")
    assert capacity.slots["rate"] == 99


def test_quantiles_of_few_calls_are_unknown_and_say_why() -> None:
    results = _results(paced_climb("call=Timeout/PgSleep:20ms", [20.0], measure_s=2))
    (rung,) = results.tables["rungs"].to_dicts()
    assert (rung["response_p95_ns"], rung["response_p99_ns"], rung["service_p99_ns"]) == (None, None, None)
    assert rung["response_p50_ns"] is not None
    named = {n: (v, s) for n, v, s in results.tables["rates"].select("name", "value", "status").rows()}
    assert named["response_p99_ns"] == named["service_p99_ns"] == (None, "too few calls")
    text = " ".join(as_text(present.brief(results), 100).split())
    assert "p99 unknown, from fewer than 1,000 calls" in text
    assert "p95 and p99 unknown: too few calls (" in text and "p95 needs 200, p99 needs 1,000)." in text
    assert " p99 " not in text.partition("due/s")[2].partition("Shares")[0].replace("svc p99", "")[:60]


def test_the_terminals_table_of_rates_fits_80_columns() -> None:
    climbed = paced_climb("call=Timeout/PgSleep:20ms", [60.0, 90.0, 150.0], sessions=2, measure_s=20)
    results = _results(climbed)
    text = as_text(present.brief(results), 80)
    head = next(line for line in text.splitlines() if "due/s" in line and "calls/s" in line)
    for name in ("p50", "p99", "svc p99", "left"):
        assert name in head
    assert all(len(line) <= 80 for line in text.splitlines())
    (capacity,) = (f for f in results.findings if f.id == "paced-capacity")
    assert capacity.text in " ".join(text.split())
    assert "60 to 150 calls/s due, 2 sessions" in text
