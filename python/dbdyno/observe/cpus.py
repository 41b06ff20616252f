"""The CPUs of a machine: names, places (socket, die, core, thread), NUMA nodes, caches.

From /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst), CPU by CPU, and /proc/cpuinfo for
what that lacks. All files are read below a root, ``/`` or a recorded tree; what is not there is None.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dbdyno.kernel.numbers import first_number, number
from dbdyno.model.engine.environment import Cpu
from dbdyno.model.engine.topology import Cache, Node
from dbdyno.model.errors import UsageError
from dbdyno.model.text import cpu_lists


def text(root: Path, path: str) -> str | None:
    """Returns the stripped text of ``root/path``; None if it is absent or not readable."""
    try:
        return (root / path).read_text(errors="replace").strip()
    except OSError:
        return None


def integer(root: Path, path: str) -> int | None:
    """Returns the integer that a file holds; None also for other content."""
    return number(text(root, path) or "")


def cpu_list(listed: str) -> tuple[int, ...]:
    """Parses the kernel's list format (cpuset(7), "List format"): ``'0-2,5'`` -> (0, 1, 2, 5)."""
    return tuple(sorted(cpu_lists.of_kernel(listed)))


def cpu_mask(mask: str) -> tuple[int, ...]:
    """Parses a mask of 32-bit words in hexadecimal, highest first (cpuset(7)): ``'3,00000003'`` -> (0, 1,
    32, 33)."""
    bits = int(mask.strip().replace(",", "") or "0", 16)
    return tuple(n for n in range(bits.bit_length()) if bits >> n & 1)


def cpus_listed(root: Path, *files: str, masks: Iterable[str] = ()) -> tuple[int, ...] | None:
    """Returns the CPUs in the first readable one of ``files``, else of ``masks``; None if none is
    readable."""
    for paths, parse in ((files, cpu_list), (tuple(masks), cpu_mask)):
        for path in paths:
            try:
                if (content := text(root, path)) is not None:
                    return parse(content)
            except (ValueError, UsageError):
                continue
    return None


def numbered(root: Path, folder: str, prefix: str) -> tuple[int, ...]:
    """Returns the numbers n of entries ``PREFIXn`` of a folder; empty if it is absent or not readable."""
    try:
        names = [p.name.removeprefix(prefix) for p in (root / folder).iterdir() if p.name.startswith(prefix)]
    except OSError:
        return ()
    return tuple(sorted(int(n) for n in names if n.isdecimal()))


def fields(listed: str | None, separator: str = ":") -> dict[str, str]:
    """Parses ``key: value`` lines. The first of several lines with one key counts."""
    by_key: dict[str, str] = {}
    for line in (listed or "").splitlines():
        key, _, value = line.partition(separator)
        by_key.setdefault(key.strip(), value.strip())
    return by_key


_MODEL_KEYS = ("model name", "cpu model", "cpu", "Model", "Hardware")  # x86, MIPS, POWER, ARM boards
# "CPU implementer", "CPU part" -> name: arch/arm64/include/asm/cputype.h. Cores that servers are made of.
_ARM_PARTS = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x41", "0xd8e"): "Neoverse-N3",
    ("0x43", "0x0af"): "ThunderX2-99xx",
    ("0x48", "0xd01"): "Kunpeng-920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}


def blocks(root: Path) -> list[dict[str, str]]:
    """Returns one dictionary per paragraph of /proc/cpuinfo."""
    return [fields(block) for block in (text(root, "proc/cpuinfo") or "").split("\n\n")]


def processors(root: Path) -> dict[int, dict[str, str]]:
    """Returns the paragraph of each CPU number."""
    return {int(b["processor"]): b for b in blocks(root) if b.get("processor", "").isdigit()}


def flags(root: Path) -> frozenset[str]:
    """Returns the flags of the first CPU; empty for architectures without them (all but x86)."""
    return frozenset(fields(text(root, "proc/cpuinfo")).get("flags", "").split())


def model_name(root: Path) -> str | None:
    known: dict[str, str] = {}
    for block in blocks(root):
        known = block | known
    named = next((known[key] for key in _MODEL_KEYS if known.get(key)), None)
    return named or _arm_name(known.get("CPU implementer"), known.get("CPU part"))


