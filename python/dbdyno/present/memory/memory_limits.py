"""Shows huge pages, swap, NUMA nodes, and the limit of the server's control group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from dbdyno.model.schema.data_sources.memory import GROWTH
from dbdyno.model.units import format_ns, format_size
from dbdyno.present.document.document import Block, Cell, Column, Row, Table, known, numeric, table, word
from dbdyno.present.figures import figures

_Record = dict[str, Any]
_REQUESTED = {0: "off", 1: "try", 2: "on"}


def blocks(rows: Mapping[str, pl.DataFrame]) -> list[Block]:
    """Returns a table of limits and one of NUMA nodes, from the tables of one measurement and phase."""
    held, grown = rows["memory"].filter(pl.col("node").is_null()), rows["memory_figures"]
    raw = {(s, k): v for s, k, v in held.select("scope", "key", "value").iter_rows()}
    growth = {r["key"]: r for r in grown.filter(pl.col("phase") == GROWTH).to_dicts()}
    lines = [
        ("huge pages", _huge(raw)),
        ("swap", _swap(raw, growth)),
        ("control group", _group(raw, growth)),
    ]
    shown = [Row([word(name), word(text)]) for name, text in lines if text]
    tables = [Table("Huge pages, swap, limits", (Column(""), Column("", wraps=True)), shown)] if shown else []
    return [*tables, *_nodes(rows["memory"])]


_Raw = Mapping[tuple[str, str], int | None]
_Grown = Mapping[str, _Record]


def _huge(raw: _Raw) -> str:
    requested, used = raw.get(("server", "huge_pages_asked")), raw.get(("server", "huge_pages_used"))
    total, free = raw.get(("host", "huge_pages_total")), raw.get(("host", "huge_pages_free"))
    size = raw.get(("host", "huge_page_bytes"))
    texts = [f"the server asks: {_REQUESTED.get(requested, '?')}" if requested is not None else ""]
    if requested is not None:
        texts.append("whether it has them is unknown" if used is None else "used" if used else "not used")
    if total is not None:
        free_text = f", {free:,} of them free" if total and free is not None else ""
        size_text = f" of {format_size(size)}" if size else ""
        texts.append(f"pool of the machine: {total:,} pages{size_text}{free_text}")
    return "; ".join(t for t in texts if t) if requested is not None or total is not None else ""


def _swap(raw: _Raw, growth: _Grown) -> str:
    total, free = raw.get(("host", "swap_total_bytes")), raw.get(("host", "swap_free_bytes"))
    if total is None:
        return ""
    text = "none" if not total else format_size(total)
    if total and free is not None:
        text += f", used {format_size(total - free)}"
    if not total:
        return text
    return text + _grown(growth, {"swapped_in_bytes": "swapped in", "swapped_out_bytes": "swapped out"})


def _grown(growth: _Grown, names: Mapping[str, str]) -> str:
    """Returns the growth during the measurement; a time is written as a share of it."""
    grown = [(name, growth[key]) for key, name in names.items() if key in growth]
    texts = [f"{name} {_amount(r)}" for name, r in grown if r["value"] is not None]
    return f"; since the read before {', '.join(texts)}" if texts else ""


def _amount(row: _Record) -> str:
    if row["of"] != "time":
        return format_size(row["value"])
    return "?" if row["share"] is None else f"{figures.percent(row['share'], digits=1)} % of the time"


def _group(raw: _Raw, growth: _Grown) -> str:
    limit, used = raw.get(("group", "limit_bytes")), raw.get(("group", "used_bytes"))
    if ("group", "limit_bytes") not in raw and used is None:
        return ""
    texts = [f"limit {format_size(limit)}" if limit is not None else "no limit"]
    parts = {"used_bytes": "used", "page_cache_bytes": "page cache", "anonymous_bytes": "anonymous"}
    for key, name in parts.items():
        value = raw.get(("group", key))
        texts += [f"{name} {format_size(value)}"] if value is not None else []
    waits = {"pressure_some_ns": "some task waited for memory", "pressure_full_ns": "all tasks"}
    if (some := raw.get(("group", "pressure_some_ns"))) is not None:
        texts.append(f"waits for memory since its start {format_ns(some)}")
    return ", ".join(texts) + _grown(growth, {"group_reclaimed_bytes": "reclaimed", **waits})


# -- NUMA nodes -------------------------------------------------------------------------------------

_NODE = {
    ("host", "total_bytes"): "total",
    ("host", "free_bytes"): "free",
    ("host", "page_cache_bytes"): "page cache",
    ("host", "anonymous_bytes"): "anonymous",
    ("server", "used_bytes"): "server's cache",
    ("server", "shared_memory_bytes"): "shared memory",
}


def _nodes(held: pl.DataFrame) -> list[Block]:
    """Returns memory by NUMA node; empty with fewer than two nodes."""
    of_nodes = held.drop_nulls("node")
    if of_nodes["node"].n_unique() < 2:
        return []
    by_node: dict[int, dict[tuple[str, str], int | None]] = {}
    for node, scope, key, value in of_nodes.select("node", "scope", "key", "value").iter_rows():
        by_node.setdefault(node, {})[scope, key] = value
    columns = [(Column("NUMA node"), lambda r: word(str(r[0])))]
    for place, title in _NODE.items():
        if any(place in values for values in by_node.values()):
            columns.append((numeric(title), _at_node(place)))
    return [table("NUMA nodes", columns, sorted(by_node.items()))]


def _at_node(place: tuple[str, str]) -> Callable[[tuple[int, Mapping[tuple[str, str], int | None]]], Cell]:
    return lambda r: known(r[1].get(place), format_size, "bytes")
