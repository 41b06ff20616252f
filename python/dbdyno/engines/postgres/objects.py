"""dbdyno's schema, and the objects of built-in workloads in it: created, filled, checked, removed.

The PostgreSQL part of a workload is ``workloads/NAME/half.toml`` with the SQL files beside it. Nothing
outside the schema is changed.
"""

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
_GOLDEN = 0.6180339887498949  # the fraction whose multiples spread most evenly over [0, 1)


class Objects(BaseModel):
    """The objects of a workload. ``own_name`` is the name if each session has its own.

    A table has one row per block; ``blocks_parameter`` names the parameter with the number of blocks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["table", "function"]
    name: str
    own_name: str | None = None
    build: tuple[str, ...]  # files executed in one transaction
    after: tuple[str, ...] = ()  # files executed afterwards, outside a transaction
    blocks_parameter: str = "blocks"
    in_cache: bool = True  # refuse tables that do not fit into the database's cache

    def name_for(self, session: int, params: Mapping[str, Any]) -> str:
        """Returns the name of the object that a session uses."""
        if self.own_name is not None and params.get("tables") == "own":
            return self.own_name.format(session=session)
        return self.name

    def names(self, sessions: int, params: Mapping[str, Any]) -> list[str]:
        """Returns the names of all objects that these sessions use, each once."""
        return list(dict.fromkeys(self.name_for(n, params) for n in range(sessions)))


class Changing(BaseModel):
    """Differences of the workload if ``parameter`` is above 0: calls change rows, in separate objects."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameter: str
    call: str
    name: str
    own_name: str | None = None
    after: tuple[str, ...]


class Half(BaseModel):
    """Contents of ``half.toml``. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    call: str
    size_unit: str
    size_start: int
    size_parameter: str | None = None  # its value is a call's size; None if the size is calibrated
    size_power: str | None = None  # parameter whose value is the exponent of that size
    work: Literal["lio", "size"]
    read_only: bool
    session: dict[str, str] = Field(default_factory=dict)
    objects: Objects
    changing: Changing | None = None

    def with_params(self, params: Mapping[str, Any]) -> Half:
        """Returns the workload for these parameters."""
        changing = self.changing
        if changing is None or not params.get(changing.parameter):
            return self
        other = {"name": changing.name, "own_name": changing.own_name, "after": changing.after}
        objects = self.objects.model_copy(update=other)
        return self.model_copy(update={"call": changing.call, "read_only": False, "objects": objects})

    def all_objects(self) -> list[Objects]:
        """Returns the objects for all values of the parameters."""
        changing = self.changing
        return [self.objects, *([self.with_params({changing.parameter: 1}).objects] if changing else [])]


@cache
def half_of(name: str) -> Half:
    """Returns the PostgreSQL part of a workload. Raises :class:`UsageError` if there is none."""
    file = _FOLDER / name / "half.toml"
    if not file.is_file():
        raise UsageError(f"PostgreSQL has no workload {name!r}", did_you_mean(name, names()))
    return Half.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def names() -> list[str]:
    """Returns the workloads that have objects in dbdyno's schema. Those made of scripts have none."""
    folders = sorted(d.name for d in _FOLDER.iterdir() if (d / "half.toml").is_file())
    return [name for name in folders if script_half(name) is None]


def statement_of(
    workload: str, file: str, object_name: str, blocks: int, params: Mapping[str, Any] | None = None
) -> str:
    """Returns a statement of the workload for one object. It may contain ``params``, whose types were
    checked, by name."""
    span = max(1, blocks - RANGE_ROWS + 1)
    values = {
        **(params or {}),
        "table": f"{SCHEMA}.{object_name}",
        "blocks": blocks,
        "span": span,
        "stride": stride(span),
    }

    def substitute(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda m: str(values[m[1]]), text)

    return substitute((_FOLDER / workload / substitute(file)).read_text(encoding="utf-8")).strip()


def stride(span: int) -> int:
    """Returns a step through 0..span-1 that visits each number once, in wide jumps: coprime to span and near
    the golden section of it.

    >>> sorted(n * stride(10) % 10 for n in range(10)) == list(range(10))
    True
    """
    near = max(1, round(span * _GOLDEN))
    return next((s for s in range(near, 2 * span + 2) if gcd(s, span) == 1), 1)


MARK = "Made by dbdyno; `dbdyno clean` removes it."
PREPARED = "Made by dbdyno workload prepare"
"""Beginning of the comment on a loaded table."""
_USUAL_BLOCKS = 1024
_DROPS_AT_ONCE = 200  # tables in a transaction, which can hold a limited number of locks


