"""Values of settings: PostgreSQL, "Setting Parameters", 20.1.1: types, units, lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg.rows import class_row

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.embedded import Instance
from dbdyno.engines.postgres.errors import COMPARE_VALUES
from dbdyno.engines.postgres.facts import Identity
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import UsageError

# Lists whose elements the server quotes individually (variable_is_guc_list_quote in pg_dump).
_PATHS = ("local_preload_libraries", "session_preload_libraries", "shared_preload_libraries")
PRELOADING = _PATHS
_QUOTED_LISTS = (*_PATHS, "search_path", "temp_tablespaces", "unix_socket_directories")
_BYTES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_US = {"us": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
_NUMBER = re.compile(
    r"\s*([-+]?(?:0x[0-9a-f]+|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+))\s*([a-z]*)\s*\Z", re.IGNORECASE
)
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_ELEMENT = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",]+?))\s*(?:,|\Z)')
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Guc(NamedTuple):
    """A row of ``gucs.sql``. ``setting``, ``reset_val`` and ``boot_val`` are in ``unit``, ``shown`` is
    that of SHOW."""

    name: str
    setting: str | None
    reset_val: str | None
    boot_val: str | None
    shown: str | None
    unit: str | None
    context: str
    vartype: str
    min_val: str | None
    max_val: str | None
    enumvals: list[str] | None
    source: str
    sourcefile: str | None
    sourceline: int | None
    pending_restart: bool

    @property
    def in_words(self) -> str:
        """Value of a new session, with its unit."""
        if self.setting == self.reset_val:
            return self.shown or ""
        count, name = _split_unit(self.unit or "")
        return f"{self.reset_val}{f' x {self.unit}' if count > 1 else name}"


def read(connection: Connection) -> dict[str, Guc]:
    """Returns all settings, by name in lower case."""
    with connection.cursor(row_factory=class_row(Guc)) as cursor:
        rows = cursor.execute(sql.text("gucs").encode()).fetchall()
    return {row.name.lower(): row._replace(source=_source(connection, row)) for row in rows}


def _source(connection: Connection, guc: Guc) -> str:
    """Returns the source of the value that the connection would have without settings of its own."""
    before = connection.before.get(guc.name)
    return before.source if before is not None and guc.source == "session" else guc.source


def canonical(guc: Guc, value: str) -> str | float:
    """Returns ``value`` in the server's form, numbers in the setting's unit. Raises :class:`UsageError`."""
    parsed: str | float = _PARSERS.get(guc.vartype, _text)(guc, value)
    if isinstance(parsed, float):
        _check_range(guc, value, parsed)
    return parsed


def same(guc: Guc, value: str, kept: str | None) -> bool:
    """Returns whether ``value`` means the server's value ``kept``."""
    if kept is None:
        return False
    parsed = canonical(guc, value)
    if isinstance(parsed, float):
        return math.isclose(parsed, float(kept), rel_tol=1e-9, abs_tol=1e-12)
    if guc.name in _QUOTED_LISTS:
        return elements(guc.name, value) == elements(guc.name, kept)
    return parsed == kept


def elements(name: str, value: str) -> list[str]:
    """Splits ``value`` as the server does: into one piece, unless it quotes the elements of that list."""
    if name not in _QUOTED_LISTS:
        return [value]
    pieces, at = [], 0
    while at < len(value):
        match = _ELEMENT.match(value, at)
        if match is None:
            raise UsageError(f"setting {name}: {value!r} is not a list", "separate the elements by commas")
        quoted, plain = match[1], match[2]
        if quoted is not None:
            pieces.append(quoted.replace('""', '"'))
        else:
            pieces.append(plain if name in _PATHS else plain.lower())
        at = match.end()
    return pieces


def _switch(guc: Guc, value: str) -> str:
    """Returns on or off. Unique prefixes are allowed (bool.c)."""
    word = value.strip().lower()
    for canonical, words in (("on", _TRUE), ("off", _FALSE)):
        if word and any(w.startswith(word) for w in words) and word != "o":
            return canonical
    raise _refused(guc, value, "it is on or off")


