"""Finds the installed servers: in the directories of packages, on PATH, in the wheel, and in those of
``DBDYNO_PG_BINS``."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from dbdyno.engines.postgres.embedded.programs import Programs, find_programs
from dbdyno.model.errors import DbdynoError, NotInstalled

VARIABLE = "DBDYNO_PG_BINS"
"""Environment variable with further directories of programs, parted by colons."""
PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # yum.postgresql.org
    "/usr/libexec/postgresql*",  # Alpine
    "/usr/local/pgsql*/bin",  # PostgreSQL's own Makefile
    "/opt/postgresql*/bin",
    "/opt/pgsql*/bin",
    "/opt/pg*/bin",
    "~/.local/pgsql*/bin",
)


def programs_to_start(bin_dir: Path | None) -> Programs:
    """Returns :func:`find_programs`. Without the wheel, the error names the newest installed server."""
    try:
        return find_programs(bin_dir)
    except NotInstalled as e:
        others = installed()
        if not others:
            raise
        newest = max(others, key=lambda p: p.major)
        another = f"or start PostgreSQL {newest.version}, which is installed: --pg-bin {newest.bin_dir}"
        raise NotInstalled(e.message, f"{e.cure}; {another}") from None


def installed() -> tuple[Programs, ...]:
    """Returns the programs of all servers found, each directory once. Leaves out those that do not run."""
    return _installed(os.environ.get(VARIABLE, ""), os.environ.get("PATH", ""), os.environ.get("HOME", ""))


@cache
def _installed(given: str, path: str, home: str) -> tuple[Programs, ...]:
    places: list[Path | None] = [Path(p) for p in given.split(":") if p]
    for pattern in PLACES:
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
