"""Paced runs and variants compared: response times by rate, capacity, throughput where one fell behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.unit.compare_runs import noisy
from tests.unit.report_results import World

from dbdyno.conclude.compare import Options, compare_runs, compare_variants
from dbdyno.model.errors import UsageError
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows

RATES = {1: 100.0, 4: 200.0, 8: 400.0}
"""Rates in place of the made-up ladder's numbers of sessions."""
SESSIONS = 16


def paced_run(
    variants: tuple[str, ...],
    seed: int = 1,
    id: str = "20261121-x",
    lost: dict[tuple[str, float], float] | None = None,
) -> Results:
    """``lost``: by variant and rate, the share of calls that are left over."""
    run: Results = noisy(World(rungs=tuple(RATES), repeats=6, variants=variants), seed=seed, id=id, drift=0.0)
    rate = pl.col("sessions").replace_strict(RATES, return_dtype=pl.Float64)
    windows = run.tables["windows"].with_columns(rate_per_s=rate, sessions=pl.lit(SESSIONS, pl.Int64))
    rates = run.tables["rates"].with_columns(sessions=pl.lit(SESSIONS, pl.Int64))
    more: list[dict[str, Any]] = []
    for w in windows.to_dicts():
        due = w["rate_per_s"] * w["wall_s"]
        left = (lost or {}).get((w["variant"], w["rate_per_s"]), 0.0) * due
        same = {k: w[k] for k in ("cell", "workload", "variant", "sessions", "repeat")}
        same |= {"scope": "rung", "session": None, "unit": "calls", "status": "ok", "source": "driver"}
        more += [same | {"name": n, "value": v} for n, v in (("arrivals", due), ("backlog_end", left))]
    kept = pl.concat([rates, rows("rates", more)])
    return replace(run, tables={**run.tables, "windows": windows, "rates": kept})


def _series_by_metric(comparison: Comparison) -> dict[str, list[str]]:
    return {t.metric: sorted({x.series for x in t.lines}) for t in comparison.metrics}


def _texts(comparison: Comparison, id: str) -> list[str]:
    return [c.text for c in comparison.conclusions if c.id == id]


def test_variants_are_ranked_by_response_time_at_each_rate() -> None:
    comparison = compare_variants(paced_run(("base", "second")))
    series = _series_by_metric(comparison)
    assert comparison.metrics[0].metric == "response_p95_ns" and not comparison.metrics[0].higher_is_better
    assert series["response_p95_ns"] == series["response_mean_ns"] == ["100/s", "200/s", "400/s"]
    assert not {"calls_per_s", "work_per_s"} & series.keys()
    (at_100,) = (c for c in comparison.metrics[0].claims if c.series == "100/s")
    assert at_100.verdict == "worse" and at_100.effect.ratio == pytest.approx(1 / 0.8, rel=0.03)
    lines = [x for x in comparison.metrics[0].lines if x.series == "100/s"]
    assert [(x.rank, x.variant) for x in lines] == [(1, "base"), (2, "second")]


def test_the_answer_is_at_the_lowest_and_the_highest_rate_with_the_capacity() -> None:
    comparison = compare_variants(paced_run(("base", "second"), lost={("second", 400.0): 0.3}))
    assert [t.split(":")[0] for t in _texts(comparison, "rank")] == [
        "At 100/s, 16 sessions",
        "At 400/s, 16 sessions",
    ]
    assert _texts(comparison, "paced-capacities") == [
        "Highest rate delivered: base 400/s, the highest measured; second 200/s (400/s is not)."
    ]
    assert _texts(comparison, "paced-capacities")[0] in comparison.summary and not _texts(
        comparison, "unknown-quantity"
    )


def test_throughput_is_compared_where_a_rate_was_not_kept() -> None:
    comparison = compare_variants(paced_run(("base", "second"), lost={("second", 400.0): 0.3}))
    assert _series_by_metric(comparison)["calls_per_s"] == ["400/s"]


def test_as_many_calls_left_over_as_there_are_sessions_are_none() -> None:
    comparison = compare_variants(paced_run(("base", "second"), lost={("second", 100.0): SESSIONS / 1_000}))
    assert "calls_per_s" not in _series_by_metric(comparison)


def test_two_runs_meet_at_the_rates_that_both_have() -> None:
    a, b = paced_run(("base",)), paced_run(("base",), seed=2, id="20261122-y", lost={("base", 200.0): 0.5})
    comparison = compare_runs(a, b)
    assert _series_by_metric(comparison)["response_p95_ns"] == ["100/s", "200/s", "400/s"]
    assert {c.verdict for c in comparison.metrics[0].claims} <= {"no difference", "undecided"}
    (capacities,) = _texts(comparison, "paced-capacities")
    assert capacities == "Highest rate delivered: A 400/s, the highest measured; B 100/s (200/s is not)."


def test_throughput_that_was_set_ranks_nothing() -> None:
    with pytest.raises(UsageError, match="was set by the rate"):
        compare_variants(paced_run(("base", "second")), Options(metric="calls_per_s"))


def test_a_paced_run_and_a_closed_loop_have_nothing_in_common() -> None:
    closed = noisy(World(rungs=(SESSIONS,), repeats=3), id="20261122-z")
    with pytest.raises(UsageError, match="rates 100/s, 200/s, 400/s"):
        compare_runs(paced_run(("base",)), closed)
