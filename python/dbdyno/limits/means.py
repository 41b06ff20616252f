"""The means by which limits are set, control groups or else affinity; sets them on the server's processes,
and undoes everything, at the end or after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import file_words
from dbdyno.limits import binding, groups, places
from dbdyno.limits.places import Place, Refused
from dbdyno.model.engine.protocols import Journal, Undo
from dbdyno.model.errors import NotPrivileged, TargetError, UsageError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import parse_duration_ns

PERIOD_NS = (1_000_000, 1_000_000_000)  # kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period
_DEFAULT_PERIOD = "100ms"


class Means(NamedTuple):
    """The means by which a limit is set, as text."""

    limit: str  # key of LimitSpec
    words: str


@dataclass(frozen=True)
class Decision:
    """The limits to be put on the server's processes."""

    places: tuple[Place, ...] = ()
    cpus: frozenset[int] | None = None
    alone: str | None = None  # reason why ``cpus`` is set by affinity alone
    mems_there: bool = False  # whether the server already has exactly these nodes


def period_us(spec: LimitSpec) -> int:
    """Returns the period of the quota. Raises :class:`UsageError` outside of the kernel's range, 1 ms to 1
    s."""
    period_ns = parse_duration_ns(spec.period or _DEFAULT_PERIOD)
    if not PERIOD_NS[0] <= period_ns <= PERIOD_NS[1]:
        raise UsageError(f"period = {spec.period!r}: the kernel accepts 1ms to 1s", "100ms is the usual one")
    return period_ns // 1000


def decide(spec: LimitSpec, main_pid: int, root: Path = processes.ROOT) -> Decision:
    """Uses control groups if they can be created, else CPU affinity. Raises :class:`NotPrivileged`."""
    if not spec.of_system:
        return Decision()
    cpus = None if spec.cpus is None else frozenset(cpu_lists.parse(spec.cpus, "cpus"))
    needed = [c for limit, c in groups.CONTROLLERS.items() if getattr(spec, limit) is not None]
    try:
        return Decision(tuple(places.find(main_pid, dict.fromkeys(needed), root)), cpus)
    except Refused as refusal:
        if "cpuset" not in needed:
            raise
        rest = tuple(places.find(main_pid, ["cpu"], root)) if "cpu" in needed else ()
        mems_there = spec.mems is not None and _has_mems(spec, main_pid, root)
        if spec.mems is not None and not mems_there:
            raise NotPrivileged(
                f"mems = {spec.mems!r} needs a cpuset control group: {refusal.message}",
                f"{refusal.cure}; or {places.no_cpuset(spec.mems)}",
            ) from refusal
        if cpus is not None and not processes.may_place(main_pid, root):
            raise binding.not_placed(main_pid) from refusal
        return Decision(rest, cpus, alone=refusal.message, mems_there=mems_there)


def _has_mems(spec: LimitSpec, main_pid: int, root: Path) -> bool:
    return processes.mems_allowed(main_pid, root) == set(cpu_lists.parse(spec.mems or "", "mems"))


def describe(spec: LimitSpec, decision: Decision) -> tuple[Means, ...]:
    """Describes what will be done, one line per limit of the operating system."""
    at = {controller: place for place in decision.places for controller in place.controllers}
    means = []
    for limit, controller in groups.CONTROLLERS.items():
        value = getattr(spec, limit)
        if value is None:
            continue
        place = at.get(controller)
        means.append(Means(limit, _by_group(spec, limit, place) if place else _other_means(limit, decision)))
    return tuple(means)


def _by_group(spec: LimitSpec, limit: str, place: Place) -> str:
    file = _FILES[limit][place.version - 1]
    value = groups.values(spec, period_us(spec), place)[file]
    what = f"{_TEXTS[limit].format(value=getattr(spec, limit))} by {file} = {value}"
    if limit == "quota" and place.version == 1:
        what += f" (us of each {period_us(spec)})"
    beside = "beside" if place.parent != place.home else "in"
    return f"{what} of a control group {beside} {place.home}" + (_PARTS if place.parts else "")


def _other_means(limit: str, decision: Decision) -> str:
    if limit == "mems":
        return "the server has no other nodes: nothing to do"
    cpus = cpu_lists.text(decision.cpus or ())
    return f"CPUs {cpus} by affinity alone, which a process may change: {decision.alone}"


_FILES = {
    "quota": ("cpu.cfs_quota_us", "cpu.max"),
    "weight": ("cpu.shares", "cpu.weight"),
    "cpus": ("cpuset.cpus", "cpuset.cpus"),
    "mems": ("cpuset.mems", "cpuset.mems"),
}
"""File by limit, in v1 and v2."""
_TEXTS = {
    "quota": "quota of {value:g} CPUs",
    "weight": "weight {value} (100 is everybody's, among the groups beside it)",
    "cpus": "CPUs {value}",
    "mems": "memory of NUMA nodes {value} (what it has already stays where it is)",
}
_PARTS = "; its other processes go to a group of their own meanwhile"


class Applied:
    """Limits in force until :meth:`undo`; also a context manager."""

    def __init__(self, main_pid: int, decision: Decision, means: Sequence[Means], journal: Journal) -> None:
        self.means = tuple(means)
        self._main_pid, self._decision, self._journal = main_pid, decision, journal
        self._undos: list[Undo] = []
        self._groups: dict[Path, dict[str, str]] = {}  # content written by file, for each group

    @property
    def groups(self) -> tuple[Path, ...]:
        """Directories of the groups that contain the server's processes."""
        return tuple(self._groups)

    def undo(self) -> tuple[str, ...]:
        """Undoes everything, last change first. Returns texts. A second call does nothing. What cannot be
        undone is raised after all the rest, and stays in the journal."""
        done: list[str] = []
        with ExitStack() as stack:
            for one in self._undos:  # called in reverse order, each even if another one raises
                stack.callback(self._undo_one, one, done)
        return tuple(done)

    def _undo_one(self, one: Undo, done: list[str]) -> None:
        done.append(undo(one) or one.what)
        self._journal.forget(one.key)
        self._undos.remove(one)

    def broken(self) -> str | None:
        """Returns a text if limits are no longer in force, as another process or the server itself changed
        them; else None."""
        tree = processes.tree(self._main_pid)
        for group, content in self._groups.items():
            for name, value in content.items():
                if (now := file_words(group / name)) != value:
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
        """Moves all processes in, also those born meanwhile."""
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
    """Sets limits: on return all processes of the server have them, and later ones are born with them.

    ``journal`` has each change before it is made. If it raises, nothing is changed. A restarted server
    loses its limits: call ``undo`` before, and ``apply`` to the new one. ``bind`` is set by :func:`pin`.
    """
    if processes.identity(main_pid) is None:
        raise TargetError(f"the server's main process {main_pid} is gone", "look at the server's log")
    decision = decide(spec, main_pid)
    applied = Applied(main_pid, decision, describe(spec, decision), journal)
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
    """Undoes a change of a run, also of a killed one. Returns a text; None if the entry belongs to another
    room. Idempotent. Raises :class:`NotPrivileged` if a right is missing."""
    if one.kind == "group":
        return groups.put_back(one.data)
    return binding.put_back(one.data) if one.kind == "affinity" else None
