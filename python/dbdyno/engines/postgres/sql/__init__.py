"""SQL of the control connection: one statement a file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template

OWN = "/* dbdyno */"
"""How each of them ends: by that dbdyno knows its own among the server's statements (a comment in front is
not always part of the text that the server keeps)."""


def is_own(statement: str) -> bool:
    """Whether a statement, as the server's counters keep it, is dbdyno's."""
    return statement.rstrip(" \n;").endswith(OWN)


@cache
def text(name: str) -> str:
    """The statement in ``NAME.sql``; raises :class:`FileNotFoundError`."""
    file = resources.files(__name__).joinpath(f"{name}.sql")
    return f"{file.read_text(encoding='utf-8')}{OWN}"


def fill(name: str, **values: object) -> str:
    """The statement in ``NAME.sql`` with ``${value}`` put in: only for names and numbers of our own."""
    return Template(text(name)).substitute(values)


def dollar_quoted(body: str) -> str:
    """The body of a function as SQL writes it, between tags that do not occur in it, whatever names it holds.

    >>> dollar_quoted("raise log '$body$'")
    "$body_$raise log '$body$'$body_$"
    """
    tag = "body"
    while f"${tag}$" in body:
        tag += "_"
    return f"${tag}${body}${tag}$"
