"""Shows where the pages of the server and its machine are: of a measurement, or of a running server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from textwrap import fill
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import SERVED, current_kind
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.memory import GROWTH, MEMORY_SOURCE, MEMORY_TABLES, PARTS, TOTAL
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import ROLE
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import counted, format_size
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    Paragraph,
    Verbatim,
    known,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import figures
from dbdyno.present.figures.selection import Pick
from dbdyno.present.memory import memory_limits

TITLE = "Where the memory is"
SHOWN = 10
"""Most relations, by pages held twice; the export has all."""
_BAR = 76
"""Width of the bar in characters."""
_FILLS = dict(zip(PARTS, "█▓▚▒▞▬·░", strict=True))
_SESSIONS = ("session", "other")
_Record = dict[str, Any]
Rows = Mapping[str, pl.DataFrame]
"""Derived tables of one measurement and phase."""


def was_read(results: Results) -> bool:
    """Returns whether memory was read."""
    return bool(results.tables.get("memory_parts", empty("memory_parts")).height)


def rows_at(tables: Mapping[str, pl.DataFrame], cell: str, phase: str) -> Rows:
    """Returns the tables of ``cell`` in ``phase``, and growth until then."""
    in_phase = pl.col("phase").is_in([phase, GROWTH])
    named = (t.name for t in MEMORY_TABLES)
    return {n: tables.get(n, empty(n)).filter((pl.col("cell") == cell) & in_phase) for n in named}


def tables(results: Results, pick: Pick) -> list[Block]:
    """Returns memory at the end of a measurement; for all windows together, at the end of the last one
    read."""
    read = results.tables.get("memory_parts", empty("memory_parts"))
    ended = read.filter(pl.col("phase") == "end")["cell"]
    cell = pick.cell or (str(ended[-1]) if len(ended) else "")
    if cell not in set(ended):
        return [Paragraph(f"Memory was not read {pick.at}.", "muted")]
    if figures.is_observation(results):
        number = results.tables["windows"].filter(pl.col("cell") == cell)["repeat"][0]
        when = f"After window {number}, beside the load."
    else:
        when = f"At the end of the measurement{pick.which}: {noun('memory_read')}."
    return [*remarks([when]), *blocks(rows_at(results.tables, cell, "end")), *remarks(_lacks(results))]


def _lacks(results: Results) -> list[str]:
    """Returns a note on data that some measurements lack, with the reason and the cure."""
    with_detail = (pl.col("name") == MEMORY_SOURCE.name) & (pl.col("detail") != "")
    details = results.tables["sources"].filter(with_detail)["detail"].to_list()
    return [f"Not known of some measurements: {detail}." for detail in sorted(details, key=len)[-1:]]


def blocks(rows: Rows, most: int | None = SHOWN) -> list[Block]:
    """Returns the machine's memory, the server's cache, relations, processes and limits."""
    return [
        *_machine(rows["memory_parts"]),
        *_cache(rows),
        *_relations(rows["memory_relations"], rows["memory_figures"], most),
        *_processes(rows),
        *memory_limits.blocks(rows),
    ]


# -- the machine ------------------------------------------------------------------------------------


def _machine(parts: pl.DataFrame) -> list[Block]:
    """Returns a table whose rows add up to the last one, and a bar of the same."""
    if parts.is_empty():
        return []
    records = parts.to_dicts()
    columns = (
        (Column("part"), lambda r: word(r["part"])),
        (numeric("size"), _size("bytes")),
        (numeric("MiB", 1), _mib),
        (numeric("% of total"), lambda r: known(r["share"], lambda v: figures.percent(v, digits=1))),
        (Column("", wraps=True), _unknown_part),
    )
    bar = _bar(records)
    return [table("Memory of the machine", columns, records), *([Verbatim(bar, sketch=True)] if bar else [])]


def _unknown_part(row: _Record) -> Cell:
    if row["status"] == "ok":
        return word("")
    within = "in page cache: " if row["part"] == "executables" else ""
    return word(f"{within}{row['status']}")


def _mib(row: _Record) -> Cell:
    return known(None if row["bytes"] is None else row["bytes"] / (1 << 20), lambda v: f"{v:,.0f}", "MiB")


def _bar(records: Iterable[_Record]) -> str:
    """Returns the parts as a bar of characters with a legend; empty if none is known."""
    parts = [r for r in records if r["part"] != TOTAL and r["share"] is not None and r["share"] > 0]
    ends = [round(_BAR * share) for share in accumulate((r["share"] for r in parts), initial=0.0)]
    drawn = [(r["part"], b - a) for r, (a, b) in zip(parts, pairwise(ends), strict=True) if b > a]
    bar = "".join(_FILLS[part] * n for part, n in drawn)
    named = "  ".join(f"{_FILLS[part]} {part}".replace(" ", _NO_BREAK) for part, _ in drawn)
    return f"|{bar}|\n{fill(named, _BAR).replace(_NO_BREAK, ' ')}" if bar else ""


_NO_BREAK = "\0"
"""Placeholder for a space at which ``fill`` must not break a line."""


def _size(column: str) -> Callable[[_Record], Cell]:
    return lambda r: known(r[column], format_size, "bytes", "" if r["status"] == "ok" else r["status"])


def _some(column: str) -> Callable[[_Record], Cell]:
    return lambda r: optional(r[column], format_size, "bytes")


# -- the server's cache and its relations -----------------------------------------------------------

_CACHE = {
    "cache_bytes": "all",
    "cache_used_bytes": "used",
    "cache_dirty_bytes": "dirty",
    "cache_pinned_bytes": "pinned",
}


def _named(frame: pl.DataFrame, names: Mapping[str, str]) -> list[_Record]:
    """Returns the figures with these names, in their order."""
    by_key = {r["key"]: r for r in frame.to_dicts()}
    return [{**by_key[k], "name": name} for k, name in names.items() if k in by_key]


def _cache(rows: Rows) -> list[Block]:
    records = _named(rows["memory_figures"], _CACHE)
    columns = (
        (Column("part"), lambda r: word(r["name"])),
        (numeric("size"), _size("value")),
        (numeric("%"), lambda r: optional(r["share"], lambda v: figures.percent(v, digits=1))),
        (Column("", wraps=True), _share_of),
    )
    if any(r["value"] is not None for r in records):
        return [table("The server's cache", columns, records)]
    shown = records[:1] if current_kind().among((SERVED,)) else []
    return [Paragraph(f"The server's cache: {r['status']}.", "muted") for r in shown]


def _share_of(row: _Record) -> Cell:
    """Returns the base of the share, or the reason why the figure is unknown."""
    return word(row["status"] if row["value"] is None else _BASES.get(row["of"] or "", ""))


_BASES = {
    "total_bytes": "of the machine's memory",
    "limit_bytes": "of the control group's limit",
    "cache_bytes": "of the cache",
}


def _relations(relations: pl.DataFrame, totals: pl.DataFrame, most: int | None) -> list[Block]:
    """Returns relations by the memory that they take, counting pages held twice twice, and their sum."""
    if relations.is_empty():
        return []
    taken = pl.sum_horizontal("cached_bytes", "page_cache_bytes")
    ordered = relations.sort(taken, "relation", descending=[True, False])
    shown = ordered.head(most or len(ordered)).to_dicts()
    sums = {r["key"]: r for r in totals.to_dicts()}
    total = {c: sums.get(key, {}) for c, key in _TOTALS.items()}
    partly = {c for c, figure in total.items() if figure.get("status") != "ok"}
    values = {c: figure.get("value") for c, figure in total.items()}
    shown.append({**values, "relation": "all", "kind": "", "database": "", "status": "ok", "partly": partly})
    columns: list[tuple[Column, Callable[[_Record], Cell]]] = [
        (Column("relation", wraps=True), _name),
        (Column("kind", rank=5), lambda r: word(r["kind"])),
        (numeric("size", 1), _in_all("size_bytes")),
        (numeric("server's", 3)._replace(name="in the server's cache"), _in_all("cached_bytes")),
        (numeric("page cache", 2)._replace(name="in the page cache"), _in_all("page_cache_bytes")),
        (numeric("both")._replace(name="in both"), _in_all("both_bytes")),
        (numeric("dirty", 6), lambda r: optional(r.get("dirty_bytes"), format_size, "bytes")),
    ]
    blocks: list[Block] = [
        table("Relations: pages in the server's cache, in the page cache, in both", columns, shown)
    ]
    left = len(ordered) - (len(shown) - 1)
    notes = [f"{counted(left, 'relation')} more: --all, or the export."] if left else []
    return [*blocks, *remarks([*notes, *_unread(relations)])]


def _name(row: _Record) -> Cell:
    """Returns the relation, with its database if it has no schema: elsewhere only its file is known."""
    alone = "." in row["relation"] or row["database"] in ("", row["relation"])
    return word(row["relation"] if alone else f"{row['database']}: {row['relation']}")


_TOTALS = {
    "size_bytes": "data_bytes",
    "cached_bytes": "data_cached_bytes",
    "page_cache_bytes": "data_page_cache_bytes",
    "both_bytes": "data_both_bytes",
}


def _in_all(column: str) -> Callable[[_Record], Cell]:
    return _least(column, lambda r: column in r.get("partly", ()))


def _least(column: str, partly: Callable[[_Record], Any]) -> Callable[[_Record], Cell]:
    """Returns a function to the cell of a size, marked as a lower bound if a part is unknown."""
    cell = _size(column)
    return lambda r: cell(r)._replace(text=f">= {cell(r).text}") if r[column] and partly(r) else cell(r)


def _unread(frame: pl.DataFrame) -> Iterator[str]:
    """Yields the figures that some rows lack, and why."""
    for status, n in frame.filter(pl.col("status") != "ok").group_by("status").len().sort("status").rows():
        yield f"Some figures of {counted(n, 'relation')} are unknown: {_reason(status)}. Sums leave them out."


# -- processes --------------------------------------------------------------------------------------

_EACH = {"pss": "memory (PSS)", "anonymous": "anonymous", "page_tables": "page tables"}


def _processes(rows: Rows) -> list[Block]:
    roles = rows["memory_roles"].to_dicts()
    if not roles:
        return []
    owners = noun("owners")
    others = f"other {owners}" if roles[0]["role"] == "session" else owners
    names = {"session": owners, "other": others, f"{ROLE}main": "main process"}
    columns = (
        (Column("processes", wraps=True), lambda r: word(names.get(r["role"], r["role"].removeprefix(ROLE)))),
        (numeric("number"), lambda r: known(r["processes"], str)),
        (numeric("PSS", 2), _sum("pss")),
        (numeric("anonymous", 3), _sum("anonymous")),
        (numeric("page tables"), _sum("page_tables")),
        (numeric("swapped", 4), _some("swapped_bytes")),
    )
    blocks: list[Block] = [table("Memory of processes", columns, roles), *_each_session(roles)]
    whole, read = (sum(r[c] for r in roles) for c in ("processes", "pss_known"))
    why = next((_reason(r["status"]) for r in roles if r["pss_known"] < r["processes"]), "")
    lacks = [f"PSS of {whole - read} of {counted(whole, 'process')} is unknown: {why}."] if why else []
    return [*blocks, *remarks([*_price(rows), *lacks])]


def _sum(name: str) -> Callable[[_Record], Cell]:
    return _least(f"{name}_bytes", lambda r: r[f"{name}_known"] < r["processes"])


def _each_session(roles: list[_Record]) -> list[Block]:
    """Returns median and largest memory of the sessions, if there are several."""
    sessions = next((r for r in roles if r["role"] in _SESSIONS and r["processes"] > 1), None)
    if sessions is None:
        return []
    each = [
        {
            "name": title,
            "status": sessions["status"],
            "partly": sessions[f"{name}_known"] < sessions["processes"],
        }
        | {c: sessions[f"{name}_{c}"] for c in ("median", "largest", "bytes")}
        for name, title in _EACH.items()
    ]
    columns = (
        (Column("memory"), lambda r: word(r["name"])),
        (numeric("median"), _size("median")),
        (numeric("largest"), _size("largest")),
        (numeric("sum"), _least("bytes", lambda r: r["partly"])),
    )
    return [table(f"Each of {sessions['processes']:,} {noun('owners')}", columns, each)]


_REASONS = {
    "lost": "there was no time for it; the next read begins with it",
    "not permitted": "run dbdyno as root or as the server's user",
    "not here": "run dbdyno on the server's host",
    "not supported": "not supported here",
}


def _reason(status: str) -> str:
    """Returns the reason of a status, with the cure if there is one."""
    return _REASONS.get(status, status)


def _price(rows: Rows) -> Iterator[str]:
    """Yields the memory cost of small pages."""
    figures_by_key = {r["key"]: r for r in rows["memory_figures"].to_dicts()}
    tables_, huge = (figures_by_key.get(k) for k in ("page_tables_bytes", "page_tables_huge_bytes"))
    if tables_ is None or tables_["value"] is None:
        return
    base = _BASES.get(tables_["of"] or "")
    share = f" ({figures.percent(tables_['share'], digits=1)} % {base})" if base and tables_["share"] else ""
    least = "" if tables_["status"] == "ok" else "at least "
    text = f"Page tables of {noun('server_processes')}: {least}{format_size(tables_['value'])}{share}"
    if huge is not None and huge["value"] is not None:
        text += f"; with shared memory in huge pages about {format_size(huge['value'])}"
    yield f"{text}."
