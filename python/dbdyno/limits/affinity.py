"""Affinity of the server's processes: sched_setaffinity(2) on every thread of each, and its way back."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from dbdyno.limits import processes
from dbdyno.limits.binding import not_placed
from dbdyno.model import cpu_lists
from dbdyno.model.undo import Undo

_ROUNDS = 50


def undo_of(main_pid: int, ours: frozenset[int] | None) -> Undo:
    """What to note before :func:`place`. ``ours``: the CPUs it will set; None where only a cpuset is made,
    which changes masks, too (before Linux 6.2 the kernel forgets them)."""
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
    """Sets it until no task of the server has another one; how many tasks. Later ones inherit it."""
    for _ in range(_ROUNDS):
        tasks = _tasks(main_pid)
        others = [task for task in tasks if not processes.cpus_allowed(task) <= cpus]
        if not others:
            return len(tasks)
        for task in others:
            _set(task, cpus)
    raise not_placed(main_pid, "its processes do not keep it")


def put_back(data: Mapping[str, Any]) -> str:
    """Each task that is still there gets its mask of before; one born since, that of the main process.

    A mask that somebody else has set meanwhile stays.
    """
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
    """The mask to put back; None where nothing is to be done. ``state``: what the main process had just now,
    so that others have it from the kernel or from us."""
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
        if e.errno != errno.EINVAL:  # none of them is left to it: its cpuset has changed meanwhile
            raise
