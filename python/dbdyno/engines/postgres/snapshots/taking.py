"""Takes a snapshot: a read-only transaction per database, whose statements are sent as one message."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl
import psycopg
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

from dbdyno import __version__
from dbdyno.engines.postgres import connect, counters, sql, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.facts import reported
from dbdyno.engines.postgres.observation import OBSERVER
from dbdyno.engines.postgres.settings import Site
from dbdyno.engines.postgres.snapshots import frames
from dbdyno.engines.postgres.snapshots.sources import all_tables, gaps, view_columns
from dbdyno.engines.postgres.statements import Statements, statement
from dbdyno.engines.postgres.texts import database_name
from dbdyno.model.engine.snapshot import ServerCache, Snapshot, SnapshotInfo
from dbdyno.model.errors import DbdynoError, NoSuchDatabase
from dbdyno.model.sources.source import Source

SIZING_S = 0.4
"""Time for reading file sizes. Other files get the size in the catalogue."""
ENOUGH_S = 15.0
"""If one statement fails, all are tried one by one within this time."""
_EACH = ("relations", "indexes", "progress")
"""Read in each database. All others are read in the first one only, since they cover the whole server."""
"""First version that has a setting for counts as of one moment; version 14 always has such counts."""
_UNREPORTED_S = 0.45
"""In version 14 a younger session has reported nothing but its connecting."""
_SIZES = {
    "sizes": ("relations.table_bytes", "relations.index_bytes", "relations.toast_bytes"),
    "database_sizes": ("databases.size_bytes",),
}
Frames = dict[str, pl.DataFrame]


class Context(NamedTuple):
    """Facts on the server and on this role's rights; columns of ``snapshot_context.sql``."""

    now_s: float
    started_s: float | None
    standby: bool
    buffers: int
    block_bytes: int
    role: str
    quoted: str
    all_stats: bool
    all_settings: bool
    off: list[str]  # settings that are off, and columns of views that the server lacks
    refused: list[str]  # views and functions that this role may not use
    connectable: list[str]  # databases: bytes of the name in hexadecimal, and encoding
    closed: list[str]  # databases that this role may not connect to, in the same form


@dataclass
class _Progress:
    """The state of a snapshot that is being taken."""

    major: int
    known: Container[int]
    read: dict[str, Frames] = field(default_factory=dict)  # by statement, then by database
    missing: dict[str, str] = field(default_factory=dict)
    databases: list[str] = field(default_factory=list)
    names: dict[str, bytes] = field(default_factory=dict)  # database names as the server's bytes
    before: dict[str, int] = field(default_factory=dict)  # own transactions, by database
    after: dict[str, int] = field(default_factory=dict)
    texts: pl.DataFrame = field(default_factory=pl.DataFrame)
    context: Context = field(init=False)  # the first database's
    asked: datetime = field(init=False)  # when the context was read
    counted: datetime = field(init=False)  # when the counters were read

    def count(self, database: str, before: int, total: int) -> None:
        """Adds dbdyno's transactions in a database: ``made`` in total, ``before`` of them before it was
        read."""
        self.before[database] = self.before.get(database, 0) + before
        self.after[database] = self.after.get(database, 0) + total - before

    def first(self, name: str) -> pl.DataFrame:
        return next(iter(self.read.get(name, {}).values()), pl.DataFrame())


