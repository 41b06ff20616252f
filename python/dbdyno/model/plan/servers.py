"""Texts that name the server of a variant: a version, a directory of programs, or a connection string."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

_VERSION = re.compile(r"\d{1,4}(\.\d{1,4})*")
_NEXT = re.compile(r",(?=\s*(?:[\d./~]|\w+://|\w+\s*=))")


def _as_text(given: object) -> object:
    """Converts whole numbers and lists to text, because these are natural in TOML: ``17`` and ``[17, 18]``.
    Not 17.10, which is 17.1 there."""
    parts = given if isinstance(given, list) else [given]
    plain = parts and all(isinstance(p, int | str) and not isinstance(p, bool) for p in parts)
    return ",".join(str(p) for p in parts) if plain else given


ServerText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int)]
ServersText = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int | list[str | int])]


class NamedServer(NamedTuple):
    """A server of a list, with a short name for its variant. A directory in ``text`` is absolute."""

    name: str
    text: str


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def is_directory(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~")) or ("/" in text and not is_dsn(text))


def is_dsn(text: str) -> bool:
    """Returns whether the text is a connection string: a URI, or of the form ``name=value``."""
    return not text.startswith(("/", ".", "~")) and ("://" in text or "=" in text)


def is_started(server: str | None) -> bool:
    """Returns whether dbdyno starts this server. None: the variant names none."""
    return server is not None and not is_dsn(server)


def listed(text: str) -> list[str]:
    """Returns the servers of a list with commas between them. A comma within a connection string parts its
    hosts."""
    parts = _NEXT.split(text) if any(map(is_dsn, text.split(","))) else text.split(",")
    return [part.strip() for part in parts]
