"""The topology as nested boxes, not yet drawn: sockets > nodes > last-level caches > cores > threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from dbdyno.model.topology import Cache, LogicalCpu, Topology
from dbdyno.present.topology import size_text

_K = TypeVar("_K", bound=Hashable)
Cores = Sequence[Sequence[LogicalCpu]]  # the threads of each


class Box(NamedTuple):
    """Either holds boxes or cores."""

    kind: str  # socket, node, cache, offline
    title: str
    boxes: Sequence[Box] = ()
    cores: Cores = ()


def boxes(t: Topology) -> list[Box]:
    """A box a socket; then nodes without CPUs, and CPUs that are offline."""
    found = [_socket(t, number, cpus) for number, cpus in _by(t.online, lambda c: c.socket)]
    found += [Box("node", f"{_node_title(t, n.node)}, no CPUs") for n in t.nodes if not n.cpus]
    off = [[c] for c in t.cpus if not c.online]
    return [*found, *([Box("offline", "offline", cores=off)] if off else [])]


def _socket(t: Topology, number: int | None, cpus: Sequence[LogicalCpu]) -> Box:
    nodes = _by(cpus, lambda c: c.node)
    title = "socket unknown" if number is None else f"socket {number}"
    if len(nodes) > 1:
        inside = [_node(t, node, within) for node, within in nodes]
        return Box("socket", f"{title}{_spanning(t, cpus, nodes)}", inside)
    node = nodes[0][0]
    return _filled(t, "socket", title if node is None else f"{title}, {_node_title(t, node)}", cpus)


def _spanning(
    t: Topology, cpus: Sequence[LogicalCpu], nodes: Sequence[tuple[int | None, Sequence[LogicalCpu]]]
) -> str:
    """The cache that all cores of a socket share across its nodes."""
    shared = {_shared_cache(t, c, cpus) for c in cpus}
    cache = shared.pop() if len(shared) == 1 else None
    if cache is None or _shared_cache(t, cpus[0], nodes[0][1]) is not None:
        return ""
    return f", {_cache_title(t.caches[cache])}"


def _node(t: Topology, number: int | None, cpus: Sequence[LogicalCpu]) -> Box:
    return _filled(t, "node", "node unknown" if number is None else _node_title(t, number), cpus)


def _node_title(t: Topology, number: int) -> str:
    memory = next((n.memory_bytes for n in t.nodes if n.node == number), None)
    return f"node {number}" if memory is None else f"node {number}, {size_text(memory)}"


def _filled(t: Topology, kind: str, title: str, cpus: Sequence[LogicalCpu]) -> Box:
    """With a box for each cache of the last level where there are several; the only one goes to the title."""
    caches = _by(cpus, lambda c: _shared_cache(t, c, cpus))
    if len(caches) == 1:
        cache = caches[0][0]
        full = title if cache is None else f"{title}, {_cache_title(t.caches[cache])}"
        return Box(kind, full, cores=_cores(cpus))
    inside = [
        Box("cache", "" if i is None else _cache_title(t.caches[i]), cores=_cores(c)) for i, c in caches
    ]
    return Box(kind, title, inside)


def _shared_cache(t: Topology, cpu: LogicalCpu, within: Sequence[LogicalCpu]) -> int | None:
    """The place in ``t.caches`` of its last-level cache, if cores share it, all of them ``within``."""
    last = max(cpu.caches, key=lambda i: t.caches[i].level, default=None)
    if last is None:
        return None
    core = next((c.cpus for c in t.cores if c.core == cpu.core), (cpu.cpu,))
    sharing = {c.cpu for c in t.online}.intersection(t.caches[last].cpus)
    return last if sharing - set(core) and sharing <= {c.cpu for c in within} else None


def _cache_title(cache: Cache) -> str:
    return f"{cache.name} {size_text(cache.size_bytes)}"


def _cores(cpus: Sequence[LogicalCpu]) -> Cores:
    """Threads by their core; a CPU whose core is unknown stands alone."""
    grouped = _by(cpus, lambda c: ("cpu", c.cpu) if c.core is None else ("core", c.core))
    return [sorted(threads, key=lambda c: c.thread or 0) for _, threads in grouped]


def _by(cpus: Iterable[LogicalCpu], key: Callable[[LogicalCpu], _K]) -> list[tuple[_K, list[LogicalCpu]]]:
    """Sorted by the key, the unknown last; within it by number."""
    groups: dict[_K, list[LogicalCpu]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu)
    return sorted(
        groups.items(), key=lambda pair: (pair[0] is None, pair[1][0].cpu if _mixed(pair[0]) else pair[0])
    )


def _mixed(key: object) -> bool:
    return key is None or isinstance(key, tuple)
