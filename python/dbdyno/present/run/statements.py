"""Shows Top SQL: statements by time, by logical I/O and by calls, and their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.scripted import NO_ID
from dbdyno.model.schema.data_sources.statements import LIO
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import shortened, visible
from dbdyno.model.units import NS_PER_S, counted, format_count, format_ns, format_rate, format_size
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Section,
    Table,
    Verbatim,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.figures import grouped, percent
from dbdyno.present.figures.selection import Pick, rows_of

SHOWN, FEWER = 10, 5
"""Most statements by time; by logical I/O and by calls. The export has more."""
_SHORT, _HINT = 120, 1_000
"""Most characters of a statement in a line; on hovering."""
_READS = ("shared_blks_read", "local_blks_read")
_LOWER = "lower bound"
_SOURCE, _RIGHT = "statement counters", "sessions of other users"
SAMPLES = "activity samples"
NO_QUERY_ID = "(statement unknown: no query id)"
_Row = dict[str, Any]
_Number = Callable[[_Row], float | None]
Columns = tuple[tuple[Column, Callable[[_Row], Cell]], ...]


def observed(results: Results) -> bool:
    """Returns whether statements were counted or sampled."""
    return bool(results.tables.get("statements", empty("statements")).height)


def top_sql(results: Results, pick: Pick) -> list[Block]:
    """Returns the statements with the most time, and those with the most logical I/O and calls if they
    differ."""
    frame = rows_of(results, "statements", pick)
    if frame["calls"].null_count() == frame.height:  # not counted, though a trace may know their time
        return [Paragraph(f"No Top SQL {pick.at}: {_why(results)}.", "muted")]
    known_texts = texts_of(results)
    time, columns = (
        (DB_TIME, DB_TIME_COLUMNS) if frame["db_time_s"].is_not_null().any() else ("time", COLUMNS)
    )
    first, *more = [ranked(frame, by, known_texts) for by in (time, *_OTHER_ORDERS)]
    whole_s = db_time_s(results, pick)
    named = [r["rank"] for r in first]
    if time == DB_TIME:
        first = of_whole(_with_unnamed(first, frame, whole_s), whole_s)
    several = [(c, cell) for c, cell in WHOSE if frame[c.head].n_unique() > 1]
    useful = [(c, cell) for c, cell in columns if c.rank < _OPTIONAL or any(cell(r).value for r in first)]
    base = _base_of_all_windows(results, pick, whole_s) if time == DB_TIME else ""
    scope = _OF_ALL if _counted_for_all(results) else ""
    tables = [table(f"Top SQL {pick.at} by {_ORDERS[time][0]}{base}{scope}", (*useful, *several), first)]
    for by, rows in zip(_OTHER_ORDERS, more, strict=True):
        title = _ORDERS[by][0]
        if [r["rank"] for r in rows] != named[:FEWER]:
            tables.append(table(f"Top SQL {pick.at} by {title}{scope}", FEWER_COLUMNS[by], rows))
    shown = {*named, *(r["rank"] for rows in more for r in rows)}
    return [*tables, *remarks(_notes(results, frame, shown, len(tables), whole_s))]


def brief(results: Results, pick: Pick, most: int = FEWER) -> list[Block]:
    """Returns the statements with the most time with the columns that matter most; empty if none was
    counted."""
    first = top_sql(results, pick)[0]
    if not isinstance(first, Table):
        return []
    kept = [n for n, c in enumerate(first.columns) if c.rank == 0 or c.head == MEAN[0].head]
    rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in first.rows[:most]]
    return [replace(first, columns=[first.columns[n] for n in kept], rows=rows)]


def db_time_s(results: Results, pick: Pick) -> float | None:
    """Returns the DB time, of which that of statements is a part: as the ledger of statements has it, if
    there is one. None if it is unknown."""
    ledger = rows_of(results, "statement_ledger", pick)
    ledger = ledger.filter(pl.col("account").is_in(["run", "runq", "sleep"]))
    if ledger.height:
        return float(ledger["seconds"].sum())
    profile = rows_of(results, "profile", pick).filter(pl.col("name") == "DB time")
    return profile["total"][0] if profile.height else None


_OF_ALL = "; calls, exec time and blocks: all sessions"


def _counted_for_all(results: Results) -> bool:
    """Returns whether counters of statements include sessions that are not observed. The server keeps them by
    user and database, but not by application or process."""
    chosen = results.plan.experiment.observation
    return chosen is not None and bool(chosen.application or chosen.pids)


def _base_of_all_windows(results: Results, pick: Pick, whole_s: float | None) -> str:
    """Returns the time that shares refer to, if the load profile has the DB time of some windows only; the
    ledger of statements has all of them."""
    profile = rows_of(results, "profile", pick).filter(pl.col("name") == "DB time")
    partly = profile["status"].str.ends_with(" windows").any()
    return f"; % of {format_ns(whole_s * NS_PER_S)}, all windows" if partly and whole_s else ""


_UNNAMED = 0.005
"""Share of DB time from which on the time without a query id is a row of its own."""


def _with_unnamed(rows: list[_Row], frame: pl.DataFrame, whole_s: float | None) -> list[_Row]:
    """Returns the rows with one more for the DB time that no statement is known for, in its place."""
    seconds = (whole_s or 0.0) - float(frame["db_time_s"].sum())
    if not whole_s or seconds < _UNNAMED * whole_s:
        return rows
    unnamed = dict.fromkeys(rows[0]) | {"db_time_s": seconds, "toplevel": True, "status": NO_QUERY_ID}
    place = next((n for n, row in enumerate(rows) if (row["db_time_s"] or 0.0) < seconds), len(rows))
    return [*rows[:place], unnamed, *rows[place:]]


def of_whole(rows: list[_Row], whole_s: float | None) -> list[_Row]:
    """Returns the rows with their shares of the whole DB time, if that is known."""
    if not whole_s:
        return rows
    times = [row["db_time_s"] for row in rows]
    shares = [None if t is None else t / whole_s for t in times]
    return [row | {"db_time_share": share} for row, share in zip(rows, shares, strict=True)]


def texts(results: Results, picks: Iterable[Pick]) -> list[Block]:
    """Returns the full texts of the statements that :func:`top_sql` shows for ``picks``, each once,
    folded."""
    known_texts = texts_of(results)
    frames = [rows_of(results, "statements", pick) for pick in picks]
    rows = [
        r
        for frame in frames
        if frame.height
        for by in _ORDERS
        for r in ranked(frame, by, known_texts)
        if r["_by"]
    ]
    return whole_texts(rows)


def whole_texts(rows: Iterable[_Row]) -> list[Block]:
    """Returns the full texts of statements, each once, folded; empty without any."""
    by_id = {r["query_id"]: r for r in rows if r["text"] is not None}
    named = [(Paragraph(_named(r), "muted"), Verbatim(visible(r["text"]))) for r in by_id.values()]
    blocks: list[Block] = [block for pair in named for block in pair]
    return [Section("Texts of the statements", blocks, folded=True)] if blocks else []


def texts_of(results: Results) -> dict[int, tuple[str | None, int | None]]:
    """Returns text and length by query id."""
    frame = results.tables.get("statement_texts", empty("statement_texts"))
    return {i: (text, length) for i, text, length in frame.select("query_id", "text", "length").iter_rows()}


def ranked(
    frame: pl.DataFrame, by: str, texts: Mapping[int, tuple[str | None, int | None]], most: int | None = None
) -> list[_Row]:
    """Returns the first statements in an order of :data:`ORDERS`, with texts and shares (``lio_share``,
    ...).

    ``most`` replaces the default number of statements. A statement whose text is unknown and whose time is 0
    is left out: a sampler saw its id and nothing else of it.
    """
    named = pl.col("query_id").is_null() | pl.col("query_id").is_in([i for i, (t, _) in texts.items() if t])
    rows = (
        frame.lazy()
        .filter(pl.col("others").is_null())
        .with_columns(_by=(_ORDERS | ORDERS)[by][1])
        .filter(named | (pl.max_horizontal("exec_ns", "db_time_s").fill_null(1) > 0))
        .sort("_by", "rank", descending=[True, False], nulls_last=True)
        .head(most or (SHOWN if by in ("time", DB_TIME) else FEWER))
        .collect()
        .to_dicts()
    )
    figures = {n: (_ORDERS | ORDERS)[n][1].filter(pl.col("toplevel")).sum() for n in ("lio", "calls", by)}
    sums = frame.select(**figures).row(0, named=True)
    for row in rows:
        row["text"], row["length"] = texts.get(row["query_id"], (None, None))
        row["lio"] = None if any(row[n] is None for n in LIO) else sum(row[n] for n in LIO)
        for n, total in sums.items():
            value = row["_by"] if n == by else row[n]
            known_share = total and row["toplevel"] and value is not None
            row[f"{n}_share"] = value / total if known_share else None
    return rows


DB_TIME = "db_time"
_ORDERS = {
    DB_TIME: ("DB time", pl.col("db_time_s")),
    "time": ("execution time", pl.col("exec_ns")),
    "lio": ("logical I/O", pl.sum_horizontal(LIO)),
    "calls": ("calls", pl.col("calls").fill_null(0)),
}
"""Orders of the statements of a run: words of a title, and the figure."""
_OTHER_ORDERS = ("lio", "calls")
ORDERS = {name: order for name, order in _ORDERS.items() if name != DB_TIME} | {
    "reads": ("reads", pl.sum_horizontal(_READS)),
    "wal": ("WAL", pl.col("wal_bytes")),
    "temp": ("temporary blocks", pl.sum_horizontal("temp_blks_read", "temp_blks_written")),
    "planning": ("planning time", pl.col("plan_ns")),
    "jit": ("just-in-time compilation", pl.col("jit_ns")),
}
"""Orders of statements between two snapshots."""


def statement(row: _Row) -> str:
    """Returns the text of a statement in one line."""
    if row["query_id"] is None:
        if row["status"] == NO_QUERY_ID:
            return NO_QUERY_ID
        return f"statements of {row['user'] or 'other users'}, hidden from this role"
    text = visible(" ".join((row["text"] or "text unknown").split()))
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _named(row: _Row) -> str:
    whole, here = row["length"], len(row["text"])
    cut = f": the first {here:,} of {whole:,} characters" if whole is not None and whole > here + 99 else ""
    return f"Query id {row['query_id']}{cut}"


def _why(results: Results) -> str:
    failed = results.tables["sources"].filter((pl.col("name") == _SOURCE) & (pl.col("status") != "ok"))
    if failed.height:
        return str(failed["detail"][0]) or str(failed["status"][0])
    return "no statement was executed, or the run has no counters of statements"


def _ours(results: Results, frame: pl.DataFrame) -> str:
    """Returns whether dbdyno's own statements, which are recognised by their texts, are left out."""
    if frame["query_id"].is_null().all() or texts_of(results):
        return "Statements of dbdyno itself are left out, by their texts."
    return "Texts could not be read (see dbdyno doctor): statements of dbdyno itself are among them."


