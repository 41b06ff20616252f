"""One session that waits for a lock alone: named with its holder, and no limit of throughput."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.unit.answer_cases import Rung, results

from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.chains import lone_waits
from dbdyno.conclude.run.locks import lock_bound
from dbdyno.engines.postgres.wait_events import advice, families
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.schema.tables import rows

WINDOW = Rung(0, 0.0, 0.2, 0.0, repeat=1)
EVENT = "Lock/relation"
SAMPLES = 100


def _waits(pid: int, blocker: int, state: str = "idle in transaction", lasts: int = SAMPLES) -> list[Any]:
    row = WINDOW.head() | {"before_ns": 0, "after_ns": 1, "pid": pid, "session": pid, "blocker": blocker}
    row |= {"wait_class": "Lock", "wait_event": "relation", "object": "relation", "relation": "t_lock"}
    row |= {"state": state, "application": f"app{blocker}", "user": "app", "status": "ok"}
    return [row | {"sample": n, "seconds": 10.0 / SAMPLES} for n in range(lasts)]


def _rung(sessions: int, rate: float | None = None, calls_per_s: float | None = None) -> dict[str, Any]:
    row = {"workload": "lio", "variant": "base", "sessions": sessions, "repeats": 1, "calls": 0}
    return row | {"errors": 0, "status": "ok", "rate_per_s": rate, "calls_per_s": calls_per_s}


def _case(*blocked: dict[str, Any]) -> Case:
    run = results([WINDOW], cpus=2)
    event = WINDOW.head() | {"cell": "all", "rank": 1, "name": EVENT, "share": 0.7, "seconds": 7.0}
    event |= {"low": 6.9, "high": 7.1, "source": "scheduler trace"}
    tables = {
        **run.tables,
        "cut_blocked": rows("cut_blocked", list(blocked)),
        "top_events": rows("top_events", [event]),
        "rungs": rows("rungs", [_rung(0)]),
        "wait_families": families().table(),
        "wait_advice": advice().table(),
    }
    return Case(run.plan, run.environment, tables, {})


def test_a_session_that_waits_alone_limits_no_throughput() -> None:
    """A forgotten session held a table, another one waited for it: throughput was not limited."""
    case = _case(*_waits(7, 5))
    (found,) = lone_waits(case)
    assert (found.case, found.slots["pid"], found.slots["root"]) == ("transaction", "7", "5")
    assert found.value is not None and found.value.value == pytest.approx(1.0)
    assert "t_lock" in found.text and "app5" in found.text
    assert not list(lock_bound(case))


def test_the_holder_is_the_end_of_the_chain() -> None:
    """The blocker of the one session waits itself, for a third one."""
    outside = [row | {"session": None} for row in _waits(5, 3)]
    (found,) = lone_waits(_case(*_waits(7, 5, "active"), *outside))
    assert (found.slots["root"], found.case) == ("3", "transaction")


def test_several_sessions_that_wait_are_one_lock_that_limits() -> None:
    case = _case(*_waits(7, 5), *_waits(8, 5))
    assert not list(lone_waits(case)) and [c.slots["event"] for c in lock_bound(case)] == [EVENT]


def test_a_short_wait_of_one_session_is_no_claim() -> None:
    assert not list(lone_waits(_case(*_waits(7, 5, lasts=20))))


def test_a_wait_whose_share_of_db_time_is_unknown_limits_nothing() -> None:
    case = _case(*_waits(7, 5), *_waits(8, 5))
    events = case.tables["top_events"].with_columns(share=pl.lit(None, pl.Float64))
    unknown = Case(case.plan, case.environment, {**case.tables, "top_events": events}, {})
    assert list(lock_bound(unknown)) == []


def test_an_unknown_throughput_is_not_compared_with_that_of_lower_loads() -> None:
    """A table was locked for the whole of the higher load: no call that was due in its window ended in it."""
    case = _case(*_waits(7, 5), *_waits(8, 5))
    rungs = rows("rungs", [_rung(0, 300.0, 299.0), _rung(0, 3000.0)])
    events = case.tables["top_events"].with_columns(cell=pl.lit(together_at(3000.0)))
    tables = {**case.tables, "rungs": rungs, "top_events": events}
    (found,) = lock_bound(Case(case.plan, case.environment, tables, {}))
    assert found.slots["event"] == EVENT and "no longer grows" not in found.text
