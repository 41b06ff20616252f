"""Concludes where the memory of the server and its machine is: held twice, in page tables, swapped,
unused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at, listed
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.memory_now import CELL, NOW
from dbdyno.model.schema.data_sources.memory import GROWTH
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import format_size

TWICE, TWICE_MEMORY = 0.25, 0.05
"""Shares of the data in memory, and of the memory, from which on data held twice is reported."""
TABLES, TABLES_GRAVE, LEAST_TABLES = 0.01, 0.05, 64 << 20
"""Share of the memory for a note, for a warning, and bytes of page tables. They do no load any good. A few
hundred processes of a server with a small cache have less than 64 MiB."""
LEAST_SAVED = 64 << 20
"""Bytes of page tables that huge pages would save. Most servers request huge pages by default, few need
them."""
LEAST_SWAPPED = 1 << 20
"""Bytes below which swapping is normal: a process that wakes up after a long time swaps in a few pages."""
PRESSURE = 0.01
"""Share of the time from which on memory pressure is reported: measurements can be compared within 1 %."""
RECLAIMED = 0.01
"""Share of the group's memory: any group whose page cache has filled it reclaims a few pages."""
UNUSED, LARGE_CACHE = 0.5, 0.1
"""Share of the cache in use, and share of the memory: memory held by a smaller cache does not matter."""
DIRTY = 0.5
"""Share of the cache from which on a free page is seldom clean."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Read:
    """Figures read of one cell in a phase, and their growth until then."""

    figures: Mapping[str, Row]
    growth: Mapping[str, Row]
    parts: Mapping[str, int | None]
    memory: pl.DataFrame
    roles: pl.DataFrame
    relations: pl.DataFrame

    def value(self, key: str) -> int | None:
        return self.figures[key]["value"] if key in self.figures else None

    def share(self, key: str) -> float | None:
        return self.figures[key]["share"] if key in self.figures else None

    def grown(self, key: str) -> int:
        """Returns the growth of a counter, 0 if unknown."""
        return (self.growth[key]["value"] or 0) if key in self.growth else 0

    def raw(self, scope: str, key: str) -> int | None:
        rows = self.memory.filter(
            (pl.col("scope") == scope) & (pl.col("key") == key) & pl.col("node").is_null()
        )
        return None if rows.is_empty() else rows["value"][0]


def read_at(tables: Mapping[str, pl.DataFrame], cell: str, phase: str) -> Read:
    """Returns the figures from the derived ``tables``."""

    def rows(name: str, of: str = phase) -> pl.DataFrame:
        frame = tables.get(name, empty(name))
        return frame.filter((pl.col("cell") == cell) & (pl.col("phase") == of))

    def by_key(of: str) -> dict[str, Row]:
        return {r["key"]: r for r in rows("memory_figures", of).to_dicts()}

    parts = dict(rows("memory_parts").select("part", "bytes").iter_rows())
    frames = (rows(n) for n in ("memory", "memory_roles", "memory_relations"))
    return Read(by_key(phase), by_key(GROWTH), parts, *frames)


# -- what is found ----------------------------------------------------------------------------------


def _twice(read: Read) -> Values:
    both, memory = read.value("data_both_bytes"), read.value("memory_bytes")
    share = read.share("data_both_bytes")
    if not both or not memory or share is None or share < TWICE or both < TWICE_MEMORY * memory:
        return {}
    return {
        "bytes": both,
        "share": both / memory,
        "of": _memory_named(read),
        "relations": most_twice(read.relations),
    }


def _memory_named(read: Read) -> str:
    """Returns the name of the memory that shares relate to."""
    limited = read.figures["memory_bytes"]["of"] == "limit_bytes"
    return "the control group's limit" if limited else "the machine's memory"


def most_twice(relations: pl.DataFrame) -> str:
    """Lists the relations with most data held twice: ``a (1.2 GiB), b (300 MiB) and 3 more``."""
    some = relations.filter(pl.col("both_bytes") > 0).sort("both_bytes", descending=True)
    return listed([f"{n} ({format_size(b)})" for n, b in some.select("relation", "both_bytes").rows()], 3)


def _tables(read: Read) -> Values:
    size, share = read.value("page_tables_bytes"), read.share("page_tables_bytes")
    if size is None or share is None or size < LEAST_TABLES or share < TABLES:
        return {}
    server = read.roles.filter(~pl.col("role").is_in(["driver", "dbdyno"]))
    each = read.roles.filter(pl.col("role").is_in(["session", "other"]))["page_tables_median"].max()
    huge = read.value("page_tables_huge_bytes")
    part = "used" if huge is None else "huge"
    values = {"bytes": size, "share": share, "processes": int(server["processes"].sum()), "each": each or 0}
    return {
        **values,
        "of": _memory_named(read),
        "huge": huge or 0,
        "case": part,
        "parts": [] if huge is None else ["huge"],
    }


def _no_huge(read: Read) -> Values:
    asked, used = (read.raw("server", f"huge_pages_{n}") for n in ("asked", "used"))
    shared, size = read.raw("server", "shared_memory_bytes"), read.raw("host", "huge_page_bytes")
    tables, huge = read.value("page_tables_bytes"), read.value("page_tables_huge_bytes")
    if (
        not asked
        or used != 0
        or shared is None
        or tables is None
        or huge is None
        or tables - huge < LEAST_SAVED
    ):
        return {}
    return {"bytes": shared, "saved": tables - huge, "pages": -(-shared // (size or 2 << 20))}


def _swapped(read: Read) -> Values:
    first, last = read.grown("swapped_in_bytes"), read.grown("swapped_out_bytes")
    return {"in": first, "out": last, "bytes": first + last} if first + last >= LEAST_SWAPPED else {}


def _pressure(read: Read) -> Values:
    limit, used = read.raw("group", "limit_bytes"), read.raw("group", "used_bytes")
    share = read.growth.get("pressure_some_ns", {}).get("share") or 0.0
    reclaimed, memory = read.grown("group_reclaimed_bytes"), read.value("memory_bytes")
    waited = share >= PRESSURE
    if not waited and (not reclaimed or not memory or reclaimed < RECLAIMED * memory):
        return {}
    values = {"share": share, "reclaimed": reclaimed, "limit": limit or 0, "used": used or 0}
    parts = ["limit"] if limit and used else []
    severity = "warning" if waited else "note"
    return {**values, "case": "waited" if waited else "reclaimed", "parts": parts, "severity": severity}


def _unused(read: Read) -> Values:
    cache, memory = read.value("cache_bytes"), read.value("memory_bytes")
    used, share = read.value("cache_used_bytes"), read.share("cache_used_bytes")
    if not cache or not memory or share is None or share >= UNUSED or cache < LARGE_CACHE * memory:
        return {}
    return {"share": share, "cache": cache, "used": used}


def _exceeds(read: Read) -> Values:
    data, cache, memory = (read.value(k) for k in ("data_bytes", "cache_bytes", "memory_bytes"))
    free, files = (read.parts.get(p) for p in ("free", "page cache"))
    if data is None or cache is None or memory is None or free is None or files is None:
        return {}
    room = min(cache + free + files, memory)
    return {"bytes": data, "room": room} if data > room else {}


def _dirty(read: Read) -> Values:
    share = read.share("cache_dirty_bytes")
    return {"share": share, "cache": read.value("cache_bytes")} if share and share >= DIRTY else {}


_FIGURES_OF: Mapping[str, tuple[Callable[[Read], Values], str]] = {
    "swapping": (_swapped, "bytes"),
    "memory-pressure": (_pressure, "share"),
    "page-tables-large": (_tables, "share"),
    "huge-pages-not-used": (_no_huge, "bytes"),
    "pages-held-twice": (_twice, "bytes"),
    "data-exceed-memory": (_exceeds, "bytes"),
    "cache-mostly-unused": (_unused, "share"),
    "cache-dirty": (_dirty, "share"),
}
"""Claim -> what is found of one read, and which of its values is the claim's."""
_HOW = ("case", "parts", "severity")


