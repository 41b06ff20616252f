"""Shows where session time went by script, and below it by statement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.scripted import DIVIDED, NO_ID, NO_TEXT, ScriptPart
from dbdyno.model.schema.data_sources.statements import STATEMENTS
from dbdyno.model.text.visible import visible
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, rows_of

LEAST = 0.01
"""Least share of session time for a statement to have a line of its own."""
_MOST = 20
_Row = dict[str, Any]
_CLIENT = (
    "Times are of all sessions; %: of session time. client: the network and the driver. It is what is left "
    "of the client's own time, and negative where the server's is estimated too high."
)
_SHARED = "A statement of several scripts: its server time is divided by the client's time in each."
_BARE = (
    "{}: the server gives no query id to prepared statements that it does not plan. Server time without an "
    "id is theirs together, and ? of each; with -M simple they have ids."
)
_OTHERS = "Statements of no script: in functions, or not matched. They are part of the client's time."
_OF_NONE = {
    ScriptPart.BETWEEN_CALLS: "(between calls)",
    ScriptPart.OTHER_STATEMENTS: "(statements of no script)",
}


def session_time(results: Results, pick: Pick) -> list[Block]:
    """Returns a table by script and one by statement; empty without a ledger of scripts."""
    frame = rows_of(results, "script_ledger", pick)
    if frame.is_empty():
        return []
    of_script = pl.col("part").is_in([ScriptPart.STATEMENT, ScriptPart.BETWEEN_STATEMENTS])
    scripts = _times(frame.filter(of_script), "script", "name")
    none = _times(frame.filter(~of_script), "part").filter(pl.col("seconds").abs() > _NOTHING)
    statements = _times(frame.filter(part=ScriptPart.STATEMENT), "script", "name", "command", "line", "text")
    shown = statements.filter(pl.col("share") >= LEAST).sort("seconds", descending=True).head(_MOST)
    by_script = table(f"Session time by script {pick.at}", (_SCRIPT, *_TIMES), _rows(scripts, none))
    if not shown.height:
        return [by_script, *remarks(_notes(results, frame, 0))]
    rows = [*shown.to_dicts(), *_without_id(frame)]
    guessed = set(_guessed(frame).select(_COMMAND).iter_rows())
    rows = [r | _UNKNOWN if (r["script"], r["command"]) in guessed else r for r in rows]
    by_statement = table(f"Session time by statement {pick.at}", (_STATEMENT, *_TIMES), rows)
    return [by_script, by_statement, *remarks(_notes(results, frame, statements.height - shown.height))]


_COMMAND = ["script", "command"]
_UNKNOWN = dict.fromkeys(("user", "kernel", "run", "runq", "sleep", "client"), math.nan) | {"detail": "?"}
"""Server time of a statement that shares time without a query id with others."""


def _guessed(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of statements without a query id; empty if there is one, which has all their time."""
    bare = frame.filter(pl.col("source").str.contains(NO_ID, literal=True)).select(_COMMAND).unique()
    rows = frame.filter(part=ScriptPart.STATEMENT).join(bare, on=_COMMAND, how="semi", maintain_order="left")
    return rows if bare.height > 1 else rows.clear()


def _without_id(frame: pl.DataFrame) -> list[_Row]:
    """Returns the statements without a query id as one row, without a script of its own."""
    rows = _guessed(frame).with_columns(script=pl.lit(None, pl.Int64), command=pl.lit(None, pl.Int64))
    return _times(rows, *_COMMAND).with_columns(text=pl.lit(_TOGETHER)).to_dicts() if rows.height else []


_TOGETHER = "(without query id, together)"
_NOTHING = 5e-4
"""Seconds below which a time is shown as 0."""


def _rows(scripts: pl.DataFrame, none: pl.DataFrame) -> list[_Row]:
    return [*scripts.sort("script").to_dicts(), *none.sort("part").to_dicts()]


