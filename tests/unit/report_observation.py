"""A made-up observation: six windows of 10 s, a server restart between the third and the fourth.

Nothing here was measured. Twelve sessions, four of them busy; window 5 is twice as busy as the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.fake_engine import wait_families
from tests.unit import report_results, report_tables

from dbdyno.conclude.run.activity import activity
from dbdyno.model.plan.plan import Experiment, Observation
from dbdyno.model.results.ledger_rows import with_parents
from dbdyno.model.results.results import Results
from dbdyno.model.schema import tables

NS = report_results.NS
WINDOW_S = 10
GAP_S = 12.0
SESSIONS = 12
BUSY = (1.0, 1.1, 0.9, 1.0, 2.0, 1.0)  # how busy each window is
_BASE = {
    ("run.user", None): 1.0,
    ("run.system", None): 0.2,
    ("run", None): 1.2,
    ("runq", None): 0.8,
    ("sleep", "LWLock/BufferMapping"): 0.1,
    ("sleep", "LWLock/ProcArray"): 0.02,
    ("sleep", "IO/DataFileRead"): 0.3,
    ("sleep", "Lock/transactionid"): 0.2,
}


_SUMS = ("total", "seconds", "low", "high", "runq_s")


def results(busy: tuple[float, ...] = BUSY, observation: Observation | None = None) -> Results:
    plain = report_results.results(report_results.World(rungs=(1,)))
    cells = [_window(i, b) for i, b in enumerate(busy)]
    frames = {name: tables.rows(name, [r for c in cells for r in c.get(name, [])]) for name in tables.DERIVED}
    frames["ledger"] = with_parents(frames["ledger"])
    for name in ("profile", "top_events"):
        frames[name] = tables.pl.concat([frames[name], tables.rows(name, _all_windows(name, cells))])
    frames["sources"] = plain.tables["sources"]
    frames["wait_families"] = plain.tables["wait_families"]
    frames["histogram"] = tables.empty("cell_histogram")
    frames["wait_families"] = wait_families().table()
    asked = observation or Observation(duration="60s")
    experiment = Experiment(engine="postgres", name="observed", workload="observed", observation=asked)
    plan = plain.plan.model_copy(update={"experiment": experiment, "cells": (), "script_text": None}).sealed()
    info = plain.info.model_copy(update={"id": "20261121-104501-observed-77aa", "calibrations": {}})
    observed = replace(plain, info=info, plan=plan, tables=frames, findings=())
    return replace(observed, answers=(activity(observed),))


def accounts(busy: float) -> dict[tuple[str, str | None], float]:
    """Seconds per second of a window; the clients take the rest of twelve sessions."""
    seconds: dict[tuple[str, str | None], float] = {k: v * busy for k, v in _BASE.items()}
    parts = sum(v for (a, _), v in seconds.items() if a in ("run", "runq", "sleep"))
    return {**seconds, ("client", None): SESSIONS - parts + 0.05, ("unaccounted", None): -0.05}


def db_time(busy: float) -> float:
    return sum(v for (a, _), v in accounts(busy).items() if a in ("run", "runq", "sleep"))


def start_s(number: int) -> float:
    return number * WINDOW_S + (GAP_S if number >= 3 else 0.0)


def _window(number: int, busy: float) -> dict[str, list[dict[str, Any]]]:
    total = accounts(busy)
    key = {
        "cell": f"{number + 1:04d}-observed-base-s0-r{number + 1}",
        "workload": "observed",
        "variant": "base",
        "sessions": 0,
        "repeat": number + 1,
    }
    t0 = round(start_s(number) * NS) + 1
    ends = {"t0_ns": t0, "t1_ns": t0 + WINDOW_S * NS, "wall_s": float(WINDOW_S)}
    window = {**ends, "status": "ok", "reason": None}
    parts: Mapping[str, Any] = {
        "windows": [window],
        "ledger": [*_ledger(total), *report_tables.memos(total, True)],
        "events": report_tables.events(total, SESSIONS, True),
        "microstates": report_tables.microstates(total, SESSIONS, True),
        "strips": report_tables.strips(total, SESSIONS, True, key["cell"]),
        "profile": report_tables.profile(total, 50.0 * busy, 1000.0, True),
        "top_events": report_tables.top_events(total, True),
        "data_sources": [
            {
                "quantity": "cpu_used",
                "source": s,
                "unit": "cores",
                "value": 1.2 * busy * f,
                "status": "ok",
                "relative_difference": f - 1,
                "verdict": v,
            }
            for s, f, v in (("os tasks", 1.0, "reference"), ("cgroup", 1.02, "agrees"))
        ],
    }
    return {name: [{**key, **r} for r in rows] for name, rows in parts.items()}


def _ledger(total: Mapping[tuple[str, str | None], float]) -> list[dict[str, Any]]:
    row = {"scope": "rung", "session": None, "who": "rung", "status": "ok", "source": "os tasks"}
    return [{**row, "account": a, "detail": d, "aas": v} for (a, d), v in total.items()]


def _all_windows(name: str, cells: list[dict[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """The table over all windows: totals add up, here alike in every window."""
    whole = sum(BUSY[: len(cells)]) if cells else 0.0
    rows = []
    for row in cells[0][name] if cells else []:
        factor = whole / BUSY[0]
        scaled = {k: row[k] * factor for k in _SUMS if row.get(k) is not None}
        if row.get("unit") == "ratio":
            scaled = {}
        if row.get("per_s") is not None:
            scaled["per_s"] = row["per_s"] * factor / len(cells)
        rows.append({**row, **scaled, "cell": "all", "repeat": 0})
    return rows
