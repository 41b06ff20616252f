"""Derived tables of where the pages of a server and its machine are. Pure.

Beside what was read: the machine's memory as parts that add up to it, processes by role, sums over relations,
shares, and what grew from the start to the end of a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.memory import GROWTH, MEMORY_TABLES, PARTS, RAW_MEMORY, TOTAL
from dbdyno.model.schema.tables import ByCell, empty, rows, sum_of_known

NAMES = tuple(t.name for t in MEMORY_TABLES)
ENTRIES = 512
"""Bytes of memory, in small pages, that need one byte of page tables."""

Tables = Mapping[str, pl.DataFrame]
_Row = dict[str, Any]
_Known = tuple[int | None, str]
"""A figure and its status."""
_RAW_OF = dict(zip(NAMES, RAW_MEMORY, strict=False))
_KEY = tuple(c.name for c in CELL)
_SUMS = ("size_bytes", "cached_bytes", "page_cache_bytes", "both_bytes")


@makes(*NAMES)
def held(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """The derived tables :data:`NAMES` of these measurements."""
    return figured({name: for_each(name, cells, partial(_read, raw)) for name, raw in _RAW_OF.items()})


def on_demand(raw: Tables, cell: str) -> dict[str, pl.DataFrame]:
    """The same of tables that were read outside of a measurement, which is called ``cell``."""
    key = [pl.lit(v).alias(k) for k, v in zip(_KEY, (cell, "", "", 0, 1), strict=True)]
    return figured({name: raw.get(t, empty(t)).select(*key, pl.all()) for name, t in _RAW_OF.items()})


def _read(table: str, cell: RawCell) -> pl.DataFrame | None:
    return cell.tables.get(table)


def figured(found: Tables) -> dict[str, pl.DataFrame]:
    """``found``, the tables that were read, with those that are computed of them."""
    parts, roles, figures = [], [], []
    for key, reads in _reads(found):
        phases = {str(part["phase"][0]): part for part in reads["memory_held"].partition_by("phase")}
        for phase, memory in phases.items():
            at = {
                n: f if n == "memory_held" else f.filter(pl.col("phase") == phase) for n, f in reads.items()
            }
            named = key | {"phase": phase}
            host = _values(memory, "host")
            parts += [named | r for r in _parts(host)]
            roles += [named | r for r in _roles(at["processes_held"])]
            figures += [named | r for r in _figures({**at, "memory_held": memory})]
        if {"start", "end"} <= phases.keys():
            figures += [key | {"phase": GROWTH} | r for r in _growth(phases["start"], phases["end"])]
    made = {"memory_parts": parts, "memory_roles": roles, "memory_figures": figures}
    return {**found, **{name: rows(name, records) for name, records in made.items()}}


def _reads(found: Tables) -> Iterator[tuple[_Row, Tables]]:
    """Measurement by measurement."""
    parts = ByCell(found)
    for cell in dict.fromkeys(found["memory_held"]["cell"]):
        reads = parts.of(cell)
        yield reads["memory_held"].select(_KEY).row(0, named=True), reads


def _values(memory: pl.DataFrame, scope: str) -> Mapping[str, _Known]:
    """Sums over all nodes, by key."""
    columns = ("scope", "node", "key", "value", "status")
    return {k: (v, s) for of, node, k, v, s in _columns(memory, *columns) if of == scope and node is None}


def _columns(frame: pl.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(frame[name].to_list() for name in names), strict=True)


# -- the machine's memory ---------------------------------------------------------------------------


def _parts(host: Mapping[str, _Known]) -> Iterator[_Row]:
    """Parts that add up to the total. What no part has may be negative; it is unknown where a part is."""
    if f"{TOTAL}_bytes" not in host:
        return
    files, mapped = host.get("page_cache_bytes", _NONE), host.get("executables_bytes", _NONE)
    found: dict[str, _Known] = {
        "kernel": host.get("kernel_bytes", _NONE),
        "anonymous": host.get("anonymous_bytes", _NONE),
        "executables": mapped,
        "page cache": files if mapped[0] is None else _less(files, mapped),
        "shared memory": host.get("shared_bytes", _NONE),
        "huge pages": _times(host.get("huge_pages_total", _NONE), host.get("huge_page_bytes", _NONE)),
        "free": host.get("free_bytes", _NONE),
    }
    total = host[f"{TOTAL}_bytes"]
    known = [v for name, (v, _) in found.items() if v is not None]
    left = total[0] - sum(known) if total[0] is not None else None
    missing = next((s for n, (v, s) in found.items() if v is None and n != "executables"), "ok")
    found["not assigned"] = (left, "ok") if missing == "ok" else (None, missing)
    for part in PARTS:
        yield _part(part, found[part], total[0])
    yield _part(TOTAL, total, total[0])


_NONE: _Known = (None, "not supported")


def _part(part: str, known: _Known, total: int | None) -> _Row:
    value, status = known
    return {"part": part, "bytes": value, "share": _share(value, total), "status": status}


def _less(whole: _Known, part: _Known) -> _Known:
    return (None if whole[0] is None or part[0] is None else whole[0] - part[0]), whole[1]


def _times(count: _Known, size: _Known) -> _Known:
    if count[0] == 0:
        return 0, count[1]
    return (None if count[0] is None or size[0] is None else count[0] * size[0]), count[1]


def _share(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


# -- processes --------------------------------------------------------------------------------------


def _roles(processes: pl.DataFrame) -> list[_Row]:
    """Sessions first, those of others next, then by memory."""
    spread = [
        expression.alias(f"{name}_{kind}")
        for name in ("pss", "anonymous", "page_tables")
        for kind, expression in (
            ("bytes", sum_of_known(f"{name}_bytes")),
            ("median", pl.col(f"{name}_bytes").median().cast(pl.Int64)),
            ("largest", pl.col(f"{name}_bytes").max()),
            ("known", pl.col(f"{name}_bytes").count()),
        )
    ]
    made = processes.group_by("role").agg(
        pl.len().alias("processes"),
        *spread,
        sum_of_known("swapped_bytes"),
        _worst().alias("status"),
    )
    first, next_ = pl.col("role") != "session", pl.col("role") != "other"
    return made.sort(first, next_, -pl.col("pss_bytes"), "role", nulls_last=True).to_dicts()


def _worst() -> pl.Expr:
    """The first status that is not ok."""
    return pl.col("status").filter(pl.col("status") != "ok").first().fill_null("ok")


# -- figures ----------------------------------------------------------------------------------------


def _figures(at: Tables) -> Iterator[_Row]:
    host, server, group = (_values(at["memory_held"], s) for s in ("host", "server", "group"))
    memory, of = _memory(host, group)
    yield _figure("memory_bytes", memory, memory, of)
    yield from _data(at["relations_held"])
    cache, used = (server.get(k, _NONE) for k in ("cache_bytes", "used_bytes"))
    yield _figure("cache_bytes", cache, memory, of)
    yield _figure("cache_used_bytes", used, cache, "cache_bytes")
    for name in ("dirty", "pinned"):
        yield _figure(f"cache_{name}_bytes", server.get(f"{name}_bytes", _NONE), cache, "cache_bytes")
    tables = _tables(at["processes_held"])
    yield _figure("page_tables_bytes", tables, memory, of)
    known = tables[1] == "ok"
    in_huge = _tables_with_huge(at["processes_held"], server) if known else (None, tables[1])
    yield _figure("page_tables_huge_bytes", in_huge, tables, "page_tables_bytes")
    swap = host.get("swap_total_bytes", _NONE)
    yield _figure(
        "swap_used_bytes", _less(swap, host.get("swap_free_bytes", _NONE)), swap, "swap_total_bytes"
    )
    if "used_bytes" in group:
        limit = group.get("limit_bytes", _NONE)
        yield _figure("group_used_bytes", group["used_bytes"], limit, "limit_bytes")


def _figure(key: str, known: _Known, whole: _Known = _NONE, of: str | None = None) -> _Row:
    value, status = known
    return {"key": key, "value": value, "share": _share(value, whole[0]), "of": of, "status": status}


def _memory(host: Mapping[str, _Known], group: Mapping[str, _Known]) -> tuple[_Known, str]:
    """What the server may use at most, and which figure that is."""
    total, limit = host.get("total_bytes", _NONE), group.get("limit_bytes", _NONE)
    limited = limit[0] is not None and (total[0] is None or limit[0] < total[0])
    return (limit, "limit_bytes") if limited else (total, "total_bytes")


def _data(relations: pl.DataFrame) -> Iterator[_Row]:
    """Sums over relations: of those of which they are known, with the reason where some are not."""
    sums = dict.fromkeys((*_SUMS, "either_bytes"))
    if relations.height:
        figures = (*map(sum_of_known, _SUMS), _either().alias("either_bytes"))
        sums = relations.select(*figures).row(0, named=True)
    status = {c: _why(relations, c) for c in _SUMS}
    found = {c: (sums[c], status[c]) for c in _SUMS}
    either = sums["either_bytes"], status["both_bytes"]
    yield _figure("data_bytes", found["size_bytes"])
    yield _figure("data_cached_bytes", found["cached_bytes"], found["size_bytes"], "data_bytes")
    yield _figure("data_page_cache_bytes", found["page_cache_bytes"], found["size_bytes"], "data_bytes")
    yield _figure("data_both_bytes", found["both_bytes"], either, "data_either_bytes")
    yield _figure("data_either_bytes", either, found["size_bytes"], "data_bytes")


def _either() -> pl.Expr:
    """Pages in one of both or in both, each once, of relations of which all three are known."""
    pages = pl.col("cached_bytes") + pl.col("page_cache_bytes") - pl.col("both_bytes")
    return pl.when(pages.null_count() < pl.len()).then(pages.sum())


def _why(relations: pl.DataFrame, column: str) -> str:
    """Why a sum lacks some relations; ok: it does not."""
    if relations.is_empty():
        return "not supported"
    left = [status for value, status in _columns(relations, column, "status") if value is None]
    return next((s for s in left if s != "ok"), "lost") if left else "ok"


_OURS = ("driver", "dbdyno")
"""Roles of processes that are none of the server's, apart from the server's own for dbdyno."""


def _tables(processes: pl.DataFrame) -> _Known:
    """Page tables of the server's processes; with the reason where some are not known."""
    server = processes.filter(~pl.col("role").is_in(_OURS))
    known = server["page_tables_bytes"].drop_nulls()
    missing = server.filter(pl.col("page_tables_bytes").is_null() & (pl.col("status") != "vanished"))[
        "status"
    ]
    why = "ok" if missing.is_empty() else next((s for s in missing if s != "ok"), "lost")
    if known.is_empty():
        return None, "not supported" if why == "ok" else why
    return int(known.sum()), why


