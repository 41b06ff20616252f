"""What is asked of an embedded server, and what it is started with below that.

It records its own statistics from the start: with ``pg_stat_statements``, statement ids, and times of its
reads, writes and WAL. The README of this engine has what that costs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dbdyno import _core
from dbdyno.engines.postgres.embedded.account import explained
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.kernel.private import NotPrivate, open_private
from dbdyno.model.errors import ServerBusy, TargetError, TooFewConnections, UsageError, did_you_mean
from dbdyno.model.units import counted

_MB = 1 << 20
_LEAST, _MOST = 128 * _MB, 1024 * _MB
_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


def shared_buffers() -> str:
    """A quarter of the memory limit, at least 128 MB, at most 1 GB."""
    chosen = min(_MOST, max(_LEAST, memory_limit_bytes() // 4))
    return f"{chosen // _MB}MB"


def memory_limit_bytes() -> int:
    """The machine's memory, or the tightest cgroup limit above us where that is less."""
    text = Path("/proc/meminfo").read_text()
    total = next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemTotal:"))
    return min([total, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """cgroup v2 memory.max and v1 memory.limit_in_bytes of our group and of all above it."""
    with suppress(OSError):
        groups = _core.find_cgroups(None, Path("/"), ["memory"])
        limits = (_read(Path(directory, _LIMIT_FILES[version])) for version, directory in groups)
        return [limit for limit in limits if limit is not None]
    return []


def _read(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such file; "max"
        return None


LEAST_CONNECTIONS = 100
OWN_CONNECTIONS = 3  # control, activity, calibration
SPARE_CONNECTIONS = 10  # these, psql, and what PostgreSQL keeps for superusers


@dataclass(frozen=True)
class Wish:
    """What is to run. ``sessions``: it needs room for so many besides our own connections."""

    settings: Mapping[str, str] = field(default_factory=dict)
    sessions: int = 1
    max_connections: int | None = None
    fresh: bool = False
    stay: bool = False  # until it is stopped by name, not with its owner

    @property
    def connections(self) -> int:
        needed = self.max_connections or self.sessions + SPARE_CONNECTIONS
        return needed if self.max_connections else max(LEAST_CONNECTIONS, needed)


@dataclass(frozen=True)
class Started:
    """``instance.json``."""

    pid: int
    start_ticks: int
    stay: bool
    owner_pid: int
    started: float  # seconds since 1970
    max_connections: int
    settings: dict[str, str]
    bin_dir: str
    version: str
    base: dict[str, str] = field(default_factory=dict)  # all settings of its file, ours too
    locked: bool = False  # holds ``server.lock`` as long as it lives

    @property
    def connections(self) -> int:
        """What max_connections is: it may stand among the settings that were asked for."""
        given = [v for k, v in self.settings.items() if k.lower() == "max_connections" and v.isdigit()]
        return int(given[-1]) if given else self.max_connections


@explained()
def last_started(file: Path) -> Started | None:
    """From ``instance.json``; None: there is none, or it is damaged. Raises :class:`UsageError` where another
    user may have written it: it names programs to be run."""
    try:
        with os.fdopen(open_private(file)) as opened:
            return Started(**json.load(opened))
    except NotPrivate:
        raise
    except (OSError, ValueError, TypeError):
        return None


def check_fits(last: Started, wish: Wish) -> None:
    """Whether the server that runs already will do."""
    whose = "was started to stay" if last.stay else f"belongs to the run of process {last.owner_pid}"
    cure = "stop it first: dbdyno server stop" if last.stay else "wait until that has ended"
    if wish.fresh:
        raise ServerBusy(f"the embedded server is running: it {whose}", cure)
    if last.connections < (wish.max_connections or wish.sessions + OWN_CONNECTIONS):
        raise TooFewConnections(
            f"the embedded server {whose} with max_connections = {last.connections}, "
            f"too few for {counted(wish.sessions, 'session')}"
            if wish.max_connections is None
            else "not as asked for",
            f"dbdyno server stop, then dbdyno server start --max-connections {wish.connections}"
            if last.stay
            else cure,
        )
    wrong = {k: v for k, v in wish.settings.items() if last.settings.get(k) != v}
    if wrong:
        said = ", ".join(f"{k}={v}" for k, v in wrong.items())
        raise ServerBusy(f"the embedded server {whose}, without the settings {said}", cure)


PORT = 5432
_LIBRARIES = "shared_preload_libraries"
_STATISTICS = {
    _LIBRARIES: "pg_stat_statements",
    "compute_query_id": "on",
    "track_io_timing": "on",
    "track_wal_io_timing": "on",
}
_UNKNOWN = re.compile(r'unrecognized configuration parameter "([^"]+)"')
_NOT_THERE = re.compile(r'could not access file "(?:\$libdir/)?pg_stat_statements"')


def settings(wish: Wish, socket_dir: Path) -> dict[str, str]:
    """All settings of its file."""
    ours = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": '"{}"'.format(str(socket_dir).replace('"', '""')),  # one, with any name
        "unix_socket_permissions": "0700",
        "max_connections": str(wish.connections),
        "shared_buffers": shared_buffers(),
        "cluster_name": "dbdyno",
        "log_line_prefix": "%m [%p] ",
        # its superuser is named as our own schema is: by "$user" a user's tables would land in there
        "search_path": "public",
    }
    return ours | _STATISTICS | dict(wish.settings)


def _all_settings(bin_dir: Path) -> list[str]:
    """Names of those that a file usually has: PostgreSQL, "postgres", --describe-config."""
    words = [str(bin_dir / "postgres"), "--describe-config"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def without_statements(
    base: Mapping[str, str], wish: Wish, error: TargetError, programs: Programs
) -> dict[str, str]:
    """``base`` without the library, which is not installed if ``error`` says so; raises ``error`` where it
    does not, or where the library was asked for."""
    if unknown := _UNKNOWN.search(error.message):
        names = _all_settings(programs.bin_dir)
        raise UsageError(f"unknown server setting {unknown[1]!r}", did_you_mean(unknown[1], names)) from error
    if not _NOT_THERE.search(error.message) or _LIBRARIES in wish.settings:
        raise error
    print(f"{programs.bin_dir} has no pg_stat_statements: no figures per statement", file=sys.stderr)
    return {name: value for name, value in base.items() if name != _LIBRARIES}


def make_extension(address: str) -> None:
    """Where it is refused (a setting that was asked for may be the reason), the server does without, and the
    run's sources say so."""
    import psycopg  # here: to look at a server needs none of these

    from dbdyno.engines.postgres import sql
    from dbdyno.engines.postgres.connect import connect
    from dbdyno.model.errors import DbdynoError

    with suppress(DbdynoError, psycopg.Error):
        connection = connect(address)
        try:
            connection.execute(sql.text("make_statements").encode())
        finally:
            connection.close()
