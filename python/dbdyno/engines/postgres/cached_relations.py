"""Rows of the table ``memory_relations`` from what was read of buffers and of files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dbdyno.engines.postgres.relation_files import Counted, Key
from dbdyno.model.engine.caching import State
from dbdyno.model.sources.source import Status

MOST_RELATIONS = 200
"""The rest is one row, or one for each status."""
OTHERS, SHARED = "(others)", "(shared)"
Names = Mapping[Key, tuple[str, str, str]]
"""Database, relation, kind."""
_FIGURES = ("size_bytes", "cached_bytes", "dirty_bytes", "pinned_bytes", "page_cache_bytes", "both_bytes")


class Buffers(NamedTuple):
    """One relation's pages, in buffers."""

    used: int = 0
    dirty: int = 0
    pinned: int = 0


InBuffers = Mapping[Key, Buffers] | None
InFiles = Mapping[Key, Counted] | None


def largest(buffers: InBuffers, files: InFiles, block_bytes: int) -> list[Key]:
    """Relations that get a row of their own: those with most in one of the caches, then the largest."""

    def order(key: Key) -> tuple[int, int]:
        cached = (buffers or {}).get(key, Buffers()).used * block_bytes
        file = (files or {}).get(key)
        pages, size = (file.cached_bytes or 0, file.size_bytes or 0) if file else (0, 0)
        return -max(cached, pages), -size

    return sorted({*(buffers or ()), *(files or ())}, key=order)[:MOST_RELATIONS]


def relation_rows(
    block_bytes: int, buffers: InBuffers, files: InFiles, names: Names, lack: Callable[[str], State]
) -> list[dict[str, Any]]:
    """``buffers`` or ``files`` None: they could not be read; ``lack`` of that word says why. Relations
    without a name are summed, of each status by itself; parts of one relation as well."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for key in {*(buffers or ()), *(files or ())}:
        row = _row(key, block_bytes, buffers, files, lack)
        named = names.get(key, (OTHERS, OTHERS, "other"))
        _add(found, (*named, row["status"] if key not in names else ""), row)
    made = ({"database": d, "relation": r, "kind": k, **row} for (d, r, k, _), row in found.items())
    return sorted(made, key=lambda row: -max(row["cached_bytes"] or 0, row["page_cache_bytes"] or 0))


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


def _add(found: dict[tuple[str, ...], dict[str, Any]], name: tuple[str, ...], row: dict[str, Any]) -> None:
    """A sum of which a part is unknown is unknown."""
    so_far = found.setdefault(name, row)
    if so_far is row:
        return
    for figure in _FIGURES:
        parts = (so_far[figure], row[figure])
        so_far[figure] = None if None in parts else sum(parts)
    so_far["status"] = next((s for s in (so_far["status"], row["status"]) if s != "ok"), "ok")
