"""The server's counters (``counters*.toml``) and how they are read."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal

import psycopg
from psycopg.rows import dict_row
from pydantic import BaseModel, ConfigDict, Field

from dbdyno.engines.postgres import sql, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.results.raw import OWN_READS

FILES = ("counters", "counters_costs", "counters_profile", "counters_series")
CONNECTING = "connect"
"""Phase before the sessions connect. Read if their activity before the barrier is reported only after it."""
END = "end"
WHOLE = (CONNECTING, "start", END)
"""Phases between which the growth of a counter is exact, because every session has reported."""
COLLECTOR_S = 0.6
SERIES_S = 2.0
"""Most time that a read of counters by second may take."""


class Counter(BaseModel):
    """A counter of some versions. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    doc: str
    kind: Literal["counter", "gauge"]
    unit: Literal["blocks", "bytes", "rows", "ns", "s", "count"]
    scope: Literal["session", "server", "database"]
    since: int = Field(ge=versions.OLDEST)  # major version
    until: int | None = None
    needs: str | None = None
    series: bool = False  # read about once a second, not at the ends of a window
    extension: str | None = None  # whose schema stands for ${schema} in the file
    sql: str

    def has(self, major: int) -> bool:
        return self.since <= major and (self.until is None or major <= self.until)


@cache
def all_counters() -> tuple[Counter, ...]:
    """Returns all counters of the data files. Raises :class:`pydantic.ValidationError`."""
    folder = resources.files("dbdyno.engines.postgres")
    texts = [folder.joinpath(f"{name}.toml").read_text(encoding="utf-8") for name in FILES]
    return tuple(Counter.model_validate(c) for text in texts for c in tomllib.loads(text)["counter"])


def server_wide(major: int) -> list[Counter]:
    """Returns the counters of server and database in this version that are read at the ends of a window."""
    return [c for c in all_counters() if c.scope != "session" and not c.series and c.has(major)]


def read_series(connection: Connection, now_ns: Callable[[], int]) -> list[dict[str, Any]]:
    """Returns rows of the table ``counter_series``; none in a version without these counters. If the
    statement fails, they are NULL with a status.

    Raises :class:`psycopg.Error` if the connection is lost, or the answer does not come soon.
    """
    major = versions.major(connection)
    records: list[dict[str, Any]] = []
    for file, names in _series(major).items():
        before_ns = now_ns()
        with connection.patient(SERIES_S):
            values, status = _values(connection, sql.text(file))
        head = {"before_ns": before_ns, "after_ns": now_ns()}
        for name in names:
            value = values.get(name)
            known = None if value is None else float(value)
            records.append(head | {"name": name, "value": known, "status": status})
    return records


def read(
    connection: Connection, phase: str, now_ns: Callable[[], int], unread: set[Counter] | None = None
) -> list[dict[str, Any]]:
    """Returns rows of the table ``counters``. If a statement fails, its counters are NULL with a status, and
    ``unread`` gets them if the server does not know what it asks for.

    Raises :class:`psycopg.Error` if the connection is lost.
    """
    major = versions.major(connection)
    if phase in WHOLE or major >= versions.REPORTS_ON_REQUEST:
        _report_all(connection, major)
    counters = server_wide(major)
    records: list[dict[str, Any]] = []
    for file, extension in dict.fromkeys((c.sql, c.extension) for c in counters):
        text = _statement(connection, file, extension)
        before_ns = now_ns()
        values, status = _values(connection, text) if text else ({}, "not supported")
        after_ns = now_ns()
        if unread is not None and text and status == "not supported":
            unread.update(c for c in counters if c.sql == file)
        for counter in (c for c in counters if c.sql == file):
            value = values.get(counter.name)
            records.append(
                {
                    "before_ns": before_ns,
                    "after_ns": after_ns,
                    "phase": phase,
                    "scope": counter.scope,
                    "name": counter.name,
                    "kind": counter.kind,
                    "unit": counter.unit,
                    "value": None if value is None else float(value),
                    "status": status if value is not None or status != "ok" else "not supported",
                }
            )
    return records


@cache
def _series(major: int) -> Mapping[str, Sequence[str]]:
    """Returns the names of the counters by second of a version, by file."""
    counters = [c for c in all_counters() if c.series and c.has(major)]
    return {file: [c.name for c in counters if c.sql == file] for file in {c.sql for c in counters}}


def _report_all(connection: Connection, major: int) -> None:
    """Waits until the sessions have reported, and reports this connection's own activity: dbdyno knows
    that exactly and subtracts it, so it must not be missing from some reads."""
    if major < versions.REPORTS_ON_REQUEST:
        time.sleep(COLLECTOR_S)
        connection.execute(sql.text("report_14").encode())
    else:
        connection.execute(sql.text("snapshot_flush").encode())


class OwnReads:
    """Blocks read by dbdyno's own connections, in versions that count by connection."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, float], tuple[float, ...]] = {}
        self._sums = dict.fromkeys(OWN_READS.values(), 0.0)

    def added(self, connection: Connection, observer: str) -> Mapping[str, float]:
        """Returns sums by name, including connections of the application ``observer`` that have ended.
        Empty if the server has no such counters. Raises :class:`psycopg.Error` if the connection is lost."""
        if versions.major(connection) < versions.COUNTS_BY_CONNECTION:
            return {}
        text = sql.fill("own_reads_18", observer=observer)
        try:
            rows = connection.execute(text.encode()).fetchall()
        except psycopg.Error as e:
            if connection.closed or e.sqlstate is None:
                raise
            return {}
        for pid, started_s, *values in rows:
            before = self._last.get((pid, started_s), (0.0,) * len(values))
            for name, value, was in zip(self._sums, values, before, strict=True):
                self._sums[name] += max(0.0, value - was)
            self._last[pid, started_s] = tuple(values)
        return dict(self._sums)


def own(added: Mapping[str, float], phase: str, at_ns: int) -> list[dict[str, Any]]:
    """Returns rows of the activity that dbdyno itself has ``added``, by name."""
    head = {"before_ns": at_ns, "after_ns": at_ns, "phase": phase, "scope": "server", "status": "ok"}
    head |= {"kind": "counter", "unit": "count"}
    return [head | {"name": name, "value": float(value)} for name, value in added.items()]


def _statement(connection: Connection, file: str, extension: str | None) -> str | None:
    """Returns the statement of a file, None if its extension cannot be read in this database."""
    if extension is None:
        return sql.text(file)
    cursor = psycopg.RawCursor(connection)
    row = cursor.execute(sql.text("extension").encode(), [extension]).fetchone()
    return sql.fill(file, schema=row[0]) if row else None


def _values(connection: Connection, text: str) -> tuple[dict[str, Any], str]:
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(text.encode()).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return {}, "not permitted"
    except psycopg.Error as e:
        if connection.closed or e.sqlstate is None:
            raise
        return {}, "not supported"
    return row or {}, "ok"
