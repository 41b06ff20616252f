"""Shows how long waits lasted, and where the time of each statement went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import event_name
from dbdyno.model.schema.data_sources.statements import EVERY_STATEMENT
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import NS_PER_S, counted, format_count, format_ns
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.present.figures import tails
from dbdyno.present.figures.figures import percent
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.run.statements import NO_QUERY_ID, statement, texts_of, time_or_dash

MOST = 40
_Row = dict[str, Any]
_Cells = tuple[tuple[Column, Callable[[_Row], Cell]], ...]
_NO_STATEMENT = {"query_id": None, "user": None, "text": None}
_UNNAMED = {"others": "(further statements)", "lost": "(sessions not followed)"}
_RESOLUTION = (
    "Stays: sleeps, or times in the run queue, that began in the measurement; a wait may have several "
    "sleeps. The mean stay is time divided by stays; - where some under way were longer than all that ended. "
    "Percentiles and maximum are of those that ended: upper ends of buckets, at most 25 % too high."
)
_CHANGES = (
    "CPU time belongs to the statement at the end of each slice on a CPU; the interval covers the slices in "
    "which the statement changed."
)
_SPLIT = "User and kernel: in the proportion of all sessions."


def durations(results: Results, pick: Pick) -> list[Block]:
    """Returns durations by wait event, asleep and in the run queue after it; empty without a trace."""
    frame = rows_of(results, "wait_durations", pick).filter(pl.col("query_status") == EVERY_STATEMENT)
    rows = frame.sort("seconds", descending=True).to_dicts()
    if not rows:
        return []
    left = len(rows) - MOST
    notes = [f"{counted(left, 'smaller row')} left out; the export holds them."] if left > 0 else []
    if any(r["status"] == "lost" for r in rows):
        notes.append("The trace lost some durations: percentiles and maximum are without these.")
    title = f"How long waits lasted {pick.at}{pick.repeats_of(frame)}"
    shown = table(title, _DURATIONS, rows[:MOST], named=True)
    return [*tails.with_reason(shown, "waits"), *remarks([_RESOLUTION, *notes])]


def statement_ledger(results: Results, pick: Pick) -> list[Block]:
    """Returns CPU, CPU WAIT and sleep of the statements with the most DB time."""
    frame = rows_of(results, "statement_ledger", pick)
    if frame.is_empty():
        return []
    known_texts = texts_of(results)
    sleeps = rows_of(results, "wait_durations", pick).filter(pl.col("part") == "sleep")
    rows = _by_statement(frame)
    for row in rows:
        row["text"], row["length"] = known_texts.get(row["query_id"], (None, None))
        row["waits"] = _longest(frame, sleeps, row["query_id"], row["query_status"])
    shown = [r for r in rows if r["db_s"] > 0][:10]
    shares = [r["cpu_source"] for r in shown]
    notes = [_SPLIT] if any(r["user_s"] is not None for r in shown) else []
    traced = any("trace" in s for s in shares)
    notes = [_CHANGES if traced else "From samples: see Top SQL.", *notes]
    title = f"Where the time of statements went {pick.at}"
    return [table(title, _LEDGER, shown).without_unknown("-"), *remarks(notes)]


def _by_statement(frame: pl.DataFrame) -> list[_Row]:
    seconds, account = pl.col("seconds"), pl.col("account")
    served = account.is_in(["run", "runq", "sleep"])

    def total(*names: str, column: str = "seconds") -> pl.Expr:
        known = pl.col(column).filter(account.is_in(names))
        return pl.when(known.drop_nulls().len() > 0).then(known.sum())

    sums = frame.group_by("query_id", "query_status", maintain_order=True).agg(
        db_s=seconds.filter(served).sum(),
        share=pl.col("share").filter(served).sum(),
        cpu_s=total("run"),
        cpu_low=total("run", column="low"),
        cpu_high=total("run", column="high"),
        user_s=total("run.user"),
        system_s=total("run.system"),
        runq_s=total("runq"),
        sleep_s=total("sleep"),
        workers_s=seconds.filter(served & pl.col("worker")).sum(),
        per_call_s=total("run", "runq", "sleep", column="per_call_s"),
        per_work_s=total("run", "runq", "sleep", column="per_work_s"),
        cpu_source=pl.col("source").filter(account == "run").first().fill_null(""),
    )
    return sums.sort("db_s", descending=True).to_dicts()


def _longest(frame: pl.DataFrame, durations: pl.DataFrame, query_id: int | None, status: str | None) -> str:
    """Returns the three longest waits of a statement: name, time, and the 99th percentile if traced."""
    same = pl.col("query_id").eq_missing(query_id) & pl.col("query_status").eq_missing(status)
    slept = (
        frame.filter(same & (pl.col("account") == "sleep")).group_by("detail").agg(pl.col("seconds").sum())
    )
    slept = slept.sort("seconds", descending=True).head(3)
    p99 = dict(durations.filter(same).select(event_name().alias("detail"), "p99_ns").iter_rows())
    waits = []
    for detail, seconds in slept.iter_rows():
        high = p99.get(detail)
        tail = f", p99 {format_ns(high)}" if high is not None else ""
        waits.append(f"{detail or noun('not_labelled')} {format_ns(seconds * NS_PER_S)}{tail}")
    return "; ".join(waits) or "-"


def _ns(name: str) -> Callable[[_Row], Cell]:
    return lambda r: Cell("-") if r[name] is None else known(r[name], format_ns, "ns")


def _interval(row: _Row) -> Cell:
    low, high = row["cpu_low"], row["cpu_high"]
    if low is None or high is None or high - low < 1e-6:
        return word("")
    return word(f"{format_ns(low * NS_PER_S)} to {format_ns(high * NS_PER_S)}")


def _statement(row: _Row) -> Cell:
    if row["query_id"] is not None:
        return word(statement({**_NO_STATEMENT, **row}), f"Query id {row['query_id']}")
    return word(_UNNAMED.get(row["query_status"] or "", NO_QUERY_ID))


def _event(row: _Row) -> Cell:
    name = "/".join(n for n in (row["wait_class"], row["wait_event"]) if n)
    return word(name or noun("not_labelled"))


_DURATIONS: _Cells = (
    (Column("{~wait_event}", shortens=True), _event),
    (Column("state"), lambda r: word("asleep" if r["part"] == "sleep" else "CPU WAIT")),
    (numeric("waits", 3), lambda r: Cell("-") if r["waits"] is None else known(r["waits"], format_count)),
    (numeric("stays"), lambda r: known(r["begun"], format_count)),
    (numeric("time"), time_or_dash("seconds")),
    (numeric("mean stay", 1), _ns("mean_ns")),
    (numeric("p50"), _ns("p50_ns")),
    (numeric("p99"), _ns("p99_ns")),
    (numeric("max", 2), _ns("max_ns")),
)
_LEDGER: _Cells = (
    (Column("statement", shortens=True), _statement),
    (numeric("{~db_time}"), time_or_dash("db_s")),
    (
        numeric("%")._replace(name="% of {~db_time}"),
        lambda r: known(r["share"], lambda v: percent(v, digits=1)),
    ),
    (numeric("CPU"), time_or_dash("cpu_s")),
    (numeric("95 % interval", 6), _interval),
    (numeric("user", 5), time_or_dash("user_s")),
    (numeric("kernel", 5), time_or_dash("system_s")),
    (numeric("CPU WAIT"), time_or_dash("runq_s")),
    (numeric("asleep"), time_or_dash("sleep_s")),
    (numeric("per {~call}", 2), time_or_dash("per_call_s")),
    (numeric("per work unit", 4), time_or_dash("per_work_s")),
    (numeric("parallel workers", 7), lambda r: time_or_dash("workers_s")(r) if r["workers_s"] else Cell("-")),
    (Column("longest waits", rank=3, shortens=True), lambda r: word(r["waits"])),
)
