"""Shows the activity of the whole server between two snapshots: I/O, WAL, caches, replication, ages,
settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from dbdyno.model.results.interval import STANDING, IntervalFigures
from dbdyno.model.units import format_count, format_ns, format_rate, format_size
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Section,
    Table,
    known,
    numeric,
    remarks,
    texts,
    word,
)
from dbdyno.present.snapshots.snapshot_parts import Spec, Words, growth, listed, share, size, whole, yes

_ENDINGS = {"bytes": "_bytes", "ns": "_ns"}


def sections(figures: IntervalFigures, most: int) -> list[Section]:
    """Returns the sections that are not empty."""
    candidates = (
        Section("I/O by kind of process", _io(figures, most), "io", name="I/O"),
        Section("WAL, checkpoints, background writer, archiver", _server(figures), "server", name="WAL"),
        Section("Small caches (SLRU)", _caches(figures), "caches", name="Small caches"),
        Section("Replication", _replication(figures), "replication"),
        Section("Transaction ids", _ages(figures, most), "ages"),
        Section("Under way at the end", _progress(figures), "progress", name="Under way"),
        Section("What changed", _changes(figures, most), "changes"),
    )
    return [s for s in candidates if s.blocks]


def _standing(figures: IntervalFigures, name: str) -> pl.DataFrame:
    return figures.interval.tables[name].filter(pl.col("status").is_in(STANDING))


def _io(figures: IntervalFigures, most: int) -> list[Block]:
    rows, missing = _standing(figures, "io"), figures.interval.last.missing.get("io")
    if rows.is_empty():
        return [Paragraph(f"Not known: {missing}.", "muted")] if missing else []
    requests = pl.sum_horizontal("reads", "writes", "extends", "fsyncs")
    order = rows.with_columns(_all=requests).sort("_all", "hits", descending=True, nulls_last=True)
    busy = order.filter((pl.col("_all") > 0) | (pl.col("hits") > 0))
    if busy.is_empty():
        return [Paragraph("None.", "muted")]
    columns = (
        Words("process", lambda r: r["backend_type"]), Words("object", lambda r: r["object"], shortens=True),
        Words("context", lambda r: r["context"]),
        Spec("reads", "reads"), Spec("writes", "writes"), Spec("extends", "extends", rank=1),
        Spec("hits", "hits", rank=1), Spec("evictions", "evictions", rank=2),
        Spec("reuses", "reuses", rank=4, optional=True), Spec("fsyncs", "fsyncs", rank=3),
        Spec("read", "read_bytes", size, "bytes", rank=4),
        Spec("written", "write_bytes", size, "bytes", rank=4),
        Spec("extended", "extend_bytes", size, "bytes", rank=6),
        Spec("read time", "read_ns", format_ns, "ns", rank=5),
        Spec("write time", "write_ns", format_ns, "ns", rank=5),
        Spec("extend time", "extend_ns", format_ns, "ns", rank=6),
        Spec("fsync time", "fsync_ns", format_ns, "ns", rank=6, optional=True),
        Spec("writebacks", "writebacks", rank=6, optional=True),
    )  # fmt: skip
    return listed(figures, "io", "", columns, busy.head(max(most, 20)).to_dicts())


def amount(value: float | None, unit: str, note: str = "", lower: bool = False) -> Cell:
    """Returns a figure of the server with its unit: ``3.21 MiB``, ``1.20 s``, ``12.0 k``."""
    ways = {"bytes": format_size, "ns": format_ns}
    text = ways.get(unit, format_rate if isinstance(value, float) else format_count)
    return known(value, lambda v: f"{'>= ' if lower else ''}{text(v)}", unit, note)


def _server(figures: IntervalFigures) -> list[Block]:
    rows = _standing(figures, "server").to_dicts()
    if not rows:
        reason = figures.interval.last.missing.get("server")
        return [Paragraph(f"Not known: {reason}.", "muted")] if reason else []
    lines, reasons = [], []
    for r in rows:
        unit, value = r["unit"] or "", r["value"]
        reason = figures.interval.last.missing.get(f"server.{r['figure']}", "")
        name = re.sub(r"^wal\b", "WAL", r["figure"].removesuffix(_ENDINGS.get(unit, " ")).replace("_", " "))
        if value is None and reason:
            reasons.append(f"{UNKNOWN} {name}: {reason}.")
        lower = r["status"] == "reset"
        per_s = None if value is None else value / r["seconds"]
        head = word(f"{name}, blocks" if unit == "blocks" and "blocks" not in name else name)
        lines.append(Row([head, *(amount(v, unit, reason, lower) for v in (per_s, value))]))
    table = Table("", (Column(""), numeric("per second"), numeric("in all")), lines, named=True)
    return [table, *remarks(reasons)]


def _caches(figures: IntervalFigures) -> list[Block]:
    both = pl.col("blocks_hit") + pl.col("blocks_read")
    rows = _standing(figures, "caches").with_columns(
        hit_ratio=pl.when(both > 0).then(pl.col("blocks_hit") / both)
    )
    busy = rows.filter(pl.sum_horizontal("blocks_hit", "blocks_read", "blocks_zeroed", "flushes") > 0)
    if rows.is_empty():
        return []
    columns = (
        Words("cache", lambda r: r["cache"]),
        Spec("hits", "blocks_hit", unit="blocks"), Spec("reads", "blocks_read", unit="blocks"),
        Spec("hit %", "hit_ratio", share, source="blocks_hit"),
        Spec("zeroed", "blocks_zeroed", unit="blocks"),
        Spec("written", "blocks_written", unit="blocks"),
        Spec("exists", "blocks_exists", unit="blocks", rank=1),
        Spec("flushes", "flushes", rank=1), Spec("truncates", "truncates", rank=2),
    )  # fmt: skip
    order = busy.sort("blocks_read", "blocks_hit", descending=True, nulls_last=True).to_dicts()
    return listed(figures, "caches", "", columns, order) if order else [Paragraph("Not used.", "muted")]


def _replication(figures: IntervalFigures) -> list[Block]:
    blocks: list[Block] = []
    standbys = figures.interval.tables["standbys"].to_dicts()
    if standbys:
        blocks += listed(
            figures,
            "standbys",
            "Connections that send WAL, at the end",
            (
                Words("standby", lambda r: r["standby"], shortens=True),
                Words("state", lambda r: r["state"]),
                Words("sync", lambda r: r["sync"], rank=2),
                Spec("not sent", "sent_lag_bytes", size, "bytes"),
                Spec("not flushed", "flush_lag_bytes", size, "bytes"),
                Spec("not replayed", "replay_lag_bytes", size, "bytes"),
                Spec("replay lag", "replay_lag_ns", format_ns, "ns", rank=1),
            ),
            [r for r in standbys if r["status"] != "gone"],
        )
        gone = [r["standby"] for r in standbys if r["status"] == "gone"]
        blocks += remarks([f"No longer there: {', '.join(gone)}."] if gone else [])
    slots = figures.interval.tables["slots"].filter(pl.col("status") != "gone").to_dicts()
    if slots:
        blocks += listed(
            figures,
            "slots",
            "Replication slots",
            (
                Words("slot", lambda r: r["slot"], shortens=True),
                Words("kind", lambda r: r["kind"]),
                Words("in use", lambda r: yes(r["active"])),
                Words("WAL", lambda r: r["wal_status"]),
                Spec("WAL kept", "retained_bytes", size, "bytes"),
                Spec("growth", "retained_bytes_growth", growth, "bytes", rank=1, source="retained_bytes"),
                Spec("decoded", "total_bytes", size, "bytes", rank=2, optional=True),
                Spec("spilled", "spill_bytes", size, "bytes", rank=2, optional=True),
                Spec("streamed", "stream_bytes", size, "bytes", rank=3, optional=True),
            ),
            slots,
        )
    return blocks


def _ages(figures: IntervalFigures, most: int) -> list[Block]:
    limit = 2**31
    rows = _standing(figures, "databases").filter(pl.col("transaction_age").is_not_null())
    named = rows.with_columns(used=pl.col("transaction_age") / limit, left=limit - pl.col("transaction_age"))
    columns = (
        Words("database", lambda r: r["database"] or "(shared objects)", wraps=True),
        Spec("oldest", "transaction_age", whole, note="transactions since the oldest one that is not frozen"),
        Spec("growth", "transaction_age_growth", whole, rank=1, source="transaction_age"),
        Spec("used %", "used", share, note="of the 2^31 transaction ids", source="transaction_age"),
        Spec("left", "left", source="transaction_age"),
        Spec("multixacts", "multixact_age", whole, rank=1),
    )
    order = named.sort("transaction_age", descending=True)
    blocks = (
        listed(figures, "databases", "Distance to wraparound", columns, order.to_dicts())
        if len(order)
        else []
    )
    tables = figures.relations.filter(pl.col("status").is_in(STANDING)).drop_nulls("transaction_age")
    oldest = tables.sort("transaction_age", descending=True).head(min(most, 5)).to_dicts()
    if oldest:
        blocks += listed(
            figures,
            "relations",
            "Oldest tables",
            (
                Words("table", lambda r: f"{r['database'] or '(shared)'}: {r['name']}", shortens=True),
                Spec("oldest", "transaction_age", whole),
                Spec("size", "size_bytes", size, "bytes", source="table_bytes"),
            ),
            oldest,
        )
    return blocks


def _progress(figures: IntervalFigures) -> list[Block]:
    rows = figures.interval.tables["progress"].filter(pl.col("status") != "gone")
    part = pl.when(pl.col("total") > 0).then(pl.col("done") / pl.col("total"))
    columns = (
        Words("command", lambda r: r["command"]), Words("database", lambda r: r["database"], rank=1),
        Words("table", lambda r: r["relation"], shortens=True),
        Words("phase", lambda r: r["phase"], shortens=True),
        Spec("done %", "part", share, source="done"),
    )  # fmt: skip
    return (
        listed(figures, "progress", "", columns, rows.with_columns(part=part).to_dicts()) if len(rows) else []
    )


def _changes(figures: IntervalFigures, most: int) -> list[Block]:
    """Returns settings with their values before and after, and objects that were created or dropped."""
    blocks: list[Block] = []
    settings = figures.interval.tables["settings"].filter(pl.col("status") != "ok").to_dicts()
    if settings:
        rows = [
            (
                r["setting"],
                "" if r["status"] == "new" else r["value_was"] or "",
                "" if r["status"] == "gone" else r["value"] or "",
                r["source"],
            )
            for r in settings
        ]
        blocks.append(texts("Settings", ("setting", "before", "after", "set in"), rows))
    for name, column, what in (("relations", "relation", "Tables"), ("indexes", "index", "Indexes")):
        frame = figures.interval.tables[name]
        for status, verb in (("new", "made"), ("remade", "made anew"), ("gone", "dropped")):
            some = frame.filter((pl.col("status") == status) & ~_system(frame))
            if some.height:
                blocks.append(
                    Paragraph(f"{what} {verb} in between ({some.height:,}): {_names(some, column, most)}.")
                )
    databases = figures.interval.tables["databases"]
    for status, verb in (("new", "made"), ("remade", "made anew"), ("gone", "dropped")):
        names = databases.filter(pl.col("status") == status)["database"].drop_nulls().to_list()
        blocks += [Paragraph(f"Databases {verb} in between: {', '.join(names)}.")] if names else []
    return blocks


def _system(frame: pl.DataFrame) -> pl.Expr:
    return pl.col("kind") == "system" if "kind" in frame.columns else pl.lit(False)


def _names(frame: pl.DataFrame, column: str, most: int) -> str:
    rows: Iterable[dict[str, Any]] = frame.head(most).to_dicts()
    named = [f"{r['database'] or 'shared'}: {r['schema']}.{r[column]}" for r in rows]
    return ", ".join([*named, *([f"{frame.height - most:,} more"] if frame.height > most else [])])
