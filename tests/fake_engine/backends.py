"""Backends of the fake server, and those that an observation has chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Observation
from dbdyno.model.units import NS_PER_S
from tests.fake_engine.counters import WALL_EPOCH_S
from tests.fake_engine.machine import Task
from tests.fake_engine.sampling import QUERY_ID
from tests.fake_engine.world import World

USER, DATABASE = "app", "shop"
APPLICATIONS = ("web", "batch")  # of visitors, by their pid: even, odd

Row = dict[str, Any]


def rows(world: World) -> list[Row]:
    """Returns rows of the table backends, as of now."""
    now_ns = world.machine.now_ns
    return [_row(t, now_ns) for t in world.machine.tasks if t.grouped and t.timeline.alive_at(now_ns)]


def _row(task: Task, now_ns: int) -> Row:
    label = task.timeline.labels[-1]
    client = is_client(task)
    return {
        "at_ns": now_ns,
        "pid": task.pid,
        "backend_start_ns": WALL_EPOCH_S * NS_PER_S + task.timeline.born_ns,
        "kind": "client backend" if client else task.role.removeprefix("helper:"),
        "leader_pid": None if task.leader is None else task.leader.pid,
        "user": USER if client else None,
        "database": DATABASE if client else None,
        "application": application(task) if client else None,
        "client": "local" if client else None,
        "query_id": QUERY_ID if client and label.state == "active" else None,
        "status": "ok",
    }


def is_client(task: Task) -> bool:
    return task.role in ("session", "other")


def application(task: Task) -> str:
    return "dbdyno" if task.role == "session" else APPLICATIONS[task.pid % len(APPLICATIONS)]


def filters(chosen: Observation) -> dict[str, Any]:
    """Returns filters as a part of a watch's specification. Raises :class:`UsageError` for an impossible
    pid."""
    for pid in chosen.pids:
        if pid < 1:
            raise UsageError(f"no process has the pid {pid}", "a pid is a number from 1 on")
    return {
        "user": chosen.user,
        "database": chosen.database,
        "application": chosen.application,
        "pids": list(chosen.pids),
    }


def chooser(wanted: Mapping[str, Any]) -> Callable[[Task], bool]:
    """Returns a function that is true for client backends that pass all filters."""

    def chosen(task: Task) -> bool:
        has = {"user": USER, "database": DATABASE, "application": application(task)}
        named = all(wanted.get(name) in (None, value) for name, value in has.items())
        return is_client(task) and named and (not wanted.get("pids") or task.pid in wanted["pids"])

    return chosen
