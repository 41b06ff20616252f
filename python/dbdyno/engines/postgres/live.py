"""Reads for the live view by a connection of its own, which observations leave out.

Every statement has a time limit and a limit of rows. A screen's statements run only while it is open.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from dbdyno.engines.postgres import connect, enabling, facts, live_screens, observation, sql, statements
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.sessions import literal
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.engine.live import (
    LiveAnswer,
    LiveFigures,
    LiveReader,
    LiveRequest,
    LiveRows,
    LiveScreen,
    LiveStatement,
)
from dbdyno.model.plan.plan import Observation

TIMEOUT_MS = 2000
_PATIENCE_S = 3.0
"""Time limit on this side, for statements without one of the server, whose message is better."""
SPAN_S = 5.0
"""Rates are means over this time: the server counts a session's work once a second at most."""
_RIGHTS_S = 30.0
"""Interval of looking again at what this role may read."""
_TEXTS_KEPT = 2000
_IDS = "${ids}"


class Live:
    """Implements :class:`dbdyno.model.engine.live.LiveViewing`."""

    def __init__(self, site: Site, ours: Callable[[], tuple[int, int]]) -> None:
        """``ours`` returns the number of transactions and of statements of all connections of dbdyno so
        far, this one's included."""
        self._site, self._ours = site, ours
        self.transactions = self.statements = 0
        """Counts of this connection so far."""

    @property
    def screens(self) -> Sequence[LiveScreen]:
        return [entry.screen for entry in live_screens.SCREENS]

    @contextmanager
    def opened(self, chosen: Observation) -> Iterator[LiveReader]:
        dsn = make_conninfo(self._site.dsn, application_name=observation.OBSERVER)
        with connect.connect(dsn) as connection, connection.patient(_PATIENCE_S):
            self.transactions += connection.statements
            self.statements += connection.statements
            yield Reader(connection, self._site, chosen, self)

    def ours(self) -> tuple[int, int]:
        return self._ours()


class Growth:
    """Rates of counters over the last :data:`SPAN_S`, by key."""

    def __init__(self) -> None:
        self._reads: deque[tuple[float, Mapping[Any, float]]] = deque()

    def per_s(self, now_s: float, values: Mapping[Any, float]) -> dict[Any, float]:
        """Returns the rates of those values that an earlier read has, too. A counter that was reset has
        none."""
        while len(self._reads) > 1 and self._reads[1][0] <= now_s - SPAN_S:
            self._reads.popleft()
        rates = {}
        for key, value in values.items():
            old = next(((at, read[key]) for at, read in self._reads if key in read), None)
            if old is not None and now_s > old[0] and value >= old[1]:
                rates[key] = (value - old[1]) / (now_s - old[0])
        self._reads.append((now_s, dict(values)))
        return rates