def _times(frame: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Returns seconds by account; NULL if no part is known. Time between statements is the client's."""
    seconds, account = pl.col("seconds"), pl.col("account")

    def total(*names: str) -> pl.Expr:
        known = seconds.filter(account.is_in(names)).drop_nulls()
        return pl.when(known.len() > 0).then(known.sum())

    idle = seconds.filter((account == "all") & (pl.col("part") == ScriptPart.BETWEEN_STATEMENTS)).sum()
    whole = pl.when((account == "all").any()).then(seconds.filter(account == "all").sum())
    slept = frame.filter(account == "sleep").group_by(*key, "detail").agg(seconds.sum()).sort("seconds")
    top = slept.group_by(key).agg(pl.col("detail").last().fill_null("no wait event"))
    times = frame.group_by(key, maintain_order=True).agg(
        seconds=whole.fill_null(total("run", "runq", "sleep")),
        share=pl.col("share").filter(account == "all").sum(),
        user=total("run.user"),
        kernel=total("run.system"),
        run=total("run"),
        runq=total("runq"),
        sleep=total("sleep"),
        client=total("client") + idle,
        counts=(account == "all").any(),
    )
    return times.join(top, on=key, how="left", nulls_equal=True, maintain_order="left")


def _notes(results: Results, frame: pl.DataFrame, left: int) -> Iterator[str]:
    yield _CLIENT
    if left > 0:
        yield f"{counted(left, 'statement')} of less than {percent(LEAST)} % each left out."
    source = frame["source"]
    if source.str.contains(DIVIDED, literal=True).any():
        yield _SHARED
    bare = frame.filter(pl.col("source").str.contains(NO_ID, literal=True))["text"].unique(
        maintain_order=True
    )
    if len(bare):
        yield _BARE.format(", ".join(map(visible, bare)))
    if frame.filter(part=ScriptPart.OTHER_STATEMENTS).height:
        yield _OTHERS
    yield from _unknown(results, frame)


def _unknown(results: Results, frame: pl.DataFrame) -> Iterator[str]:
    """Yields why server time is unknown, and how to make it known."""
    why = set(frame["status"]) - {"ok"}
    if not why:
        return
    sources = results.tables["sources"].filter(
        (pl.col("name") == STATEMENTS.name) & (pl.col("status") != "ok")
    )
    cures = sources["detail"].drop_nulls().unique(maintain_order=True)
    more = f" {STATEMENTS.name.capitalize()}: {'; '.join(cures)}." if len(cures) else ""
    some = "of some statements " if why == {NO_TEXT} else ""
    yield f"Server time {some}is unknown: {', '.join(sorted(why))}.{more}"


def _time(name: str) -> Callable[[_Row], Cell]:
    def cell(row: _Row) -> Cell:
        value = row[name]
        if value is None:
            return Cell("-")
        if math.isnan(value):
            return known(None, str)
        return known(value, lambda v: "0" if abs(v) < _NOTHING else format_ns(v * NS_PER_S), "s")

    return cell


def _share(row: _Row) -> Cell:
    if not row["counts"]:
        return Cell("-")
    bar = ((min(1.0, max(0.0, row["share"])), "accent"),)
    return known(row["share"], lambda v: percent(v, digits=1))._replace(bar=bar)


def _statement(row: _Row) -> Cell:
    if row["script"] is None:
        return word(row["text"])
    text = f"{visible(row['name'])}:{row['line']} {visible(' '.join(row['text'].split()))}"
    return word(text, text)


_SCRIPT = (
    Column("script", shortens=True),
    lambda r: word(visible(r["name"]) if r.get("name") else _OF_NONE[ScriptPart(r["part"])]),
)
_STATEMENT = (Column("script:line", name="script, line and statement", shortens=True), _statement)
_TIMES = (
    (numeric("time"), _time("seconds")),
    (numeric("%")._replace(name="% of session time"), _share),
    (numeric("user", 4)._replace(name="CPU user"), _time("user")),
    (numeric("kernel", 4)._replace(name="CPU kernel"), _time("kernel")),
    (numeric("CPU"), _time("run")),
    (numeric("CPU WAIT"), _time("runq")),
    (numeric("asleep"), _time("sleep")),
    (numeric("client"), _time("client")),
    (Column("longest wait", rank=3), lambda r: word(r["detail"])),
)
