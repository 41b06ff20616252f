"""Where each CPU sits: socket, die, core, thread.

From /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst), CPU by CPU; where it does not tell,
from /proc/cpuinfo.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno.observe import cpuinfo
from dbdyno.observe.tree import cpus_listed, integer, numbered

CPU = "sys/devices/system/cpu"
# the newer name first; kernels before 2.6.25 have masks only
_CORE = ("core_cpus", "thread_siblings")
_PACKAGE = ("package_cpus", "core_siblings")


class Place(NamedTuple):
    cpu: int
    socket: int | None
    die: int | None
    core_id: int | None
    core: tuple[int, ...] | None  # the CPUs of its core in the order of threads: names the core uniquely

    @property
    def thread(self) -> int | None:
        return None if self.core is None else self.core.index(self.cpu)


def told_online(root: Path) -> tuple[int, ...]:
    """Numbers of the online CPUs; empty where neither /sys nor /proc/cpuinfo tells."""
    return cpus_listed(root, f"{CPU}/online") or tuple(cpuinfo.processors(root))


def online_cpus(root: Path) -> tuple[int, ...]:
    """Numbers of the online CPUs; without /sys and /proc/cpuinfo what the C library says."""
    return told_online(root) or tuple(range(os.cpu_count() or 1))


def present_cpus(root: Path) -> tuple[int, ...]:
    """Those that are there, online or not."""
    present = cpus_listed(root, f"{CPU}/present") or numbered(root, CPU, "cpu")
    return tuple(sorted({*present, *told_online(root)}))


def places(root: Path, cpus: Iterable[int]) -> list[Place]:
    """The place of each, in the order given. Sockets without a number are numbered as lscpu does."""
    told = [_from_sys(root, n) for n in cpus]
    if any(p.core is None for p in told):
        listed = _from_cpuinfo(root)
        told = [p if p.core is not None else listed.get(p.cpu, p) for p in told]
    return _number_sockets(root, told)


def _from_sys(root: Path, n: int) -> Place:
    folder = f"{CPU}/cpu{n}/topology"
    socket, die, core_id = (_id(root, f"{folder}/{k}") for k in ("physical_package_id", "die_id", "core_id"))
    core = _together(root, n, _CORE)
    return Place(n, socket, die, core_id, core if core and n in core else None)


def _from_cpuinfo(root: Path) -> dict[int, Place]:
    """By ``physical id`` and ``core id``; empty where a processor has none (ARM, some virtual machines)."""
    listed = cpuinfo.processors(root)
    keys = {n: (b.get("physical id", ""), b.get("core id", "")) for n, b in listed.items()}
    if not all(socket.isdecimal() and core.isdecimal() for socket, core in keys.values()):
        return {}
    cores = {key: tuple(n for n in keys if keys[n] == key) for key in keys.values()}
    return {n: Place(n, int(key[0]), None, int(key[1]), cores[key]) for n, key in keys.items()}


def _number_sockets(root: Path, told: Sequence[Place]) -> list[Place]:
    """POWER and some ARM firmware name no package (-1), but the kernel still lists what belongs together."""
    if all(p.socket is not None for p in told):
        return list(told)
    packages = {p.cpu: _together(root, p.cpu, _PACKAGE) for p in told}
    if not all(packages.values()):
        return list(told)
    numbers = {package: i for i, package in enumerate(dict.fromkeys(packages.values()))}
    return [p._replace(socket=numbers[packages[p.cpu]]) for p in told]


def _together(root: Path, n: int, names: Sequence[str]) -> tuple[int, ...] | None:
    paths = [f"{CPU}/cpu{n}/topology/{name}" for name in names]
    return cpus_listed(root, *(f"{p}_list" for p in paths), masks=paths)


def _id(root: Path, path: str) -> int | None:
    """-1 is the kernel's word for unknown."""
    found = integer(root, path)
    return None if found is None or found < 0 else found
