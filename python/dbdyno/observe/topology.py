"""CPUs: model, cores, sockets, NUMA nodes.

From /sys/devices/system/{cpu,node} (Documentation/admin-guide/cputopology.rst), else from /proc/cpuinfo.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dbdyno.model.environment import Cpu
from dbdyno.observe.tree import cpu_list, fields, integer, text

_CPU = "sys/devices/system/cpu"
_MODEL_KEYS = ("model name", "cpu model", "cpu", "Model", "Hardware")  # x86, MIPS, POWER, ARM boards


def cpu(root: Path) -> Cpu:
    """The CPUs that are online. What neither source tells is None."""
    online = online_cpus(root)
    places = _from_sys(root, online) or _from_cpuinfo(root)
    sockets = {socket for socket, _ in places}
    cores = Counter(places)
    nodes = text(root, "sys/devices/system/node/online")
    max_khz = integer(root, f"{_CPU}/cpu{online[0]}/cpufreq/cpuinfo_max_freq")
    return Cpu(
        model=_model(root),
        logical=len(online),
        cores=len(cores) or None,
        sockets=len(sockets) or None,
        numa_nodes=len(cpu_list(nodes)) if nodes else None,
        threads_per_core=max(cores.values(), default=None),
        max_mhz=None if max_khz is None else max_khz / 1000,
    )


def online_cpus(root: Path) -> tuple[int, ...]:
    """Numbers of the online CPUs; without /sys and /proc/cpuinfo what the C library says."""
    listed = text(root, f"{_CPU}/online")
    if listed:
        return cpu_list(listed)
    numbers = [int(b["processor"]) for b in _blocks(root) if b.get("processor", "").isdigit()]
    return tuple(numbers) or tuple(range(os.cpu_count() or 1))


def _from_sys(root: Path, online: Iterable[int]) -> list[tuple[str, str]]:
    """(socket, core) of each online CPU; empty where /sys does not tell for all of them."""
    found = []
    for n in online:
        topology = f"{_CPU}/cpu{n}/topology"
        socket = text(root, f"{topology}/physical_package_id")
        # core_id repeats from die to die: the list of siblings names a core uniquely
        core = text(root, f"{topology}/core_cpus_list") or text(root, f"{topology}/thread_siblings_list")
        if socket is None or core is None:
            return []
        found.append((socket, core))
    return found


def _from_cpuinfo(root: Path) -> list[tuple[str, str]]:
    """(physical id, core id) of each processor; empty where one has none (ARM, some virtual machines)."""
    blocks = [b for b in _blocks(root) if "processor" in b]
    if not all("physical id" in b and "core id" in b for b in blocks):
        return []
    return [(b["physical id"], f"{b['physical id']}/{b['core id']}") for b in blocks]


def _model(root: Path) -> str | None:
    known: dict[str, str] = {}
    for block in _blocks(root):
        known = block | known
    return next((known[key] for key in _MODEL_KEYS if known.get(key)), None)


def _blocks(root: Path) -> list[dict[str, str]]:
    return [fields(block) for block in (text(root, "proc/cpuinfo") or "").split("\n\n")]
