"""The tables of sessions and of statements in the live view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dbdyno.cli.observe_state import SESSIONS, STATEMENTS
from dbdyno.cli.observe_table import Column, Sheet, first_line, number, share
from dbdyno.model.engine.live import LiveStatement
from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.source import HIDDEN
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies
from dbdyno.model.units import format_ns, format_rate
from dbdyno.observe.glance import SessionLine
from dbdyno.observe.glance_parts import IDLE

RUN, WAIT = "green", "dark_orange"
MOST_STATEMENTS = 100


@dataclass(frozen=True)
class Row:
    """A session and its identity."""

    line: SessionLine
    who: Mapping[str, Any]  # a row of table backends; empty until it was read
    statement: str = ""  # its latest statement

    def text(self, name: str) -> str:
        return str(self.who.get(name) or "")

    @property
    def searched(self) -> str:
        """The text that a filter searches."""
        line = self.line
        names = (self.text(n) for n in ("user", "database", "application", "client"))
        return " ".join((*names, line.state or "", line.event or "", str(line.pid), self.statement)).lower()


_STATES = {"idle in transaction": "idle tx", "idle in transaction (aborted)": "idle txa"}


def _state(row: Row) -> str:
    state = row.line.state
    return _STATES.get(state or "", (state or "?")[:8])


def _share(name: str, head: str, explains: str, style: str = "", rank: int = 0) -> Column:
    def value(row: Row) -> float | None:
        share_: float | None = getattr(row.line, name)
        return share_

    return Column(name, head, explains, value, lambda r: share(value(r)), 5, rank, style=style)


def _word(
    name: str, head: str, explains: str, text: Callable[[Row], str], width: int, rank: int = 0
) -> Column:
    return Column(name, head, explains, lambda r: text(r) or None, text, width, rank, left=True)


SESSION_COLUMNS = (
    Column("pid", "pid", "process id of the session", lambda r: r.line.pid, lambda r: str(r.line.pid), 7),
    _word(
        "who",
        "user@database",
        "role and database",
        lambda r: f"{r.text('user')}@{r.text('database')}",
        18,
        4,
    ),
    _word("application", "application", "application name", lambda r: r.text("application"), 11, 6),
    _share("db_time", "DB%", "share of its time on a CPU, waiting for one, or asleep in the database"),
    _share("run", "CPU%", "share of its time on a CPU", RUN),
    _share("runq", "WAIT%", "CPU WAIT: share of its time ready to run, but without a CPU", WAIT),
    _share("sleep", "slp%", "share of its time asleep in the database: I/O, locks, ...", rank=3),
    _share("client", "clnt%", "share of its time waiting for its client", rank=5),
    _word("state", "state", "state by the latest sample; tx: in transaction", _state, 8),
    _word("event", "event", "wait event by the latest sample", lambda r: r.line.event or "", 19, 2),
    _word("statement", "statement", "its latest statement", lambda r: first_line(r.statement), 0, 1),
)


def session_sheet(rows: Sequence[Row]) -> Sheet:
    return Sheet(
        SESSIONS,
        "Wait events, then sessions; shares are of the last seconds.",
        SESSION_COLUMNS,
        lambda r: r.line.pid,
        "db_time",
        rows,
        "no session",
        detail=lambda r: r.statement,
        searched=lambda r: r.searched,
    )


@dataclass(frozen=True)
class StatementRow:
    query_id: int
    db_time: float | None  # seconds per second
    part: float  # share of DB time
    sessions: float  # active with it in each sample, on average
    event: str  # its most frequent wait event
    counters: LiveStatement = field(default_factory=LiveStatement)


def top_statements(recent: Tables, families: WaitFamilies, db_time: float | None) -> list[StatementRow]:
    """Returns the statements of the sampled sessions. DB time is divided by the share of samples in which
    sessions were active with the statement."""
    samples = recent["samples"].filter(
        (pl.col("role") == "session")
        & (pl.col("via").fill_null("sql") == "sql")
        & ~pl.col("state").fill_null(IDLE).is_in([IDLE, HIDDEN])
        & ~(pl.col("wait_class").is_not_null() & families.among(*AT_CLIENT))
    )
    taken = recent["sampler"].filter((pl.col("via").fill_null("sql") == "sql") & (pl.col("status") == "ok"))
    counts: Counter[int] = Counter()
    events: dict[int, Counter[str]] = {}
    for query_id, wait_class, event, count in (
        samples.group_by("query_id", "wait_class", "wait_event").len().iter_rows()
    ):
        if query_id is not None:
            counts[query_id] += count
            name = f"{wait_class}/{event}" if event else "on a CPU or CPU WAIT"
            events.setdefault(query_id, Counter())[name] += count
    whole = samples.height
    return [
        StatementRow(
            query_id,
            None if db_time is None else db_time * count / whole,
            count / whole,
            count / max(1, taken.height),
            events[query_id].most_common(1)[0][0],
        )
        for query_id, count in counts.most_common(MOST_STATEMENTS)
    ]


def _calls_per_s(row: StatementRow) -> float | None:
    return row.counters.calls_per_s


def _mean_ns(row: StatementRow) -> float | None:
    return row.counters.mean_ns


def _figure(format_: Callable[[float], str], value: float | None) -> str:
    return "?" if value is None else format_(value)


_BY_SAMPLES = "seconds of DB time a second, by samples"
_CALLS, _MEAN = (
    f"{what}, by the server's counters" for what in ("executions a second", "mean time of an execution")
)
STATEMENT_COLUMNS = (
    Column("db_time", "DB time", _BY_SAMPLES, lambda r: r.db_time, lambda r: number(r.db_time), 8),
    Column("part", "%DB", "share of DB time", lambda r: r.part, lambda r: share(r.part), 5, 1),
    Column("calls", "calls/s", _CALLS, _calls_per_s, lambda r: _figure(format_rate, _calls_per_s(r)), 8, 2),
    Column("mean", "mean", _MEAN, _mean_ns, lambda r: _figure(format_ns, _mean_ns(r)), 9, 3),
    Column(
        "event",
        "mostly in",
        "its most frequent wait event",
        lambda r: r.event,
        lambda r: r.event,
        20,
        4,
        left=True,
    ),
    Column(
        "query_id",
        "query id",
        "the server's identifier of the statement",
        lambda r: r.query_id,
        lambda r: str(r.query_id),
        20,
        5,
    ),
    Column(
        "statement",
        "statement",
        "its text",
        lambda r: r.counters.text or None,
        lambda r: first_line(r.counters.text or "text unknown"),
        0,
        left=True,
        least=30,
    ),
)


def statement_sheet(rows: Sequence[StatementRow], notes: Sequence[str] = ()) -> Sheet:
    return Sheet(
        STATEMENTS,
        "Top SQL of the last seconds, by DB time.",
        STATEMENT_COLUMNS,
        lambda r: r.query_id,
        "db_time",
        rows,
        "no statement was seen in the last seconds",
        notes,
        lambda r: r.counters.text or "",
    )
