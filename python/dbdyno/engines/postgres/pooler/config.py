"""PgBouncer: its program and version, its configuration for a cell, and its console (docs/pool.md).

``total_wait_time`` grows only when a waiting client gets its connection. The wait so far of clients that
still wait (SHOW CLIENTS) is added, so that the sum grows steadily and can be cut at the ends of a window.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.embedded.programs import run_program
from dbdyno.model.engine.protocols import Load, Pool
from dbdyno.model.errors import NotAvailable, TargetError, UsageError
from dbdyno.model.schema.tables import CoreColumn

VARIABLE = "DBDYNO_PGBOUNCER"
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin")
"""Searched besides PATH, since the PATH of an ordinary user lacks the directories where packages install
it."""
PREPARED_SINCE = (1, 21)
"""First version that supports protocol-level prepared statements in a transaction pool (changelog of
1.21.0)."""


@dataclass(frozen=True)
class Program:
    """A PgBouncer program and its version."""

    path: str
    version: tuple[int, ...]  # (1, 18, 0)

    @property
    def name(self) -> str:
        """Name and version, such as ``PgBouncer 1.18.0``."""
        return f"PgBouncer {'.'.join(map(str, self.version))}"

    @property
    def keeps_prepared(self) -> bool:
        return self.version >= PREPARED_SINCE


def find_program() -> Program:
    """Returns the program that ``DBDYNO_PGBOUNCER`` names, else the first on PATH or in ``PLACES``. Raises
    :class:`NotAvailable` with the way to install it."""
    given = os.environ.get(VARIABLE)
    path = given or shutil.which("pgbouncer") or shutil.which("pgbouncer", path=os.pathsep.join(PLACES))
    if path is None or not Path(path).is_file():
        where = f"{VARIABLE} names {given}, which is not there" if given else "it is not installed"
        raise NotAvailable(
            f"a limit `pool` needs the connection pooler PgBouncer: {where}",
            "install it: apt install pgbouncer (Debian, Ubuntu) or dnf install pgbouncer (Fedora, RHEL with "
            f"EPEL); its service is not needed. One elsewhere is named by {VARIABLE}",
        )
    return Program(path, _version(path))


def _version(path: str) -> tuple[int, ...]:
    try:
        done = run_program([path, "--version"], _PATIENCE_S)
        done.check_returncode()
    except (OSError, subprocess.SubprocessError) as e:
        raise NotAvailable(f"{path} does not run: {e}", "is it made for this machine?") from e
    match = re.search(r"PgBouncer (?:version )?(\d+(?:\.\d+)+)", done.stdout)
    if match is None:
        raise NotAvailable(f"{path} does not say its version", "is it PgBouncer?")
    return tuple(map(int, match[1].split(".")))


_PATIENCE_S = 10.0
ALIAS = "dbdyno"
"""Name of the database in the pooler, whatever its name on the server."""
PORT = 6432
FILE = "pgbouncer.ini"
USER_TIMEOUT_SINCE = (1, 16)
NEVER_S = 365 * 86_400
_SPARE_CLIENTS = 16  # the console's connection, and those that fill the pool
_STATEMENTS = 100  # prepared statements that a server connection keeps
_MODES = {"none": "require", "ca": "verify-ca", "full": "verify-full"}


@dataclass(frozen=True)
class Front:
    """Everything that determines a pooler. ``target`` is that of ``connect.driver_target``, with the
    password."""

    program: Program
    pool: Pool
    target: Mapping[str, Any]
    application: str  # application_name of the server connections
    setup: tuple[str, ...] = ()  # statements that set up a server connection


def render(front: Front, directory: Path) -> str:
    """Returns the text of the configuration file, with the password. Raises :class:`UsageError` for values
    that the format cannot hold."""
    text = f"[databases]\n{ALIAS} = {_server(front)}\n[pgbouncer]\n"
    return text + "".join(f"{name} = {value}\n" for name, value in _settings(front, directory).items())


def _server(front: Front) -> str:
    target = front.target
    tls = target["tls"]
    # With verify-full the certificate is verified against this name; else the address is what libpq used.
    named = tls is not None and tls["verify"] == "full"
    parts = {
        "host": tls["server_name"] if named else target["host"],
        "port": str(target["port"]),
        "dbname": target["database"],
        "user": target["user"],
        "password": target["password"],
        # No place for further settings: PgBouncer 1.18 silently never sends more than 500 bytes.
        "connect_query": f"SELECT pg_catalog.set_config('application_name', '{front.application}', false)",
    }
    return " ".join(f"{name}={_quoted(name, value)}" for name, value in parts.items() if value is not None)


def _quoted(name: str, value: str) -> str:
    """Quotes a value as in libpq's connection strings, but doubles quotes. Errors do not contain the
    value."""
    if "\n" in value or "\r" in value or "\0" in value:
        raise UsageError(
            f"{name.replace('_', ' ')} has more than one line: PgBouncer's configuration cannot hold it",
            "choose one with a single line",
        )
    return "'" + value.replace("'", "''") + "'"


def _settings(front: Front, directory: Path) -> dict[str, str]:
    """Returns settings without time-outs, checks of connections and name look-ups, for clients of this
    directory only."""
    pool = front.pool
    settings = {
        "listen_addr": "",
        "listen_port": str(PORT),
        "listen_backlog": str(max(128, pool.clients + _SPARE_CLIENTS)),
        "unix_socket_dir": str(directory),
        "unix_socket_mode": "0700",
        "auth_type": "any",
        "admin_users": ALIAS,
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
        settings["max_prepared_statements"] = str(_STATEMENTS)
    return settings | _network(front) | _tls(front.target["tls"], directory)


def _network(front: Front) -> dict[str, str]:
    tcp = front.target["tcp"]
    known = {
        "tcp_keepidle": tcp["idle_s"],
        "tcp_keepintvl": tcp["interval_s"],
        "tcp_keepcnt": tcp["count"],
        "tcp_user_timeout": tcp["user_timeout_ms"] if front.program.version >= USER_TIMEOUT_SINCE else 0,
    }
    keepalive = {name: str(value) for name, value in known.items() if value > 0}
    return {"tcp_keepalive": str(int(tcp["keepalives"])), **keepalive}


def _tls(tls: Mapping[str, Any] | None, directory: Path) -> dict[str, str]:
    if tls is None:
        return {"server_tls_sslmode": "disable"}
    settings = {
        "server_tls_sslmode": _MODES[tls["verify"]],
        "server_tls_protocols": ",".join(version.lower() for version in tls["versions"]),
    }
    if tls["verify"] != "none":
        settings["server_tls_ca_file"] = str(directory / "root.crt")
    if tls["cert"] is not None:
        settings["server_tls_cert_file"] = str(directory / "client.crt")
        settings["server_tls_key_file"] = str(directory / "client.key")
    return settings


def certificates(tls: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns certificates by the file names of copies, since the pooler's user may be unable to read the
    originals."""
    sources: dict[str, str | None] = {}
    if tls is not None and tls["verify"] != "none":
        system = tls["root_cert"] in (None, "system")
        sources["root.crt"] = ssl.get_default_verify_paths().cafile if system else tls["root_cert"]
    if tls is not None and tls["cert"] is not None:
        sources |= {"client.crt": tls["cert"], "client.key": tls["key"]}
    return {name: _text(source or "") for name, source in sources.items()}


