"""Derived tables of the memory of a server and its machine. Pure.

Beside the raw figures they have: parts that add up to the machine's memory, processes by role, sums over
relations, shares, and growth from the start to the end of a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import of_cells
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.data_sources.memory import GROWTH, MEMORY_TABLES, PARTS, RAW_MEMORY, TOTAL
from dbdyno.model.schema.tables import ByCell, empty, raw, rows, sum_of_known

NAMES = tuple(t.name for t in MEMORY_TABLES)
ENTRIES = 512
"""Bytes of memory that one byte of page tables maps: an entry of 8 bytes maps a page of 4,096 (x86-64,
arm64)."""

Tables = Mapping[str, pl.DataFrame]
_Row = dict[str, Any]
_Known = tuple[int | None, str]
"""A figure and its status."""
_KEY = tuple(c.name for c in CELL)
_SUMS = ("size_bytes", "cached_bytes", "page_cache_bytes", "both_bytes")


@makes(*NAMES)
def memory_tables(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns the derived tables :data:`NAMES` of these measurements."""
    return with_computed({name: of_cells(name, cells) for name in RAW_MEMORY})


def on_demand(raw_tables: Tables, cell: str) -> dict[str, pl.DataFrame]:
    """Returns the same tables for figures that were read outside of a measurement. ``cell`` is the name in
    their key."""
    key = [pl.lit(v).alias(k) for k, v in zip(_KEY, (cell, "", "", 0, 1), strict=True)]
    return with_computed(
        {name: raw_tables.get(name, empty(raw(name))).select(*key, pl.all()) for name in RAW_MEMORY}
    )


def with_computed(memory_tables: Tables) -> dict[str, pl.DataFrame]:
    """Returns these tables with those that are computed from them."""
    parts, roles, figures = [], [], []
    for key, reads in _reads(memory_tables):
        phases = {str(part["phase"][0]): part for part in reads["memory"].partition_by("phase")}
        for phase, memory in phases.items():
            at = {n: f if n == "memory" else f.filter(pl.col("phase") == phase) for n, f in reads.items()}
            named = key | {"phase": phase}
            host = _values(memory, "host")
            parts += [named | r for r in _parts(host)]
            roles += [named | r for r in _roles(at["memory_processes"])]
            figures += [named | r for r in _figures({**at, "memory": memory})]
        if {"start", "end"} <= phases.keys():
            figures += [key | {"phase": GROWTH} | r for r in _growth(phases["start"], phases["end"])]
    computed = {"memory_parts": parts, "memory_roles": roles, "memory_figures": figures}
    return {**memory_tables, **{name: rows(name, records) for name, records in computed.items()}}


def _reads(memory_tables: Tables) -> Iterator[tuple[_Row, Tables]]:
    """Yields the key and the tables of each measurement."""
    parts = ByCell(memory_tables)
    for cell in dict.fromkeys(memory_tables["memory"]["cell"]):
        reads = parts.of(cell)
        yield reads["memory"].select(_KEY).row(0, named=True), reads


def _values(memory: pl.DataFrame, scope: str) -> Mapping[str, _Known]:
    """Returns value and status by key, summed over all NUMA nodes."""
    columns = ("scope", "node", "key", "value", "status")
    return {
        k: (v, s)
        for row_scope, node, k, v, s in _columns(memory, *columns)
        if row_scope == scope and node is None
    }


def _columns(frame: pl.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(frame[name].to_list() for name in names), strict=True)


# -- the machine's memory ---------------------------------------------------------------------------


def _parts(host: Mapping[str, _Known]) -> Iterator[_Row]:
    """Yields parts that add up to the machine's total. The rest that no part covers may be negative, and
    is unknown if a part is."""
    if f"{TOTAL}_bytes" not in host:
        return
    files, mapped = host.get("page_cache_bytes", _NONE), host.get("executables_bytes", _NONE)
    parts: dict[str, _Known] = {
        "kernel": host.get("kernel_bytes", _NONE),
        "anonymous": host.get("anonymous_bytes", _NONE),
        "executables": mapped,
        # Mapped executables are page cache, too: no page may count in two parts.
        "page cache": files if mapped[0] is None else _minus(files, mapped),
        "shared memory": host.get("shared_bytes", _NONE),
        "huge pages": _times(host.get("huge_pages_total", _NONE), host.get("huge_page_bytes", _NONE)),
        "free": host.get("free_bytes", _NONE),
    }
    total = host[f"{TOTAL}_bytes"]
    known = [v for name, (v, _) in parts.items() if v is not None]
    left = total[0] - sum(known) if total[0] is not None else None
    missing = next((s for n, (v, s) in parts.items() if v is None and n != "executables"), "ok")
    parts["not assigned"] = (left, "ok") if missing == "ok" else (None, missing)
    for part in PARTS:
        yield _part(part, parts[part], total[0])
    yield _part(TOTAL, total, total[0])