@check("page-tables-large", of="whole")
def memory(case: Case) -> Iterator[Claim]:
    """Yields each claim for the measurement with the largest figure."""
    if case.tables.get("memory", empty("memory")).is_empty():
        return
    reads = [(read_at(case.tables, c["cell"], "end"), c) for c in case.valid]
    for id, (find, value) in _FIGURES_OF.items():
        candidates = [(best, c) for read, c in reads if (best := find(read))]
        if candidates:
            best, cell = max(candidates, key=lambda f: f[0][value])
            values = {"at": f" {at(cell, case)}", "measurements": case.many(len(candidates)), **best}
            cells = tuple(c["cell"] for _, c in candidates)
            yield _claim(id, values, value, cells)


def now(tables: Mapping[str, pl.DataFrame]) -> tuple[Claim, ...]:
    """Returns the claims of a read on demand, the answer first."""
    read = read_at(tables, CELL, NOW)
    figures = [(id, find(read), value) for id, (find, value) in _FIGURES_OF.items()]
    more = (
        _claim(i, {"at": "", "measurements": "now", **values}, value)
        for i, values, value in figures
        if values
    )
    return (_answer(read), *more)


def _claim(id: str, figures: Values, value: str, cells: tuple[str, ...] = ()) -> Claim:
    severity = figures.get("severity")
    if id == "page-tables-large" and figures["share"] >= TABLES_GRAVE:
        severity = "warning"
    values = {k: v for k, v in figures.items() if k not in _HOW}
    return claim(
        id,
        values,
        float(figures[value]),
        case=figures.get("case", ""),
        parts=figures.get("parts", ()),
        severity=severity,
        cells=cells,
    )


def _answer(read: Read) -> Claim:
    both, either = read.value("data_both_bytes"), read.value("data_either_bytes")
    cached, pages = read.value("data_cached_bytes"), read.value("data_page_cache_bytes")
    free, total = read.parts.get("free"), read.parts.get("total")
    available = read.raw("host", "available_bytes")
    if both is not None:
        whole = read.figures["data_both_bytes"]["status"] == "ok"
        case = "some" if both and not whole else "twice" if both else "once"
    else:
        case = "cache" if cached is not None else "pages" if pages is not None else "unknown"
    values: dict[str, float] = {
        "both": both or 0,
        "either": either or 0,
        "cached": cached or 0,
        "pages": pages or 0,
    }
    parts = []
    if free is not None and available is not None and total:
        values |= {"free": free, "total": total, "available": available, "available_share": available / total}
        parts = ["available"]
    return claim("memory-now", values, None if both is None else float(both), case=case, parts=parts)
