"""One session, one CPU: in which order CPUs are given to sessions, and giving them.

``spread`` has each socket serve before one serves twice, and each core before one serves with two threads;
``pack`` fills a core, then its socket, then the next.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dbdyno.limits import processes
from dbdyno.model import cpu_lists
from dbdyno.model.errors import NotPrivileged, TargetError, UsageError
from dbdyno.model.topology import LogicalCpu, Topology
from dbdyno.model.variant import LimitSpec


class _Seat(NamedTuple):
    """Where a CPU is among those that may be used."""

    socket: int
    core: int  # place within the socket
    thread: int  # place within the core
    cpu: int


def order(topology: Topology, how: Literal["spread", "pack"], within: Iterable[int]) -> list[int]:
    """CPUs ``within`` that are online, in the order in which sessions get them. Pure.

    A CPU of unknown socket is of socket 0, one of unknown core a core of its own.
    """
    chosen = set(within)
    seats = _seats([c for c in topology.cpus if c.online and c.cpu in chosen])
    if how == "pack":
        return [s.cpu for s in sorted(seats)]
    return [s.cpu for s in sorted(seats, key=lambda s: (s.thread, s.core, s.socket))]


def _seats(cpus: Sequence[LogicalCpu]) -> list[_Seat]:
    cores: dict[int, dict[tuple[int, int], list[LogicalCpu]]] = defaultdict(lambda: defaultdict(list))
    for c in sorted(cpus, key=lambda c: c.cpu):
        core = (0, c.core) if c.core is not None else (1, c.cpu)
        cores[c.socket or 0][core].append(c)
    return [
        _Seat(socket, place, thread, c.cpu)
        for socket, of_socket in cores.items()
        for place, (_, threads) in enumerate(sorted(of_socket.items()))
        for thread, c in enumerate(sorted(threads, key=lambda c: (c.thread or 0, c.cpu)))
    ]


def bind_order(spec: LimitSpec, topology: Topology, main_pid: int) -> list[int]:
    """CPUs for the sessions of a variant: those of ``spec.cpus``, else all that the server may use.

    Empty where nothing is to be bound.
    """
    if spec.bind in (None, "off"):
        return []
    may_use = processes.cpus_allowed(main_pid)
    within = may_use if spec.cpus is None else may_use & set(cpu_lists.parse(spec.cpus, "cpus"))
    found = order(topology, "pack" if spec.bind == "pack" else "spread", within)
    if not found:
        raise UsageError(f"bind = {spec.bind!r}: no CPU is left to bind to", "choose other CPUs")
    return found


def pin(backends: Sequence[tuple[int, int, int]], cpus: Sequence[int], main_pid: int) -> dict[int, int]:
    """Pins each backend, (session, pid, tid), to one CPU: all threads of a process by its main task, else the
    thread alone; in the order of sessions the k-th to ``cpus[k % n]``.

    Session -> CPU of those pinned; one that has ended is left out. Nothing is to be put back: a backend
    ends with its session. Raises :class:`NotPrivileged`, and :class:`TargetError` for a process that is no
    child of the server's main process: a stranger of the same number.
    """
    pinned: dict[int, int] = {}
    for place, (session, pid, tid) in enumerate(sorted(backends)):
        cpu = cpus[place % len(cpus)]
        if pid != main_pid and processes.parent(pid) not in (None, main_pid):
            raise TargetError(
                f"process {pid} is not one of the server's (main process {main_pid})",
                "bind needs direct connections to a server whose processes are seen here, without a pooler",
            )
        try:
            for task in processes.tasks(pid) if tid == pid else (tid,):
                os.sched_setaffinity(task, {cpu})
                pinned[session] = cpu
        except ProcessLookupError:
            continue
        except PermissionError as e:
            raise not_placed(pid, e.strerror) from e
    return pinned


def not_placed(pid: int, why: str | None = None) -> NotPrivileged:
    """The right that is missing for affinity, and the command."""
    return NotPrivileged(
        f"cannot set the affinity of process {pid}{f': {why}' if why else ''}: it is another user's, "
        "and that needs CAP_SYS_NICE",
        "run as root, or as the server's user: sudo dbdyno run ..., sudo -u SERVER-USER dbdyno run ...",
    )
