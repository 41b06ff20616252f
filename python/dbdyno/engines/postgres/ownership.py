"""Decides which objects of a database are dbdyno's own, for all commands.

A comment alone proves nothing. An object is dbdyno's by its owner (the role that logged in, or a superuser),
by its kind, and by what is attached to it: whoever can attach a trigger, rule, policy, expression or function
chooses code that runs with the rights of dbdyno's role. PostgreSQL: "Privileges" (5.8), "Row Security
Policies" (5.9), "Function Security" (38.8).

All statements here need a search_path of only pg_catalog (``own_settings.fix``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from psycopg import sql as pgsql

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import TargetError

Scope = Literal["kind", "owner", "code", "link", "rows"]
_SHOWN = 3
_ITS_OWNER = (
    "dbdyno changes and removes only what its own role or a superuser made and nobody else added to: connect "
    "as the owner, remove what differs, or use another schema or database"
)


class Difference(NamedTuple):
    """A difference of a relation from those that dbdyno creates; columns of ``ownership_relations.sql``."""

    name: str
    scope: Scope
    what: str  # "has the trigger t"
    trusted: bool  # whoever can cause it may run code with the current role's rights anyway


class Schema(NamedTuple):
    """A schema with one of dbdyno's names; columns of ``ownership_schema.sql``."""

    comment: str
    owner: str | None  # None if it is the role that logged in, or a superuser
    code: Sequence[str]  # functions, operators and types in it that belong to others


def check_schema(connection: Connection, name: str, mark: str, *, with_code: bool = True) -> Schema | None:
    """Returns the schema, None if it does not exist. It is dbdyno's by its owner and by a comment that begins
    with ``mark``.

    With ``with_code`` it must also have no functions of others, which could be called instead of ours. Raises
    :class:`TargetError` if a schema of that name is not dbdyno's own.
    """
    row = connection.execute(sql.text("ownership_schema").encode(), {"schema": name}).fetchone()
    if row is None:
        return None
    schema, why = Schema(*row), ""
    if schema.owner is not None:
        raise TargetError(
            f"schema {name} belongs to the role {schema.owner}, so for your role it is not dbdyno's",
            f"if {schema.owner} has run dbdyno: connect as it, or let it run dbdyno clean; {_ITS_OWNER}",
        )
    if not schema.comment.startswith(mark):
        why = "its comment is not one of dbdyno's"
    elif with_code and schema.code:
        why = f"it holds {listed(schema.code)}"
    if why:
        raise TargetError(f"schema {name} is not dbdyno's: {why}", f"rename or drop it; {_ITS_OWNER}")
    return schema


def differences(
    connection: Connection, schema: str, names: Sequence[str], partitions: int | None = None
) -> list[Difference]:
    """Returns the reasons why these relations are not dbdyno's own. Relations that do not exist have none.

    ``partitions`` is how many the loader created, numbered from 1; None for all existing ones.
    """
    values = {"schema": schema, "names": list(names), "partitions": partitions}
    rows = connection.execute(sql.text("ownership_relations").encode(), values).fetchall()
    return [Difference(*row) for row in rows]


def in_words(schema: str, differing: Sequence[Difference]) -> str:
    """Returns a sentence on the first relation that differs, empty if none does."""
    if not differing:
        return ""
    name = differing[0].name
    of_it = [d for d in differing if d.name == name]
    is_own = all(d.scope == "rows" for d in of_it)
    verdict = "cannot be emptied" if is_own else "is not dbdyno's"
    return f"{schema}.{name} {verdict}: it {listed([d.what for d in of_it])}"


def check_relations(
    connection: Connection, schema: str, names: Sequence[str], partitions: int | None = None
) -> None:
    """Raises :class:`TargetError` if one of these relations is not dbdyno's own. Others may have access to
    its rows. ``partitions``: see :func:`differences`."""
    differing = [d for d in differences(connection, schema, names, partitions) if d.scope != "rows"]
    if differing:
        raise TargetError(in_words(schema, differing), _ITS_OWNER)


def lock_tables(connection: Connection, schema: str, names: Sequence[str]) -> None:
    """Locks tables for a second check: what was attached after the first one would be dropped with them."""
    tables = (pgsql.SQL("only {}").format(pgsql.Identifier(schema, name)) for name in names)
    locked = pgsql.SQL(", ").join(tables)
    connection.execute(pgsql.SQL("lock table {} in access exclusive mode").format(locked))


def check_place(connection: Connection, schema: str) -> None:
    """Raises :class:`TargetError` if a superuser would create tables in a schema of another role, which
    could replace a table between two statements."""
    row = connection.execute(sql.text("ownership_place").encode(), {"schema": schema}).fetchone()
    if row is not None:
        raise TargetError(
            f"schema {schema} belongs to {row[0]}, who could replace tables while a superuser loads them",
            f"connect as {row[0]}, or choose another schema: --dsn 'options=-csearch_path=SCHEMA ...'",
        )


def check_code(connection: Connection, schema: str, names: Sequence[str]) -> None:
    """Raises :class:`TargetError` if reading or changing rows of these relations, whoever owns them, runs
    code of others with the current role's rights."""
    differing = [
        d for d in differences(connection, schema, names) if d.scope in ("kind", "code") and not d.trusted
    ]
    if differing:
        raise TargetError(
            f"{in_words(schema, differing)}, which would run with your rights",
            "connect as the owner of the tables, or make others: dbdyno workload prepare",
        )


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
