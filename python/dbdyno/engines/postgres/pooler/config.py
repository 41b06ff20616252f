"""PgBouncer: its program, its version, and its configuration for one cell."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.protocols import Pool

VARIABLE = "DBDYNO_PGBOUNCER"
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin")
"""Besides PATH: packages put it where an ordinary user's PATH does not lead."""
PREPARED_SINCE = (1, 21)
"""Prepared statements by protocol through a transaction pool (PgBouncer, changelog of 1.21.0)."""


@dataclass(frozen=True)
class Program:
    path: str
    version: tuple[int, ...]  # (1, 18, 0)

    @property
    def name(self) -> str:
        """``PgBouncer 1.18.0``."""
        return f"PgBouncer {'.'.join(map(str, self.version))}"

    @property
    def keeps_prepared(self) -> bool:
        return self.version >= PREPARED_SINCE


def find_program() -> Program:
    """The one that ``DBDYNO_PGBOUNCER`` names, else the first on PATH or in a usual place. Raises
    :class:`UsageError` with the way to install it."""
    given = os.environ.get(VARIABLE)
    path = given or shutil.which("pgbouncer") or shutil.which("pgbouncer", path=os.pathsep.join(PLACES))
    if path is None or not Path(path).is_file():
        where = f"{VARIABLE} names {given}, which is not there" if given else "it is not installed"
        raise UsageError(
            f"a limit `pool` needs the connection pooler PgBouncer: {where}",
            "install it: apt install pgbouncer (Debian, Ubuntu) or dnf install pgbouncer (Fedora, RHEL with "
            f"EPEL); its service is not needed. One elsewhere is named by {VARIABLE}",
        )
    return Program(path, _version(path))


