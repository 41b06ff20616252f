"""What a topology leaves unknown, and what would make it known."""

from __future__ import annotations

from collections.abc import Iterator

from dbdyno.model.topology import Topology


def unknowns(t: Topology) -> Iterator[str]:
    """One sentence each: what is unknown, why, the cure."""
    yield from _places(t)
    yield from _limits(t)
    if t.smt.state is None and t.cpus:
        yield "SMT unknown: no /sys/devices/system/cpu/smt/control; kernels from 4.19 on tell"
    if t.hypervisor is None:
        yield "hypervisor unknown: neither CPU flags, nor DMI, nor a device tree tell; ask lscpu as root"
    if all(c.governor is None for c in t.online):
        yield (
            "frequency and governor unknown: no cpufreq here; "
            + ("the host of this virtual machine has them" if _guest(t) else "needs a cpufreq driver")
        )
    if t.clocksource is None:
        yield "clocksource unknown: no /sys/devices/system/clocksource; dmesg | grep clocksource may tell"


def _guest(t: Topology) -> bool:
    return t.hypervisor not in (None, "none")


def _places(t: Topology) -> Iterator[str]:
    sys_hidden = "where /sys is masked, look from the host"
    if any(c.core is None for c in t.online):
        yield f"cores and threads unknown: neither /sys nor /proc/cpuinfo tells; {sys_hidden}"
    if any(c.socket is None for c in t.online):
        yield f"sockets unknown: neither /sys nor /proc/cpuinfo tells; {sys_hidden}"
    if not t.nodes:
        yield "NUMA nodes unknown: no /sys/devices/system/node; needs CONFIG_NUMA, and /sys not masked"
    elif any(not node.distances for node in t.nodes):
        yield f"NUMA distances unknown: not in /sys/devices/system/node; {sys_hidden}"
    if not t.caches:
        yield f"caches unknown: no cpu*/cache in /sys; some hypervisors pass none on; {sys_hidden}"


def _limits(t: Topology) -> Iterator[str]:
    if t.affinity is None:
        yield "which CPUs may be used is unknown: the recorded tree holds no /proc/self/status"
    if t.cpuset is None:
        yield "cpuset unknown: no control group with a cpuset is seen; its effect is in the affinity mask"
    if t.container is not None:
        yield "in a container: quotas of groups above it are not seen and may be tighter; look from the host"
