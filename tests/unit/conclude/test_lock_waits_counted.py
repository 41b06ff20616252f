"""The server's own count of lock waits beside those that were measured, from made-up tables."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.answer_cases import Rung, results

from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.locks import counted_lock_waits
from dbdyno.engines.postgres.wait_events import families
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.wait_families import COUNTED_LOCK_WAITS, LOCK_WAIT_NS

LOAD = Rung(4, 100.0, 0.2, 0.0, repeat=1)
WALL_NS = 10_000_000_000


def _event(wait_class: str, wait_event: str, sleep: float | None, runq: float | None) -> dict[str, Any]:
    row = LOAD.head() | {"scope": "rung", "who": "rung", "state": "active", "run": 0.0, "status": "ok"}
    return row | {
        "wait_class": wait_class,
        "wait_event": wait_event,
        "sleep": sleep,
        "runq": runq,
        "source": "s",
    }


def _case(counted_s: float | None, *events: dict[str, Any], named: bool = True) -> Case:
    run = results([LOAD], cpus=4)
    level = LOAD.head() | {
        "origin": "engine",
        "scope": "server",
        "key": LOCK_WAIT_NS,
        "status": "ok",
    }
    level |= {"delta": None if counted_s is None else counted_s * 1e9, "wall_ns": WALL_NS}
    source = LOAD.head() | {"name": COUNTED_LOCK_WAITS, "provenance": "the view", "status": "ok"}
    source |= {"detail": "waits longer than 1 s"}
    tables = {
        **run.tables,
        "cut_levels": rows("cut_levels", [level]),
        "cell_sources": rows("cell_sources", [source] if named else []),
        "events": rows("events", list(events)),
        "wait_families": families().table(),
    }
    return Case(run.plan, run.environment, tables, {})


LONG = _event("Lock", "transactionid", 3.5, 0.5), _event("LWLock", "WALInsert", 9.0, 0.0)
"""4 s/s of lock waits; the wait for a latch is none of them."""


@pytest.mark.parametrize(
    ("counted_s", "kind", "share"), [(4.8, "less", 0.12), (38.0, "same", 0.95), (80.0, "more", 2.0)]
)
def test_the_share_is_of_lock_waits_asleep_and_in_the_run_queue(
    counted_s: float, kind: str, share: float
) -> None:
    (found,) = counted_lock_waits(_case(counted_s, *LONG))
    assert found.value is not None
    assert (found.case, found.value.value) == (kind, pytest.approx(share))
    assert found.slots["counter"] == "the view"


@pytest.mark.parametrize(
    "case",
    [
        _case(None, *LONG),
        _case(4.8, *LONG, named=False),
        _case(4.8, _event("Lock", "tuple", 0.01, 0.0)),
        _case(4.8, _event("Lock", "tuple", None, 0.5)),
    ],
    ids=["no counter", "no name of it", "hardly a wait", "unknown"],
)
def test_what_one_side_does_not_know_is_not_compared(case: Case) -> None:
    assert list(counted_lock_waits(case)) == []
