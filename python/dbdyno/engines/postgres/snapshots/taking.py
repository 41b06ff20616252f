"""Takes a snapshot: in each database one read-only transaction, whose statements are sent at once."""

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
from dbdyno.engines.postgres import connect, counters, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.observation import OBSERVER
from dbdyno.engines.postgres.settings import Site
from dbdyno.engines.postgres.snapshots import frames
from dbdyno.engines.postgres.snapshots.sources import all_tables, gaps
from dbdyno.engines.postgres.statements import Statements, statement
from dbdyno.engines.postgres.texts import database_name
from dbdyno.model.engine.snapshot import ServerCache, Snapshot, SnapshotInfo
from dbdyno.model.errors import DbdynoError, NoSuchDatabase
from dbdyno.model.sources.source import Source

SIZING_S = 0.4
"""What takes longer to look at is as large as the catalogue says."""
ENOUGH_S = 15.0
"""Once one statement has failed the others are tried one by one, until so much time is gone."""
_EACH = ("relations", "indexes", "progress")
"""Read in each database; the rest is the server's, and read in the first one."""
_CONSISTENT = 150000
"""Since this version a transaction can have all counts as of one moment; 14 always does."""
_UNREPORTED_S = 0.45
"""Version 14: a session that is younger has reported only that it connected."""
_SIZES = {
    "sizes": ("relations.table_bytes", "relations.index_bytes", "relations.toast_bytes"),
    "database_sizes": ("databases.size_bytes",),
}
Frames = dict[str, pl.DataFrame]


class Context(NamedTuple):
    """Columns of ``snapshot_context.sql``."""

    now_s: float
    started_s: float | None
    standby: bool
    buffers: int
    block_bytes: int
    role: str
    quoted: str
    all_stats: bool
    all_settings: bool
    off: list[str]  # settings
    refused: list[str]  # views and functions
    connectable: list[str]  # databases: their names' bytes in hexadecimal, and their encodings
    closed: list[str]  # those that this role may not connect to


@dataclass
class _Taking:
    """One snapshot in the making."""

    major: int
    known: Container[int]
    read: dict[str, Frames] = field(default_factory=dict)  # by statement, then by database
    missing: dict[str, str] = field(default_factory=dict)
    databases: list[str] = field(default_factory=list)
    names: dict[str, bytes] = field(default_factory=dict)  # of databases, as the server keeps them
    before: dict[str, int] = field(default_factory=dict)  # own transactions, by database
    after: dict[str, int] = field(default_factory=dict)
    texts: pl.DataFrame = field(default_factory=pl.DataFrame)
    context: Context = field(init=False)  # the first database's
    asked: datetime = field(init=False)  # when it was asked for
    counted: datetime = field(init=False)  # when the counters were read

    def count(self, database: str, before: int, made: int) -> None:
        """Own transactions in a database: all that were ``made``, ``before`` of them before it was read."""
        self.before[database] = self.before.get(database, 0) + before
        self.after[database] = self.after.get(database, 0) + made - before

    def first(self, name: str) -> pl.DataFrame:
        return next(iter(self.read.get(name, {}).values()), pl.DataFrame())


