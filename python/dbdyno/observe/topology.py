"""CPUs in short: model, cores, sockets, NUMA nodes. The whole of it: observe/machine.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dbdyno.model.environment import Cpu
from dbdyno.observe import cpuinfo
from dbdyno.observe.places import CPU, online_cpus, places
from dbdyno.observe.tree import cpus_listed, integer


def cpu(root: Path) -> Cpu:
    """The CPUs that are online. What neither source tells is None."""
    online = online_cpus(root)
    found = places(root, online)
    sockets = {p.socket for p in found}
    cores = Counter(p.core for p in found)
    nodes = cpus_listed(root, "sys/devices/system/node/online")
    max_khz = integer(root, f"{CPU}/cpu{online[0]}/cpufreq/cpuinfo_max_freq")
    return Cpu(
        model=cpuinfo.model_name(root),
        logical=len(online),
        cores=None if None in cores else len(cores),
        sockets=None if None in sockets else len(sockets),
        numa_nodes=len(nodes) if nodes else None,
        threads_per_core=None if None in cores else max(cores.values(), default=None),
        max_mhz=None if max_khz is None else max_khz / 1000,
    )


def siblings(root: Path) -> tuple[tuple[int, ...], ...] | None:
    """The online CPUs of each core, by the first of them. None: neither source tells of every CPU."""
    cores = {p.core for p in places(root, online_cpus(root))}
    return None if None in cores else tuple(sorted(core for core in cores if core is not None))