_NONE: _Known = (None, "not supported")


def _part(part: str, known: _Known, total: int | None) -> _Row:
    value, status = known
    return {"part": part, "bytes": value, "share": _share(value, total), "status": status}


def _minus(whole: _Known, part: _Known) -> _Known:
    return (None if whole[0] is None or part[0] is None else whole[0] - part[0]), whole[1]


def _times(count: _Known, size: _Known) -> _Known:
    if count[0] == 0:
        return 0, count[1]
    return (None if count[0] is None or size[0] is None else count[0] * size[0]), count[1]


def _share(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


# -- processes --------------------------------------------------------------------------------------


def _roles(processes: pl.DataFrame) -> list[_Row]:
    """Aggregates processes by role: sessions first, other programs last, the others by falling memory."""
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
    by_role = processes.group_by("role").agg(
        pl.len().alias("processes"),
        *spread,
        sum_of_known("swapped_bytes"),
        _first_failure().alias("status"),
    )
    not_session, not_other = pl.col("role") != "session", pl.col("role") != "other"
    return by_role.sort(not_session, not_other, -pl.col("pss_bytes"), "role", nulls_last=True).to_dicts()


def _first_failure() -> pl.Expr:
    """Returns the first status that is not ok."""
    return pl.col("status").filter(pl.col("status") != "ok").first().fill_null("ok")


# -- figures ----------------------------------------------------------------------------------------


def _figures(at: Tables) -> Iterator[_Row]:
    """Yields the figures of one read, each with its share of the figure that contains it."""
    host, server, group = (_values(at["memory"], s) for s in ("host", "server", "group"))
    memory, whole = _memory(host, group)
    yield _figure("memory_bytes", memory, memory, whole)
    yield from _data(at["memory_relations"])
    cache, used = (server.get(k, _NONE) for k in ("cache_bytes", "used_bytes"))
    yield _figure("cache_bytes", cache, memory, whole)
    yield _figure("cache_used_bytes", used, cache, "cache_bytes")
    for name in ("dirty", "pinned"):
        yield _figure(f"cache_{name}_bytes", server.get(f"{name}_bytes", _NONE), cache, "cache_bytes")
    tables = _page_tables(at["memory_processes"])
    yield _figure("page_tables_bytes", tables, memory, whole)
    known = tables[1] == "ok"
    in_huge = _page_tables_with_huge(at["memory_processes"], server) if known else (None, tables[1])
    yield _figure("page_tables_huge_bytes", in_huge, tables, "page_tables_bytes")
    swap = host.get("swap_total_bytes", _NONE)
    yield _figure(
        "swap_used_bytes", _minus(swap, host.get("swap_free_bytes", _NONE)), swap, "swap_total_bytes"
    )
    if "used_bytes" in group:
        limit = group.get("limit_bytes", _NONE)
        yield _figure("group_used_bytes", group["used_bytes"], limit, "limit_bytes")


def _figure(key: str, known: _Known, whole: _Known = _NONE, whole_key: str | None = None) -> _Row:
    value, status = known
    return {"key": key, "value": value, "share": _share(value, whole[0]), "of": whole_key, "status": status}


def _memory(host: Mapping[str, _Known], group: Mapping[str, _Known]) -> tuple[_Known, str]:
    """Returns the upper limit of the server's memory, and the key of that figure: its group's limit or the
    machine's total, whichever is less."""
    total, limit = host.get("total_bytes", _NONE), group.get("limit_bytes", _NONE)
    limited = limit[0] is not None and (total[0] is None or limit[0] < total[0])
    return (limit, "limit_bytes") if limited else (total, "total_bytes")


def _data(relations: pl.DataFrame) -> Iterator[_Row]:
    """Yields sums over relations. Relations whose figures are unknown are left out, and the status has the
    reason."""
    sums = dict.fromkeys((*_SUMS, "either_bytes"))
    if relations.height:
        figures = (*map(sum_of_known, _SUMS), _either().alias("either_bytes"))
        sums = relations.select(*figures).row(0, named=True)
    status = {c: _sum_status(relations, c) for c in _SUMS}
    known = {c: (sums[c], status[c]) for c in _SUMS}
    either = sums["either_bytes"], status["both_bytes"]
    yield _figure("data_bytes", known["size_bytes"])
    yield _figure("data_cached_bytes", known["cached_bytes"], known["size_bytes"], "data_bytes")
    yield _figure("data_page_cache_bytes", known["page_cache_bytes"], known["size_bytes"], "data_bytes")
    yield _figure("data_both_bytes", known["both_bytes"], either, "data_either_bytes")
    yield _figure("data_either_bytes", either, known["size_bytes"], "data_bytes")


def _either() -> pl.Expr:
    """Sums pages in the server's cache, the page cache or both, each once, over relations of which all
    three are known."""
    pages = pl.col("cached_bytes") + pl.col("page_cache_bytes") - pl.col("both_bytes")
    return pl.when(pages.null_count() < pl.len()).then(pages.sum())


def _sum_status(relations: pl.DataFrame, column: str) -> str:
    """Returns why a sum lacks some relations; ``ok`` if it lacks none."""
    if relations.is_empty():
        return "not supported"
    left = [status for value, status in _columns(relations, column, "status") if value is None]
    return next((s for s in left if s != "ok"), "lost") if left else "ok"


_NOT_SERVERS = ("driver", "dbdyno")
"""Roles of processes that are not part of the server's own memory: the driver, and dbdyno's connections."""


def _page_tables(processes: pl.DataFrame) -> _Known:
    """Returns the page tables of the server's processes in bytes. The status has the reason if some are
    unknown."""
    server = processes.filter(~pl.col("role").is_in(_NOT_SERVERS))
    known = server["page_tables_bytes"].drop_nulls()
    missing = server.filter(pl.col("page_tables_bytes").is_null() & (pl.col("status") != "vanished"))[
        "status"
    ]
    why = "ok" if missing.is_empty() else next((s for s in missing if s != "ok"), "lost")
    if known.is_empty():
        return None, "not supported" if why == "ok" else why
    return int(known.sum()), why


def _page_tables_with_huge(processes: pl.DataFrame, server: Mapping[str, _Known]) -> _Known:
    """Estimates the same with shared memory in huge pages: each process loses the tables that map shared
    memory, but keeps no less than the server's smallest process has."""
    shared, used = (server.get(k, _NONE)[0] for k in ("shared_memory_bytes", "huge_pages_used"))
    known = processes.filter(~pl.col("role").is_in(_NOT_SERVERS))["page_tables_bytes"].drop_nulls()
    if shared is None or used or known.is_empty():
        return None, "off" if used else "not supported"
    least, maps = int(known.min()), shared // ENTRIES  # type: ignore[arg-type]
    return sum(min(n, max(n - maps, least)) for n in known), "ok"


def _growth(start: pl.DataFrame, end: pl.DataFrame) -> Iterator[_Row]:
    """Yields growth between the two reads of a measurement."""
    span_ns = int(end["before_ns"].min()) - int(start["after_ns"].max())  # type: ignore[arg-type]
    for scope, names in _GROWING.items():
        before, after = _values(start, scope), _values(end, scope)
        for total, key in names.items():
            if total in before and total in after:
                difference = _minus(after[total], before[total])
                status = difference[1] if before[total][1] == "ok" else before[total][1]
                time = (span_ns, "ok") if key.endswith("_ns") else _NONE
                yield _figure(key, (difference[0], status), time, "time" if key.endswith("_ns") else None)


@makes("memory_figures", stage="run")
def with_growth(memory_figures: pl.DataFrame, memory: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``memory_figures`` with growth from one window to the next."""
    return pl.concat([memory_figures, growth_between({"memory": memory})])


def growth_between(memory_tables: Tables) -> pl.DataFrame:
    """Returns rows of ``memory_figures`` for consecutive windows that are read only at their ends: growth
    since the last window that was read."""
    memory = memory_tables["memory"]
    started = memory.filter(pl.col("phase") == "start")["cell"].unique().to_list()
    ends = memory.filter((pl.col("phase") == "end") & ~pl.col("cell").is_in(started))
    reads = ends.sort("before_ns").partition_by("cell", maintain_order=True)
    records = [
        {**end.select(_KEY).row(0, named=True), "phase": GROWTH, **row}
        for start, end in pairwise(reads)
        for row in _growth(start, end)
    ]
    return rows("memory_figures", records)


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
