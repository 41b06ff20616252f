"""Rows of the observers' tables: what would have been read at given instants."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from dbdyno.engines.fake.machine import Task
from dbdyno.engines.fake.trace import Doing
from dbdyno.engines.fake.world import World

TICK_NS = 10_000_000  # utime and stime count in clock ticks of 10 ms
READ_NS = 2_000  # one read of a task
_STATES = {Doing.RUN: "R", Doing.QUEUE: "R", Doing.THROTTLED: "R", Doing.SLEEP: "S"}

Row = dict[str, Any]


def samples(world: World, due: Sequence[tuple[int, int]], os: bool) -> list[Row]:
    return [
        _sample(number, due_ns, task, world.law.skew, os)
        for number, due_ns in due
        for task in world.machine.tasks
        if task.role != "driver" and task.timeline.alive_at(due_ns)
    ]


def _sample(number: int, due_ns: int, task: Task, skew_ns: int, os: bool) -> Row:
    label = task.timeline.labels[task.timeline.index(due_ns)]
    state, status = _task_state(task, due_ns + skew_ns) if os else (None, "not here")
    return {
        "sample": number,
        "sql_before_ns": due_ns - READ_NS,
        "sql_after_ns": due_ns + READ_NS,
        "task_ns": due_ns + skew_ns if os else None,
        "pid": task.pid,
        "role": task.role,
        "session": task.session,
        "state": label.state,
        "wait_class": label.wait_class,
        "wait_event": label.wait_event,
        "task_state": state,
        "status": status,
    }


def _task_state(task: Task, now_ns: int) -> tuple[str | None, str]:
    i = task.timeline.index(now_ns)
    doing, label = task.timeline.doing[i], task.timeline.labels[i]
    if doing is Doing.GONE:
        return None, "vanished"
    return ("D" if doing is Doing.SLEEP and label.wait_class == "IO" else _STATES[doing]), "ok"


def tasks(world: World, reads_ns: Sequence[int], os: bool) -> list[Row]:
    """Every task at every read; once more, as vanished, at the first read after its end."""
    rows: list[Row] = []
    for task in world.machine.tasks:
        seen = False
        for now_ns in reads_ns:
            here = os or task.role == "driver"
            if task.timeline.alive_at(now_ns):
                seen = True
                rows.append(_read(world, task, now_ns) if here else _unread(task, now_ns, "not here"))
            elif seen:
                rows.append(_unread(task, now_ns, "vanished" if here else "not here"))
                break
    return rows


def _unread(task: Task, now_ns: int, status: str) -> Row:
    return {
        "before_ns": now_ns - READ_NS // 2,
        "after_ns": now_ns + READ_NS // 2,
        "pid": task.pid,
        "tid": task.tid,
        "start_ticks": task.start_ticks if status == "vanished" else None,
        "role": task.role,
        "session": task.session,
        "status": status,
    }


def _read(world: World, task: Task, now_ns: int) -> Row:
    run, runq = task.timeline.used_at(now_ns)
    system = run * world.law.system
    state, _ = _task_state(task, now_ns)
    return _unread(task, now_ns, "ok") | {
        "start_ticks": task.start_ticks,
        "comm": task.comm,
        "run_ns": run,
        "runq_ns": runq,
        "slices": task.timeline.index(now_ns),
        "user_ns": int((run - system) // TICK_NS) * TICK_NS,
        "system_ns": int(system // TICK_NS) * TICK_NS,
        "cpu": 0,
        "state": state,
    }


def cgroup(world: World, reads_ns: Sequence[int]) -> list[Row]:
    rows = []
    for now_ns in reads_ns:
        base = world.reset_ns if world.reset_ns is not None and now_ns >= world.reset_ns else None
        zero = _group(world, base) if base is not None else {}
        for key, value in _group(world, now_ns).items():
            rows.append(
                {
                    "before_ns": now_ns - READ_NS // 2,
                    "after_ns": now_ns + READ_NS // 2,
                    "scope": "server",
                    "version": 2,
                    "path": "/fake/server",
                    "key": key,
                    "value": value - zero.get(key, 0),
                    "status": "ok",
                }
            )
    return rows


def _group(world: World, now_ns: int) -> dict[str, int]:
    grouped = [t for t in world.machine.tasks if t.grouped and t.timeline.starts_ns[0] <= now_ns]
    usage = sum(t.timeline.used_at(now_ns).run_ns for t in grouped)
    history = world.machine.group.history
    _, periods, throttled, throttled_ns = history[bisect_right(history, (now_ns, 1 << 62)) - 1]
    return {
        "usage_ns": usage,
        "user_ns": round(usage * (1 - world.law.system)),
        "system_ns": round(usage * world.law.system),
        "nr_periods": periods,
        "nr_throttled": throttled,
        "throttled_ns": throttled_ns,
    }


def host(world: World, reads_ns: Sequence[int]) -> list[Row]:
    """/proc/stat in clock ticks, all CPUs; no PSI, which the fake machine does not know."""
    rows = []
    for now_ns in reads_ns:
        bracket = {"before_ns": now_ns - READ_NS // 2, "after_ns": now_ns + READ_NS // 2}
        for key, value in _stat(world, now_ns).items():
            rows.append(bracket | {"key": key, "value": value, "status": "ok"})
        rows.append(bracket | {"key": "psi.cpu.some_ns", "value": None, "status": "not supported"})
    return rows


def _stat(world: World, now_ns: int) -> dict[str, int]:
    born = [t for t in world.machine.tasks if t.timeline.starts_ns[0] <= now_ns]
    run = sum(t.timeline.used_at(now_ns).run_ns for t in born)
    wall = now_ns - world.born_ns
    steal, system = wall * world.law.steal, run * world.law.system
    values = {
        "cpu.user_ns": run - system,
        "cpu.nice_ns": 0,
        "cpu.system_ns": system,
        "cpu.idle_ns": wall * world.law.cpus - run - steal,
        "cpu.iowait_ns": 0,
        "cpu.irq_ns": 0,
        "cpu.softirq_ns": 0,
        "cpu.steal_ns": steal,
    }
    return {k: int(v // TICK_NS) * TICK_NS for k, v in values.items()} | {"cpus": world.law.cpus}
