"""Setting limits on the server's processes, and putting everything back: at the end, or after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from dbdyno.limits import binding, groups, places, processes
from dbdyno.limits.means import Decision, Means, decide, period_us, words
from dbdyno.limits.places import Place
from dbdyno.model import cpu_lists
from dbdyno.model.errors import NotPrivileged, TargetError
from dbdyno.model.plan import LimitSpec
from dbdyno.model.undo import Journal, Undo


class Applied:
    """Limits in force, until :meth:`undo`; or as a context manager."""

    def __init__(self, main_pid: int, decision: Decision, means: Sequence[Means], journal: Journal) -> None:
        self.means = tuple(means)
        self._main_pid, self._decision, self._journal = main_pid, decision, journal
        self._undos: list[Undo] = []
        self._groups: dict[Path, dict[str, str]] = {}  # with what was written to their files

    @property
    def groups(self) -> tuple[Path, ...]:
        """Directories of the groups that hold the server's processes."""
        return tuple(self._groups)

    def undo(self) -> tuple[str, ...]:
        """Puts everything back, the last first; in words. Again does nothing.

        What cannot be put back is raised after all the rest, and stays in the journal.
        """
        done: list[str] = []
        with ExitStack() as stack:
            for one in self._undos:  # called in the reverse order, each whatever the others raise
                stack.callback(self._undo_one, one, done)
        return tuple(done)

    def _undo_one(self, one: Undo, done: list[str]) -> None:
        done.append(undo(one) or one.what)
        self._journal.forget(one.key)
        self._undos.remove(one)

    def broken(self) -> str | None:
        """What of the limits is in force no more, because somebody or the server itself changed it."""
        tree = processes.tree(self._main_pid)
        for group, content in self._groups.items():
            for name, value in content.items():
                if (now := places.words(group / name)) != value:
                    return f"{group / name} is {now or 'gone'}, not {value}"
            if outside := groups.outside(self._main_pid, group):
                return f"{len(outside)} processes of the server are outside of control group {group}"
        cpus = self._decision.cpus
        free = [] if cpus is None else [p for p in tree if not processes.cpus_allowed(p) <= cpus]
        return (
            f"{len(free)} processes of the server may leave CPUs {cpu_lists.text(cpus or ())}"
            if free
            else None
        )

    def note(self, one: Undo) -> None:
        self._journal.note(one)
        self._undos.append(one)

    def make(self, spec: LimitSpec, place: Place) -> None:
        name = groups.new_name()
        self.note(groups.undo_of(place, name, self._main_pid))
        group, content = place.parent / name, groups.values(spec, period_us(spec), place)
        groups.make(place, content, group, self._main_pid)
        self._groups[group] = content

    def settle(self) -> None:
        """All processes in, also those born meanwhile."""
        for group in self._groups:
            groups.gather(self._main_pid, group)
        if self._decision.cpus is not None:
            binding.place(self._main_pid, self._decision.cpus)
        if (why := self.broken()) is not None:
            raise NotPrivileged(
                f"limits do not come into force: {why}", "another program manages these groups"
            )

    def __enter__(self) -> Applied:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def apply(spec: LimitSpec, main_pid: int, journal: Journal) -> Applied:
    """All processes of the server under these limits when it returns; later ones are born into them.

    ``journal`` has each change before it is done. Nothing is changed where it raises. A server that is
    restarted leaves its limits: ``undo`` before, ``apply`` to the new one. ``bind`` is :func:`pin`.
    """
    if processes.identity(main_pid) is None:
        raise TargetError(f"the server's main process {main_pid} is gone", "look at the server's log")
    decision = decide(spec, main_pid)
    applied = Applied(main_pid, decision, words(spec, decision), journal)
    try:
        if decision.cpus is not None or any("cpuset" in p.controllers for p in decision.places):
            applied.note(binding.undo_of(main_pid, decision.cpus))
        for place in decision.places:
            applied.make(spec, place)
        applied.settle()
    except BaseException:
        applied.undo()
        raise
    return applied


def undo(one: Undo) -> str | None:
    """Puts back what a run changed, also one that was killed; in words. Idempotent. None: not this room's.

    Raises :class:`NotPrivileged` where that needs a right we lack now.
    """
    if one.kind == "group":
        return groups.put_back(one.data)
    return binding.put_back(one.data) if one.kind == "affinity" else None
