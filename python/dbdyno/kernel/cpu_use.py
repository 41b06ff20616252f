"""CPU time of the machine and of every process: which processes used CPUs between two readings.

From /proc/stat and /proc/PID/stat (proc_stat(5), proc_pid_stat(5)), below a root: ``/``, another host's, or a
recorded tree. Names are those of the kernel (``comm``), never command lines, which may hold passwords.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.machine import machine_of
from dbdyno.kernel.numbers import number
from dbdyno.kernel.processes import INITIAL_PID_NAMESPACE, ROOT, Identity, hidepid
from dbdyno.model.engine.machine_facts import Busy, ProcessUse
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, TICK_NS

MOST_NS = NS_PER_S // 10
"""Limit of a reading's CPU time. 1,000 processes take about 16 ms, so 6,000 can be read."""
_NAMED = 3
"""Processes that are named where the machine is busy."""
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_STEAL = 7
_PRESSURE = "proc/pressure/cpu"
# fields of /proc/PID/stat after the name: 4, 14 to 17 and 22 of proc_pid_stat(5)
_STATE, _PARENT, _OWN, _ENDED, _START = 0, 1, (11, 12), (13, 14), 19


class Process(NamedTuple):
    """CPU time of a process since its start, all threads together, and of its ended children."""

    name: str
    parent: int
    own_ns: int
    ended_ns: int  # of children that it has waited for, with theirs


class Reading(NamedTuple):
    """One reading of all processes; ``whole`` is False if there was no time for some of them."""

    at_ns: int
    busy_ns: int | None  # of the CPUs; None if /proc/stat has no line of them
    steal_ns: int
    cpus: int
    processes: Mapping[Identity, Process]
    whole: bool = True
    all_cpus: bool = True  # the CPUs are all that the machine has
    waited_ns: int | None = None  # since boot, time in which a task waited for a CPU (PSI); None: not counted


def read(root: Path = ROOT, cpus: Set[int] = frozenset(), most_ns: int = MOST_NS) -> Reading:
    """Reads the time of ``cpus`` (empty: of all CPUs) and that of every visible process."""
    at_ns = time.monotonic_ns()
    machine = machine_of(root)
    with machine.ahead([root / "proc/*/stat", root / _PRESSURE], [root / "proc"]):
        busy_ns, steal_ns, count, all_cpus = _of_cpus(_text(root / "proc/stat"), cpus)
        waited = re.search(r"^some .*total=(\d+)", _text(root / _PRESSURE), re.MULTILINE)
        processes, whole, begin_ns = dict[Identity, Process](), True, time.thread_time_ns()
        for pid, stat in _stats(root):
            if (parsed := _parsed(pid, stat)) is not None:
                processes[parsed[0]] = parsed[1]
            if machine.reached is None and time.thread_time_ns() - begin_ns > most_ns:
                whole = False
                break
    waited_ns = None if waited is None else int(waited[1]) * 1_000  # PSI counts microseconds
    return Reading(at_ns, busy_ns, steal_ns, count, processes, whole, all_cpus, waited_ns)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _of_cpus(stat: str, cpus: Set[int]) -> tuple[int | None, int, int, bool]:
    """Returns busy and stolen time of CPUs, their number, and whether these are all.

    A container may number CPUs in its own way: if none of ``cpus`` is listed, all count.
    """
    lines = [line.split() for line in stat.splitlines() if re.match(r"cpu[0-9]+ ", line)]
    listed = [(number(name[3:]), [number(w) or 0 for w in words]) for name, *words in lines]
    rows = [row for cpu, row in listed if cpu in cpus] or [row for _, row in listed]
    if not rows or min(map(len, rows)) <= _STEAL:
        return None, 0, len(rows), True
    busy = sum(row[i] for row in rows for i in _BUSY)
    stolen = sum(row[_STEAL] for row in rows)
    return busy * TICK_NS, stolen * TICK_NS, len(rows), len(rows) == len(listed)


def _stats(root: Path) -> Iterator[tuple[int, str]]:
    """Yields pid and the content of ``stat`` of each process. Paths take three times as long as this."""
    if root != ROOT or machine_of(root).reached is not None:
        try:
            pids = sorted(int(p.name) for p in (root / "proc").iterdir() if p.name.isdecimal())
        except OSError:
            return
        yield from ((pid, _text(root / f"proc/{pid}/stat")) for pid in pids)
        return
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            try:
                descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # it has ended, or is hidden from us
            try:
                content = os.read(descriptor, 2048)
            except OSError:
                continue
            finally:
                os.close(descriptor)
            yield int(name), content.decode(errors="replace")


def _parsed(pid: int, stat: str) -> tuple[Identity, Process] | None:
    head, _, rest = stat.rpartition(")")
    words = rest.split(None, _START + 1)
    # A zombie counts: its parent gets its time only on reaping it, and its other threads may still run.
    if len(words) <= _START or words[_STATE] == "X":
        return None
    parent, start = number(words[_PARENT]), number(words[_START])
    own, ended = ([number(words[i]) for i in which] for which in (_OWN, _ENDED))
    if parent is None or start is None or None in own:
        return None
    times = (sum(t or 0 for t in pair) * TICK_NS for pair in (own, ended))
    return Identity(pid, start), Process(head.partition("(")[2], parent, *times)


