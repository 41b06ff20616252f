"""Rows of the tables traced, waits and syscalls: exact sums since the trace was attached.

They include the piece under way at a read. A task that ended has one last row, with its last sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dbdyno.model.units import NS_PER_S
from tests.fake_engine.readings import bracket, key, switches
from tests.fake_engine.roster import Known
from tests.fake_engine.trace import ON_CPU, RUNNABLE, Doing, Ints, Label, Mask, Sums

Row = dict[str, Any]

_CALLS = {"Client": "epoll_wait", "Lock": "epoll_wait", "IPC": "epoll_wait", "Timeout": "epoll_wait"}
_CALLS |= {"LWLock": "futex", "IO": "pread64", "Activity": "epoll_wait"}
_SYNC = ("WalSync", "DataFileSync")
CLOCK_NS = NS_PER_S // 199


class Reads(NamedTuple):
    """A task that the trace knows, and the reads that have rows of it."""

    known: Known
    at_ns: Ints  # the instants of the reads
    until_ns: Ints  # up to when its sums go: its end, in the last
    base_ns: Ints  # when the trace was attached


def reads(known: Sequence[Known], reads_ns: Sequence[int]) -> Iterator[Reads]:
    """Yields the reads of each task. The trace is attached at the first read, and knows the server's tasks
    from their birth."""
    for one in known:
        life = one.task.timeline
        if one.role == "driver":
            continue
        times = [t for t in reads_ns if life.born_ns <= t]
        if life.ended_ns is not None:
            after = [t for t in times if t >= life.ended_ns]
            times = [t for t in times if t < life.ended_ns] + after[:1]
            if life.ended_ns < reads_ns[0]:
                continue
        if times:
            at = np.array(times, dtype=np.int64)
            until = at if life.ended_ns is None else np.minimum(at, life.ended_ns)
            yield Reads(one, at, until, np.array([reads_ns[0]], dtype=np.int64))


def _grown(of: Reads, sums: Sums, pieces: Mask, *, count: bool = False) -> Ints:
    total = sums.count if count else sums.time
    grown: Ints = total(pieces, of.until_ns) - total(pieces, of.base_ns)
    return grown


def _head(of: Reads, i: int) -> Row:
    start = {"start_ticks": of.known.task.start_ticks, "status": "ok"}
    return bracket(int(of.at_ns[i])) | key(of.known) | start


def traced(of: Reads) -> list[Row]:
    """Returns rows of the table traced. The trace does not see that a CPU is stolen: the task is on it."""
    sums = of.known.task.timeline.sums
    asleep = sums.are(Doing.SLEEP)
    blocked = asleep & sums.under([n for n in sums.labels if n.is_block_io])
    _, voluntary, involuntary = (
        a - b for a, b in zip(switches(sums, of.until_ns), switches(sums, of.base_ns), strict=True)
    )
    columns = {
        "run_ns": _grown(of, sums, sums.are(*ON_CPU)),
        "runq_ns": _grown(of, sums, sums.are(*RUNNABLE)),
        "throttled_ns": _grown(of, sums, sums.are(Doing.THROTTLED)),
        "sleep_ns": _grown(of, sums, asleep),
        "blocked_ns": _grown(of, sums, blocked),
        "voluntary": voluntary,
        "involuntary": involuntary,
    }
    return [_head(of, i) | {n: int(c[i]) for n, c in columns.items()} for i in range(len(of.at_ns))]


def waits(of: Reads) -> list[Row]:
    sums = of.known.task.timeline.sums
    from_cpu = sums.after(*ON_CPU)
    rows = []
    for wait_class, wait_event in dict.fromkeys(label.event for label in sums.labels):
        labelled = sums.under([n for n in sums.labels if n.event == (wait_class, wait_event)])
        asleep, runnable = labelled & sums.are(Doing.SLEEP), labelled & sums.are(*RUNNABLE)
        columns = {
            "sleep_ns": _grown(of, sums, asleep),
            "runq_ns": _grown(of, sums, runnable),
            "throttled_ns": _grown(of, sums, labelled & sums.are(Doing.THROTTLED)),
            "sleeps": _grown(of, sums, labelled & sums.falls_asleep(), count=True),
            "begun": _grown(of, sums, labelled & sums.falls_asleep(), count=True),
            "unclear": 0 * _grown(of, sums, labelled),
            "preempted": _grown(of, sums, runnable & from_cpu, count=True),
            "run_samples": _grown(of, sums, labelled & sums.are(*ON_CPU)) // CLOCK_NS,
        }
        event = {"wait_class": wait_class, "wait_event": wait_event}
        for i in range(len(of.at_ns)):
            figures = {n: int(c[i]) for n, c in columns.items()}
            if any(figures.values()):
                rows.append(_head(of, i) | event | figures)
    return rows


def syscalls(of: Reads) -> list[Row]:
    """Returns rows of the table syscalls. Every sleep is one system call, which returns when the task has
    a CPU again."""
    sums = of.known.task.timeline.sums
    rows = []
    for name in dict.fromkeys(_call(label) for label in sums.labels):
        labelled = sums.under([n for n in sums.labels if _call(n) == name])
        entered = labelled & sums.falls_asleep()
        ended = _returns(sums, entered)
        for i in range(len(of.at_ns)):
            inside = (ended > of.base_ns[0]) & (ended <= of.until_ns[i])
            calls, time_ns = int(inside.sum()), int((ended - sums.starts_ns[entered])[inside].sum())
            if calls:
                rows.append(_head(of, i) | {"name": name, "calls": calls, "time_ns": time_ns})
    return rows


def _returns(sums: Sums, entered: Mask) -> Ints:
    """Returns when the task next had a CPU, or slept anew, after each of these; far away if it never did."""
    awake = sums.starts_ns[sums.are(*ON_CPU, Doing.SLEEP)]
    i = np.searchsorted(awake, sums.starts_ns[entered], side="right")
    return np.append(awake, np.iinfo(np.int64).max)[i]


def _call(label: Label) -> str:
    if label.wait_event in _SYNC:
        return "fdatasync"
    return _CALLS.get(label.wait_class or "", "nanosleep")
