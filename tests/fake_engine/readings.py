"""Rows of the table tasks, as read at given instants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dbdyno.model.results.brief import MAIN
from dbdyno.model.units import TICK_NS
from tests.fake_engine.law import Law
from tests.fake_engine.machine import Task
from tests.fake_engine.roster import Known
from tests.fake_engine.trace import ON_CPU, RUNNABLE, Doing, Ints, Sums
from tests.fake_engine.world import World

READ_NS = 2_000  # one read of a task
STATES = {Doing.RUN: "R", Doing.STOLEN: "R", Doing.QUEUE: "R", Doing.THROTTLED: "R", Doing.SLEEP: "S"}

Row = dict[str, Any]


def bracket(now_ns: int) -> Row:
    return {"before_ns": now_ns - READ_NS // 2, "after_ns": now_ns + READ_NS // 2}


def key(known: Known) -> Row:
    task = known.task
    return {"pid": task.pid, "tid": task.tid, "role": known.role, "session": known.session}


def task_state(task: Task, now_ns: int) -> tuple[str | None, str]:
    """Returns R, S or D, and the status."""
    i = task.timeline.index(now_ns)
    doing, label = task.timeline.doing[i], task.timeline.labels[i]
    if doing is Doing.GONE:
        return None, "vanished"
    return ("D" if doing is Doing.SLEEP and label.is_block_io else STATES[doing]), "ok"


def tasks(
    world: World, known: Sequence[Known], reads_ns: Sequence[int], ends_ns: Sequence[int], os: bool
) -> list[Row]:
    """Returns rows of every known task at every read, and one more, as vanished, at the first read after
    its end.

    Reads at ``ends_ns`` have the context switches, too.
    """
    rows: list[Row] = []
    for one in known:
        life = one.task.timeline
        here = os or one.role == "driver"
        times = [t for t in reads_ns if t >= one.since_ns]
        alive = [t for t in times if life.alive_at(t)]
        if here:
            rows += _reads(world, one, alive, ends_ns)
        else:
            rows += [_unread(one, t, "not here") for t in alive]
        after = next((t for t in times if life.ended_ns is not None and t >= life.ended_ns), None)
        if alive and after is not None:
            rows.append(_unread(one, after, "vanished" if here else "not here"))
    return rows


def _unread(known: Known, now_ns: int, status: str) -> Row:
    ticks = known.task.start_ticks if status == "vanished" else None
    return bracket(now_ns) | key(known) | {"start_ticks": ticks, "status": status}


def _reads(world: World, known: Known, reads_ns: Sequence[int], ends_ns: Sequence[int]) -> list[Row]:
    task, sums = known.task, known.task.timeline.sums
    at: Ints = np.array(reads_ns, dtype=np.int64)
    run = sums.time(sums.are(Doing.RUN), at)
    runq = sums.time(sums.are(*RUNNABLE), at)
    children = _children(world, at) if known.role == MAIN else np.zeros_like(at)
    blkio, (slices, voluntary, involuntary) = _blocked(world.law, sums, at), switches(sums, at)
    rows = []
    for i, now_ns in enumerate(reads_ns):
        at_end = now_ns in ends_ns
        rows.append(
            bracket(now_ns)
            | key(known)
            | _ticks(int(run[i]), world.law.system)
            | {
                "start_ticks": task.start_ticks,
                "comm": task.comm,
                "run_ns": int(run[i]),
                "runq_ns": int(runq[i]),
                "slices": int(slices[i]),
                "blkio_ns": None if blkio is None else int(blkio[i]),
                "children_ns": int(children[i]) // TICK_NS * TICK_NS,
                "voluntary": int(voluntary[i]) if at_end else None,
                "involuntary": int(involuntary[i]) if at_end else None,
                "cpu": 0,
                "state": task_state(task, now_ns)[0],
                "status": "ok",
            }
        )
    return rows


def _ticks(run_ns: int, part: float) -> Row:
    system = run_ns * part
    return {
        "user_ns": int((run_ns - system) // TICK_NS) * TICK_NS,
        "system_ns": int(system // TICK_NS) * TICK_NS,
    }


def switches(sums: Sums, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns how often it got a CPU, fell asleep, and lost its CPU while runnable."""
    from_cpu = sums.after(*ON_CPU)
    got = sums.are(Doing.RUN) & ~from_cpu
    preempted = sums.are(*RUNNABLE) & from_cpu
    return sums.count(got, at), sums.count(sums.falls_asleep(), at), sums.count(preempted, at)


def _blocked(law: Law, sums: Sums, at: Ints) -> Ints | None:
    """Returns block I/O delay."""
    if not law.delayacct:
        return None
    labels = [label for label in sums.labels if label.is_block_io]
    return sums.time(sums.under(labels) & sums.are(Doing.SLEEP), at)


def _children(world: World, at: Ints) -> Ints:
    """Returns CPU time of the server's processes that have ended."""
    total = np.zeros_like(at)
    for task in world.machine.tasks:
        end_ns = task.timeline.ended_ns
        if end_ns is not None and task.grouped:
            sums = task.timeline.sums
            used = sums.time(sums.are(Doing.RUN), np.array([end_ns], dtype=np.int64))[0]
            total += np.where(at >= end_ns, used, 0)
    return total
