"""Counts which pages of the server's data are in its shared buffers, in the page cache, or in both.

Shared buffers are read by the extension pg_buffercache, files by
:mod:`dbdyno.engines.postgres.relation_files`. Each read has a time limit, which the server enforces too.
Blocks that are in both caches are counted exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import polars as pl
import psycopg

from dbdyno import _core
from dbdyno.engines.postgres import presence, sql
from dbdyno.engines.postgres.cached_relations import SHARED, Buffers, Names, largest, relation_rows
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.relation_files import Counted, Key, Layout, PageCache, Part, files_of
from dbdyno.engines.postgres.server_memory import Context, server_figures
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.engine.caching import Processes, State
from dbdyno.model.results.brief import MAIN
from dbdyno.model.schema.data_source import Step
from dbdyno.model.schema.rawtables import CLIENT_BACKEND, OWN_CONNECTION
from dbdyno.model.schema.tables import raw, rows
from dbdyno.model.sources.source import Status
from dbdyno.model.sources.wait_families import ROLE
from dbdyno.model.units import NS_PER_S

BUFFER_NS = 600.0
"""Assumed time to list a buffer, until a read has measured it (benchmarks/memory.py)."""
_SHARE = 0.9
"""Largest share of a read's time for the buffers; the files get the rest."""
LEAST_NS = NS_PER_S // 20
"""Time for a quick statement even if the time for the read is over."""
_FORGET = 0.8
"""Factor on the assumed cost of a buffer at each read that skips the buffers for lack of time."""
_AGE = 50
"""A list of files is reused for this multiple of the time it took."""
_EXTENSION = "pg_buffercache"
_PARTS = ("buffers", "files")


@dataclass
class _Read:
    """A read in progress. If ``buffers`` or ``files`` is None, ``lacks`` has the reason."""

    until_ns: int
    context: Context
    buffers: dict[Key, Buffers] | None = None
    blocks: dict[tuple[Key, int], bytes] = field(default_factory=dict)
    files: dict[Key, Counted] | None = None
    lacks: dict[str, State] = field(default_factory=dict)  # by "buffers" and "files"

    @property
    def left_ns(self) -> int:
        return max(0, self.until_ns - _core.now_ns())

    def totals(self) -> Mapping[str, int] | Status:
        """Returns sums over the buffers, or a status if they are unknown."""
        if self.buffers is None:
            return self.lack("buffers").status
        return {name: sum(getattr(b, name) for b in self.buffers.values()) for name in Buffers._fields}

    def lack(self, what: str) -> State:
        return self.lacks.get(what, State())


class _List(NamedTuple):
    """A list of the server's files, valid until ``until_ns``."""

    main_pid: int
    files: dict[Key, list[Part]]
    until_ns: int


