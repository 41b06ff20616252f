"""The state of every task at each instant, by a law, and what a reader of ``/proc`` and of the server
sees."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MS = 1_000_000
S = 1_000 * MS
TICK = 10 * MS
EPOCH = 1_000 * S
CYCLE = 100 * MS
LIFE = 2 * S
"""Life of one of a session's processes; the next begins as it ends."""
SERVER, FIRST_THREAD, FIRST_PROCESS = 500, 501, 1000
READ_EVERY = 500 * MS


@dataclass(frozen=True)
class Law:
    """A task's activities in each cycle, in per cent of it, in this order."""

    run: int
    runq: int
    waits: tuple[tuple[str, str, int], ...]

    def at(self, ns: int) -> tuple[str, str | None, str | None]:
        """Returns state, wait class and wait event at an instant of its life."""
        part = ns % CYCLE * 100 // CYCLE
        if part < self.run + self.runq:
            return "R", None, None
        part -= self.run + self.runq
        for wait_class, event, length in self.waits:
            if part < length:
                return "S", wait_class, event
            part -= length
        raise AssertionError("a cycle is not 100 %")

    def spent(self, ns: int) -> tuple[int, int]:
        """Returns time on a CPU and in the run queue, in the first ``ns`` of its life."""
        whole, rest = divmod(ns, CYCLE)
        run, runq = self.run * CYCLE // 100, self.runq * CYCLE // 100
        return whole * run + min(rest, run), whole * runq + max(0, min(rest - run, runq))


PROCESS = Law(40, 0, (("Disk", "Read", 20), ("Peer", "Idle", 40)))
THREAD = Law(20, 20, (("Mutex", "Page", 60),))


class Task(NamedTuple):
    session: int
    pid: int
    tid: int
    born_ns: int
    ends_ns: int | None  # None: it goes on
    law: Law

    def is_alive(self, at_ns: int) -> bool:
        return self.born_ns <= at_ns and (self.ends_ns is None or at_ns < self.ends_ns)


class Stay(NamedTuple):
    """A session exists from an instant on, until another one or for good."""

    session: int
    from_ns: int
    to_ns: int | None


GUESTS = (
    Stay(0, EPOCH - 3 * S, None),
    Stay(1, EPOCH - 3 * S, EPOCH + 13 * S),
    Stay(2, EPOCH + 5 * S, EPOCH + 9 * S),
    Stay(3, EPOCH + 17 * S, None),
)
"""Sessions that are not ours, and come and go. The time of the world begins at ``EPOCH``."""


def tasks(stays: Iterable[Stay], until_ns: int) -> Iterator[Task]:
    """Yields the tasks of all sessions: the thread of the server, and the processes that existed until
    ``until_ns``."""
    for session, from_ns, to_ns in stays:
        yield Task(session, SERVER, FIRST_THREAD + session, from_ns, to_ns, THREAD)
        last_ns = until_ns if to_ns is None else min(until_ns, to_ns)
        for number, born_ns in enumerate(range(from_ns, last_ns, LIFE)):
            pid = FIRST_PROCESS + 100 * session + number
            ends_ns = born_ns + LIFE if born_ns + LIFE < last_ns else to_ns
            yield Task(session, pid, pid, born_ns, ends_ns, PROCESS)


def reads(task: Task, to_ns: int, from_ns: int = 0) -> Iterator[dict[str, Any]]:
    """Yields rows of ``tasks``: at its birth, every half second, and at its end, with its total use."""
    first_ns = max(task.born_ns, from_ns)
    last_ns = to_ns if task.ends_ns is None else min(to_ns, task.ends_ns)
    for at_ns in (*range(first_ns, last_ns, READ_EVERY), last_ns) if first_ns <= last_ns else ():
        run_ns, runq_ns = task.law.spent(at_ns - task.born_ns)
        yield {
            "before_ns": at_ns,
            "after_ns": at_ns,
            "pid": task.pid,
            "tid": task.tid,
            "start_ticks": task.born_ns // TICK,
            "role": "session",
            "session": task.session,
            "run_ns": run_ns,
            "runq_ns": runq_ns,
            "user_ns": run_ns,
            "system_ns": 0,
            "state": "S",
            "status": "ok",
        }


def samples(
    tasks: list[Task], from_ns: int, to_ns: int, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns rows of ``samples`` and of ``sampler``: one random instant in each cycle."""
    chance = random.Random(seed)
    seen, taken = [], []
    for number, begin_ns in enumerate(range(from_ns, to_ns - CYCLE + 1, CYCLE)):
        at_ns = begin_ns + chance.randrange(CYCLE)
        taken.append(
            {
                "sample": number,
                "due_ns": at_ns,
                "start_ns": at_ns,
                "end_ns": at_ns,
                "status": "ok",
                "via": "sql",
            }
        )
        for task in tasks:
            if task.born_ns <= at_ns < (to_ns if task.ends_ns is None else task.ends_ns):
                state, wait_class, event = task.law.at(at_ns - task.born_ns)
                seen.append(
                    {
                        "sample": number,
                        "sql_before_ns": at_ns,
                        "sql_after_ns": at_ns,
                        "task_ns": at_ns,
                        "pid": task.pid,
                        "tid": task.tid,
                        "start_ticks": task.born_ns // TICK,
                        "role": "session",
                        "session": task.session,
                        "via": "sql",
                        "state": "active",
                        "wait_class": wait_class,
                        "wait_event": event,
                        "task_state": state,
                        "status": "ok",
                    }
                )
    return seen, taken
