"""Specifications of the core with one hostile value each, and the calls that take them."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tests.unit.core_arguments import CALL_S, HUGE, attempt

from dbdyno import _core

SHORT_NS = 5_000_000

JSON_VALUES: list[Any] = [
    *(-1, 0, 1, -(2**63), 2**31, 2**32, HUGE, 2**64 - 1, 2**64),
    *(-0.0, 0.5, 1e308, -1e308, 5e-324, 1e-9),
    *("", "\0", "a\0b", "x" * 10_000, "/", "constant"),
    *(None, True, [], {}, [[]], [None], [0, 0], [-1, HUGE, 5], {"x": 1}),
]
JSON_TEXTS = [
    *(
        "",
        " ",
        "nul",
        "null",
        "0",
        '""',
        "[]",
        "{",
        "{}",
        '{"x"',
        "\0",
        "{}{}",
        "NaN",
        "Infinity",
        '{"": 1e999}',
    ),
    *(
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        "9" * 1_000_000,
        '"' + "x" * 10_000_000,
        '"\\ud800"',
        '{"a": 1, "a": 2}',
    ),
]


def nowhere() -> dict[str, Any]:
    """A server's address at which nothing listens."""
    return {"host": "/nonexistent", "port": 1, "user": "u", "database": "d", "connect_timeout_ms": 1000}


def driving() -> dict[str, Any]:
    """The driver's half of a load's specification."""
    return {
        "threads": 1,
        "log_calls": True,
        "log_limit": 10,
        "log_cpu": True,
        "rounds": False,
        "grace_ms": 0,
        "max_calls": 3,
        "shared_calls": 9,
        "think_us": 0,
        "think": None,
        "seed": 1,
        "first_session": 0,
        "windows_ns": [SHORT_NS],
    }


JOB = {
    "name": "j",
    "argv": ["true"],
    "shown": "true",
    "directory": None,
    "env": {"A": "b"},
    "input": None,
    "prepare": [],
    "conclude": [],
    "verify": [],
    "timeout_ns": None,
    "shell_ns": 0,
    "work": None,
    "work_file": None,
    "work_regex": None,
}


def commands(control: int) -> dict[str, Any]:
    more = {"in_turn": False, "keep_output": 10, "run": "r"}
    return {"control": control, "sessions": 1, "jobs": [JOB], **more, **driving()}


def paced(control: int) -> dict[str, Any]:
    part = {"first": 0, "end": 1, "of": 2}
    arrivals = {"kind": "poisson", "rate": [[1, 500, 500]], "seed": 1, "latency_limit_us": 5, "part": part}
    return commands(control) | {"arrivals": arrivals, "shared_calls": None}


def thinking(control: int) -> dict[str, Any]:
    think = {"kind": "uniform", "low_us": 1, "high_us": 2}
    return commands(control) | {"think": think, "think_us": 0}


STATEMENTS = {
    "target": nowhere() | {"password": "p", "tls": None, "application_name": "a", "peer_uid": None},
    "sessions": [{"count": 1, "setup": [], "call": [{"sql": "select 1", "params": []}], "warm_calls": 0}],
    "probe": {
        "flush": [],
        "read": "select 1 as c",
        "columns": [{"name": "c", "kind": "counter", "unit": "x"}],
    },
    **driving(),
}
SCRIPTS = {
    "target": nowhere(),
    "scripts": {
        "files": [{"name": "a", "text": "select 1;", "weight": 1}],
        "variables": {"scale": "1"},
        "max_tries": 1,
        "reconnect": False,
        "allow_shell": False,
        "seed": 1,
        "first_client": 0,
    },
    "sessions": [{"count": 1, "setup": [], "protocol": "prepared", "validation": None, "warm": []}],
}
COLUMNS: list[dict[str, Any]] = [
    {"name": "a", "type": "bigint", "content": {"expression": ":row"}, "key": ":parent", "nulls": 0.5},
    {"name": "b", "type": "numeric", "content": {"expression": "1"}, "scale": 2},
    {"name": "c", "type": "text", "content": {"words": [["w"], 0, 1]}},
    {"name": "d", "type": "text", "content": {"characters": ["w", 0, 1]}},
    {"name": "e", "type": "text", "content": {"choice": [["w", 1.0]]}},
    {"name": "f", "type": "text", "content": {"template": "{:row}"}},
    {"name": "g", "type": "text", "content": {"constant": "x"}, "sent": False},
]
TABLE = {
    "name": "t",
    "sql": "t",
    "rows": [1, 3],
    "per_parent": "1",
    "parameters": {"scale": 1},
    "freeze": False,
    "columns": COLUMNS,
}
LOADER = {
    "target": nowhere(),
    "workers": 1,
    "seed": 1,
    "setup": ["select 1"],
    "steps": [{"name": "s", "tables": [TABLE], "statements": [["x"]], "after": {"t": [["y"]]}}],
}