class Snapshots:
    """Implements :class:`dbdyno.model.engine.snapshot.Snapshotting`.

    ``counting`` returns the data source of statement counters; ``added`` is what other connections of dbdyno
    have added to counters so far, without samples.
    """

    def __init__(self, site: Site, counting: Callable[[], Source], added: Mapping[str, int]) -> None:
        self._dsn, self._control, self._identity = site.dsn, site.connection, site.identity
        self._counting, self._added, self._seen_added = counting, added, 0
        self._statements = Statements()
        self._keep, self._kept_seen = False, 0
        self._kept: Connection | None = None
        self.transactions = 0
        """Transactions of its own connections so far; those of the control connection are counted there."""
        self._seen = (0, 0)  # control connection: pid, and its transactions in the last snapshot

    def keep_connection(self) -> None:
        """Keeps the connection open between snapshots."""
        self._keep = True

    def close(self) -> None:
        """Closes the connection that was kept."""
        if self._kept is not None:
            self._kept.close()

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        """Takes a snapshot; see :class:`dbdyno.model.engine.snapshot.Snapshotting`."""
        with doing("taking a snapshot"):
            return self._snapshot(name, databases, known)

    def _snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        start_s = time.monotonic()
        control = self._control()
        progress = _Progress(versions.major(control), known)
        self._count_control(progress)
        for database in self._wanted(progress, databases):
            with self._opened(database, progress, named=bool(databases)) as connection:
                if connection is not None:
                    self._read(connection, database, progress)
        if not progress.databases:
            raise NoSuchDatabase("no database may be connected to", "grant CONNECT on one of them")
        self._note_missing(progress, all_databases=databases is not None and not databases)
        took_s = time.monotonic() - start_s
        context = progress.context
        info = SnapshotInfo(
            name=name,
            taken=progress.counted,
            server_time=datetime.fromtimestamp(context.now_s, UTC) + (progress.counted - progress.asked),
            took_s=took_s,
            engine="postgres",
            server=self._server(context),
            address=connect.where(control).rsplit(", database ", 1)[0],
            version=reported(control),
            version_num=control.info.server_version,
            started=None if context.started_s is None else datetime.fromtimestamp(context.started_s, UTC),
            standby=context.standby,
            role=context.role,
            databases=tuple(progress.databases),
            own_transactions=progress.after,
            own_before=progress.before,
            cache=_cache(context),
            missing=progress.missing,
            dbdyno=__version__,
        )
        return Snapshot(
            info, frames.tables(progress.read, progress.major, self._statements.own), progress.texts
        )

    def _server(self, context: Context) -> str:
        """Returns the server's name. A standby counts for itself, but has the system identifier of its
        primary."""
        system = self._identity.system
        name = connect.where(self._control()).rsplit(", database ", 1)[0] if system is None else str(system)
        return f"{name} standby" if context.standby else name

    def _wanted(self, progress: _Progress, databases: Sequence[str] | None) -> Iterator[str]:
        """Yields the databases, that of the control connection first, whose transactions are counted with
        it."""
        control_database = self._control().database
        if databases:
            yield from sorted(dict.fromkeys(databases), key=lambda name: name != control_database)
            return
        yield control_database
        if databases is not None:
            progress.names = _names(progress.context.connectable)
            yield from (name for name in progress.names if name != control_database)

    @contextmanager
    def _opened(self, database: str, progress: _Progress, *, named: bool) -> Iterator[Connection | None]:
        """Connects to a database. Yields None if it refuses, so that the others can be read. Raises
        :class:`NoSuchDatabase` for one that the user named and that does not exist."""
        if self._kept is not None and not self._kept.closed and database == self._kept.database:
            yield self._kept
            return
        try:
            raw = progress.names.get(database, database.encode())
            connection = connect.connect(make_conninfo(self._dsn, application_name=OBSERVER), raw)
        except DbdynoError as e:
            is_only = database == self._control().database
            if is_only or (named and isinstance(e, NoSuchDatabase)):
                raise
            progress.missing[f"database {database}"] = f"{e}"
            yield None
            return
        if self._keep and database == self._control().database:
            self._kept, self._kept_seen = connection, 0
            yield connection
            return
        with connection:
            yield connection

    def _read(self, connection: Connection, database: str, progress: _Progress) -> None:
        first = not progress.databases
        if first:
            progress.asked, progress.context = datetime.now(UTC), _context(connection)
        texts = _texts(progress, first=first)
        if not progress.read.get("statements") and (text := statement(connection, _more())) is not None:
            texts = {"statements": text, **texts}
        counted = self._wait_for_counts(connection, progress) if first else 0
        start = datetime.now(UTC)
        for name, frame in _batch(connection, texts, progress.missing).items():
            progress.read.setdefault(name, {})[database] = frame
        if first:
            progress.counted = start + (datetime.now(UTC) - start) / 2
        if "statements" in texts:
            self._read_texts(connection, progress)
        if connection is self._kept:  # else its reads would count in a later window
            _report(connection, progress.major, wait=False)
        progress.databases.append(database)
        seen = self._kept_seen if connection is self._kept else 0
        progress.count(database, max(0, counted - seen), connection.statements + 1 - seen)
        self.transactions += connection.statements + 1 - seen
        if connection is self._kept:
            self._kept_seen = connection.statements + 1

    def _count_control(self, progress: _Progress) -> None:
        """Counts the control connection's transactions since the previous snapshot."""
        control = self._control()
        pid, seen = self._seen
        seen = seen if pid == control.info.backend_pid else 0
        counted, total = _report(control, progress.major), control.statements + 1
        self._seen = (control.info.backend_pid, total)
        added = self._added["transactions_committed"]
        more, self._seen_added = added - self._seen_added, added
        progress.count(control.database, max(0, counted - seen) + more, total - seen + more)

    def _wait_for_counts(self, connection: Connection, progress: _Progress) -> int:
        """Waits for the server's counters. Returns how many of this connection's transactions they have."""
        counted = _report(connection, progress.major)
        if progress.major < versions.REPORTS_ON_REQUEST:  # figures may be this old
            since = connection.opened if counted == 1 else connection.used
            time.sleep(max(0.0, counters.COLLECTOR_S - (time.monotonic() - since)))
        return counted

    def _read_texts(self, connection: Connection, progress: _Progress) -> None:
        self._statements.find_own(connection)
        statements = progress.first("statements")
        ids = set(statements["query_id"].drop_nulls()) if "query_id" in statements.columns else set()
        new_ids = [i for i in ids - self._statements.own if i not in progress.known]
        texts = self._statements.texts(connection, new_ids)
        users = ~pl.col("query_id").is_in(list(self._statements.own))
        progress.texts = texts.filter(users, pl.col("text").is_not_null()).select("query_id", "text")

    def _note_missing(self, progress: _Progress, *, all_databases: bool) -> None:
        """Notes why columns are NULL, with the cure: versions, settings, rights, locks."""
        context, missing = progress.context, progress.missing
        for place, why in gaps(progress.major, context.off):
            missing.setdefault(place, why)
        if all_databases:
            for name in _names(context.closed):
                named = pgsql.Identifier(name).as_string(None)
                missing[f"database {name}"] = (
                    f"no right to connect: GRANT CONNECT ON DATABASE {named} TO {context.quoted}"
                )
        if "statements" not in progress.read:
            source = self._counting()
            steps = "; ".join(s.command.rstrip(";") for s in source.enabling.steps) if source.enabling else ""
            missing.setdefault("statements", ": ".join(filter(None, (source.detail, steps))) or "not counted")
        if not context.all_stats:
            cure = f"GRANT pg_monitor TO {context.quoted}"
            missing["statements.query_id"] = f"statements of other roles are hidden, and in sum: {cure}"
            missing["standbys"] = f"hidden from this role: {cure}"
            missing["progress"] = f"commands of other roles are hidden: {cure}"
        if not context.all_settings:
            missing["settings"] = f"some are hidden from this role: GRANT pg_monitor TO {context.quoted}"
        if progress.texts.is_empty():
            progress.texts = pl.DataFrame(schema={"query_id": pl.Int64, "text": pl.String})
        sizes = progress.first("database_sizes")
        if sizes.width and sizes["size_bytes"].null_count():
            missing["databases.size_bytes"] = (
                f"some were not looked at within {SIZING_S:g} s, or not permitted"
            )
        files = [frame["bytes"] for frame in progress.read.get("sizes", {}).values()]
        if unseen := sum(one.null_count() for one in files):
            missing["relations.sized"] = (
                f"{unseen} of {sum(map(len, files))} files were locked, or not looked at within "
                f"{SIZING_S:g} s: their size is the catalogue's, as of the last vacuum or analyze"
            )


