"""Describes the topology: as a table of six lines, as facts, and as nested boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple, TypeVar

from dbdyno.model.engine.topology import Cache, LogicalCpu, Topology
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import counted, significant
from dbdyno.present.document.document import UNKNOWN
from dbdyno.present.figures.figures import cpus_text, grouped

_INDENT = 14
_SMT = {
    "on": "on",
    "off": "off",
    "forceoff": "forced off until the next boot",
    "notsupported": "not supported by the CPU",
    "notimplemented": "not switchable on this architecture",
}
_WHY = {
    "offline": "offline",
    "cpuset": "outside the cpuset of the control group",
    "affinity": "outside the affinity mask (taskset, CPUAffinity=)",
}
_K = TypeVar("_K", bound=Hashable)


def table(t: Topology) -> list[str]:
    """Returns the six lines that ``cpu_topology`` prints of the online CPUs; ``?`` is unknown."""
    logical = Counter(c.socket for c in t.online)
    cores = {s.socket: len(s.cores) or None for s in t.sockets}
    rows: dict[str, Callable[[LogicalCpu], int | None]] = {
        "processors  (OS CPU count)": lambda c: c.cpu,
        "physical id (processor socket)": lambda c: c.socket,
        "siblings    (logical CPUs/socket)": lambda c: None if c.socket is None else logical[c.socket],
        "core id     (# assigned to a core)": lambda c: c.core_id,
        "cpu cores   (physical cores/socket)": lambda c: None if c.socket is None else cores[c.socket],
    }
    lines = [f"model name      : {t.model or UNKNOWN}"]
    return lines + [
        f"{name:36}{' '.join(_known(value(c)) for c in t.online)}" for name, value in rows.items()
    ]


def parsable(t: Topology) -> list[str]:
    """Returns the output of ``lscpu -p=CPU,CORE,SOCKET,NODE``.

    Cores and sockets are numbered in the order of their first CPU.
    """
    sockets = [s for s in dict.fromkeys(c.socket for c in t.online) if s is not None]
    lines = ["# CPU,Core,Socket,Node"]
    for c in t.online:
        socket = None if c.socket is None else sockets.index(c.socket)
        lines.append(",".join("" if v is None else str(v) for v in (c.cpu, c.core, socket, c.node)))
    return lines


def facts(t: Topology, width: int = 100) -> list[str]:
    """Returns the hardware, the CPUs that may be used and why, and unknown facts with their cure."""
    pairs = [
        ("CPUs", _counts(t)),
        ("may be used", _allowed(t)),
        ("why", "; ".join(_limits(t))),
        ("may not", "; ".join(_denied(t))),
        ("isolated", f"{cpu_lists.text(t.isolated)} (isolcpus=)" if t.isolated else ""),
        ("SMT", _smt(t)),
        ("hypervisor", "none: bare metal" if t.hypervisor == "none" else t.hypervisor or UNKNOWN),
        ("container", t.container or ""),
        ("frequency", "; ".join(_frequencies(t)) or UNKNOWN),
        ("clocksource", _clock(t)),
        ("caches", "; ".join(_caches(t)) or UNKNOWN),
    ]
    lines = [line for name, words in pairs if words for line in _line(name, words, width)]
    lines += [f"{'NUMA' if i == 0 else '':{_INDENT}}{line}" for i, line in enumerate(_nodes(t))]
    return lines + [line for note in t.notes for line in _line("unknown", note, width)]


def _line(name: str, words: str, width: int) -> Iterator[str]:
    for i, part in enumerate(wrap(words, max(20, width - _INDENT), break_on_hyphens=False)):
        yield f"{'' if i else name:{_INDENT}}{part}"


def _counts(t: Topology) -> str:
    parts = [f"{len(t.online)} online", f"{len(t.offline)} offline" if t.offline else ""]
    parts += [
        _count(len(t.sockets), "socket"),
        _count(len(t.nodes), "NUMA node"),
        _count(len(t.cores), "core"),
    ]
    return f"{', '.join(filter(None, parts))}: {t.model or 'model unknown'}"


def _count(n: int, what: str) -> str:
    """Returns a number with its noun; 0 means unknown, because a machine has at least one of each."""
    return counted(n, what) if n else f"{UNKNOWN} {what}s"


def _allowed(t: Topology) -> str:
    if any(c.allowed is None for c in t.cpus):
        return UNKNOWN
    text = f"{len(t.allowed)} of {len(t.online)}: {cpu_lists.text(c.cpu for c in t.allowed)}"
    if t.usable_cpus is not None and t.usable_cpus < len(t.allowed):
        text += f"; together as much as {cpus_text(t.usable_cpus)} (quota)"
    return text


def _limits(t: Topology) -> Iterator[str]:
    if t.affinity is not None:
        everything = len(t.affinity) == len(t.online)
        yield f"affinity mask {'of all' if everything else cpu_lists.text(t.affinity)}"
    if t.cpuset is not None and t.cpuset.cpus is not None:
        memory = "" if t.cpuset.mems is None else f", memory of node {cpu_lists.text(t.cpuset.mems)}"
        yield f"cpuset {cpu_lists.text(t.cpuset.cpus)}{memory} of {t.cpuset.directory} (v{t.cpuset.version})"
    yield f"quota {cpus_text(t.quota.cpus)} of {t.quota.directory}" if t.quota else "no quota seen"


def _denied(t: Topology) -> Iterator[str]:
    for why, words in _WHY.items():
        if cpus := [c.cpu for c in t.cpus if c.why_not == why]:
            yield f"{cpu_lists.text(cpus)} {words}"


def _smt(t: Topology) -> str:
    threads = sorted({len(core.cpus) for core in t.cores})
    state = UNKNOWN if t.smt.state is None else _SMT[t.smt.state]
    if not threads:
        return state
    span = f"{threads[0]}" if len(threads) == 1 else f"{threads[0]} to {threads[-1]}"
    return f"{state}; {span} thread{'' if threads == [1] else 's'} per core online"


def _frequencies(t: Topology) -> Iterator[str]:
    groups = grouped(((c.governor, c.min_mhz, c.max_mhz), c) for c in t.online)
    for (governor, low, high), cpus in groups.items():
        if (governor, low, high) == (None, None, None):
            continue
        span = f"{_known(low)} to {_known(high)} MHz, governor {governor or UNKNOWN}"
        yield span if len(groups) == 1 else f"{span}: CPUs {cpu_lists.text(c.cpu for c in cpus)}"


def _clock(t: Topology) -> str:
    others = ", ".join(c for c in t.clocksources or () if c != t.clocksource)
    return f"{t.clocksource or UNKNOWN}{f' (could be {others})' if others else ''}"


def _caches(t: Topology) -> Iterator[str]:
    alike = grouped(((c.name, c.size_bytes, len(c.cpus)), c) for c in t.caches)
    for (name, size, shared), caches in alike.items():
        yield f"{name} {size_text(size)} per {'CPU' if shared == 1 else f'{shared} CPUs'} ({len(caches)})"


def _nodes(t: Topology) -> list[str]:
    """Returns NUMA nodes as a table, with the matrix of distances if it is known."""
    if not t.nodes:
        return [UNKNOWN]
    far = [n.node for n in t.nodes if t.nodes[0].distances]
    rows = [["node", "CPUs", "memory", *(f"to {n}" for n in far)]]
    for n in t.nodes:
        distances = [_known(n.distances.get(other)) for other in far]
        rows.append([str(n.node), cpu_lists.text(n.cpus) or "none", size_text(n.memory_bytes), *distances])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{w:{'<' if i == 1 else '>'}{widths[i]}}" for i, w in enumerate(r)).rstrip() for r in rows
    ]


def size_text(size_bytes: int | None) -> str:
    """Returns ``24 MiB``; ``?`` is unknown."""
    if size_bytes is None:
        return UNKNOWN
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            whole, rest = divmod(size_bytes, factor)
            return f"{significant(size_bytes / factor) if rest else whole} {unit}"
    return f"{size_bytes} B"


def _known(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


# The topology as nested boxes, without a layout: sockets > nodes > last-level caches > cores > threads.

Cores = Sequence[Sequence[LogicalCpu]]  # threads by core


class Box(NamedTuple):
    """A box that holds either boxes or cores."""

    kind: str  # socket, node, cache, offline
    title: str
    boxes: Sequence[Box] = ()
    cores: Cores = ()


def boxes(t: Topology) -> list[Box]:
    """Returns one box per socket, then nodes without CPUs, and offline CPUs."""
    sockets = [_socket(t, number, cpus) for number, cpus in _groups_by(t.online, lambda c: c.socket)]
    sockets += [Box("node", f"{_node_title(t, n.node)}, no CPUs") for n in t.nodes if not n.cpus]
    off = [[c] for c in t.cpus if not c.online]
    return [*sockets, *([Box("offline", "offline", cores=off)] if off else [])]


def _socket(t: Topology, number: int | None, cpus: Sequence[LogicalCpu]) -> Box:
    nodes = _groups_by(cpus, lambda c: c.node)
    title = "socket unknown" if number is None else f"socket {number}"
    if len(nodes) > 1:
        inside = [_node(t, node, within) for node, within in nodes]
        return Box("socket", f"{title}{_spanning(t, cpus, nodes)}", inside)
    node = nodes[0][0]
    return _filled(t, "socket", title if node is None else f"{title}, {_node_title(t, node)}", cpus)


def _spanning(
    t: Topology, cpus: Sequence[LogicalCpu], nodes: Sequence[tuple[int | None, Sequence[LogicalCpu]]]
) -> str:
    """Returns the title of a cache that all cores of a socket share across its nodes; empty without one."""
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
    """Returns a box with one box per last-level cache; a single cache is named in the title instead."""
    caches = _groups_by(cpus, lambda c: _shared_cache(t, c, cpus))
    if len(caches) == 1:
        cache = caches[0][0]
        full = title if cache is None else f"{title}, {_cache_title(t.caches[cache])}"
        return Box(kind, full, cores=_cores(cpus))
    inside = [
        Box("cache", "" if i is None else _cache_title(t.caches[i]), cores=_cores(c)) for i, c in caches
    ]
    return Box(kind, title, inside)


def _shared_cache(t: Topology, cpu: LogicalCpu, within: Sequence[LogicalCpu]) -> int | None:
    """Returns the index in ``t.caches`` of the CPU's last-level cache.

    None unless cores share it and all of them are in ``within``.
    """
    last = max(cpu.caches, key=lambda i: t.caches[i].level, default=None)
    if last is None:
        return None
    core = next((c.cpus for c in t.cores if c.core == cpu.core), (cpu.cpu,))
    sharing = {c.cpu for c in t.online}.intersection(t.caches[last].cpus)
    return last if sharing - set(core) and sharing <= {c.cpu for c in within} else None


def _cache_title(cache: Cache) -> str:
    return f"{cache.name} {size_text(cache.size_bytes)}"


def _cores(cpus: Sequence[LogicalCpu]) -> Cores:
    """Groups threads by core; a CPU whose core is unknown is a group of its own."""
    cores = _groups_by(cpus, lambda c: ("cpu", c.cpu) if c.core is None else ("core", c.core))
    return [sorted(threads, key=lambda c: c.thread or 0) for _, threads in cores]


def _groups_by(
    cpus: Iterable[LogicalCpu], key: Callable[[LogicalCpu], _K]
) -> list[tuple[_K, list[LogicalCpu]]]:
    """Groups CPUs by key. Groups are in the order of their keys, unknown ones last; tuples by their first
    CPU."""
    return sorted(
        grouped((key(c), c) for c in cpus).items(),
        key=lambda g: (g[0] is None, g[1][0].cpu if _mixed(g[0]) else g[0]),
    )


def _mixed(key: object) -> bool:
    return key is None or isinstance(key, tuple)
