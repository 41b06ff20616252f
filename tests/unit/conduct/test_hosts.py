"""A measurement by several hosts: figures of each, claims, and their section of the page."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from tests.fakery import MS, S, climb

from dbdyno import present
from dbdyno.account.hosts import hosts
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.present.document.document import Paragraph
from dbdyno.present.run import hosts as shown

NAMES = ("a", "b", "c")
LASTED_NS = 10 * S


def driver(number: int, **changes: Any) -> dict[str, Any]:
    """Returns the row of a driver of two sessions."""
    quiet = {"threads": 2, "cpus": 4, "run_ns": S, "runq_ns": 10 * MS, "status": "ok"}
    quiet |= {"barrier_ns": S, "read_ns": S + LASTED_NS}
    clock = {"clock_bound_ns": 300_000, "round_trip_ns": 600_000}
    return {"host": NAMES[number], "first_session": 2 * number, "sessions": 2, **quiet, **clock, **changes}


def session(number: int, **changes: Any) -> dict[str, Any]:
    """Returns the row of a session of 1,000 calls in 10 s, the shortest of 1 ms."""
    ends = {"first_start_ns": 0, "last_end_ns": LASTED_NS, "min_ns": MS, "max_ns": 90 * MS}
    counts = {"calls": 1000, "errors": 0, "calls_total": 1100, "errors_total": 0}
    zero = dict.fromkeys(("straddle_in", "straddle_out", "in_call_ns", "sum_sq_ns2"), 0)
    return {"session": number, "end_reason": "deadline", **ends, **counts, **zero, **changes}


def results_of(drivers: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> Results:
    one = climb("fake:cpu=10ms,cpus=8", [6])
    (cell,) = one.cells
    tables = {**cell.tables, "drivers": rows("drivers", drivers), "sessions": rows("sessions", sessions)}
    return derive(one.info, one.plan, one.environment, [RawCell(cell.meta, tables)])


def claim_of(results: Results, id: str) -> Any:
    return {f.id: f for f in results.findings}.get(id)


def table(drivers: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (cell,) = climb("fake:cpu=10ms,cpus=8", [6]).cells
    tables = {"drivers": rows("drivers", drivers), "sessions": rows("sessions", sessions)}
    return hosts([RawCell(cell.meta, tables)]).to_dicts()


@pytest.mark.parametrize(("more", "status"), [(0, "ok"), (1, "not here")])
def test_cpu_of_drivers_is_unknown_if_some_are_on_another_host(more: int, status: str) -> None:
    (cell,) = climb("fake:cpu=10ms,cpus=8", [6]).cells
    threads = cell.tables["tasks"].filter(pl.col("role") == "driver").select("pid", "tid").n_unique()
    results = results_of(
        [driver(0, threads=threads), driver(1, threads=more)], [session(n) for n in range(4)]
    )
    rates = results.tables["rates"].filter((pl.col("name") == "driver_cpus") & (pl.col("scope") == "rung"))
    (figure,) = rates.to_dicts()
    assert figure["status"] == status
    assert (figure["value"] is None) == bool(more)


def test_each_hosts_figures_are_those_of_its_sessions() -> None:
    drivers = [driver(0), driver(1, run_ns=30 * S, runq_ns=10 * S), driver(2, status="lost", detail="gone")]
    sessions = [session(n, calls=1000 + n) for n in range(4)]
    a, b, c = table(drivers, sessions)
    assert (a["calls"], b["calls"], c["calls"]) == (2001, 2005, 0)
    assert a["rate_per_s"] == pytest.approx(200.1) and a["session_rate_per_s"] == pytest.approx(100.05)
    assert (b["driver_cpus"], b["driver_starved"]) == (pytest.approx(3.0), pytest.approx(0.25))
    assert (c["rate_per_s"], c["shortest_ns"], c["detail"]) == (None, None, "gone")


def test_a_load_by_one_host_has_no_rows() -> None:
    assert hosts(climb("fake:cpu=10ms", [1]).cells).is_empty()


def test_equal_hosts_are_no_claim() -> None:
    results = results_of([driver(n) for n in range(3)], [session(n) for n in range(6)])
    assert not [f.id for f in results.findings if f.id.startswith("host-")]


def test_a_driver_without_a_cpu_is_a_warning() -> None:
    drivers = [driver(0), driver(1, run_ns=8 * S, runq_ns=8 * S), driver(2)]
    claim = claim_of(results_of(drivers, [session(n) for n in range(6)]), "host-starved")
    assert (claim.severity, claim.slots["host"]) == ("warning", "b")
    assert (claim.value.value, claim.value.unit) == (pytest.approx(0.5), "of runnable time")


def test_a_slow_network_and_a_slow_host_are_different_claims() -> None:
    far = [session(n, calls=600, min_ns=2 * MS) if n > 3 else session(n) for n in range(6)]
    results = results_of([driver(n) for n in range(3)], far)
    assert claim_of(results, "host-network").value.value == pytest.approx(1e-3)
    assert claim_of(results, "host-slow") is None
    slow = [session(n, calls=600) if n < 2 else session(n) for n in range(6)]
    results = results_of([driver(n) for n in range(3)], slow)
    assert claim_of(results, "host-network") is None
    slower = claim_of(results, "host-slow")
    assert slower.value.value == pytest.approx(0.4)
    assert (slower.slots["host"], slower.slots["rate"]) == ("a", pytest.approx(60))


def test_hosts_are_a_section_of_the_report(tmp_path: Any) -> None:
    drivers = [driver(0), driver(1), driver(2, status="lost", detail="the node left the cluster")]
    results = results_of(drivers, [session(n) for n in range(4)])
    path = present.write_report(results, tmp_path / "report.md")
    text = path.read_text()
    assert "Hosts that drove the load" in text and "the node left the cluster" in text
    assert results.tables["hosts"].select(pl.col("clock_bound_ns").max()).item() == 300_000


def test_a_terminal_has_a_line_for_each_host_and_the_first_calls_are_compared() -> None:
    begun = {0: 2 * MS, 1: 3 * MS, 2: 5 * MS}
    sessions = [session(n, began_ns=S + begun[n // 2]) for n in range(6)]
    results = results_of([driver(n) for n in range(3)], sessions)
    assert results.tables["hosts"]["first_call_ns"].to_list() == [*begun.values()]
    assert [h["clock_bound_ns"] for h in present.document(results)["hosts"]] == [300_000] * 3
    console = Console(width=80, file=io.StringIO())
    console.print(present.summary(results))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines if line[:1] and line[0] in NAMES] == [[n, "2"] for n in NAMES]
    assert "Hosts that drove the load, at 6 sessions" in text
    notes = " ".join(b.text for b in shown.blocks(results) if isinstance(b, Paragraph))
    assert "within 3.00 ms" in notes and "300 us" in notes
