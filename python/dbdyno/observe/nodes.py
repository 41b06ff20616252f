"""NUMA nodes and caches (Documentation/ABI: stable/sysfs-devices-node, testing/sysfs-devices-system-cpu)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dbdyno.model.topology import Cache, Node
from dbdyno.observe.places import CPU
from dbdyno.observe.tree import cpus_listed, fields, integer, numbered, text

NODE = "sys/devices/system/node"
_FACTORS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def nodes(root: Path, online: Iterable[int]) -> tuple[Node, ...]:
    """Nodes that are online and whose CPUs can be read; empty where the kernel tells of none."""
    listed = cpus_listed(root, f"{NODE}/online") or numbered(root, NODE, "node")
    found = (_node(root, n, listed, frozenset(online)) for n in listed)
    return tuple(node for node in found if node is not None)


def _node(root: Path, n: int, listed: tuple[int, ...], online: frozenset[int]) -> Node | None:
    folder = f"{NODE}/node{n}"
    cpus = cpus_listed(root, f"{folder}/cpulist", masks=[f"{folder}/cpumap"])
    if cpus is None:
        return None
    distances = (text(root, f"{folder}/distance") or "").split()
    return Node(
        node=n,
        cpus=tuple(c for c in cpus if c in online),
        memory_bytes=_memory(root, n),
        distances=dict(zip(listed, map(int, distances), strict=True))
        if len(distances) == len(listed)
        else {},
    )


def _memory(root: Path, n: int) -> int | None:
    total = fields(text(root, f"{NODE}/node{n}/meminfo")).get(f"Node {n} MemTotal", "").split()
    return int(total[0]) * 1024 if total else None


def caches(root: Path, cpus: Iterable[int]) -> tuple[Cache, ...]:
    """Each cache once, by level, kind and first CPU."""
    found = {(c.level, c.type, c.cpus): c for n in cpus for c in _caches_of(root, n)}
    return tuple(found[key] for key in sorted(found, key=lambda k: (k[0], k[1], k[2])))


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
    """``32K``; absent or 0 where the firmware does not say (POWER, ARM)."""
    number = (written or "").rstrip("KMG")
    if written is None or not number.isdecimal():
        return None
    return int(number) * _FACTORS.get(written[len(number) :], 1) or None
