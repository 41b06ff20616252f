"""A made-up server for tests of the data source ``memory``: 16 GiB host, a cache of 4 GiB, 200 sessions.

Nothing here was measured. The figures of the host are in proc_meminfo(5)'s terms, chosen so that they add up:
what is left is 96 MiB, which the kernel assigns to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from dbdyno.model.schema.tables import raw, rows

MIB, GIB = 1 << 20, 1 << 30
SESSIONS = 200
HOST: Mapping[str, int | None] = {
    "total_bytes": 16 * GIB,
    "free_bytes": 2 * GIB,
    "available_bytes": 9 * GIB,
    "page_cache_bytes": 7 * GIB,
    "anonymous_bytes": 1 * GIB,
    "shared_bytes": 4 * GIB + 160 * MIB,
    "executables_bytes": 64 * MIB,
    "slab_bytes": 512 * MIB,
    "kernel_bytes": 1792 * MIB,
    "page_tables_bytes": 1200 * MIB,
    "huge_page_bytes": 2 * MIB,
    "huge_pages_total": 0,
    "huge_pages_free": 0,
    "swap_total_bytes": 2 * GIB,
    "swap_free_bytes": 2 * GIB - 32 * MIB,
    "dirty_bytes": 40 * MIB,
    "swapped_in_total": 100 * MIB,
    "swapped_out_total": 200 * MIB,
    "reclaimed_total": 8 * GIB,
}
SERVER: Mapping[str, int | None] = {
    "cache_bytes": 4 * GIB,
    "used_bytes": 3 * GIB,
    "dirty_bytes": 256 * MIB,
    "pinned_bytes": 8192,
    "shared_memory_bytes": 4 * GIB + 128 * MIB,
    "huge_pages_asked": 1,
    "huge_pages_used": 0,
}
GROUP: Mapping[str, int | None] = {
    "limit_bytes": 14 * GIB,
    "used_bytes": 12 * GIB,
    "page_cache_bytes": 6 * GIB,
    "anonymous_bytes": 1 * GIB,
    "reclaimed_total": 0,
    "pressure_some_ns": 2_000_000_000,
    "pressure_full_ns": 500_000_000,
}
RELATIONS: tuple[tuple[Any, ...], ...] = (  # name, kind, size, cached, page cache, both
    ("public.orders", "table", 3 * GIB, 1536 * MIB, 2560 * MIB, 1280 * MIB),
    ("public.orders_pkey", "index", 512 * MIB, 512 * MIB, 512 * MIB, 512 * MIB),
    ("public.customers", "table", 1 * GIB, 768 * MIB, 256 * MIB, 200 * MIB),
    ("pg_toast.pg_toast_16401", "toast", 256 * MIB, 0, 128 * MIB, 0),
    ("(others)", "other", 64 * MIB, 32 * MIB, 16 * MIB, 8 * MIB),
)


def tables(
    phase: str = "now",
    *,
    host: Mapping[str, int | None] | None = None,
    server: Mapping[str, int | None] | None = None,
    group: Mapping[str, int | None] | None = None,
    relations: tuple[tuple[Any, ...], ...] = RELATIONS,
    sessions: int = SESSIONS,
    at_ns: int = 0,
) -> dict[str, pl.DataFrame]:
    """The raw tables of one read; ``host``, ``server``, ``group``: other values than those above."""
    read = {"before_ns": at_ns, "after_ns": at_ns + 50_000_000, "phase": phase}
    scopes = (
        ("host", HOST | (host or {})),
        ("server", SERVER | (server or {})),
        ("group", GROUP | (group or {})),
    )
    memory = [
        {
            **read,
            "scope": scope,
            "key": key,
            "value": value,
            "status": "ok" if value is not None else "not permitted",
        }
        for scope, of_scope in scopes
        for key, value in of_scope.items()
    ]
    held = [
        {
            **read,
            "database": "app",
            "relation": name,
            "kind": kind,
            "size_bytes": size,
            "cached_bytes": cached,
            "dirty_bytes": 0,
            "pinned_bytes": 0,
            "page_cache_bytes": pages,
            "both_bytes": both,
            "status": "ok" if pages is not None else "not permitted",
        }
        for name, kind, size, cached, pages, both in relations
    ]
    processes = [*(_process(1000 + n, "session", 6 * MIB + n * 4096) for n in range(sessions))]
    processes += [_process(900 + n, f"helper:{helper}", 5 * MIB) for n, helper in enumerate(_HELPERS)]
    processes += [_process(800, "dbdyno", MIB)]
    return {
        "memory": rows(raw("memory"), memory),
        "memory_relations": rows(raw("memory_relations"), held),
        "memory_processes": rows(raw("memory_processes"), [{**read, **p} for p in processes]),
    }


_HELPERS = ("checkpointer", "background writer", "walwriter", "logical replication launcher")


def _process(pid: int, role: str, page_tables: int) -> dict[str, Any]:
    helper = role.startswith("helper:")
    return {
        "pid": pid,
        "role": role,
        "pss_bytes": 24 * MIB,
        "anonymous_bytes": (2 if helper else 3) * MIB,
        "file_bytes": MIB,
        "shared_bytes": 20 * MIB,
        "page_tables_bytes": 256 * 1024 if helper else page_tables,
        "swapped_bytes": 0,
        "status": "ok",
    }