class Cache:
    """Implements :class:`dbdyno.model.engine.caching.Caching`. ``added`` counts what dbdyno's own
    connections do."""

    def __init__(
        self,
        site: Site,
        seen: Callable[[], Presence],
        backends: Callable[[], pl.DataFrame],
        added: MutableMapping[str, int],
    ) -> None:
        self._site, self._seen, self._backends, self._added = site, seen, backends, added
        self._pages = PageCache(site.machine)
        self._buffer_ns = BUFFER_NS
        self._extension_tried = False  # whether creating it in an embedded server was tried
        self._lacks: dict[str, State] = {}
        self._list: _List | None = None

    # -- the protocol ---------------------------------------------------------------------------
    def processes(self) -> Processes:
        seen = self._seen()
        if seen.main_pid is None:
            return Processes({}, None, seen.status if seen.status != "ok" else "not here", seen.detail)
        kinds = self._backends().select("pid", "kind").iter_rows()
        roles = {pid: _role(kind) for pid, kind in kinds if seen.owns(pid)}
        identified = {pid for pid, role in roles.items() if role != "other"}
        unlisted = presence.unlisted(seen.main_pid, identified, all_helpers=True, machine=self._site.machine)
        roles |= {pid: f"{ROLE}{what}" for pid, what in unlisted}
        return Processes({seen.main_pid: MAIN} | roles, seen.main_pid)

    def cached(self, phase: str, most_ns: int) -> Mapping[str, pl.DataFrame]:
        before_ns = _core.now_ns()
        with doing("reading what is in the server's cache"):
            connection = self._site.connection()
            read = _Read(before_ns + most_ns, self._context(connection))
            self._read_buffers(connection, read)
            self._read_files(read)
            ask = partial(self._limited, connection)
            listed, left_ns = read.totals(), max(read.left_ns, LEAST_NS)
            figures = [
                *server_figures(read.context, listed, ask, self._seen(), left_ns, on_demand=phase == "now")
            ]
            keys = largest(read.buffers, read.files, read.context.block_bytes)
            names = self._names(connection, read.context, keys)
        relations = relation_rows(read.context.block_bytes, read.buffers, read.files, names, read.lack)
        self._lacks = read.lacks
        about = {"before_ns": before_ns, "after_ns": _core.now_ns(), "phase": phase}
        return {
            "memory": rows(raw("memory"), [about | {"scope": "server", **f._asdict()} for f in figures]),
            "memory_relations": rows(raw("memory_relations"), [about | row for row in relations]),
        }

    def state(self) -> State:
        lacks = [lack for lack in self._lacks.values() if lack != State()]
        failed = [lack.status for lack in lacks if lack.status != "ok"]
        status = failed[0] if len(failed) == len(_PARTS) else "ok"
        steps = tuple(step for lack in lacks for step in lack.steps)
        return State(status, "; ".join(lack.detail for lack in lacks), steps)

    # -- shared buffers -------------------------------------------------------------------------
    def _context(self, connection: Connection) -> Context:
        if self._site.instance is not None and not self._extension_tried:
            self._extension_tried = True
            with tolerated():  # its programs may lack the extension
                connection.execute(
                    f"create extension if not exists {_EXTENSION} schema public {sql.OWN}".encode()
                )
        row = connection.execute(sql.text("cache_context").encode()).fetchone()
        return Context(*(row or ()))

    def _read_buffers(self, connection: Connection, read: _Read) -> None:
        """Counts buffers by relation, and notes the blocks if the files can be looked at."""
        lack = no_extension(read.context) or self._too_many(read)
        if lack is not None:
            read.lacks["buffers"] = lack
            return
        with_blocks = self._seen().main_pid is not None
        text = sql.fill("cache_buffers", schema=read.context.schema, with_blocks=str(with_blocks).lower())
        begun_ns = _core.now_ns()
        counted = self._limited(connection, text, read.left_ns)
        if counted is None:
            read.lacks["buffers"] = _late(read.context.buffers)
            return
        self._buffer_ns = (_core.now_ns() - begun_ns) / max(1, read.context.buffers)
        read.buffers = {}
        for database, tablespace, filenode, fork, cached, dirty, pinned, blocks in counted:
            key = Key(database, tablespace, filenode)
            before = read.buffers.get(key, Buffers())
            sums = zip(before, (cached, dirty, pinned), strict=True)
            read.buffers[key] = Buffers(*(a + b for a, b in sums))
            if blocks is not None:
                read.blocks[key, fork] = blocks

    def _too_many(self, read: _Read) -> State | None:
        """Returns why the buffers are skipped, None if there is time for them. Tries again after some
        reads, since a slow read may have had another cause."""
        if self._buffer_ns * read.context.buffers <= _SHARE * read.left_ns:
            return None
        self._buffer_ns = max(BUFFER_NS, self._buffer_ns * _FORGET)
        return _late(read.context.buffers)

    def _limited(self, connection: Connection, text: str, most_ns: int) -> list[tuple[Any, ...]] | None:
        """Returns the rows of a statement with a time limit, None if the server cancelled it. The limit
        and the statement are one message and so one transaction; thus the limit ends with it, also behind
        a pooler."""
        most_ms = max(1, most_ns * 1000 // NS_PER_S)
        limit = f"select pg_catalog.set_config('statement_timeout', '{most_ms}', true) {sql.OWN}"
        self._added["executions"] += 1
        try:
            cursor = connection.execute(f"{limit}; {text}".encode())
        except psycopg.errors.QueryCanceled:
            return None
        cursor.nextset()
        return cursor.fetchall()

    # -- files ----------------------------------------------------------------------------------
    def _read_files(self, read: _Read) -> None:
        seen, context = self._seen(), read.context
        if seen.main_pid is None:
            status: Status = seen.status if seen.status != "ok" else "not here"
            read.lacks["files"] = State(status, f"{_PAGES}: {seen.detail}")
            return
        if self._site.machine.reached is not None:
            read.lacks["files"] = State("not supported", _NOT_OVER)
            return
        try:
            files = self._list_files(seen.main_pid)
            if not files.keys() >= (read.buffers or {}).keys():  # files created since the listing
                self._list = None
                files = self._list_files(seen.main_pid)
        except OSError as e:
            read.lacks["files"] = State("not permitted", f"{_PAGES} ({e.strerror}): {_AS_OWNER}", (_ROOT,))
            return
        layout = Layout(context.block_bytes, context.segment_bytes)
        read.files = self._pages.counted(files, read.blocks, layout, read.left_ns)
        read.lacks["files"] = _file_state(read.files)

    def _list_files(self, main_pid: int) -> dict[Key, list[Part]]:
        """Returns all files. If there are very many, the list may be somewhat old. Raises
        :class:`OSError`."""
        begun_ns = _core.now_ns()
        if self._list is None or self._list.main_pid != main_pid or begun_ns >= self._list.until_ns:
            files = files_of(main_pid, self._site.machine.root)
            now_ns = _core.now_ns()
            self._list = _List(main_pid, files, now_ns + _AGE * (now_ns - begun_ns))
        return self._list.files

    # -- names ----------------------------------------------------------------------------------
    def _names(self, connection: Connection, context: Context, keys: list[Key]) -> Names:
        """Returns names by relation. A relation of another database is named by its file only."""
        rows = connection.execute(sql.text("cache_databases").encode()).fetchall()
        databases = {0: SHARED, **{oid: str(name) for oid, name in rows}}
        local = [k for k in keys if k.database in (0, context.database)]
        known: dict[Key, tuple[str, str]] = {}
        with tolerated():  # several temporary relations may have the same number
            lists = [[k.tablespace for k in local], [k.filenode for k in local]]
            named = connection.execute(sql.text("cache_names").encode(), lists).fetchall()
            by_file = {(place, filenode): (name, kind) for place, filenode, name, kind in named}
            known = {k: by_file[k[1:]] for k in local if k[1:] in by_file}
        return {
            k: (
                databases.get(k.database, f"database {k.database}"),
                *known.get(k, (f"file {k.filenode}", "other")),
            )
            for k in keys
        }


def _role(kind: str | None) -> str:
    """Returns the role as in the table ``memory_processes``. The kind is NULL if it is hidden from this
    role."""
    if kind == CLIENT_BACKEND:
        return "session"
    if kind == OWN_CONNECTION:
        return "dbdyno"
    return "other" if kind is None else f"{ROLE}{kind}"


@contextmanager
def tolerated() -> Iterator[None]:
    """Ignores errors of the server, but not the loss of the connection."""
    try:
        yield
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        pass


# -- why something is not known ---------------------------------------------------------------------

_BUFFERS, _PAGES = "shared buffers by relation are unknown", "the page cache is unknown"
_NOT_OVER = f"{_PAGES} by relation: over ssh no files of the data directory are listed"
_AS_OWNER = "run dbdyno as the server's user or as root"
_ROOT = Step("sudo -E $(command -v dbdyno) run WORKLOAD --dsn DSN")


def no_extension(context: Context) -> State | None:
    """Returns why the shared buffers cannot be read, None if they can."""
    if not context.installed:
        why = f"{_BUFFERS}: {_EXTENSION} is not installed on the server's host"
        return State(
            "not supported", why, (Step("install PostgreSQL's contrib modules on the server's host"),)
        )
    if context.schema is None:
        why = f"there is no extension {_EXTENSION} in database {context.database_name}"
        return _step(context, "not supported", why, f"CREATE EXTENSION {_EXTENSION};")
    if not context.permitted:
        why = f"{context.role} may not read {_EXTENSION}"
        return _step(context, "not permitted", why, f"GRANT pg_monitor TO {context.role};")
    return None


def _step(context: Context, status: Status, why: str, command: str) -> State:
    step = Step(command, "sql" if context.superuser else "hand")
    by = "" if context.superuser else "as superuser, or administrator of a managed service: "
    return State(status, f"{_BUFFERS}: {why}; {by}{command.rstrip(';')}", (step,))


def _late(buffers: int) -> State:
    return State("lost", f"{_BUFFERS}: there was no time to list {buffers:,} buffers; dbdyno memory takes it")


def _file_state(counts: Mapping[Key, Counted]) -> State:
    """Returns why some or all files could not be counted."""
    for status, (why, steps) in _UNCOUNTED.items():
        if count := sum(c.status == status for c in counts.values()):
            words = f"{_PAGES} for {count:,} of {len(counts):,} relations: {why}"
            return State(status if count == len(counts) else "ok", words, steps)
    return State()


_UNCOUNTED: dict[Status, tuple[str, tuple[Step, ...]]] = {
    "not permitted": (_AS_OWNER, (_ROOT,)),
    "not supported": ("the file system does not tell", ()),
    "lost": ("there was no time for them; the next read begins with them", ()),
}
