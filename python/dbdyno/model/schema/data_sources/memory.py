"""Columns of the data source ``memory``: where the pages of a server and of its machine are.

It is read at the start and end of each measurement, while no session makes calls; processes are read while
all sessions are connected. In an observation it is read between two windows, as often as its cost permits. It
is also read on demand.

The host's figures come from ``/proc/meminfo`` (proc_meminfo(5)). These parts of the total are disjoint,
so the remainder is memory that the kernel assigns to nothing:

- ``free_bytes`` MemFree; ``anonymous_bytes`` AnonPages; ``shared_bytes`` Shmem: tmpfs and shared memory in
  small pages; ``page_cache_bytes`` Cached + Buffers + SwapCached - Shmem: files only
- ``kernel_bytes`` Slab + PageTables + SecPageTables + Percpu + VmallocUsed (+ KernelStack if kernel stacks
  are not part of VmallocUsed); ``slab_bytes`` and ``page_tables_bytes`` are parts of it
- the pool of huge pages, used or free: ``huge_pages_total`` * ``huge_page_bytes``, the size of one

``executables_bytes`` is a part of the page cache: file pages that processes map, as programs and libraries.
Columns that end in ``_total``, except ``huge_pages_total``, are bytes since the machine or group started.
``huge_pages_asked`` is 0 for off, 1 for try, 2 for on; ``huge_pages_used`` is 0 or 1.
"""

from __future__ import annotations

from dbdyno.model.schema.column import CELL, Column
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.data_source import DataSource, Enabling
from dbdyno.model.schema.raw import TABLES
from dbdyno.model.schema.table import Table

_STATUS = _c("status", "str", "ok, or why a figure is not known or a lower bound")
RAW_MEMORY = {name: TABLES[name] for name in ("memory", "memory_relations", "memory_processes")}
"""Columns of the raw tables, which are stored per measurement."""
PARTS = (
    "kernel",
    "anonymous",
    "executables",
    "page cache",
    "shared memory",
    "huge pages",
    "not assigned",
    "free",
)
"""Parts of the memory, which are disjoint and add up to the total. ``executables``: mapped file pages.
``page cache``: all other file pages. ``shared memory``: that in small pages. ``huge pages``: the pool, used
or free."""
TOTAL = "total"
GROWTH = "growth"
"""Stands in place of a phase for the change from the start to the end of a measurement."""
_PHASE = _c("phase", "str", "start | end (of the measurement) | now (on demand)")


def _spread(name: str, doc: str) -> tuple[Column, ...]:
    return (
        _c(f"{name}_bytes", "i64", f"{doc}: sum of those that are known", null=True),
        _c(f"{name}_median", "i64", "median, bytes", null=True),
        _c(f"{name}_largest", "i64", "largest, bytes", null=True),
        _c(f"{name}_known", "i64", "processes of which it is known"),
    )


MEMORY_TABLES: tuple[Table, ...] = (
    *(
        Table(name, (*CELL, *RAW_MEMORY[name]), options=("memory",), older=(older,))
        for name, older in zip(RAW_MEMORY, ("memory_held", "relations_held", "processes_held"), strict=True)
    ),
    Table(
        "memory_parts",
        (
            *CELL,
            _PHASE,
            _c("part", "str", f"{', '.join(PARTS)}; {TOTAL}: all of them"),
            _c(
                "bytes",
                "i64",
                "may be negative: not assigned, where figures were read one after the other",
                null=True,
            ),
            _c("share", "f64", "of the total", null=True),
            _STATUS,
        ),
        options=("memory",),
    ),
    Table(
        "memory_roles",
        (
            *CELL,
            _PHASE,
            _c("role", "str", "session | helper:<what> | other | driver | dbdyno"),
            _c("processes", "i64", "how many"),
            *_spread("pss", "memory, shared pages divided by those who share them"),
            *_spread("anonymous", "of which anonymous"),
            *_spread("page_tables", "page tables, which belong to one process each"),
            _c("swapped_bytes", "i64", "swapped out: sum", null=True),
            _STATUS,
        ),
        options=("memory",),
    ),
    Table(
        "memory_figures",
        (
            *CELL,
            _c("phase", "str", f"start | end | now; {GROWTH}: from start to end"),
            _c(
                "key",
                "str",
                "memory_bytes (of the machine, or the limit of the server's group where that is less); of "
                "all relations data_bytes data_cached_bytes data_page_cache_bytes data_both_bytes "
                "data_either_bytes; cache_bytes cache_used_bytes cache_dirty_bytes cache_pinned_bytes; "
                "page_tables_bytes of the server's processes, page_tables_huge_bytes: estimate for huge "
                "pages; swap_used_bytes; group_used_bytes; growth: swapped_in_bytes swapped_out_bytes "
                "reclaimed_bytes group_reclaimed_bytes pressure_some_ns pressure_full_ns",
            ),
            _c("value", "i64", "bytes or ns", null=True),
            _c("share", "f64", "of what is named by of", null=True),
            _c("of", "str", "a key of memory or of this table, or time: between the reads", null=True),
            _STATUS,
        ),
        options=("memory",),
    ),
)
"""The raw tables of all measurements, then the tables that :mod:`dbdyno.account.memory` computes from
them."""

MEMORY_SOURCE = DataSource(
    name="memory",
    provenance="the server's cache, /proc/meminfo, smaps_rollup, cachestat of the server's files",
    cures={"off": "switched off with --no-memory"},
    enabling=Enabling(
        "where pages are: the server's cache and the page cache by relation, pages held twice, memory of "
        "processes",
        "the server's user or root for files and processes; the right to read the server's cache",
    ),
    tables=RAW_MEMORY,
)
