"""What a topology leaves unknown, and what would make it known."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.model.topology import Topology


def unknowns(t: Topology) -> Iterator[str]:
    """One sentence each, ``what: why; cure``."""
    yield from _places(t)
    yield from _limits(t)
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


def _limits(t: Topology) -> Iterator[str]:
    if t.affinity is None:
        yield "CPUs that may be used: no /proc/self/status in this recorded tree; record it with the others"
    if t.cpuset is None:
        yield "cpuset: no control group with one is seen; what it does is in the affinity mask"
    if t.container is not None:
        yield "quotas above the container: not seen from inside, may be tighter; look from the host"