def _tables_with_huge(processes: pl.DataFrame, server: Mapping[str, _Known]) -> _Known:
    """An estimate of the same with shared memory in huge pages: of each process its tables less those that
    map shared memory, but no less than what the server's smallest process has."""
    shared, used = (server.get(k, _NONE)[0] for k in ("shared_memory_bytes", "huge_pages_used"))
    known = processes.filter(~pl.col("role").is_in(_OURS))["page_tables_bytes"].drop_nulls()
    if shared is None or used or known.is_empty():
        return None, "off" if used else "not supported"
    least, maps = int(known.min()), shared // ENTRIES  # type: ignore[arg-type]
    return sum(min(n, max(n - maps, least)) for n in known), "ok"


def _growth(start: pl.DataFrame, end: pl.DataFrame) -> Iterator[_Row]:
    """Between the two reads of a measurement."""
    span_ns = int(end["before_ns"].min()) - int(start["after_ns"].max())  # type: ignore[arg-type]
    for scope, names in _GROWING.items():
        before, after = _values(start, scope), _values(end, scope)
        for raw, key in names.items():
            if raw in before and raw in after:
                grown = _less(after[raw], before[raw])
                status = grown[1] if before[raw][1] == "ok" else before[raw][1]
                time = (span_ns, "ok") if key.endswith("_ns") else _NONE
                yield _figure(key, (grown[0], status), time, "time" if key.endswith("_ns") else None)


