"""All calls of a group, in a process of its own: ``python -m tests.unit.core_calls GROUP``.

It prints what was wrong and exits with 1; a panic of one of the core's threads is printed by the core itself.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.unit.core_arguments import ANY, CALL_S, HUGE, attempt, each_argument, each_order
from tests.unit.core_function_calls import (
    ARRAYS,
    NUMBERS_ALONE,
    caches,
    distributions,
    evaluations,
    groups,
    launched_sessions,
    launcher,
    launches,
    memories,
    scripts,
    tasks,
)
from tests.unit.core_specifications import (
    JSON_TEXTS,
    JSON_VALUES,
    LOADER,
    SCRIPTS,
    SHORT_NS,
    STATEMENTS,
    TABLE,
    commands,
    mutated,
    nowhere,
    paced,
    run_load,
    run_loader,
    run_watch,
    thinking,
    watching,
)

from dbdyno import _core

MOST_BYTES = 2 << 30
"""Resident memory of all calls of a group; the largest trace takes 1.3 GB."""


def loads() -> None:
    for text in JSON_TEXTS:
        for engine in ("postgres", "command", "fake", "", "\0"):
            run_load(engine, text)
    for spec in [*mutated(STATEMENTS), *mutated(SCRIPTS)]:
        run_load("postgres", spec)
    each_argument(_core.Load, "postgres", json.dumps(STATEMENTS))


def loads_of_commands(make: Callable[[int], Any]) -> None:
    with launcher() as control:
        for spec in mutated(make(control)):
            run_load("command", spec)


def load_methods() -> None:
    now = _core.now_ns()
    methods: dict[str, tuple[Any, ...]] = {
        "connect": (),
        "start": (now, now, now + SHORT_NS),
        "finish": (),
        "wait": (0.05,),
        "stop": (),
        "abort": (),
        "progress": (),
        "live_durations": (),
        "backends": (),
        "threads": (),
        "now_ns": (),
        "tables": (),
        "window_tables": (0,),
    }
    with launcher() as control:
        specs = {"command": json.dumps(commands(control)), "postgres": json.dumps(STATEMENTS)}
        for engine, spec in specs.items():
            each_order(partial(_core.Load, engine, spec), methods)
            load = _core.Load(engine, spec)
            for method in ("connect", "finish", "stop", "abort", "progress", "live_durations", "backends"):
                each_argument(getattr(load, method))
            for method in ("threads", "now_ns", "tables"):
                each_argument(getattr(load, method))
            each_argument(load.window_tables, 0)
            attempt(load.abort)


def loads_start() -> None:
    with launcher() as control:
        for make in (commands, paced):
            each_argument(partial(started, make(control)), 0, 0, 0)
            for times in [
                (0, 0, 0),
                (0, 0, HUGE),
                (HUGE, HUGE, HUGE),
                (0, HUGE, HUGE),
                (5, 4, 3),
                (-1, 0, 1),
            ]:
                started(make(control), *times)


def started(spec: Any, *times: Any) -> None:
    """A load that begins at these times, and is broken off."""
    load = _core.Load("command", json.dumps(spec))
    load.connect()
    assert load.wait(CALL_S)
    attempt(load.start, *times)
    attempt(load.progress)
    attempt(load.wait, 0.01)
    attempt(load.abort)
    attempt(load.wait, CALL_S)
    attempt(load.tables)


def waits(make: Callable[[], Any]) -> None:
    """Calls ``wait`` of loads and watches that are over."""
    waiter = make()
    for value in ANY:
        attempt(waiter.wait, value)
    each_argument(waiter.wait)


def load_wait() -> None:
    waits(partial(_core.Load, "postgres", json.dumps(STATEMENTS)))


def loaders() -> None:
    for text in JSON_TEXTS:
        run_loader(text)
        attempt(_core.Loader, "command", text)
    for spec in mutated(LOADER, 9):
        run_loader(spec)
    each_argument(_core.Loader, "postgres", json.dumps(LOADER))


def loader_methods() -> None:
    make = partial(_core.Loader, "postgres", json.dumps(LOADER))
    each_order(make, {"wait": (0.05,), "abort": (), "progress": (), "total_rows": (), "sums": ()})
    waits(make)
    for method in ("abort", "progress", "total_rows", "sums"):
        each_argument(getattr(make(), method))


def watches() -> None:
    for text in JSON_TEXTS:
        run_watch(text)
    for spec in mutated(watching()):
        run_watch(spec)
    each_argument(_core.Watch, json.dumps(watching()))


def watches_of_a_server() -> None:
    activity = {"target": nowhere(), "sql": "select 1", "blocking": {"sql": "select 1", "classes": ["Lock"]}}
    base = {"engine": "postgres", "os": False, "host": False}
    for half in mutated(activity):
        run_watch(base | {"activity": half})


def watches_of_the_kernel() -> None:
    """Values of the trace and of the profiles, which take long to make."""
    pid = os.getpid()
    base = {"os": True, "host": False, "main_pid": pid, "sessions": [[0, pid, pid]]}
    for key in ("trace_room", "main_pid"):
        for value in JSON_VALUES:
            run_watch(base | {key: value})
    for source in ("profile", "off_cpu"):
        for value in JSON_VALUES:
            run_watch(base | {"trace": "off", source: {"hz": value}})
            run_watch(base | {"trace": "off", source: {"hz": 10, "until_ns": value}})
            run_watch(base | {"sessions": [[0, value, value]], "trace_room": 8})


def watch_methods() -> None:
    now = _core.now_ns()
    spec = json.dumps(watching())
    methods: dict[str, tuple[Any, ...]] = {
        "start": (now, now + SHORT_NS),
        "stop": (),
        "latest": (),
        "trouble": (),
    }
    methods |= {"tables": (), "recent": (0,), "source_status": ()}
    each_order(partial(_core.Watch, spec), methods)
    for first in ANY:
        for times in [(first, now), (now, first)]:
            watch = _core.Watch(spec)
            attempt(watch.start, *times)
            attempt(watch.stop)
    for times in [(0, HUGE), (HUGE, HUGE), (1, 0), (-(2**63), HUGE)]:
        watch = _core.Watch(spec)
        attempt(watch.start, *times)
        attempt(watch.stop)
        attempt(watch.tables)
        each_argument(watch.recent, 0)
    for method in ("stop", "latest", "trouble", "tables", "source_status"):
        each_argument(getattr(watch, method))


def pulses() -> None:
    each_argument(_core.Pulse)
    each_order(_core.Pulse, {"holes": ()})
    each_argument(_core.Pulse().holes)


def loader_that_counts() -> None:
    """Interrupts the counting of a specification's rows, which would take minutes."""
    table = TABLE | {"rows": [1, 1_000_000_000], "per_parent": "random(0, 1)"}
    spec = json.dumps(LOADER | {"steps": [{"name": "s", "tables": [table]}]})
    faulthandler.dump_traceback_later(CALL_S, exit=True)
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        _core.Loader("postgres", spec)
    except KeyboardInterrupt:
        return
    raise SystemExit("it counted to the end")