def _choice(guc: Guc, value: str) -> str:
    allowed = {word.lower(): word for word in guc.enumvals or []}
    word = value.lower()
    if word not in allowed and {"on", "off"} <= allowed.keys():  # hidden synonyms
        word = "on" if word in _TRUE else "off" if word in _FALSE else word
    if word not in allowed:
        raise _refused(guc, value, f"one of {', '.join(map(repr, allowed.values()))}")
    return allowed[word]


def _whole(guc: Guc, value: str) -> float:
    return float(round(_number(guc, value)))


def _number(guc: Guc, value: str) -> float:
    match = _NUMBER.match(value)
    if match is None:
        raise _refused(guc, value, "it is a number" + _unit_cure(guc))
    digits, unit = match[1], match[2]
    if guc.vartype == "integer" and _OCTAL.fullmatch(digits):  # as strtol() reads it
        number = float(int(digits, 8))
    else:
        number = float(int(digits, 16)) if "x" in digits.lower() else float(digits)
    if not unit:
        return number
    step, base = _scale(guc, value, unit)
    return number * step / base


def _scale(guc: Guc, value: str, unit: str) -> tuple[int, int]:
    """Returns a unit and the setting's own one ("8kB"), both in bytes or both in microseconds."""
    count, name = _split_unit(guc.unit or "")
    for table in (_BYTES, _US):
        if name in table and unit in table:
            return table[unit], count * table[name]
    raise _refused(guc, value, "it is a number" + _unit_cure(guc))


def _split_unit(unit: str) -> tuple[int, str]:
    digits = "".join(c for c in unit if c.isdigit())
    return int(digits or 1), unit[len(digits) :]


def _unit_cure(guc: Guc) -> str:
    if guc.unit is None:
        return " without a unit"
    table = _BYTES if _split_unit(guc.unit)[1] in _BYTES else _US
    return f", alone in units of {guc.unit}, or with one of {', '.join(table)}"


def _check_range(guc: Guc, value: str, parsed: float) -> None:
    least, most = (float(v) if v else None for v in (guc.min_val, guc.max_val))
    if (least is not None and parsed < least) or (most is not None and parsed > most):
        unit = f" (in units of {guc.unit})" if guc.unit else ""
        raise _refused(guc, value, f"{guc.min_val} to {guc.max_val}{unit}")


def _text(guc: Guc, value: str) -> str:  # noqa: ARG001
    return value


def _refused(guc: Guc, value: str, cure: str) -> UsageError:
    several = f"; {COMPARE_VALUES}" if "," in value else ""
    return UsageError(f"setting {guc.name} cannot be {value!r}", cure + several)


_PARSERS: dict[str, Any] = {"bool": _switch, "enum": _choice, "integer": _whole, "real": _number}


@dataclass(frozen=True)
class Site:
    """The server whose settings are changed. ``connection`` returns the current control connection;
    ``reconnect`` makes a new one."""

    dsn: str
    instance: Instance | None  # the embedded server
    identity: Identity
    connection: Callable[[], Connection]
    reconnect: Callable[[], None]
    machine: Machine = HERE  # the server's host

    def directory(self) -> str | None:
        """Returns the data directory, None if hidden from this role. It distinguishes copies of a cluster,
        which have the same system identifier."""
        cursor = self.connection().execute(
            "select setting from pg_catalog.pg_settings where name = 'data_directory'"
        )
        row = cursor.fetchone()
        return None if row is None else str(row[0])

    def role(self) -> str:
        """Returns the current role, quoted for SQL."""
        row = self.connection().execute("select pg_catalog.quote_ident(current_user)").fetchone()
        return str((row or ("?",))[0])

    def strangers(self) -> list[str]:
        """Returns descriptions of other connected sessions."""
        rows = self.connection().execute(sql.text("strangers").encode()).fetchall()
        return [f"{application} (process {pid}, user {user})" for pid, application, user in rows]