def below(processes: Mapping[Identity, Process], pids: Iterable[int]) -> set[int]:
    """Returns ``pids`` and all their descendants."""
    return _reached(_children(processes), pids)


def _children(processes: Mapping[Identity, Process]) -> Mapping[int, list[int]]:
    children: dict[int, list[int]] = {}
    for identity, process in processes.items():
        children.setdefault(process.parent, []).append(identity.pid)
    return children


def _reached(children: Mapping[int, list[int]], pids: Iterable[int]) -> set[int]:
    known, more = set[int](), list(pids)
    while more:
        pid = more.pop()
        if pid not in known:
            known.add(pid)
            more += children.get(pid, ())
    return known


def used(first: Reading, last: Reading) -> dict[Identity, tuple[int, int]]:
    """Returns the CPU time (ns) that each process used between two readings, and the part of it that its
    ended children used.

    A process that began after the first reading counts with all its time. When a process ends, its parent
    gets its whole time at once, so the part from before the first reading is taken off.
    """
    gone = {i: p for i, p in first.processes.items() if i not in last.processes}
    children, before_ns = _children(gone), {i.pid: p.own_ns + p.ended_ns for i, p in gone.items()}
    times = {}
    for identity, now in last.processes.items():
        then = first.processes.get(identity)
        ended = _reached(children, children.get(identity.pid, ()))
        own_ns = now.own_ns - (0 if then is None else then.own_ns)
        ended_ns = now.ended_ns - (0 if then is None else then.ended_ns) - sum(before_ns[p] for p in ended)
        times[identity] = (max(0, own_ns) + max(0, ended_ns), max(0, ended_ns))
    return times


def others(times: Mapping[Identity, tuple[int, int]], ours: Set[int]) -> list[tuple[Identity, int, int]]:
    """Returns the processes of :func:`used` outside of ``ours`` that used CPU, with their time and that of
    their ended children (ns), largest first."""
    uses = ((i, *ns) for i, ns in times.items() if ns[0] > 0 and i.pid not in ours)
    return sorted(uses, key=lambda use: (-use[1], use[0].pid))


def named(
    last: Reading, uses: Iterable[tuple[Identity, int, int]], root: Path = ROOT
) -> tuple[ProcessUse, ...]:
    """Returns rows of :func:`others` with the names and users of the processes."""
    return tuple(
        ProcessUse(
            pid=i.pid,
            start_ticks=i.ticks,
            name=one_line(last.processes[i].name),
            user=_user(i.pid, root),
            cpu_ns=cpu_ns,
            ended_ns=ended_ns,
        )
        for i, cpu_ns, ended_ns in uses
    )


def busy_between(first: Reading, last: Reading, ours: Iterable[int], root: Path = ROOT) -> Busy | None:
    """Returns how much of the CPUs all but ``ours`` and their descendants used between two readings; None if
    /proc/stat has no line of the CPUs."""
    span_ns = last.at_ns - first.at_ns
    if first.busy_ns is None or last.busy_ns is None or span_ns <= 0:
        return None
    own, times = below(last.processes, ours), used(first, last)
    own_ns = sum(cpu_ns for i, (cpu_ns, _) in times.items() if i.pid in own)
    others_ns = last.busy_ns - first.busy_ns - own_ns
    stolen_ns = last.steal_ns - first.steal_ns
    waited = None
    if first.waited_ns is not None and last.waited_ns is not None:
        waited = min(1.0, max(0, last.waited_ns - first.waited_ns) / span_ns)
    return Busy(
        others=max(0.0, others_ns / span_ns),
        cpus=last.cpus,
        steal=stolen_ns / span_ns / last.cpus,
        span_s=span_ns / NS_PER_S,
        largest=named(last, others(times, own)[:_NAMED], root),
        hidden=hidden(root),
        waited=waited,
        all_cpus=first.all_cpus and last.all_cpus,
    )


def _user(pid: int, root: Path) -> str:
    """Returns the name of a process's effective user, or its number; empty if that is not readable."""
    found = re.search(r"^Uid:\s+\d+\s+(\d+)", _text(root / f"proc/{pid}/status"), re.MULTILINE)
    if found is None:
        return ""
    if machine_of(root).reached is None and root == ROOT:
        try:
            return pwd.getpwuid(int(found[1])).pw_name
        except (KeyError, OverflowError):
            pass
    return found[1]


def hidden(root: Path = ROOT) -> str:
    """Returns why processes of the machine may not be visible from here; empty if they are."""
    try:
        namespace = str((root / "proc/self/ns/pid").readlink())
    except OSError:
        namespace = INITIAL_PID_NAMESPACE
    if namespace != INITIAL_PID_NAMESPACE:
        return "processes outside of this container are not visible from here"
    if (option := hidepid(root)) is not None and machine_of(root).uid:
        return f"/proc is mounted with {option}: processes of other users are not visible"
    return ""
