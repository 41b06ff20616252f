"""Little's law, the utilisation law and the bounds of throughput, against servers whose demands are known."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import Climb, climb

from dbdyno.account import window
from dbdyno.account.bounds import bounds
from dbdyno.account.ladder import rungs
from dbdyno.account.laws import laws
from dbdyno.account.ledger import accounts
from dbdyno.account.ledger.sources import cross_check
from dbdyno.conclude.run import laws as checks
from dbdyno.conclude.run.case import Case
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.session_time import judged


def _tables(climbed: Climb) -> dict[str, pl.DataFrame]:
    tables = window.cut(climbed.cells)
    tables |= accounts(tables)
    tables["rates"] = judged(tables, climbed.plan)
    tables["data_sources"] = cross_check(tables, tables["ledger"])
    tables["rungs"] = rungs(tables)
    tables["laws"] = laws(tables, climbed.plan)
    tables["bounds"] = bounds(tables, climbed.plan, climbed.environment)
    return tables


def _claims(climbed: Climb, tables: dict[str, pl.DataFrame]) -> dict[str, Claim]:
    case = Case(climbed.plan, climbed.environment, tables, {})
    return {c.id: c for c in (*checks.laws(case), *checks.bound_exceeded(case))}


def _law(tables: dict[str, pl.DataFrame], of: str) -> dict[str, Any]:
    return tables["laws"].row(by_predicate=pl.col("of") == of, named=True)


def test_throughput_times_mean_is_the_number_of_sessions_over_unequal_repeats() -> None:
    climbed = climb("fake:cpus=2,cpu=4ms", (2,), repeats=2)
    tables = _tables(climbed)
    quick = (pl.col("cell") == climbed.cells[1].id) & (pl.col("scope") == "rung")
    factors = {"calls": 3.0, "calls_per_s": 3.0, "response_mean_ns": 1 / 3, "cpu_per_call_ns": 1 / 3}
    factor = pl.col("name").replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    value = pl.when(quick).then(pl.col("value") * factor).otherwise("value")
    tables["rates"] = tables["rates"].with_columns(value)
    row = rungs(tables).row(0, named=True)
    assert row["repeats"] == 2
    assert row["calls_per_s"] * row["response_mean_ns"] / 1e9 == pytest.approx(2, rel=0.01)
    assert row["calls_per_s"] * row["cpu_per_call_ns"] / 1e9 == pytest.approx(row["run_aas"], rel=0.01)


@pytest.mark.parametrize(
    ("dsn", "sessions"),
    [
        ("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", 3),
        ("fake:cpus=2,cpu=4ms,spread=0.5", 7),
        ("fake:cpus=2,cpu=4ms", 4),  # two of them never get a CPU: one call each across the window
        ("fake:cpus=2,cpu=2ms,think=6ms,driver=20us,spread=0.5", 5),
        ("fake:cpus=2,cpu=1ms,lock=LWLock/WALWrite:3ms", 6),
    ],
)
def test_both_laws_hold_on_a_server_that_obeys_them(dsn: str, sessions: int) -> None:
    climbed = climb(dsn, (sessions,))
    tables = _tables(climbed)
    present = _law(tables, "sessions")
    assert present["value"] == pytest.approx(sessions, rel=0.001) and present["verdict"] == "holds"
    assert present["by_law"] == pytest.approx(sessions, rel=0.02)
    assert set(tables["laws"]["verdict"]) <= {"holds", "unknown"}
    found = _claims(climbed, tables)
    assert {"littles-law", "utilisation-law"} <= set(found) and found["littles-law"].severity == "good"


def test_calls_in_progress_are_throughput_times_response_time() -> None:
    """A call takes 4 ms of CPU and waits 5 ms; between two, a session thinks for 9 ms: half of the time."""
    tables = _tables(climb("fake:cpus=4,cpu=4ms,wait=IO/DataFileRead:5ms,think=9ms", (4,)))
    law = _law(tables, "calls in progress")
    assert law["value"] == pytest.approx(2.0, rel=0.03) and law["by_law"] == pytest.approx(2.0, rel=0.03)
    assert law["verdict"] == "holds"


def _with_rates(tables: dict[str, pl.DataFrame], name: str, factor: float) -> dict[str, pl.DataFrame]:
    of_rung = (pl.col("scope") == "rung") & (pl.col("name") == name)
    value = pl.when(of_rung).then(pl.col("value") * factor).otherwise("value").alias("value")
    return tables | {"rates": tables["rates"].with_columns(value)}


def test_a_clock_that_runs_fast_violates_the_law() -> None:
    """Response times that are a tenth too long make 4.4 sessions of 4."""
    climbed = climb("fake:cpus=2,cpu=4ms,spread=0.5", (4,))
    tables = _with_rates(_tables(climbed), "response_mean_ns", 1.1)
    tables["laws"] = laws(tables, climbed.plan)
    law = _law(tables, "sessions")
    assert law["verdict"] == "violated" and law["by_law"] == pytest.approx(4.4, rel=0.01)
    assert law["relative_difference"] == pytest.approx(-1 / 11, rel=0.05)
    found = _claims(climbed, tables)
    assert "littles-law" not in found
    assert any(c.startswith("littles-law-violated") and found[c].severity == "warning" for c in found)


def test_think_time_that_the_plan_does_not_have_the_sessions_to_fill_violates_the_law() -> None:
    """The plan says 5 ms of thinking, but the sessions call without a pause, 5 ms each: twice as many."""
    climbed = climb("fake:cpus=4,cpu=5ms", (4,))
    cells = tuple(c.model_copy(update={"think_ns": 5_000_000}) for c in climbed.plan.cells)
    tables = _tables(climbed)
    tables["laws"] = laws(tables, climbed.plan.model_copy(update={"cells": cells}))
    law = _law(tables, "sessions")
    assert law["verdict"] == "violated" and law["by_law"] == pytest.approx(8.0, rel=0.02)


def test_an_unknown_side_is_no_verdict() -> None:
    climbed = climb("fake:cpus=2,cpu=4ms", (2,), os=False)
    tables = _tables(climbed)
    assert _law(tables, "calls in progress")["value"] is not None or (
        _law(tables, "calls in progress")["verdict"] == "unknown"
    )
    assert "violated" not in set(tables["laws"]["verdict"])
    unknown = _with_rates(tables, "response_mean_ns", 1.0)
    unknown["rates"] = unknown["rates"].filter(pl.col("name") != "response_mean_ns")
    tables["laws"] = laws(unknown, climbed.plan)
    assert _law(tables, "sessions")["verdict"] == "unknown"


def test_bounds_are_those_of_the_law() -> None:
    """2 ms of CPU and 6 ms asleep, without think time: N / 8 ms, and 3 CPUs / 2 ms."""
    climbed = climb("fake:cpus=3,cpu=2ms,wait=IO/DataFileRead:6ms", (1, 4, 24))
    tables = _tables(climbed)
    for row in tables["bounds"].iter_rows(named=True):
        assert row["waitless_per_s"] == pytest.approx(125 * row["sessions"], rel=0.01)
        assert row["cpu_limit_per_s"] == pytest.approx(1500, rel=0.01)
        assert row["bound_per_s"] == pytest.approx(min(125 * row["sessions"], 1500), rel=0.01)
        assert row["cpu_limit_low"] <= row["cpu_limit_per_s"] <= row["cpu_limit_high"]
        assert row["verdict"] == "within"
    assert "bound-exceeded" not in _claims(climbed, tables)


def test_cpu_time_that_falls_with_load_is_said() -> None:
    """Calls cost 4 ms of CPU at the lowest load, 2 ms at the highest: 3 CPUs make 1,500/s, not 750."""
    climbed, dear = (climb(f"fake:cpus=3,cpu={cpu}", (1, 2, 12)) for cpu in ("2ms", "4ms"))
    cells = [*dear.cells[:2], climbed.cells[2]]
    mixed = Climb(climbed.server, climbed.info, climbed.plan, climbed.environment, cells)
    tables = _tables(mixed)
    top = tables["bounds"].row(by_predicate=pl.col("sessions") == 12, named=True)
    assert top["cpu_limit_per_s"] == pytest.approx(750, rel=0.01) and top["verdict"] == "above"
    claim = _claims(mixed, tables)["bound-exceeded"]
    assert claim.value is not None and claim.value.value == pytest.approx(1.0, rel=0.05)