def prepare(connection: Connection, name: str, params: Mapping[str, Any], sessions: int) -> int:
    """Creates the objects that ``sessions`` sessions of a workload need. Keeps those whose comment has the
    right stamp.

    Returns the blocks of each table. Raises :class:`TargetError` if an object of one of these names is not
    dbdyno's own.
    """
    half = half_of(name).with_params(params)
    blocks = blocks_of(connection, half, params, sessions)
    wanted = half.objects.names(sessions, params)
    own_schema(connection)
    stamp = f"dbdyno {name} v{half.version} blocks={blocks}"
    stamps = {n: s for kind, n, s in _read_stamps(connection) if kind == half.objects.kind}
    ownership.check_relations(connection, SCHEMA, wanted)
    missing = [n for n in wanted if stamps.get(n) != stamp]
    if missing and not _may_build(connection):
        raise NotPrivileged(f"schema {SCHEMA} belongs to another user", _access_cure(connection.user))
    with _explain_errors(connection), connection.patient():
        for object_name in missing:
            _build(connection, name, half, object_name, blocks, stamp, replace=object_name in stamps)
    return blocks


def blocks_of(connection: Connection, half: Half, params: Mapping[str, Any], sessions: int) -> int:
    """Returns the blocks of each table. Raises :class:`UsageError` if a call visits more, or the tables do
    not fit into half of the cache."""
    blocks = int(params.get(half.objects.blocks_parameter) or 0)
    if not half.objects.in_cache:
        return _check_visited(blocks, half, params)
    if 0 < blocks < RANGE_ROWS:
        raise UsageError(f"blocks={blocks}: a range is {RANGE_ROWS} blocks", f"blocks={RANGE_ROWS} or more")
    buffers, block_bytes = connection.execute(sql.text("cache")).fetchone() or (0, 8192)
    room = buffers // 2 // (sessions if params.get("tables") == "own" else 1)
    if blocks > room or room < RANGE_ROWS:
        tables = sessions if params.get("tables") == "own" else 1
        size_mb = tables * max(blocks, RANGE_ROWS) * block_bytes / 1e6
        raise UsageError(
            f"{tables:,} table(s) of {max(blocks, RANGE_ROWS)} blocks are {size_mb:,.0f} MB, more than half "
            f"of shared_buffers ({buffers * block_bytes / 1e6:,.0f} MB): they would not stay in the cache",
            "fewer blocks, fewer sessions, tables=shared, or a larger shared_buffers",
        )
    return blocks or min(_USUAL_BLOCKS, room)


def _check_visited(blocks: int, half: Half, params: Mapping[str, Any]) -> int:
    visited = int(params[half.size_parameter]) if half.size_parameter else 0
    if visited > blocks:
        name = half.objects.blocks_parameter
        raise UsageError(
            f"{half.size_parameter}={visited}: a table has only {blocks} blocks ({name}={blocks})",
            f"{name}={visited} or more",
        )
    return blocks


def own_schema(connection: Connection) -> None:
    """Creates dbdyno's schema if it is missing. Checks the privilege first, to keep errors out of the
    server's log."""
    if _schema_is_ours(connection):
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
        if not _schema_is_ours(connection):
            raise TargetError(
                f"schema {SCHEMA} has just been created by another session", "try again"
            ) from None


def _may_build(connection: Connection) -> bool:
    row = connection.execute(
        "select bool_and(pg_catalog.has_schema_privilege(%s, p)) from unnest(array['create', 'usage']) as p",
        (SCHEMA,),
    ).fetchone()
    return row is None or bool(row[0])


def _access_cure(user: str) -> str:
    return f"as its owner: dbdyno clean, or GRANT ALL ON SCHEMA {SCHEMA} TO {user}"


def _schema_is_ours(connection: Connection) -> bool:
    """Returns whether our schema exists. Raises :class:`TargetError` if a schema of that name is not ours."""
    return ownership.check_schema(connection, SCHEMA, MARK) is not None


def check(connection: Connection, tables: Sequence[str]) -> None:
    """Raises :class:`TargetError` if our schema, or one of these tables in it, is not dbdyno's own."""
    if _schema_is_ours(connection):
        ownership.check_relations(connection, SCHEMA, tables)


def _read_stamps(connection: Connection) -> list[tuple[str, str, str | None]]:
    """Returns kind, name and stamp of each table and function in our schema that is owned by us or by a
    superuser."""
    rows = connection.execute(sql.text("stamped").encode()).fetchall()
    return [(kind, name, stamp) for kind, name, stamp in rows]


