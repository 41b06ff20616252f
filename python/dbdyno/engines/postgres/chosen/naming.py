"""Reads texts that name servers, and derives the names of their variants."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dbdyno.engines.postgres.connect import secret_in
from dbdyno.engines.postgres.embedded.programs import find_programs
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.servers import NamedServer, is_directory, is_dsn, is_version

_LONGEST = 32
_FORMS = 'name an installed version ("17"), a directory of programs ("./pg/bin"), or a connection string'


def named_servers(texts: Sequence[str], directory: Path) -> list[NamedServer]:
    """See :func:`dbdyno.engines.named_servers`."""
    checked = [_checked(text.strip(), directory) for text in texts]
    return [NamedServer(name, text) for name, text in zip(_names(checked), checked, strict=True)]


def _checked(text: str, directory: Path) -> str:
    if is_version(text):
        return text
    if is_dsn(text):
        _check_dsn(text)
        return text
    if is_directory(text):
        return str(directory.absolute() / Path(text).expanduser())
    beside = (
        f"; for the directory of that name write ./{text}" if text and (directory / text).is_dir() else ""
    )
    raise UsageError(f"{text!r} names no server", f"{_FORMS}{beside}")


def _check_dsn(dsn: str) -> None:
    """The text is not part of a message: it may hold a password."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise UsageError(
            f"the connection string of a server cannot be read: {type(e).__name__}", _FORMS
        ) from None
    if (cure := secret_in(dsn)) is not None:
        raise UsageError("the connection string of a server holds a password, and the plan is stored", cure)


def _names(texts: Sequence[str]) -> list[str]:
    """Returns distinct names: equal ones get a part of their path or address, then a number."""
    names = [_name(text) for text in texts]
    several = {name for name, n in Counter(names).items() if n > 1}
    for name in several:
        at = [i for i, other in enumerate(names) if other == name]
        for i, part in zip(at, _apart([_parts(texts[i]) for i in at]), strict=True):
            names[i] = _fit(f"{name}-{part}" if part else name)
    distinct: list[str] = []
    for name in names:
        numbered = (name if n == 1 else f"{name}-{n}" for n in count(1))
        distinct.append(next(n for n in numbered if n not in distinct))
    return distinct


def _name(text: str) -> str:
    if is_version(text):
        return f"pg{text}"
    if is_dsn(text):
        return _fit((_parts(text) or ["server"])[0])
    try:
        return f"pg{find_programs(Path(text)).major}"
    except DbdynoError:  # the run says why
        return _fit("-".join(["pg", *_parts(text)[:1]]))


def _parts(text: str) -> list[str]:
    """Returns the parts of a path or address by which a server can be named, the most distinctive first."""
    if is_version(text):
        return []
    if is_dsn(text):
        given = conninfo_to_dict(text)
        words = [str(given.get(k) or "") for k in ("service", "host", "dbname", "port")]
        return [w.rpartition("/")[2] for w in words if w]
    return [part for part in reversed(Path(text).parts[1:]) if part != "bin"]


def _apart(parts: Sequence[Sequence[str]]) -> list[str]:
    """Returns for each the first of its parts that not all of the others have; empty without one."""
    return [
        next((p for p in own if not all(p in other for other in parts)), "") if own else "" for own in parts
    ]


def _fit(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-._+")[:_LONGEST] or "server"
