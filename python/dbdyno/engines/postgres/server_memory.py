"""The server's own memory: use of shared buffers, shared memory, huge pages, NUMA nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.presence import Presence, status_of
from dbdyno.model.sources.source import Status

SUMMARY_SINCE, NUMA_SINCE = (1, 4), (1, 6)
"""Versions of the extension pg_buffercache that have a summary, and NUMA nodes."""
_HUGE_PAGES = {"off": 0, "try": 1, "on": 2}
_USE = ("used", "dirty", "pinned")
_ALLOCATED = "select sum(allocated_size)::bigint from pg_catalog.pg_shmem_allocations"
_NUMA = "select pg_catalog.pg_numa_available()"
_NODE = re.compile(r"\bN(\d+)=(\d+)")
_PAGE_KB = re.compile(r"\bkernelpagesize_kB=(\d+)")
_SHARED = ("/dev/zero", "/SYSV", "/dev/shm/", "/anon_hugepage")
"""Names of shared-memory mappings: anonymous, System V, POSIX, huge pages (shared_memory_type,
huge_pages)."""

Rows = list[tuple[Any, ...]]
Ask = Callable[[str, int], Rows | None]
"""Executes a statement with a time limit in ns. Returns None if it took longer."""


class Context(NamedTuple):
    """Size and use of the server's memory, and rights to read it; columns of ``cache_context.sql``."""

    block_bytes: int
    segment_bytes: int
    buffers: int
    knows_nodes: bool  # whether the server says on which NUMA node its memory is
    huge_pages: str
    huge_pages_status: str | None
    shared_memory_bytes: int | None
    database: int
    database_name: str
    role: str
    superuser: bool
    installed: bool  # whether the extension is on the server's host
    schema: str | None  # of the extension
    version: str | None
    permitted: bool
    may_see_memory: bool

    @property
    def since(self) -> tuple[int, ...]:
        """Version of the extension that may be called, empty if none."""
        return tuple(int(n) for n in (self.version or "").split(".")) if self.permitted else ()


class Figure(NamedTuple):
    """A row of the table ``memory``. ``node`` is the NUMA node, None for all."""

    key: str
    value: int | None
    status: Status = "ok"
    node: int | None = None


def server_figures(
    context: Context,
    listed: Mapping[str, int] | Status,
    ask: Ask,
    seen: Presence,
    left_ns: int,
    *,
    on_demand: bool,
) -> Iterator[Figure]:
    """Yields rows of the table ``memory``. ``listed`` are sums over all buffers, or a status if these were
    not read. NUMA nodes only on demand, since the server touches every page to find them."""
    yield Figure("cache_bytes", context.buffers * context.block_bytes)
    yield from _in_use(context, listed, ask, left_ns)
    yield _shared_memory(context, ask, left_ns)
    yield Figure("huge_pages_asked", _HUGE_PAGES.get(context.huge_pages))
    yield _huge_pages_used(context, seen)
    if on_demand:
        yield from _by_node(context, ask, seen, left_ns)


def _in_use(context: Context, listed: Mapping[str, int] | Status, ask: Ask, left_ns: int) -> Iterator[Figure]:
    """Yields used, dirty and pinned bytes: from the summary, which is cheap, if the extension has it."""
    status: Status = "ok"
    if context.since >= SUMMARY_SINCE:
        rows = ask(sql.fill("cache_summary", schema=context.schema), left_ns)
        sums = dict(zip(_USE, rows[0], strict=True)) if rows else {}
        status = "ok" if rows else "lost"
    elif isinstance(listed, str):
        sums, status = {}, listed
    else:
        sums = dict(listed)
    for name in _USE:
        yield Figure(f"{name}_bytes", sums[name] * context.block_bytes if name in sums else None, status)


def _shared_memory(context: Context, ask: Ask, left_ns: int) -> Figure:
    """Returns the size of shared memory. Version 14 has no setting for it, but a view of allocations."""
    key = "shared_memory_bytes"
    if context.shared_memory_bytes is not None:
        return Figure(key, context.shared_memory_bytes)
    if not context.may_see_memory:
        return Figure(key, None, "not permitted")
    rows = ask(_ALLOCATED + sql.OWN, left_ns)
    return Figure(key, int(rows[0][0])) if rows else Figure(key, None, "lost")


def _huge_pages_used(context: Context, seen: Presence) -> Figure:
    """Returns whether huge pages are used: as the server reports (17 and later), else by its main process."""
    key = "huge_pages_used"
    if context.huge_pages_status in ("on", "off"):
        return Figure(key, int(context.huge_pages_status == "on"))
    if context.huge_pages == "off":
        return Figure(key, 0)
    kb = (
        status_of(seen.main_pid, seen.machine.root).get("HugetlbPages") if seen.main_pid is not None else None
    )
    return Figure(key, int(not kb.startswith("0 "))) if kb else Figure(key, None, "not supported")


def _by_node(context: Context, ask: Ask, seen: Presence, left_ns: int) -> Iterator[Figure]:
    if not context.knows_nodes:
        if seen.main_pid is not None and (text := _numa_maps(seen.main_pid, seen.machine.root)) is not None:
            by_node = shared_by_node(text).items()
            yield from (Figure("shared_memory_bytes", value, node=node) for node, value in by_node)
        return
    if not (ask(_NUMA + sql.OWN, left_ns) or [(False,)])[0][0]:
        return
    statements = {"shared_memory_bytes": "cache_numa"} if context.may_see_memory else {}
    if context.since >= NUMA_SINCE:
        statements["cache_bytes"] = "cache_numa_buffers"
    for key, name in statements.items():
        rows = ask(sql.fill(name, schema=context.schema, block_bytes=context.block_bytes), left_ns)
        yield from (Figure(key, value, node=node) for node, value in rows or ())


def _numa_maps(pid: int, root: Path) -> str | None:
    try:
        return (root / f"proc/{pid}/numa_maps").read_text(errors="replace")
    except OSError:  # not permitted, or a kernel without CONFIG_NUMA
        return None


def shared_by_node(numa_maps: str) -> dict[int, int]:
    """Returns the bytes of shared memory by NUMA node, of pages that the process has touched.

    Lines of numa_maps (proc(5)) have the form ``7f... default file=/dev/zero\\040(deleted) dirty=66 N0=40
    N1=26 kernelpagesize_kB=4``.
    """
    by_node: Counter[int] = Counter()
    for line in numa_maps.split("\n"):
        if any(f"file={name}" in line for name in _SHARED):
            page = _PAGE_KB.search(line)
            for node, pages in _NODE.findall(line):
                by_node[int(node)] += int(pages) * int(page[1] if page else 4) * 1024
    return dict(by_node)
