"""The settings of an embedded server: those that dbdyno chooses, and those asked for.

The server records statistics from the start: ``pg_stat_statements``, statement ids, and times of reads,
writes and WAL. The README of this engine states what that costs.
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
from dbdyno.engines.postgres.embedded.account import explain_os_errors
from dbdyno.engines.postgres.embedded.programs import Programs, run_program
from dbdyno.kernel.private import NotPrivate, open_private
from dbdyno.model.errors import ServerBusy, TargetError, TooFewConnections, UsageError, did_you_mean
from dbdyno.model.units import counted

_MB = 1 << 20
_LEAST, _MOST = 128 * _MB, 1024 * _MB
_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


def shared_buffers() -> str:
    """Returns a quarter of the memory limit, at least 128 MB, at most 1 GB."""
    chosen = min(_MOST, max(_LEAST, memory_limit_bytes() // 4))
    return f"{chosen // _MB}MB"


def memory_limit_bytes() -> int:
    """Returns the machine's memory, or the lowest limit of the control groups above this process."""
    text = Path("/proc/meminfo").read_text()
    total = next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemTotal:"))
    return min([total, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """Returns memory.max (v2) and memory.limit_in_bytes (v1) of our group and of all groups above it."""
    with suppress(OSError):
        groups = _core.find_cgroups(None, Path("/"), ["memory"])
        limits = (_read_number(Path(directory, _LIMIT_FILES[version])) for version, directory in groups)
        return [limit for limit in limits if limit is not None]
    return []


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such file; "max"
        return None


LEAST_CONNECTIONS = 100
OWN_CONNECTIONS = 3  # control, activity, calibration
SPARE_CONNECTIONS = 10  # these, psql, and what PostgreSQL keeps for superusers


@dataclass(frozen=True)
class StartOptions:
    """Options of a start. ``sessions`` is how many sessions need room besides dbdyno's own connections."""

    settings: Mapping[str, str] = field(default_factory=dict)
    sessions: int = 1
    max_connections: int | None = None
    fresh: bool = False
    stay: bool = False  # runs until `dbdyno server stop`, not just as long as its owner

    @property
    def connections(self) -> int:
        needed = self.max_connections or self.sessions + SPARE_CONNECTIONS
        return needed if self.max_connections else max(LEAST_CONNECTIONS, needed)


@dataclass(frozen=True)
class Started:
    """Contents of ``instance.json``: how the server was started last."""

    pid: int
    start_ticks: int
    stay: bool
    owner_pid: int
    started: float  # seconds since 1970
    max_connections: int
    settings: dict[str, str]
    bin_dir: str
    version: str
    base: dict[str, str] = field(default_factory=dict)  # all settings of its file
    locked: bool = False  # the server holds ``server.lock`` as long as it lives

    @property
    def connections(self) -> int:
        """max_connections, which may be among the settings that were asked for."""
        given = [v for k, v in self.settings.items() if k.lower() == "max_connections" and v.isdigit()]
        return int(given[-1]) if given else self.max_connections


@explain_os_errors()
def last_started(file: Path) -> Started | None:
    """Returns the contents of ``instance.json``, None if it is missing or damaged. Raises
    :class:`UsageError` if another user may have written it, since it names programs to run."""
    try:
        with os.fdopen(open_private(file)) as opened:
            return Started(**json.load(opened))
    except NotPrivate:
        raise
    except (OSError, ValueError, TypeError):
        return None


def check_fits(last: Started, options: StartOptions) -> None:
    """Raises :class:`ServerBusy` or :class:`TooFewConnections` if the running server does not meet the
    options."""
    whose = "was started to stay" if last.stay else f"belongs to the run of process {last.owner_pid}"
    cure = "stop it first: dbdyno server stop" if last.stay else "wait until that has ended"
    if options.fresh:
        raise ServerBusy(f"the embedded server is running: it {whose}", cure)
    if last.connections < (options.max_connections or options.sessions + OWN_CONNECTIONS):
        raise TooFewConnections(
            f"the embedded server {whose} with max_connections = {last.connections}, "
            f"too few for {counted(options.sessions, 'session')}"
            if options.max_connections is None
            else "not as asked for",
            f"dbdyno server stop, then dbdyno server start --max-connections {options.connections}"
            if last.stay
            else cure,
        )
    wrong = {k: v for k, v in options.settings.items() if last.settings.get(k) != v}
    if wrong:
        missing = ", ".join(f"{k}={v}" for k, v in wrong.items())
        raise ServerBusy(f"the embedded server {whose}, without the settings {missing}", cure)


PORT = 5432
_PATIENCE_S = 30.0
_LIBRARIES = "shared_preload_libraries"
_STATISTICS = {
    _LIBRARIES: "pg_stat_statements",
    "compute_query_id": "on",
    "track_io_timing": "on",
    "track_wal_io_timing": "on",
}
_UNKNOWN = re.compile(r'unrecognized configuration parameter "([^"]+)"')
_NOT_THERE = re.compile(r'could not access file "(?:\$libdir/)?pg_stat_statements"')


def settings(options: StartOptions, socket_dir: Path) -> dict[str, str]:
    """Returns all settings of the server's file."""
    ours = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": '"{}"'.format(
            str(socket_dir).replace('"', '""')
        ),  # quoted: a single directory, even with a comma in it
        "unix_socket_permissions": "0700",
        "max_connections": str(options.connections),
        "shared_buffers": shared_buffers(),
        "cluster_name": "dbdyno",
        "log_line_prefix": "%m [%p] ",
        # without "$user": the superuser has the name of dbdyno's schema, and users' tables would land there
        "search_path": "public",
    }
    return ours | _STATISTICS | dict(options.settings)


def _all_settings(bin_dir: Path) -> list[str]:
    """Returns the names of all settings that may stand in a file (PostgreSQL, "postgres",
    --describe-config); none if the program does not answer."""
    words = [str(bin_dir / "postgres"), "--describe-config"]
    try:
        done = run_program(words, _PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):  # then no name is suggested
        return []
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def without_statements(
    base: Mapping[str, str], options: StartOptions, error: TargetError, programs: Programs
) -> dict[str, str]:
    """Returns ``base`` without pg_stat_statements, if ``error`` says that it is not installed. Raises
    ``error`` otherwise, or if the library was asked for explicitly."""
    if unknown := _UNKNOWN.search(error.message):
        names = _all_settings(programs.bin_dir)
        raise UsageError(f"unknown server setting {unknown[1]!r}", did_you_mean(unknown[1], names)) from error
    if not _NOT_THERE.search(error.message) or _LIBRARIES in options.settings:
        raise error
    print(f"{programs.bin_dir} has no pg_stat_statements: no figures per statement", file=sys.stderr)
    return {name: value for name, value in base.items() if name != _LIBRARIES}


def make_extension(address: str) -> None:
    """Creates the extension pg_stat_statements. If that fails, for example because of a setting of the
    user, the server runs without it, and the run's data sources show that."""
    import psycopg  # not at the top: `dbdyno server status` does not need it, and it is slow to import

    from dbdyno.engines.postgres import sql
    from dbdyno.engines.postgres.connect import connect
    from dbdyno.model.errors import DbdynoError

    with suppress(DbdynoError, psycopg.Error):
        connection = connect(address)
        try:
            connection.execute(sql.text("make_statements").encode())
        finally:
            connection.close()
