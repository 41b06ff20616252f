"""This engine's half of a workload: ``workloads/NAME/half.toml`` and the SQL files beside it;
and our schema: made, filled, looked at, removed. Nothing outside it is ever touched."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from math import gcd
from typing import Any, Literal

import psycopg
from psycopg import sql as pgsql
from pydantic import BaseModel, ConfigDict, Field

from dbdyno.engines.postgres import loader, ownership, sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import server_error
from dbdyno.engines.postgres.script_halves import script_half
from dbdyno.model.errors import NotPrivileged, TargetError, UsageError, did_you_mean

SCHEMA = "dbdyno"
RANGE_ROWS = 64
_FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"
_GOLDEN = 0.6180339887498949  # of all fractions the one whose multiples spread most evenly


class Objects(BaseModel):
    """What a workload needs in our schema. ``own_name``: where each session may have its own.

    A table has one row a block, and ``blocks_parameter`` says how many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["table", "function"]
    name: str
    own_name: str | None = None
    build: tuple[str, ...]  # in one transaction
    after: tuple[str, ...] = ()  # outside
    blocks_parameter: str = "blocks"
    in_cache: bool = True  # refused where it would not stay in the database's cache

    def name_for(self, session: int, params: Mapping[str, Any]) -> str:
        """The object that a session uses."""
        if self.own_name is not None and params.get("tables") == "own":
            return self.own_name.format(session=session)
        return self.name

    def names(self, sessions: int, params: Mapping[str, Any]) -> list[str]:
        """All objects that so many sessions use, in order, each once."""
        return list(dict.fromkeys(self.name_for(n, params) for n in range(sessions)))


class Changing(BaseModel):
    """What differs where ``parameter`` is above 0: the call changes rows, of objects of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameter: str
    call: str
    name: str
    own_name: str | None = None
    after: tuple[str, ...]


class Half(BaseModel):
    """``half.toml``; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    call: str
    size_unit: str
    size_start: int
    size_parameter: str | None = None  # whose value a call's size is, where that is not calibrated
    size_power: str | None = None  # to the power of whose value
    work: Literal["lio", "size"]
    read_only: bool
    session: dict[str, str] = Field(default_factory=dict)
    objects: Objects
    changing: Changing | None = None

    def with_params(self, params: Mapping[str, Any]) -> Half:
        """As it is with these parameters."""
        changing = self.changing
        if changing is None or not params.get(changing.parameter):
            return self
        other = {"name": changing.name, "own_name": changing.own_name, "after": changing.after}
        objects = self.objects.model_copy(update=other)
        return self.model_copy(update={"call": changing.call, "read_only": False, "objects": objects})

    def all_objects(self) -> list[Objects]:
        """With whatever parameters."""
        changing = self.changing
        return [self.objects, *([self.with_params({changing.parameter: 1}).objects] if changing else [])]


@cache
def half_of(name: str) -> Half:
    """Raises :class:`UsageError` where this engine does not know the workload."""
    file = _FOLDER / name / "half.toml"
    if not file.is_file():
        raise UsageError(f"PostgreSQL has no workload {name!r}", did_you_mean(name, names()))
    return Half.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def names() -> list[str]:
    """All workloads of this engine that have objects of their own: those made of scripts have none."""
    found = sorted(d.name for d in _FOLDER.iterdir() if (d / "half.toml").is_file())
    return [name for name in found if script_half(name) is None]


def statement_of(
    workload: str, file: str, object_name: str, blocks: int, params: Mapping[str, Any] | None = None
) -> str:
    """A workload's statement for one object. ``params`` (checked by their types) may stand in it by name."""
    span = max(1, blocks - RANGE_ROWS + 1)
    values = {
        **(params or {}),
        "table": f"{SCHEMA}.{object_name}",
        "blocks": blocks,
        "span": span,
        "stride": stride(span),
    }

    def filled(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda m: str(values[m[1]]), text)

    return filled((_FOLDER / workload / filled(file)).read_text(encoding="utf-8")).strip()


def stride(span: int) -> int:
    """A step through 0..span-1 that visits each once and jumps widely: coprime, near the golden section.

    >>> sorted(n * stride(10) % 10 for n in range(10)) == list(range(10))
    True
    """
    near = max(1, round(span * _GOLDEN))
    return next((s for s in range(near, 2 * span + 2) if gcd(s, span) == 1), 1)


MARK = "Made by dbdyno; `dbdyno clean` removes it."
PREPARED = "Made by dbdyno workload prepare"
"""How the stamp of a loaded table begins."""
_USUAL_BLOCKS = 1024
_DROPS_AT_ONCE = 200  # tables: a transaction may hold only so many locks