def _cache(context: Context) -> ServerCache:
    """Returns sizes of the cache. A table larger than a quarter of it is scanned through a ring of 256 kB
    (heapam.c, initscan)."""
    size = context.buffers * context.block_bytes
    scan = context.buffers // 4 * context.block_bytes
    return ServerCache(cache_bytes=size, block_bytes=context.block_bytes, scan_bytes=scan)


def _names(listed: Sequence[str]) -> dict[str, bytes]:
    """Returns the bytes of database names, by the text to show."""
    names: dict[str, bytes] = {}
    for digits, encoding in (each.split(" ") for each in listed):
        name = database_name(bytes.fromhex(digits), encoding)
        names[f"{name} ({digits})" if name in names else name] = bytes.fromhex(digits)
    return names


def _context(connection: Connection) -> Context:
    (frame,) = _query_frames(connection, sql.text("snapshot_context"))
    context = Context(**frame.row(0, named=True))
    return context._replace(off=[*context.off, *_absent(connection)])


def _absent(connection: Connection) -> list[str]:
    """Returns the columns of views that a version which no test has run on lacks."""
    if versions.major(connection) <= versions.NEWEST:
        return []
    views, names = zip(*view_columns(versions.major(connection)), strict=True)
    asked = {"views": list(views), "names": list(names)}
    return [column for (column,) in connection.execute(sql.text("snapshot_absent").encode(), asked)]


