"""The whole topology of a machine, assembled from all sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from dbdyno.model.engine.topology import Cache, Core, LogicalCpu, Node, Smt, SmtState, Socket, Topology, Why
from dbdyno.model.text import cpu_lists
from dbdyno.observe import limits
from dbdyno.observe.cpus import (
    CPU,
    Place,
    caches,
    cpus_listed,
    integer,
    kernel_online,
    model_name,
    narrowed_online,
    nodes,
    places,
    present_cpus,
    text,
)
from dbdyno.observe.host import bare_metal, container, machine
from dbdyno.observe.limits import online_affinity


def unknowns(t: Topology, narrowed: Iterable[int] | None = None) -> Iterator[str]:
    """Yields one sentence ``what: why; cure`` per unknown. ``narrowed``: the online CPUs in a container's
    view."""
    yield from _places(t)
    yield from _limits(t, narrowed)
    if t.smt.state is None and t.cpus:
        yield "SMT: no /sys/devices/system/cpu/smt/control; kernels from 4.19 on have it"
    if t.hypervisor is None:
        yield "hypervisor: not shown by CPU flags, DMI or device tree; try lscpu or virt-what as root"
    if all(c.governor is None for c in t.online):
        what = "governor" if any(c.max_mhz for c in t.online) else "frequency and governor"
        guest = t.hypervisor not in (None, "none")
        cure = "the host of this virtual machine has it" if guest else "a cpufreq driver would show them"
        yield f"{what}: no cpufreq in /sys; {cure}"
    if t.clocksource is None:
        yield "clocksource: no /sys/devices/system/clocksource; try dmesg | grep clocksource"


def _places(t: Topology) -> Iterator[str]:
    masked = "where /sys is masked, look from the host"
    if any(c.core is None for c in t.online):
        yield f"cores and threads: not in /sys or /proc/cpuinfo; {masked}"
    if any(c.socket is None for c in t.online):
        yield f"sockets: not in /sys or /proc/cpuinfo; {masked}"
    if not t.nodes:
        yield f"NUMA nodes: no /sys/devices/system/node; kernels with CONFIG_NUMA have it; {masked}"
    elif any(not node.distances for node in t.nodes):
        yield f"NUMA distances: not in /sys/devices/system/node; {masked}"
    if not t.caches:
        yield f"caches: no cpu*/cache in /sys; some hypervisors pass none on; {masked}"


def _limits(t: Topology, narrowed: Iterable[int] | None) -> Iterator[str]:
    if t.affinity is None:
        yield "CPUs that may be used: no /proc/self/status in this recorded tree; record it with the others"
    if narrowed is not None:
        yield (
            f"online CPUs: /sys/devices/system/cpu/online ({cpu_lists.text(narrowed)}) is a container's "
            "view, as lxcfs makes it, and was not used: which CPUs may be used is by the affinity mask"
        )
    if t.cpuset is None:
        yield "cpuset: no control group with one is seen; what it does is in the affinity mask"
    if t.container is not None:
        yield "quotas above the container: not seen from inside, may be tighter; look from the host"


_CLOCK = "sys/devices/system/clocksource/clocksource0"


def topology(root: Path = Path("/")) -> Topology:
    """Returns the topology of the machine below ``root`` (``/``, or a recorded tree). Needs no rights;
    raises nothing."""
    present, online = present_cpus(root), kernel_online(root)
    where = {p.cpu: p for p in places(root, online)}
    of_nodes, of_caches = nodes(root, online), caches(root, online)
    affinity, group, quota = online_affinity(root), limits.cpuset(root), limits.quota(root)
    verdicts = limits.verdicts(present, online, group, affinity)
    cores = _cores(where.values(), of_nodes)
    cpus = tuple(_cpu(root, n, where.get(n), cores, of_nodes, of_caches, verdicts[n]) for n in present)
    may_use = None if any(c.allowed is None for c in cpus) else sum(bool(c.allowed) for c in cpus)
    topology_ = Topology(
        model=model_name(root),
        cpus=cpus,
        cores=tuple(cores.values()),
        sockets=_sockets(cpus),
        nodes=of_nodes,
        caches=of_caches,
        smt=_smt(root, cores),
        offline=tuple(n for n in present if n not in online),
        isolated=cpus_listed(root, f"{CPU}/isolated"),
        affinity=affinity,
        cpuset=group,
        quota=quota,
        usable_cpus=may_use if may_use is None or quota is None else min(may_use, quota.cpus),
        hypervisor="none" if bare_metal(root) else machine(root),
        container=container(root),
        clocksource=text(root, f"{_CLOCK}/current_clocksource") or None,
        clocksources=tuple((text(root, f"{_CLOCK}/available_clocksource") or "").split()) or None,
    )
    return topology_.model_copy(update={"notes": tuple(unknowns(topology_, narrowed_online(root)))})


def _cores(placed: Iterable[Place], of_nodes: Sequence[Node]) -> dict[tuple[int, ...], Core]:
    """Returns cores by their CPUs, numbered in the order of the first CPU."""
    cores: dict[tuple[int, ...], Core] = {}
    place_list = list(placed)
    online = {p.cpu for p in place_list}
    for p in place_list:
        if p.core is not None and p.core not in cores:
            cores[p.core] = Core(
                core=len(cores),
                core_id=p.core_id,
                socket=p.socket,
                node=_node_of(p.cpu, of_nodes),
                cpus=tuple(n for n in p.core if n in online),
            )
    return cores


def _cpu(
    root: Path,
    n: int,
    place: Place | None,
    cores: Mapping[tuple[int, ...], Core],
    of_nodes: Sequence[Node],
    of_caches: Sequence[Cache],
    verdict: tuple[bool | None, Why | None],
) -> LogicalCpu:
    if place is None:
        return LogicalCpu(cpu=n, online=False, allowed=verdict[0], why_not=verdict[1])
    khz = [integer(root, f"{CPU}/cpu{n}/cpufreq/cpuinfo_{which}_freq") for which in ("min", "max")]
    return LogicalCpu(
        cpu=n,
        online=True,
        socket=place.socket,
        die=place.die,
        core=None if place.core is None else cores[place.core].core,
        core_id=place.core_id,
        node=_node_of(n, of_nodes),
        thread=place.thread,
        caches=tuple(i for i, cache in enumerate(of_caches) if n in cache.cpus),
        allowed=verdict[0],
        why_not=verdict[1],
        min_mhz=None if khz[0] is None else khz[0] / 1000,
        max_mhz=None if khz[1] is None else khz[1] / 1000,
        governor=text(root, f"{CPU}/cpu{n}/cpufreq/scaling_governor") or None,
    )


def _node_of(n: int, of_nodes: Sequence[Node]) -> int | None:
    return next((node.node for node in of_nodes if n in node.cpus), None)


def _sockets(cpus: Sequence[LogicalCpu]) -> tuple[Socket, ...]:
    numbers = sorted({c.socket for c in cpus if c.socket is not None})
    return tuple(_socket(s, [c for c in cpus if c.socket == s]) for s in numbers)


def _socket(number: int, inside: Sequence[LogicalCpu]) -> Socket:
    return Socket(
        socket=number,
        cpus=tuple(c.cpu for c in inside),
        cores=tuple(sorted({c.core for c in inside if c.core is not None})),
        nodes=tuple(sorted({c.node for c in inside if c.node is not None})),
    )


def _smt(root: Path, cores: Mapping[tuple[int, ...], Core]) -> Smt:
    """Returns the SMT state. ``control`` may be a number of threads (POWER, since 6.6); SMT is on then."""
    control = text(root, f"{CPU}/smt/control") or None
    threads = max((len(core.cpus) for core in cores.values()), default=None)
    state: SmtState | None = next((s for s in get_args(SmtState) if s == control), None)
    if (control or "").isdecimal() or (control is None and (threads or 1) > 1):
        state = "on"
    return Smt(state=state, control=control, threads_per_core=threads)
