"""SQL statements of the control connection, one per file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template

OWN = "/* dbdyno */"
"""End of each statement, by which dbdyno recognises its own among the server's statements. Not at the
beginning, since the server does not always keep a leading comment."""


def is_own(statement: str) -> bool:
    """Returns whether a statement is dbdyno's, given its text in pg_stat_statements."""
    return statement.rstrip(" \n;").endswith(OWN)


@cache
def text(name: str) -> str:
    """Returns the statement in ``NAME.sql``. Raises :class:`FileNotFoundError`."""
    file = resources.files(__name__).joinpath(f"{name}.sql")
    return f"{file.read_text(encoding='utf-8')}{OWN}"


def fill(name: str, **values: object) -> str:
    """Returns the statement in ``NAME.sql`` with values for ``${value}``. Only for trusted names and
    numbers."""
    return Template(text(name)).substitute(values)


def dollar_quoted(body: str) -> str:
    """Returns the body of a function as an SQL string, quoted by a tag that does not occur in it.

    >>> dollar_quoted("raise log '$body$'")
    "$body_$raise log '$body$'$body_$"
    """
    tag = "body"
    while f"${tag}$" in body:
        tag += "_"
    return f"${tag}${body}${tag}$"