class Reader:
    """See :class:`dbdyno.model.engine.live.LiveReader`."""

    def __init__(self, connection: Connection, site: Site, chosen: Observation, live: Live) -> None:
        self.connection, self._site, self._chosen, self._live = connection, site, chosen, live
        self.version = connection.info.server_version
        self._growth, self._calls, self._times = Growth(), Growth(), Growth()
        self._by_screen: dict[str, Growth] = {}
        self._rights_s = -_RIGHTS_S
        self.hidden = ""  # why sessions of other users are hidden, with the cure
        self._uncounted = ""  # why statements are not counted, with the cure
        self._counts: str | None = None
        self._counters: str | None = None
        self._texts: dict[int, str] = {}
        self._without_text: set[int] = set()  # not requested again soon: the server reads a file of all texts
        self._reader = statements.Statements()

    def read(self, request: LiveRequest) -> LiveAnswer:
        before = self.connection.statements
        try:
            with doing("reading for the live view"):
                return self._read(request)
        finally:
            sent = self.connection.statements - before
            self._live.transactions += sent
            self._live.statements += sent

    def _read(self, request: LiveRequest) -> LiveAnswer:
        if time.monotonic() - self._rights_s >= _RIGHTS_S:
            self._look_at_rights()
        entry = next((e for e in live_screens.SCREENS if e.screen.name == request.screen), None)
        return LiveAnswer(
            self._figures(),
            request.screen,
            LiveRows() if entry is None else entry.read(self),
            self._latest_texts(request.pids) if request.pids else {},
            self._statements(request.query_ids) if request.query_ids else {},
        )

    def ask(self, file: str, **values: object) -> list[dict[str, Any]]:
        """Executes the statement in ``FILE.sql`` with a time limit and returns its rows. Raises
        :class:`psycopg.Error`."""
        ours = {
            "control": self._site.connection().info.backend_pid,
            "observer": literal(observation.OBSERVER),
            "limit": live_screens.MOST_ROWS,
        }
        return self._limited(sql.fill(file, **(ours | values)))

    def _limited(self, text: str) -> list[dict[str, Any]]:
        """Returns the rows of a statement with a time limit.

        The limit and the statement are one message and so one transaction; thus the limit ends with it, also
        behind a pooler. Raises :class:`psycopg.Error`.
        """
        limit = f"select pg_catalog.set_config('statement_timeout', '{TIMEOUT_MS}', true) {sql.OWN}"
        self._live.statements += 1
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(f"{limit}; {text}".encode())
            cursor.nextset()
            return cursor.fetchall()

    def rows_or_reason(self, file: str, **values: object) -> tuple[list[dict[str, Any]], list[str]]:
        """Returns the rows, or none and a line that says why. Raises :class:`psycopg.Error` if the
        connection is lost."""
        return self._rows_or_reason(lambda: self.ask(file, **values))

    def _rows_or_reason(
        self, ask: Callable[[], list[dict[str, Any]]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        try:
            return ask(), []
        except psycopg.errors.QueryCanceled:
            return [], [f"no answer within {TIMEOUT_MS // 1000} s"]
        except psycopg.Error as e:
            if self.connection.closed or e.sqlstate is None:
                raise
            return [], [f"not read: {e.diag.message_primary}"]

    def growth(self, screen: str, values: Mapping[Any, float]) -> dict[Any, float]:
        """Returns rates of a screen's counters."""
        return self._by_screen.setdefault(screen, Growth()).per_s(time.monotonic(), values)

    def in_database(self, column: str) -> str:
        """Returns the condition that a database is the chosen one."""
        name = self._chosen.database
        return "true" if name is None else f"{column} = {literal(name)}"

    def _look_at_rights(self) -> None:
        self._rights_s = time.monotonic()
        self._without_text.clear()
        seen = facts.visibility(self.connection)
        libraries = None if seen.statements_loaded else enabling.preloaded_libraries(self.connection)
        source = enabling.statements(
            seen, self.connection.database, libraries, embedded=self._site.instance is not None
        )
        steps = " ".join(step.command for step in source.enabling.steps)
        self._uncounted = f"{source.detail.split(': ', 1)[-1]}: {steps}" if source.status != "ok" else ""
        in_database = self.in_database("d.datname")
        self._counts = statements.for_version(self.connection, "live_calls", database=in_database)
        self._counters = statements.for_version(self.connection, "live_statements", ids=_IDS)
        hidden = next((s for s in facts.hidden_sources(seen) if s.status == "not permitted"), None)
        self.hidden = "" if hidden is None else hidden.detail

    def _figures(self) -> LiveFigures:
        session = " and ".join(
            [
                self.in_database("o.datname"),
                *(
                    [f"pg_catalog.pg_get_userbyid(a.usesysid) = {literal(self._chosen.user)}"]
                    if self._chosen.user
                    else []
                ),
            ]
        )
        rows, notes = self.rows_or_reason(
            "live_figures", database=self.in_database("datname"), session=session
        )
        row = rows[0] if rows else {}
        ours = self._chosen.database in (None, self.connection.database)
        own = self._live.ours() if ours else (0, 0)
        counted: dict[str, float] = {"our transactions": own[0], "our statements": own[1]}
        if row:
            counted["transactions"] = row["transactions"] or 0
        if self._counts is not None:
            counts = self._counts
            calls, missing = self._rows_or_reason(lambda: self._limited(counts))
            notes = [*notes, *(f"statements/s: {words}" for words in missing)]
            if calls:
                counted["statements"] = calls[0]["statements"] or 0
        rates = self._growth.per_s(time.monotonic(), counted)
        rates = {
            name: max(0.0, rates[name] - rates.get(f"our {name}", 0.0))
            for name in ("transactions", "statements")
            if name in rates
        }
        seen = bool(row) and not row["hidden"]
        reasons = [f"statements/s: {self._uncounted}"] if self._uncounted else []
        return LiveFigures(
            rates.get("transactions"),
            rates.get("statements"),
            ours,
            row.get("sessions"),
            row.get("most_sessions"),
            row["active"] if seen else None,
            row["idle_in_transaction"] if seen else None,
            [*notes, *reasons, *([self.hidden] if self.hidden else [])],
        )

    def _latest_texts(self, pids: Sequence[int]) -> dict[int, str]:
        rows, _ = self.rows_or_reason("live_texts", pids=",".join(str(int(pid)) for pid in pids))
        texts = {row["pid"]: statements.without_passwords(row["text"]) for row in rows}
        for row in rows:
            if row["query_id"] is not None:
                self._keep_text(row["query_id"], texts[row["pid"]])
        return texts

    def _keep_text(self, query_id: int, text: str) -> None:
        if len(self._texts) >= _TEXTS_KEPT:
            self._texts.clear()
        self._texts.setdefault(query_id, text)

    def _statements(self, ids: Sequence[int]) -> dict[int, LiveStatement]:
        """Returns texts and rates of statements. A text is normalised if statements are counted, else that
        of a session's latest statement."""
        ids = [int(id_) for id_ in ids]
        calls: dict[Any, float] = {}
        times: dict[Any, float] = {}
        if self._counters is not None:
            text = self._counters.replace(_IDS, ",".join(str(id_) for id_ in ids))
            rows, _ = self._rows_or_reason(lambda: self._limited(text))
            calls = {row["query_id"]: row["calls"] for row in rows}
            times = {row["query_id"]: row["exec_ns"] for row in rows}
            if unknown := set(ids) - self._texts.keys() - self._without_text:
                texts, _ = self._rows_or_reason(
                    lambda: self._reader.texts(self.connection, unknown).to_dicts()
                )
                for row in texts:
                    if row["text"] is not None:
                        self._keep_text(row["query_id"], row["text"])
                self._without_text |= unknown - self._texts.keys()
        now_s = time.monotonic()
        calls_per_s, ns_per_s = self._calls.per_s(now_s, calls), self._times.per_s(now_s, times)
        return {
            id_: LiveStatement(
                self._texts.get(id_),
                calls_per_s.get(id_),
                ns_per_s[id_] / calls_per_s[id_] if calls_per_s.get(id_) and id_ in ns_per_s else None,
            )
            for id_ in ids
        }