def _notes(
    results: Results, frame: pl.DataFrame, shown: set[int], tables: int, whole_s: float | None
) -> list[str]:
    left = _left(frame, shown, tables, whole_s)
    return [*_measured(results, frame), *left, *lost(frame), *_inside(results, frame)]


def _measured(results: Results, frame: pl.DataFrame) -> list[str]:
    """Returns notes on the period and scope of the figures."""
    time_ns = float(frame.filter("toplevel")["exec_ns"].sum())
    walls: list[float] = frame["wall_s"].drop_nulls().to_list()
    notes = []
    if walls:
        chosen = results.plan.experiment.observation
        when = "from before the first call to after the last" if chosen is None else "between reads"
        notes.append(
            f"Calls, time, blocks and WAL are counted over {format_ns(walls[0] * NS_PER_S)}, {when}; all "
            f"statements took {format_ns(time_ns)}. {_ours(results, frame)}"
        )
        if _counted_for_all(results):
            notes.append("They are of all sessions, not only of those observed.")
    if results.tables.get("script_ledger", empty("script_ledger"))["source"].str.contains(NO_ID).any():
        notes.append(
            "Of a prepared statement that it does not plan (begin, commit) the server counts only the first "
            "execution of each session. By script has all of them."
        )
    if frame["source"].str.contains(SAMPLES).any() and frame["db_time_s"].is_not_null().any():
        notes.append(
            "DB time, CPU WAIT and top wait are from samples. A session that was woken counts for its last "
            "statement until it gets a CPU."
        )
    return notes


