"""Checks before the start whether limits can be set on this server: by which means, or which right is
missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dbdyno import _core
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import file_words
from dbdyno.limits import binding, groups, places
from dbdyno.limits.means import PERIOD_NS, Means, decide, describe, period_us
from dbdyno.limits.places import Place
from dbdyno.model.engine.protocols import Journal
from dbdyno.model.engine.topology import Topology
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import format_ns, significant


def check(
    spec: LimitSpec,
    topology: Topology,
    main_pid: int | None,
    here: bool,
    sessions_top: int,
    journal: Journal | None = None,
    why: str = "",
) -> tuple[Means, ...]:
    """Returns the means by which the limits of a variant will be set on the server with this main process.

    Tries all that is possible without touching a process: creates each group, fills it, removes it (noted
    in ``journal`` if given). ``why``: the reason if the server is not ``here``. Even without limits, a
    server that a killed run left limited is refused (:class:`ServerBusy`). Raises :class:`UsageError`,
    :class:`TargetError` if the server's processes are not visible, and :class:`NotPrivileged` with the
    missing right and the command that gives it.
    """
    check_spec(spec, topology)
    if here and main_pid is not None:
        _refuse_left_over(main_pid)
    binds = spec.bind not in (None, "off")
    if not (spec.of_system or binds):
        return ()
    main_pid = seen(main_pid, here, why)
    check_server(spec, topology, main_pid)
    decision = decide(spec, main_pid)
    for place in decision.places:
        _rehearse(spec, place, main_pid, journal)
    means = describe(spec, decision)
    if not binds:
        return means
    if not processes.may_place(main_pid):
        raise binding.not_placed(main_pid)
    return (*means, _binding_means(spec, topology, main_pid, sessions_top))


def seen(main_pid: int | None, here: bool, why: str = "") -> int:
    """Returns the main process, which limits need. Raises :class:`TargetError` if it is not visible."""
    if not here or main_pid is None:
        raise TargetError(
            "limits are set on the server's processes, and these are not seen here"
            + (f": {why}" if why else ""),
            places.other_host(),
        )
    if processes.identity(main_pid) is None:
        raise TargetError(f"the server's main process {main_pid} is gone", "look at the server's log")
    return main_pid


def _refuse_left_over(main_pid: int) -> None:
    for controller in dict.fromkeys(groups.CONTROLLERS.values()):
        for _, directory in _groups(main_pid, controller)[:1]:
            places.check_not_ours(Path(directory))


def check_spec(spec: LimitSpec, topology: Topology) -> None:
    """Checks lists, numbers, CPUs and nodes that need no server. Raises :class:`UsageError`. Pure."""
    cpus = None if spec.cpus is None else cpu_lists.parse(spec.cpus, "cpus")
    known, online = {c.cpu for c in topology.cpus}, {c.cpu for c in topology.online}
    if cpus is not None:
        if absent := set(cpus) - known:
            raise UsageError(
                f"cpus = {spec.cpus!r}: there is no CPU {cpu_lists.text(absent)}; this machine has "
                f"{cpu_lists.text(known)}",
                "dbdyno topology shows them",
            )
        if off := set(cpus) - online:
            raise UsageError(
                f"cpus = {spec.cpus!r}: CPU {cpu_lists.text(off)} is offline",
                f"bring it back: echo 1 | sudo tee /sys/devices/system/cpu/cpu{min(off)}/online",
            )
    if spec.mems is not None:
        nodes = {n.node for n in topology.nodes} or {0}
        if absent := set(cpu_lists.parse(spec.mems, "mems")) - nodes:
            raise UsageError(
                f"mems = {spec.mems!r}: there is no NUMA node {cpu_lists.text(absent)}; this machine has "
                f"{cpu_lists.text(nodes)}",
                "dbdyno topology shows them",
            )
    _check_quota(spec, online if cpus is None else set(cpus))


def _check_quota(spec: LimitSpec, cpus: Iterable[int]) -> None:
    period = period_us(spec)
    if spec.quota is None:
        if spec.period is not None:
            raise UsageError("period without quota", "add quota = 1.5 (CPUs), or leave period out")
        return
    check_fits(spec, len(set(cpus)), "the machine has" if spec.cpus is None else f"cpus = {spec.cpus!r}")
    least_ms = PERIOD_NS[0] / 1e6
    if spec.quota * period < PERIOD_NS[0] / 1000:
        raise UsageError(
            f"quota = {spec.quota:g}: {significant(spec.quota * period / 1000)} ms in a period of "
            f"{format_ns(period * 1000)}, and the kernel's minimum is {least_ms:g} ms",
            f"take a period of {format_ns(PERIOD_NS[0] / spec.quota)} or more (at most 1 s)",
        )


def check_fits(spec: LimitSpec, cpus: float, available: str) -> None:
    """Raises :class:`UsageError` if the quota is above ``cpus``, as it would never throttle."""
    if spec.quota is not None and spec.quota > cpus:
        raise UsageError(
            f"quota = {spec.quota:g} CPUs is more than {available}: {cpus:g}",
            f"take a quota of at most {cpus:g}, or leave it out",
        )


def check_server(spec: LimitSpec, topology: Topology, main_pid: int) -> None:
    """Raises :class:`UsageError` for CPUs and nodes that exist, but not for this server."""
    online = {c.cpu for c in topology.online}
    may_use = (processes.cpus_allowed(main_pid) & online) or frozenset(online)
    if spec.cpus is not None and (refused := set(cpu_lists.parse(spec.cpus, "cpus")) - may_use):
        raise UsageError(
            f"cpus = {spec.cpus!r}: CPU {cpu_lists.text(refused)} is not allowed to the server: "
            f"{_why(main_pid, refused, may_use)}",
            f"take CPUs of {cpu_lists.text(may_use)}, or start the server without that limit",
        )
    has = processes.mems_allowed(main_pid)
    if spec.mems is not None and has and (refused := set(cpu_lists.parse(spec.mems, "mems")) - has):
        raise UsageError(
            f"mems = {spec.mems!r}: NUMA node {cpu_lists.text(refused)} is not allowed to the server: "
            f"its cpuset has {cpu_lists.text(has)}",
            f"take nodes of {cpu_lists.text(has)}",
        )
    check_fits(spec, len(may_use), "the server may use")
    if (above := _quota_above(main_pid)) is not None:
        check_fits(spec, above[0], f"control group {above[1]} leaves to the server")


def _why(main_pid: int, refused: set[int], may_use: frozenset[int]) -> str:
    """Returns the reason why CPUs are refused: the server's cpuset, or else its affinity."""
    for _, directory in _groups(main_pid, "cpuset"):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            if listed := file_words(Path(directory) / name):
                if refused - cpu_lists.of_kernel(listed):
                    return f"its cpuset is {listed} ({directory})"
                return f"its affinity is {cpu_lists.text(may_use)} (taskset, or CPUAffinity= of its service)"
    return f"its affinity or cpuset is {cpu_lists.text(may_use)}"


