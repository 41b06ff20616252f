"""The core's load driven directly: specification in, tables out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno import _core
from dbdyno.model.schema.tables import RAW, from_core

SECOND_NS = 1_000_000_000


def statement(sql: str, *params: str | None) -> dict[str, Any]:
    return {"sql": sql, "params": list(params)}


def load(
    target: Mapping[str, Any],
    call: Sequence[Mapping[str, Any]],
    sessions: int = 1,
    *,
    group: Mapping[str, Any] | None = None,
    **more: Any,
) -> _core.Load:
    """Returns a load of the core. ``group`` and ``more``: further keys of the sessions and of the
    specification."""
    one = {"count": sessions, "setup": [], "call": list(call), "warm": [], "warm_calls": 0} | dict(
        group or {}
    )
    return _core.Load("postgres", json.dumps({"target": target, "sessions": [one], "probe": None} | more))


def until_done(running: _core.Load, timeout_s: float = 60) -> None:
    assert running.wait(timeout_s), f"the phase was not over in {timeout_s} s"


def connect_load(*args: Any, **more: Any) -> _core.Load:
    core_load = load(*args, **more)
    core_load.connect()
    until_done(core_load)
    return core_load


def start(running: _core.Load, seconds: float = 60, settle_s: float = 0) -> int:
    """Starts the load and returns t1."""
    now = _core.now_ns()
    t1 = now + int((settle_s + seconds) * SECOND_NS)
    running.start(now, now + int(settle_s * SECOND_NS), t1)
    return t1


def tables(running: _core.Load) -> dict[str, pl.DataFrame]:
    """Waits for the end, finishes, and checks every table against the schema."""
    until_done(running)
    running.finish()
    until_done(running)
    raw = running.tables()
    assert set(raw) <= set(RAW)
    return {name: from_core(name, columns) for name, columns in raw.items()}


def run(*args: Any, seconds: float = 60, settle_s: float = 0, **more: Any) -> dict[str, pl.DataFrame]:
    running = connect_load(*args, **more)
    start(running, seconds, settle_s)
    return tables(running)


def failure(*args: Any, **more: Any) -> tuple[str, str, str | None, int | None]:
    """Returns (kind, message, sqlstate, session) of a load that cannot connect."""
    try:
        connect_load(*args, **more)
    except _core.DriverError as error:
        kind, message, sqlstate, session = error.args
        return kind, message, sqlstate, session
    raise AssertionError("it connected")
