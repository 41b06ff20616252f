"""System calls derived: shares, per call and unit of work, of sessions, each session and others; claims."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from tests.unit import report_results

from dbdyno.account.system_calls import system_call_sizes, system_calls, system_calls_total
from dbdyno.conclude.catalogue.criteria import apart, exceeds
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty, rows
from dbdyno.present import details as printed
from dbdyno.present.document.document import Paragraph, Table
from dbdyno.present.figures import selection
from dbdyno.present.run import system_calls as present

S = 10**9
CELL = {"cell": "c1", "workload": "w", "variant": "base", "sessions": 2, "repeat": 1}


def _call(
    session: int | None, name: str, calls: int, time_s: float, cpu_s: float, **more: Any
) -> dict[str, Any]:
    """A row of session 0 or 1, or of a helper."""
    keys = {"role": "helper:io" if session is None else "session", "session": session}
    task = {"pid": 100 + (session or 0), "tid": 100 + (session or 0), "start_ticks": 1}
    figures = {"time_ns": round(time_s * S), "cpu_ns": round(cpu_s * S), "calls": calls, "errors": 0}
    return (
        CELL
        | keys
        | task
        | {"name": name, **figures, "runq_ns": 0, "client_ns": 0, "bytes": 0, "unclear": 0}
        | more
    )


def _account(scope: str, session: int | None, account: str, aas: float, who: str = "") -> dict[str, Any]:
    ends = {"aas": aas, "low": aas, "high": aas, "status": "ok", "source": "scheduler trace"}
    return CELL | {"scope": scope, "session": session, "who": who or scope, "account": account} | ends


def _rate(scope: str, session: int | None, name: str, value: float) -> dict[str, Any]:
    return CELL | {
        "scope": scope,
        "session": session,
        "name": name,
        "unit": "1/s",
        "value": value,
        "status": "ok",
        "source": "driver",
    }


@pytest.fixture
def tables() -> dict[str, pl.DataFrame]:
    """Ten seconds of two sessions: 4 s on a CPU, 1 s in the run queue, 3 s asleep; 12 s at the client."""
    calls = [
        _call(0, "times", 8000, 0.09, 0.08),
        _call(1, "times", 200, 0.01, 0.01),
        _call(0, "pread64", 1000, 2.1, 1.0, errors=10, bytes=8_192_000),
        _call(1, "epoll_wait", 800, 6.5, 0.1, client_ns=6 * S),
        _call(None, "pread64", 50, 1.0, 0.5),
    ]
    accounts = {"run": 0.4, "runq": 0.1, "sleep": 0.3, "client": 1.2}
    ledger = [_account("rung", None, n, aas) for n, aas in accounts.items()]
    ledger += [_account("session", s, n, aas / 2) for s in (0, 1) for n, aas in accounts.items()]
    ledger += [_account("helper", None, "run", 0.1, "helper:io")]
    windows = [CELL | {"t0_ns": 0, "t1_ns": 10 * S, "wall_s": 10.0, "status": "ok"}]
    sizes = [
        {n: c[n] for n in (*CELL, "role", "session", "pid", "tid", "start_ticks", "name")} | more
        for c, more in (
            (calls[2], {"size_bytes": 8192, "calls": 990}),
            (calls[4], {"size_bytes": 0, "calls": 50}),
        )
    ]
    of_cells = {
        "cut_syscalls": rows("cut_syscalls", calls),
        "cut_syscall_sizes": rows("cut_syscall_sizes", sizes),
        "ledger": rows("ledger", ledger),
        "windows": rows("windows", windows),
        "rates": rows(
            "rates", [_rate("rung", None, "calls_per_s", 50.0), _rate("rung", None, "work_per_s", 1000.0)]
        ),
    }
    return of_cells | {
        "system_calls": system_calls(of_cells),
        "system_call_sizes": system_call_sizes(of_cells),
    }


def _row_of(tables: dict[str, pl.DataFrame], who: str, name: str) -> dict[str, Any]:
    matching = tables["system_calls"].filter((pl.col("who") == who) & (pl.col("name") == name)).to_dicts()
    return matching[-1]


def test_many_calls_may_be_little_time(tables: dict[str, pl.DataFrame]) -> None:
    """82 % of system calls and 2.2 % of CPU."""
    times, read, wait = (_row_of(tables, "rung", n) for n in ("times", "pread64", "epoll_wait"))
    assert (times["calls"], times["calls_share"], times["cpu_share"]) == (8200, 0.82, pytest.approx(0.0225))
    assert times["db_time_share"] == pytest.approx(0.1 / 8)
    assert (read["cpu_share"], read["db_time_share"], read["errors"]) == (0.25, pytest.approx(2.1 / 8), 10)
    assert wait["db_time_share"] == pytest.approx(0.5 / 8), "sleep for the client is no DB time"
    assert (read["per_call"], read["per_work"]) == (2.0, 0.1)
    assert (read["cpu_per_call_ns"], read["cpu_per_work_ns"]) == (2e6, 1e5)


def test_each_session_and_other_processes_have_rows(tables: dict[str, pl.DataFrame]) -> None:
    own, helper = _row_of(tables, "session", "epoll_wait"), _row_of(tables, "helper:io", "pread64")
    assert (own["session"], own["calls_share"], own["cpu_share"]) == (1, 0.8, pytest.approx(0.05))
    assert (helper["calls"], helper["cpu_share"], helper["db_time_share"]) == (50, 0.5, None)
    sizes = tables["system_call_sizes"].select("who", "name", "size_bytes", "calls").rows()
    assert sorted(sizes) == [("helper:io", "pread64", 0, 50), ("rung", "pread64", 8192, 990)]


def test_repeats_together_are_sums_over_sums(tables: dict[str, pl.DataFrame]) -> None:
    other = {"cell": "c2", "repeat": 2}
    changed = [pl.lit(v).alias(n) for n, v in other.items()]
    named = ("windows", "system_calls", "system_call_sizes")
    both = {
        n: pl.concat(
            [tables[n], tables[n].with_columns(changed).select(tables[n].columns)], how="vertical_relaxed"
        )
        for n in named
    }
    of_load = system_calls_total(both)
    times = _row_of(of_load, "rung", "times")
    assert (times["cell"], times["calls"], times["calls_share"]) == ("all", 16400, 0.82)
    assert (times["per_call"], times["cpu_share"]) == (16.4, pytest.approx(0.0225))
    assert of_load["system_calls"].filter(who="session").is_empty()
    assert of_load["system_call_sizes"].filter(who="rung")["calls"].to_list() == [1980]


def test_figures_that_were_not_counted_are_unknown(tables: dict[str, pl.DataFrame]) -> None:
    """A run that was measured when calls and time were all that was counted."""
    calls = tables["cut_syscalls"].with_columns(
        pl.lit(None, pl.Int64).alias(n) for n in ("cpu_ns", "client_ns")
    )
    times = _row_of({"system_calls": system_calls(tables | {"cut_syscalls": calls})}, "rung", "times")
    assert (times["calls"], times["cpu_ns"], times["cpu_share"], times["db_time_share"]) == (
        8200,
        None,
        None,
        None,
    )
    nothing = tables | {n: empty(n) for n in ("cut_syscalls", "cut_syscall_sizes")}
    assert system_calls(nothing).is_empty()
    assert system_call_sizes(nothing).is_empty()


def test_shares_of_calls_and_of_cpu_lie_apart_within_the_criteria() -> None:
    assert apart(0.82, 0.018)
    assert apart(0.02, 0.4)
    assert not apart(0.82, 0.3)
    assert not apart(0.2, 0.01), "a small part of both"
    assert exceeds(0.5, 0.4)
    assert not exceeds(0.41, 0.4)


@pytest.fixture
def run_with_calls(tables: dict[str, pl.DataFrame]) -> Results:
    """A run whose highest load made these calls."""
    run = report_results.results()
    top = run.tables["windows"].sort("sessions").tail(1)
    head = [pl.lit(v).alias(n) for n, v in top.select(CELL.keys()).row(0, named=True).items()]
    more = {n: tables[n].with_columns(head) for n in ("system_calls", "system_call_sizes")}
    return replace(run, tables={**run.tables, **more})


def _table(results: Results, title: str) -> list[dict[str, Any]]:
    pick = selection.pick_of(results, None)
    assert pick is not None
    blocks = [b for b in present.tables(results, pick) if isinstance(b, Table) and title in b.title]
    heads = [c.head for c in blocks[0].columns]
    return [dict(zip(heads, (c.value for c in row.cells), strict=True)) for row in blocks[0].rows]


def test_the_document_has_them_by_cpu_time_with_a_total(run_with_calls: Results) -> None:
    lines = _table(run_with_calls, "by CPU time")
    assert [r["system call"] for r in lines] == ["pread64", "epoll_wait", "times", "TOTAL"]
    total = lines[-1]
    assert (total["calls"], total["% calls"], total["errors"]) == (10_000, 1.0, 10)
    assert total["% CPU"] == pytest.approx(0.2975)
    assert lines[0]["bytes/call"] == pytest.approx(8_192_000 / 990)
    assert [(r["whose"], r["most CPU in"]) for r in _table(run_with_calls, "by session")] == [
        ("session 0", "pread64"),
        ("session 1", "epoll_wait"),
    ]
    assert [r["bytes"] for r in _table(run_with_calls, "Sizes")] == [8192]


def test_without_system_calls_the_cure_is_named() -> None:
    run = report_results.results()
    pick = selection.pick_of(run, None)
    assert pick is not None
    (paragraph,) = present.tables(run, pick)
    assert isinstance(paragraph, Paragraph)
    assert not present.traced(run)


def test_the_share_of_clock_reads_comes_from_the_profile(run_with_calls: Results) -> None:
    """Clock reads in the vDSO are no system calls: only a profile has their share of CPU."""
    cell = run_with_calls.tables["system_calls"].select(CELL.keys()).row(0, named=True)
    head = {"scope": "rung", "who": "rung", "by": "module", "samples": 9, "status": "ok"}
    shares = (("vdso", 0.018), ("postgres", 0.982))
    profile = [cell | head | {"name": n, "aas": a, "low": a / 2, "high": 2 * a} for n, a in shares]
    profiled = replace(
        run_with_calls, tables={**run_with_calls.tables, "cpu_profile": rows("cpu_profile", profile)}
    )
    for results, words in ((run_with_calls, "--profile"), (profiled, "1.8 % of CPU (0.9 to 3.6 %")):
        pick = selection.pick_of(results, None)
        assert pick is not None
        notes = [b.text for b in present.tables(results, pick) if isinstance(b, Paragraph)]
        assert any(words in n for n in notes)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(run_with_calls: Results, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(printed(run_with_calls, "syscalls"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert any(line.startswith("TOTAL") for line in lines)