def _left(frame: pl.DataFrame, shown: set[int], tables: int, whole_s: float | None) -> list[str]:
    """Returns a note on the statements that are not shown."""
    rest = frame.filter(~pl.col("rank").is_in(list(shown)))
    count = int(rest["others"].fill_null(1).sum())
    same = "By logical I/O and by calls the order is the same." if tables == 1 and frame.height > 1 else ""
    if not count:
        return [same] if same else []
    if whole_s and frame["db_time_s"].is_not_null().any():
        share, name = float(rest["db_time_s"].sum()) / whole_s, "DB time"
    else:
        share, name = float(rest["share"].sum()), "time"
    took = f" with {percent(share, digits=1)} % of the {name}" if share else ""
    return [f"{counted(count, 'more statement')}{took}: see the export, table statements. {same}".strip()]


def lost(frame: pl.DataFrame) -> list[str]:
    """Returns notes on counts that the server dropped or that were reset."""
    lower = frame.filter(pl.col("status").str.starts_with(_LOWER))
    ranks_by_reason: dict[str, list[int]] = grouped(lower.select("status", "rank").iter_rows())
    notes = [
        f"{why.partition(': ')[2].capitalize()}: figures of {counted(len(ranks), 'statement')} are lower "
        "bounds."
        for why, ranks in ranks_by_reason.items()
    ]
    if times := frame["evictions"].max():
        notes.append(
            f"The server dropped rare statements {counted(times, 'time')}, as it keeps only so many: "  # type: ignore[arg-type]
            "statements can be missing. Raise the number that it keeps."
        )
    return notes


