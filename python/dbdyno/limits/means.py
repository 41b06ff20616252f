"""By which means limits will be set, and that in words: control groups, or affinity where it must do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dbdyno.limits import binding, cures, groups, places, processes
from dbdyno.limits.places import Place, Refused
from dbdyno.model import cpu_lists
from dbdyno.model.errors import NotPrivileged, UsageError
from dbdyno.model.plan import LimitSpec
from dbdyno.model.units import parse_duration_ns

PERIOD_NS = (1_000_000, 1_000_000_000)  # kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period
_DEFAULT_PERIOD = "100ms"


class Means(NamedTuple):
    """By which means a limit is set, in words."""

    limit: str  # key of LimitSpec
    words: str


@dataclass(frozen=True)
class Decision:
    """What will be done to the server's processes."""

    places: tuple[Place, ...] = ()
    cpus: frozenset[int] | None = None
    alone: str | None = None  # why affinity alone has to do for ``cpus``
    mems_there: bool = False  # the server has these nodes and no others: nothing to do


def period_us(spec: LimitSpec) -> int:
    """Of the quota. Raises :class:`UsageError` outside of what the kernel takes, 1 ms to 1 s."""
    period_ns = parse_duration_ns(spec.period or _DEFAULT_PERIOD)
    if not PERIOD_NS[0] <= period_ns <= PERIOD_NS[1]:
        raise UsageError(f"period = {spec.period!r}: the kernel takes 1ms to 1s", "100ms is the usual one")
    return period_ns // 1000


def decide(spec: LimitSpec, main_pid: int, root: Path = processes.ROOT) -> Decision:
    """Groups where they can be had; affinity where it must do. Raises :class:`NotPrivileged`."""
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
                f"{refusal.cure}; or {cures.no_cpuset(spec.mems)}",
            ) from refusal
        if cpus is not None and not processes.may_place(main_pid, root):
            raise binding.not_placed(main_pid) from refusal
        return Decision(rest, cpus, alone=refusal.message, mems_there=mems_there)


def _has_mems(spec: LimitSpec, main_pid: int, root: Path) -> bool:
    return processes.mems_allowed(main_pid, root) == set(cpu_lists.parse(spec.mems or "", "mems"))


def words(spec: LimitSpec, decision: Decision) -> tuple[Means, ...]:
    """What will be done, a line for each limit of the operating system."""
    at = {controller: place for place in decision.places for controller in place.controllers}
    found = []
    for limit, controller in groups.CONTROLLERS.items():
        value = getattr(spec, limit)
        if value is None:
            continue
        place = at.get(controller)
        found.append(Means(limit, _by_group(spec, limit, place) if place else _without(limit, decision)))
    return tuple(found)


def _by_group(spec: LimitSpec, limit: str, place: Place) -> str:
    file = _FILES[limit][place.version - 1]
    value = groups.values(spec, period_us(spec), place)[file]
    what = f"{_SAYS[limit].format(value=getattr(spec, limit))} by {file} = {value}"
    if limit == "quota" and place.version == 1:
        what += f" (us of each {period_us(spec)})"
    beside = "beside" if place.parent != place.home else "in"
    return f"{what} of a control group {beside} {place.home}" + (_PARTS if place.parts else "")


def _without(limit: str, decision: Decision) -> str:
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
"""Limit -> its file in v1 and v2."""
_SAYS = {
    "quota": "quota of {value:g} CPUs",
    "weight": "weight {value} (100 is everybody's, among the groups beside it)",
    "cpus": "CPUs {value}",
    "mems": "memory of NUMA nodes {value} (what it has already stays where it is)",
}
_PARTS = "; its other processes go to a group of their own meanwhile"