def _arm_name(implementer: str | None, part: str | None) -> str | None:
    if implementer is None or part is None:
        return None
    return _ARM_PARTS.get((implementer, part), f"ARM CPU, implementer {implementer}, part {part}")


CPU = "sys/devices/system/cpu"
# The newer name first. Kernels before 2.6.25 have only masks.
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


def kernel_online(root: Path) -> tuple[int, ...]:
    """Returns the numbers of the online CPUs by the kernel; empty without /sys and /proc/cpuinfo."""
    listed = cpus_listed(root, f"{CPU}/online") or tuple(processors(root))
    return _kernel_list(root, listed) or listed


def narrowed_online(root: Path) -> tuple[int, ...] | None:
    """Returns the list in ``online`` if a container's view (lxcfs) covers the kernel's; else None."""
    listed = cpus_listed(root, f"{CPU}/online")
    return listed if listed and _kernel_list(root, listed) else None


def _kernel_list(root: Path, listed: Iterable[int]) -> tuple[int, ...]:
    """Returns the online CPUs if ``listed`` cannot be the kernel's list: a present CPU is in neither that
    nor ``offline``, or none of it is in the affinity mask. Empty if it can."""
    online = frozenset(listed)
    mask = frozenset(cpu_list(fields(text(root, "proc/self/status")).get("Cpus_allowed_list", "")))
    present = frozenset(cpus_listed(root, f"{CPU}/present") or ())
    offline = cpus_listed(root, f"{CPU}/offline")
    if online and offline is not None and (mask & present) - online - {*offline}:
        return tuple(sorted(present - {*offline}))
    return tuple(sorted(mask)) if online and mask and not mask & online else ()


def online_cpus(root: Path) -> tuple[int, ...]:
    """Returns the numbers of the online CPUs; without /sys and /proc/cpuinfo by the C library."""
    return kernel_online(root) or tuple(range(os.cpu_count() or 1))


def present_cpus(root: Path) -> tuple[int, ...]:
    """Returns the numbers of present CPUs, online or not."""
    present = cpus_listed(root, f"{CPU}/present") or numbered(root, CPU, "cpu")
    return tuple(sorted({*present, *kernel_online(root)}))


def places(root: Path, cpus: Iterable[int]) -> list[Place]:
    """Returns the place of each CPU, in the given order. Sockets without a number are numbered as lscpu
    does."""
    placed = [_from_sys(root, n) for n in cpus]
    if any(p.core is None for p in placed):
        listed = _from_cpuinfo(root)
        placed = [p if p.core is not None else listed.get(p.cpu, p) for p in placed]
    return _number_sockets(root, placed)


def _from_sys(root: Path, n: int) -> Place:
    folder = f"{CPU}/cpu{n}/topology"
    socket, die, core_id = (_id(root, f"{folder}/{k}") for k in ("physical_package_id", "die_id", "core_id"))
    core = _together(root, n, _CORE)
    return Place(n, socket, die, core_id, core if core and n in core else None)


def _from_cpuinfo(root: Path) -> dict[int, Place]:
    """Returns places by ``physical id`` and ``core id``; empty if a processor lacks them (ARM, some
    virtual machines)."""
    listed = processors(root)
    keys = {n: (b.get("physical id", ""), b.get("core id", "")) for n, b in listed.items()}
    if not all(socket.isdecimal() and core.isdecimal() for socket, core in keys.values()):
        return {}
    cores = {key: tuple(n for n in keys if keys[n] == key) for key in keys.values()}
    return {n: Place(n, int(key[0]), None, int(key[1]), cores[key]) for n, key in keys.items()}


def _number_sockets(root: Path, placed: Sequence[Place]) -> list[Place]:
    """Numbers sockets by their lists of CPUs. POWER and some ARM firmware have no package id (-1), but the
    kernel still lists the CPUs of a package."""
    if all(p.socket is not None for p in placed):
        return list(placed)
    packages = {p.cpu: _together(root, p.cpu, _PACKAGE) for p in placed}
    if not all(packages.values()):
        return list(placed)
    numbers = {package: i for i, package in enumerate(dict.fromkeys(packages.values()))}
    return [p._replace(socket=numbers[packages[p.cpu]]) for p in placed]