def _inside(results: Results, frame: pl.DataFrame) -> list[str]:
    notes = []
    hidden = frame.filter(pl.col("query_id").is_null() & pl.col("others").is_null())
    if hidden.height:
        sources = results.tables["sources"].filter((pl.col("name") == _RIGHT) & (pl.col("detail") != ""))
        cure = sources["detail"][0] if sources.height else "see dbdyno doctor"
        notes.append(f"Statements of other users are hidden: {cure}.")
    if not frame["toplevel"].all():
        notes.append("Statements inside functions are marked: their time is part of the caller's.")
    return notes


def per_call(*names: str) -> _Number:
    """Returns a function from a row to the sum of columns per call; None if one is unknown or nothing was
    called."""

    def value(row: _Row) -> float | None:
        values = [row[n] for n in names]
        return None if None in values or not row["calls"] else sum(values) / row["calls"]

    return value


def figure(
    value: _Number, text: Callable[[float], str], unit: str = "", *, ratio: bool = False
) -> Callable[[_Row], Cell]:
    """Returns a function from a row to the cell of a figure, marked if it is a lower bound.

    A ``ratio`` of two lower bounds is none: it holds for the calls that were counted.
    """

    def cell(row: _Row) -> Cell:
        lower = not ratio and row["status"].startswith(_LOWER)
        note = row["status"] if lower else ""
        return known(value(row), lambda v: f"{'>= ' if lower else ''}{text(v)}", unit, note)

    return cell


def name_of(row: _Row) -> Cell:
    """Returns the cell that names a statement. A page has its query id and text on demand."""
    inside = "" if row["toplevel"] else "(inside a function) "
    text, number = row["text"], row["query_id"]
    hint = "" if number is None else f"Query id {number}\n{visible(shortened(text or '', _HINT))}"
    whole = "" if number is None or text is None else f"{_named(row)}\n{visible(text)}"
    return word(f"{inside}{statement(row)}", hint)._replace(whole=whole)


