"""Trees of processes: whatever their tasks do, and whatever part of it was read, nothing is lost or
double."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fakery import S, made_cell, session_row

from dbdyno.account.ledger import accounts
from dbdyno.account.window import cut

pytestmark = pytest.mark.queries

MS = 1_000_000
T0 = 10 * S
_MAIN = {"pid": 50, "tid": 50, "start_ticks": 1, "role": "helper:main", "status": "ok", "state": "S"}


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Draws birth and end inside the window, run and run queue."""
    lives = []
    for _ in range(draw(st.integers(1, 12))):
        born = T0 + draw(st.integers(1, 9_000)) * MS
        wall = draw(st.integers(1, 900)) * MS
        run = draw(st.integers(0, wall))
        lives.append((born, born + wall, run, draw(st.integers(0, wall - run))))
    return lives


def _rows(pid: int, life: tuple[int, int, int, int], at_exit: bool, **who: Any) -> list[dict[str, Any]]:
    born, end, run, runq = life
    head = {"pid": pid, "tid": pid, "start_ticks": born // (10 * MS), "status": "ok", "user_ns": 0} | who
    ends = [(born, 0, 0, "S"), (end, run, runq, "X")]
    return [
        head | {"before_ns": at, "after_ns": at, "run_ns": r, "runq_ns": q, "system_ns": r, "state": state}
        for at, r, q, state in (ends if at_exit else ())
    ]


@examples(60)
@given(firsts=lives(), children=lives(), at_exit=st.booleans())
def test_run_run_queue_and_sleep_are_the_wall_time_of_all_tasks(
    firsts: list[tuple[int, int, int, int]], children: list[tuple[int, int, int, int]], at_exit: bool
) -> None:
    """First processes are known by their executions, children by statistics at exit, or, without
    these, by the CPU time of the launcher's ended children alone."""
    executions = [
        {"session": 0, "number": n, "job": "j", "pid": 1000 + n, "start_ns": born, "end_ns": end}
        | {"measured": True, "outcome": "ok", "run_ns": run, "runq_ns": runq, "user_ns": 0, "system_ns": run}
        for n, (born, end, run, runq) in enumerate(firsts)
    ]
    cpu = sum(run for _, _, run, _ in (*firsts, *children))
    tasks = [
        _MAIN | {"before_ns": at, "after_ns": at, "run_ns": 0, "runq_ns": 0, "children_ns": ended}
        for at, ended in ((T0, 0), (T0 + 10 * S, cpu))
    ]
    for n, life in enumerate(children):
        tasks += _rows(2000 + n, life, at_exit, role="session", session=0)
    tables = {"executions": executions, "tasks": tasks, "sessions": [session_row()]}
    ledger = accounts(cut([made_cell(tables)]))["ledger"]
    rung = dict(
        ledger.filter(pl.col("scope") == "rung", pl.col("detail").is_null())
        .filter(pl.col("account").is_in(["run", "runq", "sleep", "unaccounted"]))
        .group_by("account")
        .agg(pl.col("aas").first())
        .rows()
    )
    unseen = sum(run for _, _, run, _ in children)
    if at_exit or unseen > 30 * MS:
        assert rung["run"] * 10 * S == pytest.approx(cpu, abs=10)
    if at_exit:
        wall = sum(end - born for born, end, _, _ in (*firsts, *children))
        assert (rung["run"] + rung["runq"] + rung["sleep"]) * 10 * S == pytest.approx(wall, abs=100)
        assert rung["unaccounted"] == pytest.approx(0, abs=1e-6)