def prepare(connection: Connection, name: str, params: Mapping[str, Any], sessions: int) -> int:
    """Makes what ``sessions`` sessions of workload ``name`` need; what exists with the right stamp stays.

    Returns the blocks of each table. Raises :class:`TargetError` where an object of one of these names is not
    dbdyno's own.
    """
    half = half_of(name).with_params(params)
    blocks = blocks_of(connection, half, params, sessions)
    wanted = half.objects.names(sessions, params)
    own_schema(connection)
    stamp = f"dbdyno {name} v{half.version} blocks={blocks}"
    stamps = {n: s for kind, n, s in _stamped(connection) if kind == half.objects.kind}
    ownership.check_relations(connection, SCHEMA, wanted)
    missing = [n for n in wanted if stamps.get(n) != stamp]
    if missing and not _may_build(connection):
        raise NotPrivileged(f"schema {SCHEMA} belongs to another user", _foreign(connection.user))
    with _privileged(connection), connection.patient():
        for object_name in missing:
            _build(connection, name, half, object_name, blocks, stamp, replace=object_name in stamps)
    return blocks


def blocks_of(connection: Connection, half: Half, params: Mapping[str, Any], sessions: int) -> int:
    """Blocks of each table. Raises :class:`UsageError` where a call visits more than there are, or where own
    tables that must cannot all stay in the cache."""
    asked = int(params.get(half.objects.blocks_parameter) or 0)
    if not half.objects.in_cache:
        return _enough(asked, half, params)
    if 0 < asked < RANGE_ROWS:
        raise UsageError(f"blocks={asked}: a range is {RANGE_ROWS} blocks", f"blocks={RANGE_ROWS} or more")
    buffers, block_bytes = connection.execute(sql.text("cache")).fetchone() or (0, 8192)
    room = buffers // 2 // (sessions if params.get("tables") == "own" else 1)
    if asked > room or room < RANGE_ROWS:
        tables = sessions if params.get("tables") == "own" else 1
        size_mb = tables * max(asked, RANGE_ROWS) * block_bytes / 1e6
        raise UsageError(
            f"{tables:,} table(s) of {max(asked, RANGE_ROWS)} blocks are {size_mb:,.0f} MB, more than half "
            f"of shared_buffers ({buffers * block_bytes / 1e6:,.0f} MB): they would not stay in the cache",
            "fewer blocks, fewer sessions, tables=shared, or a larger shared_buffers",
        )
    return asked or min(_USUAL_BLOCKS, room)


def _enough(asked: int, half: Half, params: Mapping[str, Any]) -> int:
    visited = int(params[half.size_parameter]) if half.size_parameter else 0
    if visited > asked:
        name = half.objects.blocks_parameter
        raise UsageError(
            f"{half.size_parameter}={visited}: a table has only {asked} blocks ({name}={asked})",
            f"{name}={visited} or more",
        )
    return asked


def own_schema(connection: Connection) -> None:
    """Makes it where it is not there. The right is asked for first: the server's log stays free of errors."""
    if _ours(connection):
        return
    role, database, may = connection.execute(sql.text("may_create_schema").encode()).fetchone() or (
        "",
        "",
        True,
    )
    if not may:
        raise NotPrivileged(
            f"no right to create the schema {SCHEMA} in database {connection.database}",
            f"as owner of the database or superuser: GRANT CREATE ON DATABASE {database} TO {role};",
        )
    try:
        with connection.transaction():
            connection.execute(f"create schema {SCHEMA}".encode())
            connection.execute(pgsql.SQL("comment on schema dbdyno is {}").format(MARK))
    except psycopg.errors.DuplicateSchema:
        if not _ours(connection):
            raise TargetError(
                f"schema {SCHEMA} has just been created by another session", "try again"
            ) from None


def _may_build(connection: Connection) -> bool:
    row = connection.execute(
        "select bool_and(pg_catalog.has_schema_privilege(%s, p)) from unnest(array['create', 'usage']) as p",
        (SCHEMA,),
    ).fetchone()
    return row is None or bool(row[0])


def _foreign(user: str) -> str:
    return f"as its owner: dbdyno clean, or GRANT ALL ON SCHEMA {SCHEMA} TO {user}"


def _ours(connection: Connection) -> bool:
    """Whether our schema exists. Raises :class:`TargetError` where one of that name is not ours."""
    return ownership.check_schema(connection, SCHEMA, MARK) is not None


def check(connection: Connection, tables: Sequence[str]) -> None:
    """Raises :class:`TargetError` where our schema, or one of these tables in it, is not dbdyno's own."""
    if _ours(connection):
        ownership.check_relations(connection, SCHEMA, tables)


def _stamped(connection: Connection) -> list[tuple[str, str, str | None]]:
    """Kind, name and stamp of each table and function in our schema that belongs to us or to a superuser."""
    rows = connection.execute(sql.text("stamped").encode()).fetchall()
    return [(kind, name, stamp) for kind, name, stamp in rows]


def _build(
    connection: Connection, name: str, half: Half, target: str, blocks: int, stamp: str, *, replace: bool
) -> None:
    """Makes one object. Its stamp comes last: what has none is unfinished and made anew. Without ``replace``
    one that another session made meanwhile is an error: it was not checked."""
    kind = pgsql.SQL(half.objects.kind)
    full = pgsql.Identifier(SCHEMA, target)
    with connection.transaction():
        if replace:
            connection.execute(pgsql.SQL("drop {} {}").format(kind, full))
        for file in half.objects.build:
            connection.execute(statement_of(name, file, target, blocks).encode())
    for file in half.objects.after:
        connection.execute(statement_of(name, file, target, blocks).encode())
    if half.objects.kind == "table":
        _check_blocks(connection, full, blocks)
    connection.execute(pgsql.SQL("comment on {} {} is {}").format(kind, full, stamp))


