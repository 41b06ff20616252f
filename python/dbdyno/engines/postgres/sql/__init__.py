"""SQL of the control connection: one statement a file."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template


@cache
def text(name: str) -> str:
    """The statement in ``NAME.sql``; raises :class:`FileNotFoundError`."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def fill(name: str, **values: object) -> str:
    """The statement in ``NAME.sql`` with ``${value}`` put in: only for names and numbers of our own."""
    return Template(text(name)).substitute(values)