def _text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as e:
        raise TargetError(
            f"cannot read the certificate file {source} for the pooler: {e.strerror}", "see sslrootcert"
        ) from e


SCOPE = "pooler"
_NS = 1000  # in a microsecond
# name -> (kind, unit); _figures computes the values.
COUNTERS = {
    "pool_wait_ns": ("counter", "ns"),
    "pool_queries": ("counter", "count"),
    "pool_transactions": ("counter", "count"),
    "pool_query_time_ns": ("counter", "ns"),
    "pool_transaction_time_ns": ("counter", "ns"),
    "pool_size": ("gauge", "count"),
    "pool_connections": ("gauge", "count"),
    "pool_clients": ("gauge", "count"),
    "pool_waiting": ("gauge", "count"),
    "pool_read_ns": ("gauge", "ns"),
}

Row = dict[str, Any]


class Console:
    """The administration console of the pooler: a connection by the simple query protocol."""

    def __init__(self, conninfo: str) -> None:
        self._connection = connect.open_connection(conninfo_to_dict(conninfo))

    def close(self) -> None:
        self._connection.close()

    def show(self, what: str) -> list[Row]:
        """Returns the rows of ``SHOW what``. Raises :class:`psycopg.Error`."""
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(f"SHOW {what}".encode())
            names = [c.name for c in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def end_connections(self) -> None:
        """Closes all server connections and keeps PgBouncer from opening others. Raises
        :class:`psycopg.Error`."""
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(f"KILL {ALIAS}".encode())

    def processes(self) -> set[int]:
        """Returns the pids of the backends it is connected to. Raises :class:`psycopg.Error`."""
        return {int(row["remote_pid"]) for row in self.show("SERVERS") if row["database"] == ALIAS}

    def read(self, phase: str, size: int, now_ns: Callable[[], int]) -> list[Row]:
        """Returns rows of the table ``counters``, scope ``pooler``; values are NULL if the pooler is gone."""
        before_ns = now_ns()
        try:
            stats, clients, servers = self.show("STATS"), self.show("CLIENTS"), self.show("SERVERS")
            figures, status = _figures(stats, clients, servers), "ok"
        except (psycopg.Error, KeyError):
            figures, status = {}, "lost"
        after_ns = now_ns()
        figures |= {"pool_size": size, "pool_read_ns": after_ns - before_ns}
        return list(_rows(figures, status, phase, before_ns, after_ns))


def _figures(stats: list[Row], clients: list[Row], servers: list[Row]) -> dict[str, int]:
    totals = next((row for row in stats if row["database"] == ALIAS), None)
    clients_here = [row for row in clients if row["database"] == ALIAS]
    waiting = [row for row in clients_here if row["state"].startswith("waiting")]

    def total(name: str) -> int:
        return 0 if totals is None else int(Decimal(totals[f"total_{name}"]))

    under_way_us = sum(int(row["wait"]) * 1_000_000 + int(row["wait_us"]) for row in waiting)
    return {
        "pool_wait_ns": _NS * (total("wait_time") + under_way_us),
        "pool_queries": total("query_count"),
        "pool_transactions": total("xact_count"),
        "pool_query_time_ns": _NS * total("query_time"),
        "pool_transaction_time_ns": _NS * total("xact_time"),
        "pool_connections": sum(row["database"] == ALIAS for row in servers),
        "pool_clients": len(clients_here),
        "pool_waiting": len(waiting),
    }


def _rows(figures: dict[str, int], status: str, phase: str, before_ns: int, after_ns: int) -> Iterator[Row]:
    for name, (kind, unit) in COUNTERS.items():
        value = figures.get(name)
        yield {
            "before_ns": before_ns,
            "after_ns": after_ns,
            "phase": phase,
            "scope": SCOPE,
            "name": name,
            "kind": kind,
            "unit": unit,
            "value": None if value is None else float(value),
            "status": status if value is None else "ok",
        }


class PooledLoad:
    """The driver's load without its backend pids: PgBouncer invents the pids that it reports to clients
    (they only serve to cancel)."""

    def __init__(self, load: Load, processes: Sequence[int]) -> None:
        self._load, self._processes = load, tuple(processes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load, name)

    def backends(self) -> Sequence[tuple[int, int, int]]:
        """Returns (number of the server connection, its pid, its main task) of the pool."""
        return [(number, pid, pid) for number, pid in enumerate(self._processes)]

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._without_pids(dict(self._load.tables()))

    def window_tables(self, window: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        return self._without_pids(dict(self._load.window_tables(window)))  # type: ignore[attr-defined]

    @staticmethod
    def _without_pids(tables: dict[str, Mapping[str, CoreColumn]]) -> Mapping[str, Mapping[str, CoreColumn]]:
        sessions = dict(tables["sessions"])
        kind, payload, _ = sessions["backend_pid"]
        sessions["backend_pid"] = (kind, payload, bytes(len(payload) // 8))  # NULL for all
        return tables | {"sessions": sessions}