@makes("memory_figures", stage="run")
def with_growth(memory_figures: pl.DataFrame, memory_held: pl.DataFrame) -> pl.DataFrame:
    """Table ``memory_figures`` with what grew from one window to the next."""
    return pl.concat([memory_figures, growth_between({"memory_held": memory_held})])


def growth_between(found: Tables) -> pl.DataFrame:
    """Rows of ``memory_figures`` for windows that follow one another, and are read at their ends alone: what
    grew since the window before that was read."""
    held = found["memory_held"]
    started = held.filter(pl.col("phase") == "start")["cell"].unique().to_list()
    ends = held.filter((pl.col("phase") == "end") & ~pl.col("cell").is_in(started))
    reads = ends.sort("before_ns").partition_by("cell", maintain_order=True)
    made = [
        {**end.select(_KEY).row(0, named=True), "phase": GROWTH, **row}
        for start, end in pairwise(reads)
        for row in _growth(start, end)
    ]
    return rows("memory_figures", made)


_GROWING: Mapping[str, Mapping[str, str]] = {
    "host": {
        "swapped_in_total": "swapped_in_bytes",
        "swapped_out_total": "swapped_out_bytes",
        "reclaimed_total": "reclaimed_bytes",
    },
    "group": {
        "reclaimed_total": "group_reclaimed_bytes",
        "pressure_some_ns": "pressure_some_ns",
        "pressure_full_ns": "pressure_full_ns",
    },
}
