"""Reads the password file again, for sessions that begin later.

libpq reads it whenever it connects; the driver has the password of the control connection, which may be
hours old. Managed services give tokens in place of passwords, which expire: a long run goes on if the token
in the file is renewed.

PostgreSQL, "libpq - C Library", The Password File.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dbdyno.engines.postgres.connect import Connection

_FIELD = re.compile(r"((?:[^\\:]|\\.)*)(?::|$)")
_OTHERS = 0o077


def password(connection: Connection) -> str | None:
    """Returns the password that the file has now; None if the connection's is from elsewhere, if the file
    has none any more, or if others may read it, since libpq leaves out such a file."""
    options, info = connection.options(), connection.info
    if options.get("password") or not info.password or info.host.startswith(("/", "@")):
        return None
    wanted = (info.host or info.hostaddr, str(info.port), connection.database, connection.user)
    with suppress(OSError, KeyError):
        file = Path(options["passfile"])
        if not file.stat().st_mode & _OTHERS:
            return found(file.read_text(encoding="utf-8", errors="replace"), wanted)
    return None


def found(text: str, wanted: Sequence[str]) -> str | None:
    r"""Returns the password of the first line for host, port, database and role.

    >>> found("# db\n*:5432:app:ann:a\\:b\ndb:*:*:*:c", ("db", "5432", "app", "ann"))
    'a:b'
    >>> found("*:5432:app:ann:a", ("db", "5432", "app", "bob")) is None
    True
    """
    for line in text.splitlines():
        fields = _FIELD.findall(line)[: len(wanted) + 1]
        pairs = zip(fields, wanted, strict=False)
        if len(fields) > len(wanted) and all(f == "*" or _plain(f) == w for f, w in pairs):
            return _plain(fields[-1]) or None
    return None


def _plain(field: str) -> str:
    return re.sub(r"\\(.)", r"\1", field)