def _together(root: Path, n: int, names: Sequence[str]) -> tuple[int, ...] | None:
    paths = [f"{CPU}/cpu{n}/topology/{name}" for name in names]
    return cpus_listed(root, *(f"{p}_list" for p in paths), masks=paths)


def _id(root: Path, path: str) -> int | None:
    """Reads an id. The kernel writes -1 for unknown."""
    value = integer(root, path)
    return None if value is None or value < 0 else value


NODE = "sys/devices/system/node"
_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def nodes(root: Path, online: Iterable[int]) -> tuple[Node, ...]:
    """Returns the online NUMA nodes with readable CPUs; empty if the kernel lists none."""
    listed = cpus_listed(root, f"{NODE}/online") or numbered(root, NODE, "node")
    read_nodes = (_node(root, n, listed, frozenset(online)) for n in listed)
    return tuple(node for node in read_nodes if node is not None)


def _node(root: Path, n: int, listed: tuple[int, ...], online: frozenset[int]) -> Node | None:
    folder = f"{NODE}/node{n}"
    cpus = cpus_listed(root, f"{folder}/cpulist", masks=[f"{folder}/cpumap"])
    if cpus is None:
        return None
    distances = [number(word) for word in (text(root, f"{folder}/distance") or "").split()]
    return Node(
        node=n,
        cpus=tuple(c for c in cpus if c in online),
        memory_bytes=_memory(root, n),
        distances={n: d for n, d in zip(listed, distances, strict=True) if d is not None}
        if len(distances) == len(listed)
        else {},
    )


def _memory(root: Path, n: int) -> int | None:
    total = first_number(fields(text(root, f"{NODE}/node{n}/meminfo")).get(f"Node {n} MemTotal", ""))
    return None if total is None else total * 1024


def caches(root: Path, cpus: Iterable[int]) -> tuple[Cache, ...]:
    """Returns each cache once, by level, type and first CPU."""
    by_key = {(c.level, c.type, c.cpus): c for n in cpus for c in _caches_of(root, n)}
    return tuple(by_key[key] for key in sorted(by_key, key=lambda k: (k[0], k[1], k[2])))


def _caches_of(root: Path, n: int) -> Iterable[Cache]:
    for i in numbered(root, f"{CPU}/cpu{n}/cache", "index"):
        folder = f"{CPU}/cpu{n}/cache/index{i}"
        level, kind = integer(root, f"{folder}/level"), text(root, f"{folder}/type")
        if level is None or not kind:
            continue
        shared = cpus_listed(root, f"{folder}/shared_cpu_list", masks=[f"{folder}/shared_cpu_map"])
        yield Cache(
            level=level,
            type=kind,
            size_bytes=_size(text(root, f"{folder}/size")),
            id=integer(root, f"{folder}/id"),
            cpus=shared or (n,),
        )


def _size(written: str | None) -> int | None:
    """Parses a size such as ``32K``; None if it is absent or 0, as with some firmware (POWER, ARM)."""
    digits = (written or "").rstrip("KMG")
    size = number(digits)
    if written is None or size is None:
        return None
    return size * _FACTORS.get(written[len(digits) :], 1) or None


def cpu(root: Path) -> Cpu:
    """Returns the online CPUs in figures. A figure is None if no source has it."""
    online = online_cpus(root)
    placed = places(root, online)
    sockets = {p.socket for p in placed}
    cores = Counter(p.core for p in placed)
    nodes = cpus_listed(root, "sys/devices/system/node/online")
    max_khz = integer(root, f"{CPU}/cpu{online[0]}/cpufreq/cpuinfo_max_freq")
    return Cpu(
        model=model_name(root),
        logical=len(online),
        cores=None if None in cores else len(cores),
        sockets=None if None in sockets else len(sockets),
        numa_nodes=len(nodes) if nodes else None,
        threads_per_core=None if None in cores else max(cores.values(), default=None),
        max_mhz=None if max_khz is None else max_khz / 1000,
    )


def siblings(root: Path) -> tuple[tuple[int, ...], ...] | None:
    """Returns the online CPUs of each core, ordered by the first; None if the core of a CPU is unknown."""
    cores = {p.core for p in places(root, online_cpus(root))}
    return None if None in cores else tuple(sorted(core for core in cores if core is not None))
