"""Computes rows of the table ``memory_relations`` from counts of buffers and of file pages. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dbdyno.engines.postgres.relation_files import Counted, Key
from dbdyno.model.engine.caching import State
from dbdyno.model.sources.source import Status

MOST_RELATIONS = 200
"""Relations with a row of their own. The others share one row, or one per status."""
OTHERS, SHARED = "(others)", "(shared)"
Names = Mapping[Key, tuple[str, str, str]]
"""Database, relation and kind by key."""
_FIGURES = ("size_bytes", "cached_bytes", "dirty_bytes", "pinned_bytes", "page_cache_bytes", "both_bytes")


class Buffers(NamedTuple):
    """A relation's pages in shared buffers."""

    used: int = 0
    dirty: int = 0
    pinned: int = 0


InBuffers = Mapping[Key, Buffers] | None
InFiles = Mapping[Key, Counted] | None


def largest(buffers: InBuffers, files: InFiles, block_bytes: int) -> list[Key]:
    """Returns the relations that get a row of their own: those with most bytes in one of the caches, then
    the largest."""

    def order(key: Key) -> tuple[int, int]:
        cached = (buffers or {}).get(key, Buffers()).used * block_bytes
        file = (files or {}).get(key)
        pages, size = (file.cached_bytes or 0, file.size_bytes or 0) if file else (0, 0)
        return -max(cached, pages), -size

    return sorted({*(buffers or ()), *(files or ())}, key=order)[:MOST_RELATIONS]


def relation_rows(
    block_bytes: int, buffers: InBuffers, files: InFiles, names: Names, lack: Callable[[str], State]
) -> list[dict[str, Any]]:
    """Returns a row per relation, the most cached first.

    ``buffers`` or ``files`` is None if it could not be read; ``lack`` of that word returns why. Relations
    without a name are summed by status, and the parts of a partitioned relation too.
    """
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for key in {*(buffers or ()), *(files or ())}:
        row = _row(key, block_bytes, buffers, files, lack)
        name = names.get(key, (OTHERS, OTHERS, "other"))
        _add_row(sums, (*name, row["status"] if key not in names else ""), row)
    named_rows = ({"database": d, "relation": r, "kind": k, **row} for (d, r, k, _), row in sums.items())
    return sorted(named_rows, key=lambda row: -max(row["cached_bytes"] or 0, row["page_cache_bytes"] or 0))


def _row(
    key: Key, block_bytes: int, buffers: InBuffers, files: InFiles, lack: Callable[[str], State]
) -> dict[str, Any]:
    held = None if buffers is None else Buffers(*(n * block_bytes for n in buffers.get(key, Buffers())))
    file = None if files is None else files.get(key, Counted(None, None, None, "vanished"))
    both = None if held is None or file is None else file.within_bytes
    status: Status = "ok"
    if file is None or file.cached_bytes is None:
        status = lack("files").status if file is None else file.status
    elif held is None:
        status = lack("buffers").status
    figures = (
        file.size_bytes if file else None,
        *(held or (None, None, None)),
        file.cached_bytes if file else None,
        both,
    )
    return {**dict(zip(_FIGURES, figures, strict=True)), "status": status}


def _add_row(sums: dict[tuple[str, ...], dict[str, Any]], name: tuple[str, ...], row: dict[str, Any]) -> None:
    """Adds a row to the sum of this name. A sum is unknown if any of its parts is."""
    total = sums.setdefault(name, row)
    if total is row:
        return
    for figure in _FIGURES:
        parts = (total[figure], row[figure])
        total[figure] = None if None in parts else sum(parts)
    total["status"] = next((s for s in (total["status"], row["status"]) if s != "ok"), "ok")