def _report(connection: Connection, major: int, *, wait: bool = True) -> int:
    """Makes the server count a session's transactions. Returns how many it has counted. ``wait``: waits in
    version 14."""
    if major >= versions.REPORTS_ON_REQUEST:
        connection.execute(sql.text("snapshot_flush").encode())
    elif not wait:
        return 0
    elif time.monotonic() - connection.opened < _UNREPORTED_S:
        return 1
    else:
        time.sleep(max(0.0, counters.COLLECTOR_S - (time.monotonic() - connection.used)))
        connection.execute(sql.text("snapshot_nothing").encode())
    return connection.statements + 1


def _more() -> str:
    """Returns columns of statements that only snapshots have."""
    squares = all_tables()["statements"].columns["exec_square_s2"].by_version[14]
    return (
        ",\n       case when t.plans then s.plans end as plans,\n       ${generic_plans} as generic_plans,\n"
        "       ${custom_plans} as custom_plans,\n       "
        f"{squares.replace('pg_stat_statements.', 's.')} as exec_square_s2"
    )


def _texts(progress: _Progress, *, first: bool) -> dict[str, str]:
    """Returns SQL by name. Notes statements with objects that the role may not use, and leaves them out."""
    candidates = {}
    for name, origin in all_tables().items():
        if first or name in _EACH:
            candidates[name] = (
                origin.statement(name, progress.major, progress.context.off) if origin.sql else None
            )
    for name in _SIZES if first else ("sizes",):
        candidates[name] = sql.fill(f"snapshot_{name}", seconds=SIZING_S)
    refused = set(progress.context.refused)
    texts = {}
    for name, text in candidates.items():
        if text is not None and (barred := sorted(refused & set(re.findall(r"\bpg_\w+", text)))):
            for place in _SIZES.get(name, (name,)):
                progress.missing[place] = (
                    f"no right to use {', '.join(barred)}: grant it to {progress.context.quoted}"
                )
        elif text is not None:
            texts[name] = text
    return texts


def _batch(connection: Connection, texts: Mapping[str, str], missing: dict[str, str]) -> Frames:
    """Reads all statements in one transaction. If one fails, retries without file sizes, then one by one.

    Raises :class:`psycopg.Error` if the connection is lost.
    """
    fewer = {n: sql.fill(f"snapshot_{n}", seconds=0) if n in _SIZES else t for n, t in texts.items()}
    for attempt in (texts, fewer):
        try:
            return dict(zip(attempt, _query_frames(connection, ";\n".join(attempt.values())), strict=True))
        except psycopg.Error as e:
            _check_alive(connection, e)
    return _one_by_one(connection, fewer, missing)


def _one_by_one(connection: Connection, texts: Mapping[str, str], missing: dict[str, str]) -> Frames:
    results = {}
    deadline = time.monotonic() + ENOUGH_S
    for name, text in texts.items():
        why = "not read: others took too long"
        if time.monotonic() < deadline:
            try:
                (results[name],) = _query_frames(connection, text)
                continue
            except psycopg.Error as e:
                _check_alive(connection, e)
                why = e.diag.message_primary or str(e)
        for place in _SIZES.get(name, (name,)):
            missing[place] = why
    return results


def _check_alive(connection: Connection, error: psycopg.Error) -> None:
    if connection.closed or error.sqlstate is None or error.sqlstate.startswith("57P"):
        raise error


def _query_frames(connection: Connection, text: str) -> list[pl.DataFrame]:
    """Returns a frame per statement, all of one transaction: a message of several statements is one
    without BEGIN."""
    since_15 = versions.major(connection) >= versions.CONSISTENT_VIEWS
    one_view = ", ('stats_fetch_consistency', 'snapshot')" if since_15 else ""
    limits = sql.fill("snapshot_limits", more=one_view)
    frames_read = []
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(";\n".join((sql.text("snapshot_view"), limits, text)).encode())
        while cursor.nextset():
            names = [c.name for c in cursor.description or ()]
            frames_read.append(
                pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)
            )
    return frames_read[1:]
