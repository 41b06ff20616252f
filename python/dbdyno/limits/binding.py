"""Binding of one session to one CPU: the order of CPUs, and setting it.

``spread`` uses each socket once before one is used twice, and each core before one is used with two
threads. ``pack`` fills a core, then its socket, then the next.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from dbdyno.kernel import processes
from dbdyno.limits.places import AS_ROOT
from dbdyno.model.engine.protocols import Undo
from dbdyno.model.engine.topology import LogicalCpu, Topology
from dbdyno.model.errors import NotPrivileged, TargetError, UsageError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists


class _Seat(NamedTuple):
    """The position of a CPU among those that may be used."""

    socket: int
    core: int  # place within the socket
    thread: int  # place within the core
    cpu: int


def order(topology: Topology, how: Literal["spread", "pack"], within: Iterable[int]) -> list[int]:
    """Returns the online CPUs of ``within`` in the order in which sessions get them. Pure.

    A CPU of unknown socket belongs to socket 0; one of unknown core is a core of its own.
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
    """Returns the CPUs for the sessions of a variant: those of ``spec.cpus``, else all that the server may
    use. Empty without binding."""
    if spec.bind in (None, "off"):
        return []
    may_use = processes.cpus_allowed(main_pid)
    within = may_use if spec.cpus is None else may_use & set(cpu_lists.parse(spec.cpus, "cpus"))
    cpus = order(topology, "pack" if spec.bind == "pack" else "spread", within)
    if not cpus:
        raise UsageError(f"bind = {spec.bind!r}: no CPU is left to bind to", "choose other CPUs")
    return cpus


def pin(backends: Sequence[tuple[int, int, int]], cpus: Sequence[int], main_pid: int) -> dict[int, int]:
    """Pins each backend, (session, pid, tid), to one CPU: all threads of a process by its main task, else
    only the thread; in the order of sessions the k-th to ``cpus[k % n]``.

    Returns the CPU of each pinned session, without those that have ended. Nothing needs to be undone: a
    backend ends with its session. Raises :class:`NotPrivileged`, and :class:`TargetError` for a process
    that is not a child of the server's main process (a reused pid).
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
    """Returns the error that names the missing right for affinity, and the command."""
    return NotPrivileged(
        f"cannot set the affinity of process {pid}{f': {why}' if why else ''}: it is another user's, "
        "and that needs CAP_SYS_NICE",
        f"run as root, or as the server's user: {AS_ROOT} ..., sudo -u SERVER-USER dbdyno ...",
    )


# Affinity of the server's processes: sched_setaffinity(2) on every thread of each, and its undoing.

_ROUNDS = 50


def undo_of(main_pid: int, ours: frozenset[int] | None) -> Undo:
    """Returns the journal entry for :func:`place`. ``ours``: the CPUs that it will set; None if only a
    cpuset is made, which changes masks, too (before Linux 6.2 the kernel forgets them)."""
    known = {
        task: (who.ticks, cpu_lists.text(processes.cpus_allowed(task)))
        for pid in processes.tree(main_pid)
        for task in processes.tasks(pid)
        if (who := processes.identity(task)) is not None
    }
    main = processes.identity(main_pid)
    mask = cpu_lists.text(processes.cpus_allowed(main_pid))
    return Undo(
        kind="affinity",
        key=f"affinity {main_pid}",
        what=f"affinity {mask} of the server's processes (main process {main_pid})",
        data={
            "main": main and list(main),
            "mask": mask,
            "ours": cpu_lists.text(ours or ()),
            "tasks": {str(task): list(what) for task, what in known.items()},
            "boot": processes.boot_id(),
        },
    )


def place(main_pid: int, cpus: frozenset[int]) -> int:
    """Sets the affinity until no task of the server has another one, and returns the number of tasks.
    Later tasks inherit it."""
    for _ in range(_ROUNDS):
        tasks = _tasks(main_pid)
        others = [task for task in tasks if not processes.cpus_allowed(task) <= cpus]
        if not others:
            return len(tasks)
        for task in others:
            _set(task, cpus)
    raise not_placed(main_pid, "its processes do not keep it")


def put_back(data: Mapping[str, Any]) -> str:
    """Restores the former mask of each task that still exists; tasks born since get that of the main
    process. A mask that others have set meanwhile stays."""
    what = f"affinity {data['mask']} of the server's processes"
    main = data["main"]
    if main is None or data["boot"] != processes.boot_id() or _gone(*main):
        return f"{what}: the server has ended, and its affinity with it"
    state, changed = processes.cpus_allowed(main[0]), set[int]()
    for _ in range(_ROUNDS):
        wanted = {task: mask for task in _tasks(main[0]) if (mask := _before(task, data, state)) is not None}
        wrong = {task: mask for task, mask in wanted.items() if task not in changed}
        for task, mask in wrong.items():
            _set(task, mask)
        changed |= wrong.keys()
        if not wrong:
            break
    return f"put back {what}: {len(changed)} tasks" if changed else f"{what} was back already"


def _before(task: int, data: Mapping[str, Any], state: frozenset[int]) -> frozenset[int] | None:
    """Returns the mask to restore; None if nothing is to be done. ``state``: the present mask of the main
    process, which new tasks inherit from it."""
    now, ours = processes.cpus_allowed(task), cpu_lists.of_kernel(data["ours"])
    ticks, mask = data["tasks"].get(str(task), (None, data["mask"]))
    known = ticks is not None and processes.identity(task) == (task, ticks)
    before = cpu_lists.of_kernel(mask if known else data["mask"])
    foreign = not known and not now <= ours and now != state
    return None if foreign or now in (before, frozenset()) else before


def _tasks(main_pid: int) -> list[int]:
    return [task for pid in processes.tree(main_pid) for task in processes.tasks(pid)]


def _gone(pid: int, ticks: int) -> bool:
    return processes.identity(pid) != (pid, ticks)


def _set(task: int, cpus: frozenset[int]) -> None:
    try:
        os.sched_setaffinity(task, cpus)
    except ProcessLookupError:
        pass
    except PermissionError as e:
        raise not_placed(task, e.strerror) from e
    except OSError as e:
        if e.errno != errno.EINVAL:  # none of the CPUs is left to it, as its cpuset has changed
            raise