GROUPS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "clock": (lambda: each_argument(_core.now_ns), ("now_ns",)),
    "launches": (launches, ("launch_commands",)),
    "launched sessions": (launched_sessions, ()),
    "scripts": (scripts, ("read_script", "builtin_script")),
    "evaluations": (evaluations, ("evaluate_script",)),
    "loads": (loads, ("Load",)),
    "loads of commands": (partial(loads_of_commands, commands), ()),
    "paced loads": (partial(loads_of_commands, paced), ()),
    "thinking loads": (partial(loads_of_commands, thinking), ()),
    "methods of loads": (
        load_methods,
        (
            *(
                "Load.connect",
                "Load.finish",
                "Load.stop",
                "Load.abort",
                "Load.progress",
                "Load.live_durations",
            ),
            *("Load.backends", "Load.threads", "Load.now_ns", "Load.tables", "Load.window_tables"),
        ),
    ),
    "starts of loads": (loads_start, ("Load.start",)),
    "waits for loads": (load_wait, ("Load.wait",)),
    "loaders": (loaders, ("Loader",)),
    "a loader that counts": (loader_that_counts, ()),
    "methods of loaders": (
        loader_methods,
        ("Loader.wait", "Loader.abort", "Loader.progress", "Loader.total_rows", "Loader.sums"),
    ),
    "watches": (watches, ("Watch",)),
    "watches of a server": (watches_of_a_server, ()),
    "watches of the kernel": (watches_of_the_kernel, ()),
    "methods of watches": (
        watch_methods,
        (
            *("Watch.start", "Watch.stop", "Watch.latest", "Watch.trouble", "Watch.tables", "Watch.recent"),
            "Watch.source_status",
        ),
    ),
    "pulses": (pulses, ("Pulse", "Pulse.holes")),
    "tasks": (tasks, ("read_task",)),
    "memories": (memories, ("read_behind",)),
    "control groups": (groups, ("find_cgroups",)),
    "page cache": (caches, ("page_cache",)),
    "distributions": (distributions, (*ARRAYS, *NUMBERS_ALONE, "find_root")),
}
"""Groups by name: the function that calls them, and the names of the core that it covers."""


def _most_resident_bytes() -> int:
    """Returns VmHWM (proc(5)). ``ru_maxrss`` has the parent's, too, up to exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    GROUPS[sys.argv[1]][0]()
    used = _most_resident_bytes()
    if used > MOST_BYTES:
        raise SystemExit(f"{used} bytes of memory")