def watching() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "engine": "command",
        "activity": {"main_pid": pid},
        "sessions": [[0, pid, pid]],
        "os": True,
        "tasks": [{"pid": pid, "tid": pid, "role": "driver"}],
        "unseen": "not here",
        "main_pid": pid,
        "tree": True,
        "sample_hz": 100.0,
        "seed": 1,
        "sample_budget": 0.5,
        "task_interval_ms": 10,
        "cgroups": [{"scope": "server", "version": 2, "path": "/sys/fs/cgroup"}],
        "host": True,
        "word": {
            "program": "python",
            "symbol": "s",
            "names": [[1, "c", "e"]],
            "classes": [[1, "c"]],
            "client": [1],
            "statement": {"symbol": "s", "offset": 1, "idle": 1},
        },
        "memory_hz": 100.0,
        "memory_budget": 0.5,
        "trace": "off",
        "syscalls": True,
        "trace_room": 0,
        "profile": None,
        "off_cpu": None,
        "adopt": True,
    }


def mutated(spec: Any, most_depth: int = 7) -> Iterator[Any]:
    """The specification with one value of it replaced, one key missing, one key too many."""
    if not most_depth:
        return
    keys = list(spec) if isinstance(spec, Mapping) else range(len(spec)) if isinstance(spec, list) else []
    for key in keys:
        for value in JSON_VALUES:
            other = copy.copy(spec)
            other[key] = value
            yield other
        for inner in mutated(spec[key], most_depth - 1):
            other = copy.copy(spec)
            other[key] = inner
            yield other
        if isinstance(spec, Mapping):
            yield {k: v for k, v in spec.items() if k != key}
    if isinstance(spec, Mapping):
        yield {**spec, "unknown": 1}


def run_load(engine: Any, spec: Any) -> None:
    """A load through all its phases, as far as it comes."""
    load = attempt(_core.Load, engine, spec if isinstance(spec, str) else json.dumps(spec))
    if not isinstance(load, _core.Load):
        return
    attempt(load.connect)
    if attempt(load.wait, CALL_S) is True:
        now = _core.now_ns()
        attempt(load.start, now, now, now + SHORT_NS)
        attempt(load.progress)
        if attempt(load.wait, 0.05) is not True:
            attempt(load.abort)
            if attempt(load.wait, CALL_S) is False:
                raise SystemExit(f"does not end after abort: {spec}")
        attempt(load.finish)
        attempt(load.wait, CALL_S)
    attempt(load.tables)
    attempt(load.window_tables, 0)


def run_loader(spec: Any) -> None:
    loader = attempt(_core.Loader, "postgres", spec if isinstance(spec, str) else json.dumps(spec))
    if isinstance(loader, _core.Loader):
        attempt(loader.wait, CALL_S)
        attempt(loader.progress)
        attempt(loader.total_rows)
        attempt(loader.abort)
        attempt(loader.sums)


def run_watch(spec: Any) -> None:
    watch = attempt(_core.Watch, spec if isinstance(spec, str) else json.dumps(spec))
    if isinstance(watch, _core.Watch):
        now = _core.now_ns()
        attempt(watch.start, now, now + SHORT_NS)
        attempt(watch.latest)
        attempt(watch.recent, 0)
        attempt(watch.stop)
        attempt(watch.tables)
        attempt(watch.source_status)
        attempt(watch.trouble)
