"""Shows the report between two snapshots as a document, and as JSON-ready data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, SnapshotInfo
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.interval import (
    ALL,
    CHECKPOINTS,
    LOWER_BOUNDS,
    PER_S,
    IntervalFigures,
    LoadPoint,
    TimeModel,
)
from dbdyno.model.sources.wait_families import LOG_BYTES
from dbdyno.model.text.nouns import capital
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_average, format_ns, shown_second
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Choice,
    Column,
    Document,
    KeyFigure,
    Option,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    numeric,
    remarks,
    texts,
    word,
)
from dbdyno.present.figures import jsondoc
from dbdyno.present.figures.figures import grouped
from dbdyno.present.snapshots import (
    load_chart,
    snapshot_objects,
    snapshot_server,
    snapshot_statements,
    time_model,
)
from dbdyno.present.snapshots.snapshot_parts import (
    Figures,
    Spec,
    Words,
    growth,
    hits,
    listed,
    rate,
    size,
    whole,
    why,
)
from dbdyno.present.snapshots.snapshot_server import amount

FORMAT = 1
_CHOSEN = 20
"""Most databases that a page can show by themselves."""
_NAME = Words("database", lambda r: r["database"], wraps=True)
_ARTICLE = (
    Spec("tps", f"transactions{PER_S}", rate, note="transactions a second", source="commits"),
    Spec("hit %", "hit_ratio", hits, note="blocks found in the server's cache", source="blocks_hit"),
    Spec("LIO/s", f"logical_reads{PER_S}", rate, note="blocks asked for a second", source="blocks_hit"),
    Spec("reads/s", f"blocks_read{PER_S}", rate, note="blocks not found in the server's cache a second"),
    Spec("rows/s", f"rows_returned{PER_S}", rate, note="rows read by scans a second"),
    Spec("ins/s", f"rows_inserted{PER_S}", rate),
    Spec("upd/s", f"rows_updated{PER_S}", rate),
    Spec("del/s", f"rows_deleted{PER_S}", rate),
    Spec("fetched/s", f"rows_fetched{PER_S}", rate, rank=2, note="rows fetched by index scans a second"),
    Spec("commits", "commits", whole, rank=2),
    Spec("rollbacks", "rollbacks", whole, rank=2),
    Spec("temp/s", f"temporary_bytes{PER_S}", size, "bytes", rank=3),
    Spec("DB time s/s", f"active_ns{PER_S}", lambda v: format_average(v / NS_PER_S), rank=3,
         note="sessions active, by the server's clock", source="active_ns"),
    Spec("sessions", "sessions", whole, rank=4, note="established in between"),
    Spec("deadlocks", "deadlocks", whole, rank=4),
    Spec("size", "size_bytes", size, "bytes", rank=4),
    Spec("growth", "size_bytes_growth", growth, "bytes", rank=4, source="size_bytes"),
)  # fmt: skip
LINES = (  # name, column, unit
    ("DB time, by the server's clock", "active_ns", "ns"), ("transactions", "transactions", ""),
    ("commits", "commits", ""), ("rollbacks", "rollbacks", ""),
    ("logical reads, blocks", "logical_reads", ""),
    ("blocks found in the cache", "blocks_hit", ""), ("reads, blocks", "blocks_read", ""),
    ("time of reads", "block_read_ns", "ns"), ("time of writes", "block_write_ns", "ns"),
    ("rows read by scans", "rows_returned", ""), ("rows fetched by index scans", "rows_fetched", ""),
    ("rows inserted", "rows_inserted", ""), ("rows updated", "rows_updated", ""),
    ("rows deleted", "rows_deleted", ""), ("temporary files", "temporary_files", ""),
    ("temporary files, size", "temporary_bytes", "bytes"), ("sessions established", "sessions", ""),
    ("time of sessions", "session_ns", "ns"), ("idle in a transaction", "idle_in_transaction_ns", "ns"),
    ("sessions lost", "sessions_abandoned", ""), ("sessions ended by an error", "sessions_fatal", ""),
    ("sessions killed", "sessions_killed", ""), ("deadlocks", "deadlocks", ""),
    ("queries cancelled for recovery", "conflicts", ""), ("parallel workers started", "workers_launched", ""),
)  # fmt: skip
_SERVER_LINES = (
    ("WAL", LOG_BYTES, "bytes"),
    *((name.replace("_", " "), name, "") for name in CHECKPOINTS),
)
_RARE = ("sessions_abandoned", "sessions_fatal", "sessions_killed", "conflicts", "workers_launched")
"""Figures that are left out if they are 0 or unknown."""


def document(
    figures: IntervalFigures,
    claims: Sequence[Claim],
    unused: pl.DataFrame,
    top: int = 20,
    notes: Sequence[str] = (),
    time: TimeModel | None = None,
    loads: Sequence[LoadPoint] = (),
) -> Document:
    """Returns the answer and claims, then load, statements, tables, indexes and the server.

    ``unused`` are indexes without a scan, ``top`` is the number of rows of a table, ``notes`` comment on
    the choice of snapshots. ``time`` is the time model, if the interval was observed; ``loads`` are those
    between the snapshots in the interval and around it.
    """
    a, b = figures.interval.first, figures.interval.last
    names = _databases(figures)
    sql, whole_texts = snapshot_statements.top_sql(figures, top)
    claimed = [Section("What to know", [_claims(claims)], "claims")] if claims else []
    drawn = load_chart.charts(loads)
    sections = [
        *([Section("Load over time", drawn, "over-time", detail=True)] if drawn else []),
        *claimed,
        Section("Load profile", _load(figures, names), "load"),
        *time_model.section(time, figures.interval.seconds),
        Section("Top SQL", sql, "sql"),
        Section(
            "Most accessed tables",
            snapshot_objects.most_accessed(figures, top, names),
            "tables",
            name="Tables",
        ),
        Section("Indexes", snapshot_objects.indexes(figures, unused, top), "indexes"),
        *snapshot_server.sections(figures, top),
        Section("The two snapshots", _ends(figures), "snapshots", name="Snapshots"),
        *whole_texts,
    ]
    times = f"{extent(a, b)}, {_length(figures)}"
    title = f"{_named(a)} to {_named(b)}: {times}" if a.name or b.name else times
    footer = (
        f"Snapshots {_label(a)} and {_label(b)} · {b.engine} {b.version} · role {b.role} · dbdyno {b.dbdyno}"
    )
    return Document(
        title,
        sections,
        lead=[
            *(Paragraph(n) for n in notes),
            *_lead(figures),
            Paragraph(f"Server: {b.address}, {b.engine} {b.version}.", "muted"),
        ],
        figures=_figures(figures),
        footer=footer,
    )


def _named(info: SnapshotInfo) -> str:
    return one_line(info.name) if info.name else f"{shown_second(info.server_time):%H:%M:%S}"


def extent(a: SnapshotInfo, b: SnapshotInfo) -> str:
    """Returns the times of two snapshots: ``2026-11-21 10:45:31 to 10:47:01 UTC``."""
    begin, end = shown_second(a.server_time), shown_second(b.server_time)
    day = "" if begin.date() == end.date() else "%Y-%m-%d "
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:{day}%H:%M:%S} UTC"


def _length(figures: IntervalFigures) -> str:
    s = round(figures.interval.seconds)
    parts = [(s // 86_400, "d"), (s % 86_400 // 3600, "h"), (s % 3600 // 60, "min"), (s % 60, "s")]
    if s < 60:
        return format_ns(figures.interval.seconds * NS_PER_S)
    return " ".join(f"{n} {unit}" for n, unit in parts if n)


def _label(info: SnapshotInfo) -> str:
    return one_line(f"{info.name} ({info.id})" if info.name else info.id)


def _databases(figures: IntervalFigures) -> list[str]:
    named = figures.databases.filter((pl.col("database") != ALL) & pl.col("logical_reads").fill_null(0).gt(0))
    return list(named["database"].head(_CHOSEN))


def _sum(figures: IntervalFigures) -> Figures:
    rows = figures.databases.filter(pl.col("database") == ALL).to_dicts()
    return rows[0] if rows else {}


def _lead(figures: IntervalFigures) -> list[Paragraph]:
    """Returns one sentence on the work of the server in the interval."""
    r = _sum(figures)
    if not r or r["transactions"] is None:
        return [Paragraph("What the databases did in between is not known.", "warning", lead=True)]
    atleast = "at least " if r["status"] in LOWER_BOUNDS else ""
    a_second = rate(r[f"transactions{PER_S}"])
    ended = f"{capital(atleast)}{counted(r['transactions'], 'transaction')} ({a_second}/s)"
    busy = r[f"active_ns{PER_S}"]
    active = "" if busy is None else f"{format_average(busy / NS_PER_S)} sessions active on average"
    read, hit_share = r[f"logical_reads{PER_S}"], r["hit_ratio"]
    cached = "" if hit_share is None else f", {_cached(hit_share)}"
    reads = "" if read is None else f"{rate(read)} block reads/s{cached}"
    return [Paragraph(f"{'; '.join(filter(None, (ended, active, reads)))}.", lead=True)]


def _cached(share: float) -> str:
    return "all from cache" if share == 1 else f"{hits(share)} % from cache"


def _figures(figures: IntervalFigures) -> list[KeyFigure]:
    r = _sum(figures)
    if not r:
        return []
    log, seconds = figures.server.get(LOG_BYTES, (None, figures.interval.seconds))
    busy, lio = r[f"active_ns{PER_S}"], r[f"logical_reads{PER_S}"]
    return [
        KeyFigure("Transactions", known(r[f"transactions{PER_S}"], rate, "per second"), target="load"),
        KeyFigure(
            "DB time",
            known(None if busy is None else busy / NS_PER_S, format_average, "s per second"),
            "by the server's clock",
            "load",
        ),
        KeyFigure("Logical reads", known(lio, rate, "blocks per second"), target="load"),
        KeyFigure("Cache hit ratio", _hit_ratio(r), target="load"),
        KeyFigure(
            "WAL",
            amount(None if log is None else log / seconds, "bytes")._replace(unit=""),
            "per second",
            "server",
        ),
    ]


def _hit_ratio(row: Figures) -> Cell:
    """Returns the share of blocks found in the cache; ``-`` if no block was read."""
    if row["hit_ratio"] is None and row["logical_reads"] == 0:
        return Cell("-")
    return known(row["hit_ratio"], lambda v: f"{hits(v)} %")


_PLACES = {
    "load": ("cache", "deadlocks", "checksums", "rollbacks", "temporary"),
    "sql": ("statement", "evictions"), "tables": ("seq-scans", "dead-rows"),
    "indexes": ("unused-indexes", "invalid-indexes"), "server": ("checkpoints", "archive"),
    "replication": ("slot",), "ages": ("wraparound",), "changes": ("settings",),
    "snapshots": ("restart", "reset"),
}  # fmt: skip
_PLACE = {f"snapshot-{claim}": place for place, claims in _PLACES.items() for claim in claims}
"""The section that shows the figure of a claim."""
_PLACE["scan-not-cached"] = "tables"


def _claims(claims: Sequence[Claim]) -> Statements:
    return Statements(
        [
            Statement(
                c.text, c.severity, "", c.severity, c.id, c.advice, f"rests on: {c.evidence}", _PLACE[c.id]
            )
            for c in claims
        ],
        brief=True,
    )


def _load(figures: IntervalFigures, names: Sequence[str]) -> list[Block]:
    rows = figures.databases.to_dicts()
    if not rows:
        return [Paragraph("The snapshots have no databases.", "muted")]
    tables = listed(figures, "databases", "By database", (_NAME, *_ARTICLE), rows)
    by_name = {r["database"]: r for r in rows}
    options = [Option("all", ALL, [_profile(figures, by_name[ALL])])]
    options += [Option(n, n, [_profile(figures, by_name[n])]) for n in names if len(names) > 1]
    notes = [
        "A transaction is a commit or a rollback. Blocks not found in the server's cache may have been in "
        "that of the operating system. Blocks and rows hold what taking the snapshots read in system tables."
    ]
    notes += _unknown(figures, rows[-1])
    if own := figures.interval.own_transactions:
        notes.append(f"Commits are without {own:,} of dbdyno's own, which took snapshots.")
    return [*tables, Choice("Database", options), *remarks(notes)]


def _unknown(figures: IntervalFigures, row: Figures) -> list[str]:
    shown = [(name, c) for name, c, _ in LINES if row[c] is None and c not in _RARE]
    blank = [(why(figures, "databases", Spec(name, c)), name) for name, c in shown]
    return [f"{UNKNOWN} {', '.join(n)}: {reason}." for reason, n in grouped(blank).items() if reason]


def _profile(figures: IntervalFigures, row: Figures) -> Table:
    """Returns one line per figure: per second, per transaction, in total."""
    lines = [line for name, column, unit in LINES if (line := _line(figures, row, name, column, unit))]
    if row["database"] == ALL:
        for name, name_of_figure, unit in _SERVER_LINES:
            value, seconds = figures.server.get(name_of_figure, (None, figures.interval.seconds))
            lines.append(_amounts(name, value, None if value is None else value / seconds, row, unit, ""))
    lines.append(Row([word("cache hit ratio"), _hit_ratio(row), word(""), word("")]))
    heads = (Column(""), numeric("per second"), numeric("per transaction"), numeric("in all"))
    return Table(f"Load of {row['database']}", heads, lines, named=True)


def _line(figures: IntervalFigures, row: Figures, name: str, column: str, unit: str) -> Row | None:
    value = row[column]
    if column in _RARE and not value:
        return None
    reason = why(figures, "databases", Spec(name, column)) if value is None else ""
    return _amounts(name, value, row[column + PER_S], row, unit, reason)


def _amounts(name: str, value: Any, per_s: Any, row: Figures, unit: str, reason: str) -> Row:
    each = value / row["transactions"] if value is not None and row["transactions"] else None
    lower = row["status"] in LOWER_BOUNDS
    plain = known(value, lambda v: f"{'>= ' if lower else ''}{v:,.0f}", unit, reason)
    whole = amount(value, unit, reason, lower) if unit else plain
    per = None if per_s is None else float(per_s)
    return Row([word(name), amount(per, unit, reason), amount(each, unit, reason), whole])


def _ends(figures: IntervalFigures) -> list[Block]:
    a, b = figures.interval.first, figures.interval.last
    lines: tuple[tuple[str, Callable[[SnapshotInfo], str]], ...] = (
        ("id", lambda i: i.id),
        ("name", lambda i: i.name or ""),
        (
            "taken (UTC)",
            lambda i: f"{shown_second(i.taken):%Y-%m-%d %H:%M:%S}, in {format_ns(i.took_s * NS_PER_S)}",
        ),
        ("server", lambda i: f"{i.engine} {i.version}{', standby' if i.standby else ''}"),
        ("started (UTC)", lambda i: UNKNOWN if i.started is None else f"{i.started:%Y-%m-%d %H:%M:%S}"),
        ("role", lambda i: i.role),
        ("databases read", lambda i: ", ".join(i.databases)),
    )
    rows = [(head, text(a), text(b)) for head, text in lines]
    resets = [
        (r.what, UNKNOWN if r.at_s is None else _clock(r.at_s), _HOW[r.how]) for r in figures.interval.resets
    ]
    missing = {**a.missing, **b.missing}
    blocks: list[Block] = [texts("", ("", "first", "last"), rows)]
    blocks += [texts("Reset in between", ("what", "when (UTC)", "how it is known"), resets)] if resets else []
    if missing:
        blocks.append(texts("Not known", ("what", "why"), sorted((k, v) for k, v in missing.items())))
    return blocks


_HOW = {
    "reset": "the server noted it",
    "objects": "the server noted it; only single objects' counters fell",
    "fell": "values fell",
}


def _clock(at_s: float) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


def record(
    figures: IntervalFigures, claims: Sequence[Claim], time: TimeModel | None = None
) -> dict[str, Any]:
    """Returns the report as JSON, without tables and indexes that did not grow; docs/json.md explains each
    key."""
    i = figures.interval
    ids = figures.statements["query_id"].drop_nulls()
    return {
        "format": FORMAT,
        "first": i.first.model_dump(mode="json"),
        "last": i.last.model_dump(mode="json"),
        "seconds": i.seconds,
        "restarted": None if i.restarted is None else i.restarted.isoformat(),
        "resets": [r._asdict() for r in i.resets],
        "evictions": i.evictions,
        "claims": [jsondoc.finding(c) for c in claims],
        "time_model": time_model.record(time),
        "load_profile": _rows(figures.databases),
        "statements": _rows(figures.statements.select(pl.exclude("others", "evictions", "wall_s"))),
        "statement_texts": _rows(i.texts.filter(pl.col("query_id").is_in(ids.implode()))),
        "most_accessed": _rows(_grown("relations", figures.relations)),
        "tables": dict(_raw(i.tables)),
    }


def _raw(tables: Mapping[str, pl.DataFrame]) -> Iterator[tuple[str, Any]]:
    for name, table in tables.items():
        if name == "relations":
            # Only partitions: other tables are in "most_accessed".
            table = table.filter(pl.col("root_id").is_not_null())
        if name not in ("statements", "resets", "databases"):
            yield name, _rows(_grown(name, table))


def _grown(name: str, table: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of a table of counters that grew, or whose object did not exist all the time."""
    counters = [c.name for c in TABLES[name].counters]
    if not counters and name != "settings":
        return table
    grew = pl.any_horizontal(pl.lit(False), *(pl.col(c) > 0 for c in counters)).fill_null(False)
    return table.filter(grew | (pl.col("status") != "ok"))


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    return table.fill_nan(None).to_dicts()