def share_of(name: str) -> Callable[[_Row], Cell]:
    """Returns a function from a row to the cell of a share, with a bar."""

    def cell(row: _Row) -> Cell:
        share = row[name]
        if share is None:
            no_time = name == "db_time_share" and row["db_time_s"] is None
            return Cell("-" if no_time or not row["toplevel"] else UNKNOWN)
        return known(share, lambda v: percent(v, digits=1))._replace(bar=((min(1.0, share), "accent"),))

    return cell


def time_or_dash(name: str) -> Callable[[_Row], Cell]:
    """Returns a function from a row to the cell of its seconds in column ``name``: a dash if unknown."""
    return lambda r: Cell("-") if r[name] is None else known(r[name], lambda v: format_ns(v * NS_PER_S), "s")


def _rate(row: _Row) -> float | None:
    return row["calls"] / row["wall_s"] if row["calls"] is not None and row["wall_s"] else None


_OPTIONAL = 3
"""Rank from which on columns are left out if they are empty or all 0."""
STATEMENT = (Column("statement", shortens=True), name_of)
CALLS = (numeric("calls"), figure(lambda r: r["calls"], format_count))
MEAN = (numeric("mean", 1), figure(per_call("exec_ns"), format_ns, "ns", ratio=True))
LIO_CALL = (numeric("LIO/call", 2), figure(per_call(*LIO), format_rate, "blocks", ratio=True))
WHOSE: Columns = (
    (Column("user", rank=8), lambda r: word(visible(r["user"] or "-"))),
    (Column("database", rank=8), lambda r: word(visible(r["database"] or "-"))),
)
COLUMNS: Columns = (
    STATEMENT,
    CALLS,
    (
        numeric("exec time")._replace(note="by the executor's clock: without planning, commits and network"),
        figure(lambda r: r["exec_ns"], format_ns, "ns"),
    ),
    (
        numeric("%")._replace(
            name="% of exec time", note="of the execution time of all statements, without dbdyno's own"
        ),
        share_of("share"),
    ),
    MEAN,
    LIO_CALL,
    (numeric("rows/call", 4), figure(per_call("rows"), format_rate, ratio=True)),
    (numeric("reads/call", 3), figure(per_call(*_READS), format_rate, "blocks", ratio=True)),
    (numeric("WAL/call", 5), figure(per_call("wal_bytes"), format_size, "bytes", ratio=True)),
    (numeric("DB time", 7), time_or_dash("db_time_s")),
    (numeric("CPU WAIT", 6), time_or_dash("cpu_wait_s")),
    (Column("top wait", rank=7), lambda r: Cell(r["top_wait"] or "-", r["top_wait"])),
)
_SHARE = "% of exec time"
_LEDGER_COLUMNS: Columns = (
    (numeric("DB time"), time_or_dash("db_time_s")),
    (
        numeric("%")._replace(name="% of DB time", note="of all DB time"),
        share_of("db_time_share"),
    ),
)
DB_TIME_COLUMNS: Columns = (
    *COLUMNS[:2],
    *_LEDGER_COLUMNS,
    *((c, cell) for c, cell in COLUMNS[2:] if c.name != _SHARE and c.head != "DB time"),
)
"""Columns of a run whose ledger has the DB time of statements, which then ranks them."""
FEWER_COLUMNS: dict[str, Columns] = {
    "lio": (
        STATEMENT,
        (numeric("LIO"), figure(lambda r: r["lio"], format_rate, "blocks")),
        (numeric("%")._replace(name="% of LIO"), share_of("lio_share")),
        LIO_CALL,
        (numeric("reads/call", 3), figure(per_call(*_READS), format_rate, "blocks", ratio=True)),
    ),
    "calls": (
        STATEMENT,
        CALLS,
        (numeric("%")._replace(name="% of calls"), share_of("calls_share")),
        (numeric("calls/s", 2), figure(_rate, format_rate)),
        MEAN,
    ),
}
