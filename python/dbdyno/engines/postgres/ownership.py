"""Decides what in a database is dbdyno's own: the one place that does, for every command.

A comment says what dbdyno would have made. That it did is known only from the owner (the role that logged in,
or a superuser), the kind of the object, and from what is attached to it: whoever may put a trigger, a rule, a
policy, an expression or a function there chooses what runs with the rights of dbdyno's role.
PostgreSQL: "Privileges" (5.8), "Row Security Policies" (5.9), "Function Security" (38.8).

All statements here need a search_path of pg_catalog alone (``own_settings.fix``).
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
    """How a relation differs from one that dbdyno made; columns of ``ownership_relations.sql``."""

    name: str
    scope: Scope
    what: str  # "has the trigger t"
    trusted: bool  # those who could bring it about may run code with the current role's rights anyway


class Schema(NamedTuple):
    """A schema by one of dbdyno's names; columns of ``ownership_schema.sql``."""

    comment: str
    owner: str | None  # None: the role that logged in, or a superuser
    code: Sequence[str]  # functions, operators and types in it that belong to others


def check_schema(connection: Connection, name: str, mark: str, *, with_code: bool = True) -> Schema | None:
    """Returns the schema of that name, which is dbdyno's own by its owner and its comment, which begins with
    ``mark``; None: it does not exist. ``with_code``: nor does it hold functions of others, which a call of
    ours might be taken for.

    Raises :class:`TargetError` where one of that name is not dbdyno's own.
    """
    row = connection.execute(sql.text("ownership_schema").encode(), {"schema": name}).fetchone()
    if row is None:
        return None
    found, why = Schema(*row), ""
    if found.owner is not None:
        why = f"it belongs to {found.owner}"
    elif not found.comment.startswith(mark):
        why = "its comment is not one of dbdyno's"
    elif with_code and found.code:
        why = f"it holds {listed(found.code)}"
    if why:
        raise TargetError(f"schema {name} is not dbdyno's: {why}", f"rename or drop it; {_ITS_OWNER}")
    return found


def differences(
    connection: Connection, schema: str, names: Sequence[str], partitions: int | None = None
) -> list[Difference]:
    """Returns what keeps these relations from being dbdyno's own; those that do not exist have none.

    ``partitions``: how many the loader made, numbered from 1; None: as many as there are.
    """
    values = {"schema": schema, "names": list(names), "partitions": partitions}
    rows = connection.execute(sql.text("ownership_relations").encode(), values).fetchall()
    return [Difference(*row) for row in rows]


def in_words(schema: str, found: Sequence[Difference]) -> str:
    """Returns one sentence on the first relation that differs; empty: none does."""
    if not found:
        return ""
    name = found[0].name
    of_it = [d for d in found if d.name == name]
    is_own = all(d.scope == "rows" for d in of_it)
    verdict = "cannot be emptied" if is_own else "is not dbdyno's"
    return f"{schema}.{name} {verdict}: it {listed([d.what for d in of_it])}"


def check_relations(
    connection: Connection, schema: str, names: Sequence[str], partitions: int | None = None
) -> None:
    """Raises :class:`TargetError` where one of these relations is not dbdyno's own; others may see its rows.

    ``partitions``: see :func:`differences`.
    """
    found = [d for d in differences(connection, schema, names, partitions) if d.scope != "rows"]
    if found:
        raise TargetError(in_words(schema, found), _ITS_OWNER)


def lock_tables(connection: Connection, schema: str, names: Sequence[str]) -> None:
    """Locks tables for a second look: what was attached to one after the first would go with it."""
    tables = (pgsql.SQL("only {}").format(pgsql.Identifier(schema, name)) for name in names)
    locked = pgsql.SQL(", ").join(tables)
    connection.execute(pgsql.SQL("lock table {} in access exclusive mode").format(locked))


def check_place(connection: Connection, schema: str) -> None:
    """Raises :class:`TargetError` where a superuser is to make tables in a schema whose owner, another role,
    could replace one between two statements."""
    row = connection.execute(sql.text("ownership_place").encode(), {"schema": schema}).fetchone()
    if row is not None:
        raise TargetError(
            f"schema {schema} belongs to {row[0]}, who could replace tables while a superuser loads them",
            f"connect as {row[0]}, or choose another schema: --dsn 'options=-csearch_path=SCHEMA ...'",
        )


def check_code(connection: Connection, schema: str, names: Sequence[str]) -> None:
    """Raises :class:`TargetError` where reading or changing rows of these relations, whoever made them, runs
    code of others with the current role's rights."""
    found = [
        d for d in differences(connection, schema, names) if d.scope in ("kind", "code") and not d.trusted
    ]
    if found:
        raise TargetError(
            f"{in_words(schema, found)}, which would run with your rights",
            "connect as the owner of the tables, or make others: dbdyno workload prepare",
        )


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