def _check_blocks(connection: Connection, table: pgsql.Identifier, rows: int) -> None:
    """One row a block: else the work of a call would not be what it says."""
    query = pgsql.SQL(sql.text("table_blocks")).format(pgsql.Literal(table.as_string(connection)))
    (found,) = connection.execute(query).fetchone() or (0,)
    if found < rows:
        raise TargetError(
            f"table {table.as_string(connection)} has {rows:,} rows in {found:,} blocks, not one a block",
            "this is a bug in dbdyno: please report it with the server's block_size",
        )


def relations(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Oids of each table and its indexes, parted by commas."""
    found: dict[str, str] = dict(connection.execute(sql.text("relations")).fetchall())
    return {n: found[n] for n in names}


def clean(connection: Connection) -> list[str]:
    """Removes what we made, and returns what that was, in words.

    An object that something else depends on stays, and so does one that others added to. Raises
    :class:`TargetError` where the schema stays for them.
    """
    schema = ownership.check_schema(connection, SCHEMA, MARK, with_code=False)
    if schema is None:
        return []
    stamped = _stamped(connection)
    loaded = _loaded({name for kind, name, stamp in stamped if kind == "table" and _prepared(stamp)})
    ours = [(k, n) for k, n, s in stamped if (k == "table" and n in loaded) or _is_ours(k, n, s)]
    kept = _kept(connection, [n for k, n in ours if k == "table"])
    removed = []
    with _privileged(connection), connection.patient():
        for kind in ("function", "table"):
            names = [n for k, n in ours if k == kind and n not in kept]
            for start in range(0, len(names), _DROPS_AT_ONCE):
                gone = _drop(connection, kind, names[start : start + _DROPS_AT_ONCE])
                removed += [f"{kind} {SCHEMA}.{n}" for n in gone]
        _drop_schema(connection, schema.code)
    return [*removed, f"schema {SCHEMA}"]


def _kept(connection: Connection, tables: Sequence[str]) -> set[str]:
    return {d.name for d in ownership.differences(connection, SCHEMA, tables) if d.scope != "rows"}


def _drop(connection: Connection, kind: str, names: Sequence[str]) -> list[str]:
    """Drops them, tables after a second look under their lock; returns the names of those that are gone."""
    with connection.transaction():
        gone = list(names)
        if kind == "table":
            ownership.lock_tables(connection, SCHEMA, names)
            kept = _kept(connection, names)
            gone = [n for n in names if n not in kept]
        if gone:
            full = pgsql.SQL(", ").join(pgsql.Identifier(SCHEMA, n) for n in gone)
            connection.execute(pgsql.SQL("drop {} {}").format(pgsql.SQL(kind), full))
    return gone


def _drop_schema(connection: Connection, code: Sequence[str]) -> None:
    """``code``: functions of others in it."""
    try:
        connection.execute(f"drop schema {SCHEMA}".encode())
    except psycopg.errors.DependentObjectsStillExist as e:
        raise TargetError(
            f"schema {SCHEMA} stays, for it holds what is not dbdyno's: "
            + (ownership.listed(code) or str(e.diag.message_detail)),
            "move or drop that yourself, then dbdyno clean again",
        ) from None


def _prepared(stamp: str | None) -> bool:
    return stamp is not None and stamp.startswith(PREPARED)


def _loaded(first: Container[str]) -> set[str]:
    """Tables of workloads that are loaded into our schema, by the first of each, which has the stamp."""
    found = [loader.description(name) for name in loader.names()]
    return {t.name for d in found if d.own_schema and d.tables[0].name in first for t in d.tables}


def _is_ours(kind: str, name: str, stamp: str | None) -> bool:
    """By its stamp; unfinished ones by their name."""
    if stamp is not None and stamp.startswith("dbdyno "):
        return True
    return stamp is None and any(
        kind == o.kind and re.fullmatch(f"{o.name}|{_pattern(o.own_name)}", name)
        for w in names()
        for o in half_of(w).all_objects()
    )


def _pattern(own_name: str | None) -> str:
    return re.sub(r"\{[^}]*\}", r"\\d+", own_name or "")


@contextmanager
def _privileged(connection: Connection) -> Iterator[None]:
    """Errors while we work in our schema, with the cure."""
    user = connection.user
    cures = {
        "42501": f"schema {SCHEMA} belongs to another user: {_foreign(user)}",
        "2BP01": "something of yours depends on it: drop that first",
        "53100": "the server's disk is full: make room there",
    }
    try:
        yield
    except psycopg.Error as e:
        raise server_error(e, f"in schema {SCHEMA}", cures.get(e.sqlstate or "")) from None
