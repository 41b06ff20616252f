"""The directories in which the server reads and writes: data, WAL, temporary files, tablespaces.

PostgreSQL, "Database File Layout": the working directory of the main process is the data directory,
``pg_wal`` may be a link. Temporary files are in ``base/pgsql_tmp`` of the data directory unless
``temp_tablespaces`` names tablespaces for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.presence import Presence
from dbdyno.model.schema.data_sources.devices import DEVICE_SOURCE
from dbdyno.model.sources.source import Source

MOST_TABLESPACES = 40
_LONGEST = 4000


def places(connection: Connection, presence: Presence) -> list[dict[str, Any]]:
    """Returns the key ``places`` of the watch's specification. A relative path is one below the data
    directory, whatever that is."""
    rows = connection.execute(sql.fill("places", most=MOST_TABLESPACES).encode()).fetchall()
    data = [path for name, path, _ in rows if name is None]
    data += [path for path in (_of_command_line(presence),) if path and path not in data]
    temporary = any(in_use for _, _, in_use in rows)
    found: list[tuple[str, str, list[str]]] = [("data", ".", data), ("WAL", "pg_wal", data)]
    if not temporary:
        found.append(("temporary files", "base/pgsql_tmp", data))
    for name, path, in_use in rows:
        if name is not None:
            found.append((f"temporary files in {name}" if in_use else f"tablespace {name}", path, []))
    return [{"place": _text(label), "paths": list(_paths(path, below))} for label, path, below in found]


def unknown_directories(places: list[dict[str, Any]], role: str) -> Iterator[Source]:
    """Yields the data source of devices with the right that this role lacks, if it may not see the data
    directory and nothing else names it. Who may look at the working directory of the main process needs
    none, and then reads the devices."""
    if any(place["place"] == "data" and place["paths"] == ["."] for place in places):
        yield Source(
            name=DEVICE_SOURCE.name,
            provenance=DEVICE_SOURCE.provenance,
            status="not permitted",
            detail=f"or let the role see data_directory: GRANT pg_read_all_settings TO {role} (pg_monitor "
            "includes it)",
        )


def _paths(path: str, directories: list[str]) -> Iterator[str]:
    """Yields a path relative to the data directory, then the same below each known one. A path that the core
    would refuse is left out."""
    for tried in (path, *(f"{directory}/{path}" for directory in directories)):
        if tried and tried == _text(tried) and len(tried.encode()) <= _LONGEST:
            yield tried


def _text(name: str) -> str:
    """Returns the text without control characters."""
    return "".join(c for c in name if c.isprintable() or c == " ")


def _of_command_line(presence: Presence) -> str | None:
    """Returns the data directory that the main process was started with, for a role that may not see it."""
    if presence.main_pid is None:
        return None
    try:
        words = (presence.machine.root / f"proc/{presence.main_pid}/cmdline").read_text().split("\0")
    except (OSError, ValueError):
        return None
    path = next((after for word, after in pairwise(words) if word == "-D"), "")
    return path if path.startswith("/") else None
