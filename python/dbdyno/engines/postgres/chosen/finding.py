"""Finds the installed servers: in the directories of packages, on PATH, in the wheel, and in those of
``DBDYNO_PG_BINS``."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from dbdyno.engines.postgres.embedded.programs import Programs, find_programs
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.servers import is_version

VARIABLE = "DBDYNO_PG_BINS"
"""Environment variable with further directories of programs, parted by colons."""
_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # yum.postgresql.org
    "/usr/libexec/postgresql*",  # Alpine
    "/usr/local/pgsql*/bin",  # PostgreSQL's own Makefile
    "/opt/postgresql*/bin",
    "/opt/pgsql*/bin",
    "/opt/pg*/bin",
    "~/.local/pgsql*/bin",
)


def programs_of(version: str) -> Programs:
    """Returns the programs of a version, ``17`` or ``17.6``; of several, the newest. Raises
    :class:`UsageError` with what was looked at and the versions that are there."""
    known = installed()
    fitting = [p for p in known if p.version == version or p.version.split(".")[0] == version]
    if fitting:
        return max(fitting, key=_minor)  # of equal ones the first
    there = ", ".join(f"{p.version} ({p.bin_dir})" for p in known) or "none"
    raise UsageError(
        f"PostgreSQL {version} is not installed; there are: {there}",
        f"looked at {', '.join(_PLACES)}, PATH, dbdyno's own and the directories in {VARIABLE}; name its "
        "directory of programs instead of the version, or in that variable",
    )


def programs_named(text: str | None) -> Programs:
    """Returns the programs of a version or directory; for None those of the wheel. Raises
    :class:`UsageError`, and :class:`TargetError` without the wheel."""
    if text is None:
        return find_programs(None)
    return programs_of(text) if is_version(text) else find_programs(Path(text))


def missing(text: str | None) -> str | None:
    """See :func:`dbdyno.engines.missing_server`."""
    try:
        programs_named(text)
    except DbdynoError as e:
        return f"{e.message}; {e.cure}" if e.cure else e.message
    return None


def _minor(programs: Programs) -> int:
    minor = programs.version.partition(".")[2]
    return int(minor) if minor.isdigit() else -1


def installed() -> tuple[Programs, ...]:
    """Returns the programs of all servers found, each directory once. Leaves out those that do not run."""
    return _installed(os.environ.get(VARIABLE, ""), os.environ.get("PATH", ""), os.environ.get("HOME", ""))


@cache
def _installed(given: str, path: str, home: str) -> tuple[Programs, ...]:
    places: list[Path | None] = [Path(p) for p in given.split(":") if p]
    for pattern in _PLACES:
        below, _, rest = pattern.replace("~", home or "/nonexistent").lstrip("/").partition("*")
        parent, _, start = below.rpartition("/")
        places += sorted(Path("/", parent).glob(f"{start}*{rest}"))
    on_path = (shutil.which(program, path=path) for program in ("postgres", "pg_config"))
    places += [Path(program).resolve().parent for program in on_path if program is not None]
    found = {p.bin_dir.resolve(): p for place in (*places, None) if (p := _programs(place)) is not None}
    return tuple(found.values())


def _programs(place: Path | None) -> Programs | None:
    try:
        return find_programs(place)
    except DbdynoError:
        return None