def _version(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as e:
        raise UsageError(f"{path} does not run: {e}", "is it made for this machine?") from e
    found = re.search(r"PgBouncer (?:version )?(\d+(?:\.\d+)+)", done.stdout)
    if found is None:
        raise UsageError(f"{path} does not say its version", "is it PgBouncer?")
    return tuple(map(int, found[1].split(".")))


ALIAS = "dbdyno"
"""What the database is called in the pooler, whatever its name is in the server."""
PORT = 6432
FILE = "pgbouncer.ini"
USER_TIMEOUT_SINCE = (1, 16)
NEVER_S = 365 * 86_400
_SPARE_CLIENTS = 16  # the console's connection, and those that fill the pool
_STATEMENTS = 100  # prepared statements that a server connection keeps
_MODES = {"none": "require", "ca": "verify-ca", "full": "verify-full"}


@dataclass(frozen=True)
class Front:
    """What a pooler is made of. ``target``: as ``connect.driver_target`` tells it; holds the password."""

    program: Program
    pool: Pool
    target: Mapping[str, Any]
    application: str  # application_name of the server connections
    setup: tuple[str, ...] = ()  # statements that make a server connection


def render(front: Front, directory: Path) -> str:
    """The text of the file; it holds the password. Raises :class:`UsageError` for what has no place in it."""
    text = f"[databases]\n{ALIAS} = {_server(front)}\n[pgbouncer]\n"
    return text + "".join(f"{name} = {value}\n" for name, value in _settings(front, directory).items())


def _server(front: Front) -> str:
    target = front.target
    tls = target["tls"]
    # With verify-full the certificate is checked against this name; else the address that libpq arrived at.
    named = tls is not None and tls["verify"] == "full"
    parts = {
        "host": tls["server_name"] if named else target["host"],
        "port": str(target["port"]),
        "dbname": target["database"],
        "user": target["user"],
        "password": target["password"],
        # Not the place for settings: what is longer than 500 bytes is silently never sent (PgBouncer 1.18).
        "connect_query": f"SELECT pg_catalog.set_config('application_name', '{front.application}', false)",
    }
    return " ".join(f"{name}={_quoted(name, value)}" for name, value in parts.items() if value is not None)


def _named(application: str) -> str:
    return f"SELECT pg_catalog.set_config('application_name', '{application}', false)"


def _quoted(name: str, value: str) -> str:
    """As in libpq's connection strings, but a quote is doubled. The value is not repeated in the error."""
    if "\n" in value or "\r" in value or "\0" in value:
        raise UsageError(
            f"{name.replace('_', ' ')} has more than one line: PgBouncer's configuration cannot hold it",
            "choose one with a single line",
        )
    return "'" + value.replace("'", "''") + "'"


def _settings(front: Front, directory: Path) -> dict[str, str]:
    """No time-outs, no checks between, no names to look up, nobody but this directory's owner lets in."""
    pool = front.pool
    made = {
        "listen_addr": "",
        "listen_port": str(PORT),
        "listen_backlog": str(max(128, pool.clients + _SPARE_CLIENTS)),
        "unix_socket_dir": str(directory),
        "unix_socket_mode": "0700",
        "auth_type": "any",
        "pool_mode": pool.mode,
        "default_pool_size": str(pool.size),
        "max_db_connections": str(pool.size),
        "min_pool_size": "0",
        "reserve_pool_size": "0",
        "max_client_conn": str(pool.clients + pool.size + _SPARE_CLIENTS),
        "server_reset_query": "",
        "server_check_query": "",
        "server_idle_timeout": "0",
        "server_lifetime": str(NEVER_S),  # 0 would close a connection after its first use
        "server_connect_timeout": str(front.target["connect_timeout_ms"] // 1000),
        "query_wait_timeout": "0",
        "ignore_startup_parameters": "extra_float_digits,options",
        "logfile": str(directory / "log"),
        "log_connections": "0",
        "log_disconnections": "0",
        "log_stats": "0",
    }
    if front.program.keeps_prepared:
        made["max_prepared_statements"] = str(_STATEMENTS)
    return made | _network(front) | _tls(front.target["tls"], directory)


def _network(front: Front) -> dict[str, str]:
    tcp = front.target["tcp"]
    known = {
        "tcp_keepidle": tcp["idle_s"],
        "tcp_keepintvl": tcp["interval_s"],
        "tcp_keepcnt": tcp["count"],
        "tcp_user_timeout": tcp["user_timeout_ms"] if front.program.version >= USER_TIMEOUT_SINCE else 0,
    }
    made = {name: str(value) for name, value in known.items() if value > 0}
    return {"tcp_keepalive": str(int(tcp["keepalives"])), **made}


def _tls(tls: Mapping[str, Any] | None, directory: Path) -> dict[str, str]:
    if tls is None:
        return {"server_tls_sslmode": "disable"}
    made = {
        "server_tls_sslmode": _MODES[tls["verify"]],
        "server_tls_protocols": ",".join(version.lower() for version in tls["versions"]),
    }
    if tls["verify"] != "none":
        made["server_tls_ca_file"] = str(directory / "root.crt")
    if tls["cert"] is not None:
        made["server_tls_cert_file"] = str(directory / "client.crt")
        made["server_tls_key_file"] = str(directory / "client.key")
    return made


def certificates(tls: Mapping[str, Any] | None) -> dict[str, str]:
    """Texts by the names of their copies: the pooler's user may not reach where they are."""
    wanted: dict[str, str | None] = {}
    if tls is not None and tls["verify"] != "none":
        system = tls["root_cert"] in (None, "system")
        wanted["root.crt"] = ssl.get_default_verify_paths().cafile if system else tls["root_cert"]
    if tls is not None and tls["cert"] is not None:
        wanted |= {"client.crt": tls["cert"], "client.key": tls["key"]}
    return {name: _text(source or "") for name, source in wanted.items()}


def _text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as e:
        raise TargetError(
            f"cannot read the certificate file {source} for the pooler: {e.strerror}", "see sslrootcert"
        ) from e