class Snapshots:
    """See :class:`dbdyno.model.engine.snapshot.Snapshotting`. ``counting``: of counters of statements;
    ``added``: what other connections of dbdyno have added to counters so far, without samples."""

    def __init__(self, site: Site, counting: Callable[[], Source], added: Mapping[str, int]) -> None:
        self._dsn, self._control, self._identity = site.dsn, site.connection, site.identity
        self._counting, self._added, self._seen_added = counting, added, 0
        self._statements = Statements()
        self._keep, self._kept_seen = False, 0
        self._kept: Connection | None = None
        self.transactions = 0
        """Of its own connections so far; those of the control connection are counted there."""
        self._seen = (0, 0)  # of the control connection: process, transactions that a snapshot has counted

    def keep_connection(self) -> None:
        """See the protocol."""
        self._keep = True

    def close(self) -> None:
        """A connection that was kept."""
        if self._kept is not None:
            self._kept.close()

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        """See the protocol."""
        with doing("taking a snapshot"):
            return self._snapshot(name, databases, known)

    def _snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        began_s = time.monotonic()
        control = self._control()
        taking = _Taking(control.info.server_version // 10000, known)
        self._count_control(taking)
        for database in self._wanted(taking, databases):
            with self._opened(database, taking, named=bool(databases)) as connection:
                if connection is not None:
                    self._read(connection, database, taking)
        if not taking.databases:
            raise NoSuchDatabase("no database may be connected to", "grant CONNECT on one of them")
        self._say_missing(taking, all_databases=databases is not None and not databases)
        took_s = time.monotonic() - began_s
        context = taking.context
        info = SnapshotInfo(
            name=name,
            taken=taking.counted,
            server_time=datetime.fromtimestamp(context.now_s, UTC) + (taking.counted - taking.asked),
            took_s=took_s,
            engine="postgres",
            server=self._server(context),
            address=connect.where(control).rsplit(", database ", 1)[0],
            version=(control.info.parameter_status("server_version") or "").split(" ")[0],
            version_num=control.info.server_version,
            started=None if context.started_s is None else datetime.fromtimestamp(context.started_s, UTC),
            standby=context.standby,
            role=context.role,
            databases=tuple(taking.databases),
            own_transactions=taking.after,
            own_before=taking.before,
            cache=_cache(context),
            missing=taking.missing,
            dbdyno=__version__,
        )
        return Snapshot(info, frames.tables(taking.read, taking.major, self._statements.own), taking.texts)

    def _server(self, context: Context) -> str:
        """A standby counts for itself, with the cluster number of its primary."""
        system = self._identity.system
        name = connect.where(self._control()).rsplit(", database ", 1)[0] if system is None else str(system)
        return f"{name} standby" if context.standby else name

    def _wanted(self, taking: _Taking, databases: Sequence[str] | None) -> Iterator[str]:
        """The one of the control connection first, whose own transactions are counted with it."""
        here = self._control().database
        if databases:
            yield from sorted(dict.fromkeys(databases), key=lambda name: name != here)
            return
        yield here
        if databases is not None:
            taking.names = _names(taking.context.connectable)
            yield from (name for name in taking.names if name != here)

    @contextmanager
    def _opened(self, database: str, taking: _Taking, *, named: bool) -> Iterator[Connection | None]:
        """None: this database refuses, and the others go on. Raises :class:`NoSuchDatabase` for one that was
        named and is not there."""
        if self._kept is not None and not self._kept.closed and database == self._kept.database:
            yield self._kept
            return
        try:
            raw = taking.names.get(database, database.encode())
            connection = connect.connect(make_conninfo(self._dsn, application_name=OBSERVER), raw)
        except DbdynoError as e:
            lonely = database == self._control().database
            if lonely or (named and isinstance(e, NoSuchDatabase)):
                raise
            taking.missing[f"database {database}"] = f"{e}"
            yield None
            return
        if self._keep and database == self._control().database:
            self._kept, self._kept_seen = connection, 0
            yield connection
            return
        with connection:
            yield connection

    def _read(self, connection: Connection, database: str, taking: _Taking) -> None:
        first = not taking.databases
        if first:
            taking.asked, taking.context = datetime.now(UTC), _context(connection)
        texts = _texts(taking, first=first)
        if not taking.read.get("statements") and (text := statement(connection, _more())) is not None:
            texts = {"statements": text, **texts}
        counted = self._wait_for_counts(connection, taking) if first else 0
        began = datetime.now(UTC)
        for name, frame in _batch(connection, texts, taking.missing).items():
            taking.read.setdefault(name, {})[database] = frame
        if first:
            taking.counted = began + (datetime.now(UTC) - began) / 2
        if "statements" in texts:
            self._read_texts(connection, taking)
        if connection is self._kept:  # what it has read is no part of a window that begins later
            _reported(connection, taking.major, wait=False)
        taking.databases.append(database)
        seen = self._kept_seen if connection is self._kept else 0
        taking.count(database, max(0, counted - seen), connection.statements + 1 - seen)
        self.transactions += connection.statements + 1 - seen
        if connection is self._kept:
            self._kept_seen = connection.statements + 1

    def _count_control(self, taking: _Taking) -> None:
        """Notes the control connection's transactions since the snapshot before."""
        control = self._control()
        pid, seen = self._seen
        seen = seen if pid == control.info.backend_pid else 0
        counted, made = _reported(control, taking.major), control.statements + 1
        self._seen = (control.info.backend_pid, made)
        added = self._added["transactions_committed"]
        more, self._seen_added = added - self._seen_added, added
        taking.count(control.database, max(0, counted - seen) + more, made - seen + more)

    def _wait_for_counts(self, connection: Connection, taking: _Taking) -> int:
        """How many of this connection's transactions the server has counted."""
        counted = _reported(connection, taking.major)
        if taking.major < counters.REPORTS_ON_REQUEST:  # its figures may be so old
            since = connection.opened if counted == 1 else connection.used
            time.sleep(max(0.0, counters.COLLECTOR_S - (time.monotonic() - since)))
        return counted

    def _read_texts(self, connection: Connection, taking: _Taking) -> None:
        self._statements.find_own(connection)
        found = taking.first("statements")
        ids = set(found["query_id"].drop_nulls()) if "query_id" in found.columns else set()
        wanted = [i for i in ids - self._statements.own if i not in taking.known]
        texts = self._statements.texts(connection, wanted)
        users = ~pl.col("query_id").is_in(list(self._statements.own))
        taking.texts = texts.filter(users, pl.col("text").is_not_null()).select("query_id", "text")

    def _say_missing(self, taking: _Taking, *, all_databases: bool) -> None:
        """Why columns are NULL, with the cure: versions, settings, rights, locks."""
        context, missing = taking.context, taking.missing
        for place, why in gaps(taking.major, context.off):
            missing.setdefault(place, why)
        if all_databases:
            for name in _names(context.closed):
                named = pgsql.Identifier(name).as_string(None)
                missing[f"database {name}"] = (
                    f"no right to connect: GRANT CONNECT ON DATABASE {named} TO {context.quoted}"
                )
        if "statements" not in taking.read:
            source = self._counting()
            steps = "; ".join(step.command for step in source.enabling.steps) if source.enabling else ""
            missing.setdefault("statements", ": ".join(filter(None, (source.detail, steps))) or "not counted")
        if not context.all_stats:
            cure = f"GRANT pg_monitor TO {context.quoted}"
            missing["statements.query_id"] = f"statements of other roles are hidden, and in sum: {cure}"
            missing["standbys"] = f"hidden from this role: {cure}"
            missing["progress"] = f"commands of other roles are hidden: {cure}"
        if not context.all_settings:
            missing["settings"] = f"some are hidden from this role: GRANT pg_monitor TO {context.quoted}"
        if taking.texts.is_empty():
            taking.texts = pl.DataFrame(schema={"query_id": pl.Int64, "text": pl.String})
        sizes = taking.first("database_sizes")
        if sizes.width and sizes["size_bytes"].null_count():
            missing["databases.size_bytes"] = (
                f"some were not looked at within {SIZING_S:g} s, or not permitted"
            )
        files = [frame["bytes"] for frame in taking.read.get("sizes", {}).values()]
        if unseen := sum(one.null_count() for one in files):
            missing["relations.sized"] = (
                f"{unseen} of {sum(map(len, files))} files were locked, or not looked at within "
                f"{SIZING_S:g} s: their size is the catalogue's, as of the last vacuum or analyze"
            )


def _cache(context: Context) -> ServerCache:
    """What is larger than a quarter of it is scanned through a ring of 256 kB (heapam.c, initscan)."""
    size = context.buffers * context.block_bytes
    scan = context.buffers // 4 * context.block_bytes
    return ServerCache(cache_bytes=size, block_bytes=context.block_bytes, scan_bytes=scan)


def _names(listed: Sequence[str]) -> dict[str, bytes]:
    """The bytes of databases' names, by the text that is shown."""
    found: dict[str, bytes] = {}
    for digits, encoding in (each.split(" ") for each in listed):
        name = database_name(bytes.fromhex(digits), encoding)
        found[f"{name} ({digits})" if name in found else name] = bytes.fromhex(digits)
    return found


def _context(connection: Connection) -> Context:
    (frame,) = _asked(connection, sql.text("snapshot_context"))
    return Context(**frame.row(0, named=True))


def _reported(connection: Connection, major: int, *, wait: bool = True) -> int:
    """Makes the server count a session's transactions; how many it now has. ``wait``: also for a while."""
    if major >= counters.REPORTS_ON_REQUEST:
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
    """Columns of statements that a snapshot has and a run has not."""
    squares = all_tables()["statements"].columns["exec_square_s2"].by_version[14]
    return (
        ",\n       case when t.plans then s.plans end as plans,\n       "
        f"{squares.replace('pg_stat_statements.', 's.')} as exec_square_s2"
    )


def _texts(taking: _Taking, *, first: bool) -> dict[str, str]:
    """Statements by name; those of objects that the role may not use are left out, and named."""
    made = {}
    for name, origin in all_tables().items():
        if first or name in _EACH:
            made[name] = origin.statement(name, taking.major, taking.context.off) if origin.sql else None
    for name in _SIZES if first else ("sizes",):
        made[name] = sql.fill(f"snapshot_{name}", seconds=SIZING_S)
    refused = set(taking.context.refused)
    texts = {}
    for name, text in made.items():
        if text is not None and (barred := sorted(refused & set(re.findall(r"\bpg_\w+", text)))):
            for place in _SIZES.get(name, (name,)):
                taking.missing[place] = (
                    f"no right to use {', '.join(barred)}: grant it to {taking.context.quoted}"
                )
        elif text is not None:
            texts[name] = text
    return texts


def _batch(connection: Connection, texts: Mapping[str, str], missing: dict[str, str]) -> Frames:
    """All in one transaction. Where one fails: without looking at sizes, then one by one.

    Raises :class:`psycopg.Error` where the connection is lost.
    """
    fewer = {n: sql.fill(f"snapshot_{n}", seconds=0) if n in _SIZES else t for n, t in texts.items()}
    for tried in (texts, fewer):
        try:
            return dict(zip(tried, _asked(connection, ";\n".join(tried.values())), strict=True))
        except psycopg.Error as e:
            _check_alive(connection, e)
    return _singly(connection, fewer, missing)


def _singly(connection: Connection, texts: Mapping[str, str], missing: dict[str, str]) -> Frames:
    found = {}
    deadline = time.monotonic() + ENOUGH_S
    for name, text in texts.items():
        why = "not read: others took too long"
        if time.monotonic() < deadline:
            try:
                (found[name],) = _asked(connection, text)
                continue
            except psycopg.Error as e:
                _check_alive(connection, e)
                why = e.diag.message_primary or str(e)
        for place in _SIZES.get(name, (name,)):
            missing[place] = why
    return found


def _check_alive(connection: Connection, error: psycopg.Error) -> None:
    if connection.closed or error.sqlstate is None or error.sqlstate.startswith("57P"):
        raise error


def _asked(connection: Connection, text: str) -> list[pl.DataFrame]:
    """A frame a statement, all of one transaction: several in one message are one without a BEGIN."""
    since_15 = connection.info.server_version >= _CONSISTENT
    one_view = ", ('stats_fetch_consistency', 'snapshot')" if since_15 else ""
    limits = sql.fill("snapshot_limits", more=one_view)
    made = []
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(";\n".join((sql.text("snapshot_view"), limits, text)).encode())
        while cursor.nextset():
            names = [c.name for c in cursor.description or ()]
            made.append(pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None))
    return made[1:]
