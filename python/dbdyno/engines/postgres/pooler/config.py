"""PgBouncer's configuration for one cell: a pool of fixed size in front of one server, one database."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbdyno.engines.postgres.pooler.programs import Program
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.protocols import Pool

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