def _build(
    connection: Connection, name: str, half: Half, target: str, blocks: int, stamp: str, *, replace: bool
) -> None:
    """Creates one object. Sets its stamp last: an object without one is unfinished and is created anew.

    Without ``replace`` it is an error if another session created the object meanwhile, since that was not
    checked.
    """
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
    """Checks that each row has a block of its own: else the work of a call would be wrong."""
    query = pgsql.SQL(sql.text("table_blocks")).format(pgsql.Literal(table.as_string(connection)))
    (blocks,) = connection.execute(query).fetchone() or (0,)
    if blocks < rows:
        raise TargetError(
            f"table {table.as_string(connection)} has {rows:,} rows in {blocks:,} blocks, not one a block",
            "this is a bug in dbdyno: please report it with the server's block_size",
        )


def relations(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Returns the oids of each table and its indexes, separated by commas."""
    oids: dict[str, str] = dict(connection.execute(sql.text("relations")).fetchall())
    return {n: oids[n] for n in names}


def clean(connection: Connection) -> list[str]:
    """Removes all objects of dbdyno. Returns descriptions of them.

    An object stays if another one depends on it, or others added to it. Raises :class:`TargetError` if the
    schema stays because of such objects.
    """
    schema = ownership.check_schema(connection, SCHEMA, MARK, with_code=False)
    if schema is None:
        return []
    stamped = _read_stamps(connection)
    loaded = _loaded_tables(
        {name for kind, name, stamp in stamped if kind == "table" and _has_prepared_stamp(stamp)}
    )
    own = [(k, n) for k, n, s in stamped if (k == "table" and n in loaded) or _is_ours(k, n, s)]
    changed = _changed_tables(connection, [n for k, n in own if k == "table"])
    removed = []
    with _explain_errors(connection), connection.patient():
        for kind in ("function", "table"):
            names = [n for k, n in own if k == kind and n not in changed]
            for start in range(0, len(names), _DROPS_AT_ONCE):
                dropped = _drop(connection, kind, names[start : start + _DROPS_AT_ONCE])
                removed += [f"{kind} {SCHEMA}.{n}" for n in dropped]
        _drop_schema(connection, schema.code)
    return [*removed, f"schema {SCHEMA}"]


def _changed_tables(connection: Connection, tables: Sequence[str]) -> set[str]:
    return {d.name for d in ownership.differences(connection, SCHEMA, tables) if d.scope != "rows"}


def _drop(connection: Connection, kind: str, names: Sequence[str]) -> list[str]:
    """Drops the objects; tables only after a second check under a lock. Returns the names of dropped
    objects."""
    with connection.transaction():
        droppable = list(names)
        if kind == "table":
            ownership.lock_tables(connection, SCHEMA, names)
            changed = _changed_tables(connection, names)
            droppable = [n for n in names if n not in changed]
        if droppable:
            full = pgsql.SQL(", ").join(pgsql.Identifier(SCHEMA, n) for n in droppable)
            connection.execute(pgsql.SQL("drop {} {}").format(pgsql.SQL(kind), full))
    return droppable


def _drop_schema(connection: Connection, code: Sequence[str]) -> None:
    """Drops the schema. ``code`` are functions of others in it, for the message."""
    try:
        connection.execute(f"drop schema {SCHEMA}".encode())
    except psycopg.errors.DependentObjectsStillExist as e:
        raise TargetError(
            f"schema {SCHEMA} stays, for it holds what is not dbdyno's: "
            + (ownership.listed(code) or str(e.diag.message_detail)),
            "move or drop that yourself, then dbdyno clean again",
        ) from None


def _has_prepared_stamp(stamp: str | None) -> bool:
    return stamp is not None and stamp.startswith(PREPARED)


def _loaded_tables(stamped: Container[str]) -> set[str]:
    """Returns the tables of workloads loaded into our schema, given the stamped tables: only the first
    table of a workload has a stamp."""
    descriptions = [loader.description(name) for name in loader.names()]
    return {t.name for d in descriptions if d.own_schema and d.tables[0].name in stamped for t in d.tables}


def _is_ours(kind: str, name: str, stamp: str | None) -> bool:
    """Returns whether the object is ours: by its stamp, or if it is unfinished, by its name."""
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
def _explain_errors(connection: Connection) -> Iterator[None]:
    """Raises errors of work in our schema with a cure."""
    user = connection.user
    cures = {
        "42501": f"schema {SCHEMA} belongs to another user: {_access_cure(user)}",
        "2BP01": "something of yours depends on it: drop that first",
        "53100": "the server's disk is full: make room there",
    }
    try:
        yield
    except psycopg.Error as e:
        raise server_error(e, f"in schema {SCHEMA}", cures.get(e.sqlstate or "")) from None
