"""CPU time of executions with several threads, and of several executions one after another: counted once."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import S, made_cell, session_row

from dbdyno.account.ledger import accounts
from dbdyno.account.window import cut
from dbdyno.model.results.raw import RawCell

THREADS, EACH = 3, 5
"""Threads of an execution, and executions of 1 s one after another. A thread is on a CPU for half of it."""
HALF = S // 2


def cell_of_executions() -> RawCell:
    executions: list[dict[str, Any]] = []
    traced: list[dict[str, Any]] = []
    for n in range(EACH):
        pid, born = 1000 + 10 * n, 11 * S + n * S
        executions.append(
            {"session": 0, "number": n, "job": "j", "pid": pid, "start_ns": born, "end_ns": born + S}
            | {"measured": True, "outcome": "ok", "run_ns": HALF, "runq_ns": 0}
            | {"user_ns": THREADS * HALF, "system_ns": 0}
        )
        for thread in range(THREADS):
            traced.append(
                {"pid": pid, "tid": pid + thread, "start_ticks": born // 10_000_000, "before_ns": born + S}
                | {"after_ns": born + S, "role": "session", "session": 0, "run_ns": HALF, "runq_ns": 0}
                | {"sleep_ns": HALF, "throttled_ns": 0, "status": "ok"}
            )
    sessions = [
        session_row(calls=EACH, in_call_ns=EACH * S, first_start_ns=11 * S, last_end_ns=(11 + EACH) * S)
    ]
    return made_cell({"executions": executions, "traced": traced, "sessions": sessions})


def test_threads_of_a_process_do_not_multiply_its_time() -> None:
    ledger = accounts(cut([cell_of_executions()]))["ledger"]
    rung = ledger.filter(pl.col("scope") == "rung", pl.col("detail").is_null())
    sums = dict(rung.group_by("account").agg(pl.col("aas").sum()).rows())
    assert sums["run"] == pytest.approx(THREADS / 2)
    assert sums["run"] + sums["runq"] + sums["sleep"] == pytest.approx(THREADS)


def test_cpu_of_an_execution_is_what_was_booked_to_it() -> None:
    rates = cut([cell_of_executions()])["rates"].filter(pl.col("name") == "cpu_per_call_ns")
    assert rates["value"].to_list() == pytest.approx([THREADS * HALF] * 2)
    assert set(rates["source"]) == {"executions"}