def _quota_above(main_pid: int) -> tuple[float, str] | None:
    """Returns (CPUs, group) of the tightest quota that the server already has."""
    quotas = []
    for version, directory in _groups(main_pid, "cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        quota, period, *_ = [*" ".join(file_words(Path(directory) / n) for n in names).split(), "", ""]
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append((int(quota) / int(period), directory))
    return min(quotas, default=None)


def _groups(main_pid: int, controller: str) -> list[tuple[int, str]]:
    try:
        return list(_core.find_cgroups(main_pid, controllers=[controller]))
    except OSError:
        return []


def _rehearse(spec: LimitSpec, place: Place, main_pid: int, journal: Journal | None) -> None:
    name = groups.new_name()
    undo = groups.undo_of(place, name, main_pid)
    if journal is not None:
        journal.note(undo)
    groups.rehearse(place, groups.values(spec, period_us(spec), place), place.parent / name)
    if journal is not None:
        journal.forget(undo.key)


def _binding_means(spec: LimitSpec, topology: Topology, main_pid: int, sessions_top: int) -> Means:
    order = binding.bind_order(spec, topology, main_pid)
    shown = ", ".join(map(str, order[:8])) + (", ..." if len(order) > 8 else "")
    more = (
        "" if sessions_top <= len(order) else f"; up to {-(-sessions_top // len(order))} sessions share one"
    )
    return Means("bind", f"session by session to CPUs {shown} ({spec.bind}){more}")
