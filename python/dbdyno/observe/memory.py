"""Memory of the machine and of a control group: rows of table ``memory``, scopes ``host`` and ``group``.

:mod:`dbdyno.model.schema.data_sources.memory` defines the figures. Sources: ``/proc/meminfo``
(proc_meminfo(5)), ``/proc/vmstat`` (pages since boot), ``/sys/devices/system/node/nodeN/meminfo``, and of
a control group ``memory.stat`` and its neighbours (cgroup-v1/memory.rst, cgroup-v2.rst, psi.rst).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dbdyno import _core
from dbdyno.kernel.machine import groups_of
from dbdyno.kernel.numbers import number
from dbdyno.observe.cpus import fields, integer, numbered, text

Row = dict[str, Any]
_UNLIMITED_BYTES = 1 << 60  # v1 has a number near 2^63 for "no limit"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NODES = "sys/devices/system/node"
_PLAIN = {
    "total_bytes": "MemTotal",
    "free_bytes": "MemFree",
    "available_bytes": "MemAvailable",
    "anonymous_bytes": "AnonPages",
    "shared_bytes": "Shmem",
    "slab_bytes": "Slab",
    "page_tables_bytes": "PageTables",
    "huge_page_bytes": "Hugepagesize",
    "huge_pages_total": "HugePages_Total",
    "huge_pages_free": "HugePages_Free",
    "swap_total_bytes": "SwapTotal",
    "swap_free_bytes": "SwapFree",
    "dirty_bytes": "Dirty",
}
_OF_ALL_NODES = ("available_bytes", "huge_page_bytes", "swap_total_bytes", "swap_free_bytes")
_RECLAIMING = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")


def meminfo(printed: str) -> dict[str, int]:
    """Parses lines ``MemTotal: 24684096 kB`` or ``Node 0 MemTotal: ...`` to bytes; numbers without a unit
    are unchanged."""
    by_key = {}
    for key, value in fields(re.sub(r"(?m)^Node \d+ ", "", printed)).items():
        digits, _, unit = value.partition(" ")
        if (count := number(digits)) is not None:
            by_key[key] = count * (1024 if unit == "kB" else 1)
    return by_key


def figures(info: Mapping[str, int]) -> dict[str, int | None]:
    """Returns the figures of the host or of a node, whose page cache is ``FilePages``; None if this kernel
    lacks one."""
    files = info.get("FilePages")
    if files is None and "Cached" in info:
        files = info["Cached"] + info.get("Buffers", 0) + info.get("SwapCached", 0)
    shared = info.get("Shmem")
    return {
        **{key: info.get(name) for key, name in _PLAIN.items()},
        "page_cache_bytes": None if files is None or shared is None else max(0, files - shared),
        "kernel_bytes": _kernel(info),
    }


def _kernel(info: Mapping[str, int]) -> int | None:
    """Returns the kernel's memory. Kernel stacks are part of ``VmallocUsed`` with CONFIG_VMAP_STACK;
    before 5.3 that is 0."""
    if "Slab" not in info:
        return None
    parts = sum(info.get(k, 0) for k in ("Slab", "PageTables", "SecPageTables", "Percpu"))
    return parts + max(info.get("VmallocUsed", 0), info.get("KernelStack", 0))


def totals(vmstat: str) -> dict[str, int | None]:
    """Returns bytes since boot, from ``name pages`` lines. Kernels before 4.8 count reclaim by zone."""
    counts = {k: int(v) for k, v in fields(vmstat, " ").items() if v.isdecimal()}
    reclaimed = [v for k, v in counts.items() if k.startswith(_RECLAIMING)]
    pages = {
        "swapped_in_total": counts.get("pswpin"),
        "swapped_out_total": counts.get("pswpout"),
        "reclaimed_total": sum(reclaimed) if reclaimed else None,
    }
    return {key: None if n is None else n * _PAGE_BYTES for key, n in pages.items()}


def host_rows(root: Path = Path("/")) -> Iterator[Row]:
    """Yields the whole machine, then each NUMA node if there are several. In a container these are the
    kernel's figures; the container's limit is that of its group."""
    before_ns = _core.now_ns()
    whole = text(root, "proc/meminfo")
    machine_figures = figures(meminfo(whole or "")) | totals(text(root, "proc/vmstat") or "")
    yield from _rows("host", None, machine_figures, before_ns)
    nodes = numbered(root, _NODES, "node")
    for node in nodes if len(nodes) > 1 else ():
        before_ns = _core.now_ns()
        node_figures = figures(meminfo(text(root, f"{_NODES}/node{node}/meminfo") or ""))
        for key in _OF_ALL_NODES:
            node_figures.pop(key)
        yield from _rows("host", node, node_figures, before_ns)


def group_rows(pid: int | None, root: Path = Path("/")) -> Iterator[Row]:
    """Yields the innermost control group of a process; nothing if no group with memory figures is visible."""
    before_ns = _core.now_ns()
    if group := group_figures(groups_of(pid, root, ["memory"])):
        yield from _rows("group", None, group, before_ns)


def group_figures(groups: Sequence[tuple[int, Path]]) -> dict[str, int | None]:
    """Returns the figures of a group. ``groups``: (version, directory), innermost first. The limit is the
    tightest of all; None if there is none. Empty if no group has a memory controller."""
    of_v1, of_v2 = ([p for v, p in groups if v == version] for version in (1, 2))
    if of_v1 and (of_v1[0] / "memory.stat").exists():
        return _figures_v1(of_v1)
    if of_v2 and (of_v2[0] / "memory.stat").exists():
        return _figures_v2(of_v2)
    return {}


def _figures_v1(groups: Sequence[Path]) -> dict[str, int | None]:
    """Returns figures of v1. ``total_*`` include groups below; reclaim and pressure are not counted."""
    stat = _counts(groups[0])
    limits = [integer(g, "memory.limit_in_bytes") for g in groups] + [stat.get("hierarchical_memory_limit")]
    cache, shared = stat.get("total_cache"), stat.get("total_shmem")
    return {
        "limit_bytes": _tightest(limits),
        "used_bytes": integer(groups[0], "memory.usage_in_bytes"),
        "page_cache_bytes": None if cache is None or shared is None else max(0, cache - shared),
        "anonymous_bytes": stat.get("total_rss"),
        "reclaimed_total": None,
        "pressure_some_ns": None,
        "pressure_full_ns": None,
    }


def _figures_v2(groups: Sequence[Path]) -> dict[str, int | None]:
    """Returns figures of v2. The root group has neither a limit nor ``memory.current``."""
    stat, group = _counts(groups[0]), groups[0]
    files, shared, stolen = stat.get("file"), stat.get("shmem"), stat.get("pgsteal")
    return {
        "limit_bytes": _tightest([integer(g, "memory.max") for g in groups]),
        "used_bytes": integer(group, "memory.current"),
        "page_cache_bytes": None if files is None or shared is None else max(0, files - shared),
        "anonymous_bytes": stat.get("anon"),
        "reclaimed_total": None if stolen is None else stolen * _PAGE_BYTES,
        **pressure(text(group, "memory.pressure") or ""),
    }


def _counts(group: Path) -> dict[str, int]:
    return {k: int(v) for k, v in fields(text(group, "memory.stat"), " ").items() if v.isdecimal()}


def _tightest(limits: Sequence[int | None]) -> int | None:
    return min((n for n in limits if n is not None and n < _UNLIMITED_BYTES), default=None)


def pressure(printed: str) -> dict[str, int | None]:
    """Returns the time with a task, or with all tasks, waiting for memory: ``total=`` is in microseconds
    (psi.rst)."""
    totals_us = dict(re.findall(r"(?m)^(some|full) .*total=(\d+)", printed))
    return {
        f"pressure_{k}_ns": int(totals_us[k]) * 1000 if k in totals_us else None for k in ("some", "full")
    }


_MAY_BE_NONE = "limit_bytes"


def _rows(scope: str, node: int | None, figures_: Mapping[str, int | None], before_ns: int) -> Iterator[Row]:
    read = {"before_ns": before_ns, "after_ns": _core.now_ns(), "scope": scope, "node": node}
    for key, value in figures_.items():
        known = value is not None or key == _MAY_BE_NONE
        yield {**read, "key": key, "value": value, "status": "ok" if known else "not supported"}
