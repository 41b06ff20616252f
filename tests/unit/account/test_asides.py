"""Tasks that prepare or verify executions of commands belong to no session: their time of life shows it."""

from __future__ import annotations

import os
from typing import Any

import polars as pl
from tests.fakery import LIO, S, plan_cell, rows

from dbdyno import engines
from dbdyno.account.executions import parallelism
from dbdyno.account.window.trees import ASIDE, with_asides
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.schema.tables import RAW, empty
from dbdyno.model.schema.tables import raw as raw_table
from dbdyno.model.units import TICK_NS

MS = 1_000_000


def cell(executions: list[dict[str, Any]], samples: list[dict[str, Any]] | None = None) -> RawCell:
    """Executions of (session, pid, from, to) in ms, within a window of a second."""
    meta = CellMeta(
        cell=plan_cell(2),
        workload=LIO,
        calibration=None,
        driver_threads=1,
        usable_cpus=os.cpu_count() or 1,
        status="ok",
        wait_families=engines.wait_families("command"),
        start_ns=0,
        t0_ns=0,
        t1_ns=S,
        end_ns=S,
        asides=True,
    )
    raw = {"executions": rows("executions", executions), "samples": rows("samples", samples or [])}
    return RawCell(meta, {name: raw.get(name, empty(raw_table(name))) for name in RAW})


def execution(session: int, pid: int, begun: int, ended: int, left_over: int = 0) -> dict[str, Any]:
    return {
        "session": session,
        "number": pid,
        "job": "j",
        "pid": pid,
        "start_ns": begun * MS,
        "end_ns": ended * MS,
        "measured": True,
        "outcome": "ok",
        "left_over": left_over,
    }


def roles(raw: RawCell, *lives: tuple[int, int | None, int, int]) -> dict[int, str]:
    """Returns roles by pid; lives are (pid, session, from, to) in ms."""
    result = [
        {
            "pid": pid,
            "tid": pid,
            "start_ticks": a * MS // TICK_NS,
            "session": session,
            "role": "brief" if session is None else "session",
            "at_ns": at * MS,
        }
        for pid, session, a, b in lives
        for at in (a, b)
    ]
    tasks = with_asides(pl.DataFrame(result), raw)
    return dict(tasks.select("pid", "role").unique().rows())


TWO = [execution(0, 1, 100, 300), execution(0, 2, 500, 700), execution(1, 3, 0, 480)]


def test_a_life_between_two_executions_of_its_session_is_aside() -> None:
    result = roles(
        cell(TWO),
        (1, 0, 100, 300),  # an execution itself
        (10, 0, 310, 490),  # between two, while another session has one
        (11, 0, 120, 290),  # a child of the first
        (12, 0, 60, 99),  # before the first
        (13, 0, 705, 900),  # after the last
        (14, 1, 300, 470),
    )
    assert result == {1: "session", 10: ASIDE, 11: "session", 12: ASIDE, 13: ASIDE, 14: "session"}


def test_of_an_unknown_session_it_is_aside_where_no_session_has_an_execution() -> None:
    assert roles(cell(TWO), (20, None, 310, 470), (21, None, 710, 900)) == {20: "brief", 21: ASIDE}


def test_what_an_execution_left_is_its_own_until_it_has_been_killed() -> None:
    left = [execution(0, 1, 100, 300, left_over=1), execution(0, 2, 500, 700)]
    assert roles(cell(left), (30, 0, 290, 480)) == {30: "session"}


def test_tasks_of_asides_are_not_in_the_strip_of_parallelism() -> None:
    seen = [
        {
            "sample": n,
            "sql_before_ns": at * MS,
            "sql_after_ns": at * MS,
            "task_ns": at * MS,
            "role": "session",
            "session": 0,
            "pid": 9,
            "tid": 9,
            "task_state": "R",
            "via": "sql",
            "status": "ok",
        }
        for n, at in enumerate((150, 350, 550, 650, 750))
    ]
    strip = parallelism(cell(TWO, seen))
    assert strip is not None
    assert strip.sort("start_s")["runnable"].to_list() == [1, 0, 1, 1, 0]
