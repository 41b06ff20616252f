"""Rows of the tables cgroup and host: the machine as a whole at given instants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dbdyno.model.units import TICK_NS
from tests.fake_engine.machine import Task
from tests.fake_engine.readings import bracket, switches
from tests.fake_engine.trace import ON_CPU, RUNNABLE, Doing, Ints
from tests.fake_engine.world import World

Row = dict[str, Any]


def cgroup(world: World, reads_ns: Sequence[int]) -> list[Row]:
    at = np.array(reads_ns, dtype=np.int64)
    usage = _total(world, at, Doing.RUN, lambda t: t.grouped)
    values = [_group(world, now_ns, int(usage[i])) for i, now_ns in enumerate(reads_ns)]
    if (reset_ns := world.reset_ns) is not None:
        before = _total(world, np.array([reset_ns], dtype=np.int64), Doing.RUN, lambda t: t.grouped)
        zero = _group(world, reset_ns, int(before[0]))
        values = [
            v if now_ns < reset_ns else {k: n - zero[k] for k, n in v.items()}
            for v, now_ns in zip(values, reads_ns, strict=True)
        ]
    head = {"scope": "server", "version": 2, "path": "/fake/server"}
    return _rows(reads_ns, values, head)


def host(world: World, reads_ns: Sequence[int]) -> list[Row]:
    """Returns rows of /proc/stat in clock ticks, all CPUs; PSI is not supported."""
    at = np.array(reads_ns, dtype=np.int64)
    run, stolen = (_total(world, at, doing) for doing in (Doing.RUN, Doing.STOLEN))
    switched = np.sum([n for t in world.machine.tasks for n in switches(t.timeline.sums, at)[1:]], axis=0)
    running = [_runnable(world, now_ns) for now_ns in reads_ns]
    values = [
        _stat(world, now_ns, int(run[i]), int(stolen[i]))
        | {"cpus": world.law.cpus, "context_switches": int(switched[i]), "procs_running": running[i]}
        for i, now_ns in enumerate(reads_ns)
    ]
    unknown = [
        bracket(t) | {"key": "psi.cpu.some_ns", "value": None, "status": "not supported"} for t in reads_ns
    ]
    return _rows(reads_ns, values, {}) + unknown


def _rows(reads_ns: Sequence[int], values: Sequence[Mapping[str, int]], head: Row) -> list[Row]:
    return [
        bracket(now_ns) | head | {"key": key, "value": value, "status": "ok"}
        for now_ns, all_of in zip(reads_ns, values, strict=True)
        for key, value in all_of.items()
    ]


def _total(world: World, at: Ints, doing: Doing, which: Callable[[Task], bool] = lambda _: True) -> Ints:
    total = np.zeros_like(at)
    for task in world.machine.tasks:
        if which(task):
            total += task.timeline.sums.time(task.timeline.sums.are(doing), at)
    return total


def _runnable(world: World, now_ns: int) -> int:
    lives = [t.timeline for t in world.machine.tasks]
    now = [life.doing[i] for life in lives if (i := life.index(now_ns)) >= 0]
    return sum(doing in (*ON_CPU, *RUNNABLE) for doing in now)


def _group(world: World, now_ns: int, usage_ns: int) -> dict[str, int]:
    history = world.machine.group.history
    _, periods, throttled, throttled_ns = history[bisect_right(history, (now_ns, 1 << 62)) - 1]
    return {
        "usage_ns": usage_ns,
        "user_ns": round(usage_ns * (1 - world.law.system)),
        "system_ns": round(usage_ns * world.law.system),
        "nr_periods": periods,
        "nr_throttled": throttled,
        "throttled_ns": throttled_ns,
    }


def _stat(world: World, now_ns: int, run_ns: int, stolen_ns: int) -> dict[str, int]:
    wall = now_ns - world.born_ns
    steal, system = wall * world.law.steal + stolen_ns, run_ns * world.law.system
    values = {
        "cpu.user_ns": run_ns - system,
        "cpu.nice_ns": 0,
        "cpu.system_ns": system,
        "cpu.idle_ns": wall * world.law.cpus - run_ns - steal,
        "cpu.iowait_ns": 0,
        "cpu.irq_ns": 0,
        "cpu.softirq_ns": 0,
        "cpu.steal_ns": steal,
    }
    return {k: int(v // TICK_NS) * TICK_NS for k, v in values.items()}
