"""The control connection, by libpq: and what the driver needs to connect to the same place.

PostgreSQL, "libpq - C Library", 32.1 to 32.19: connection strings, environment variables, password file,
service file, TLS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dbdyno.engines.postgres import connection_options, control, sql
from dbdyno.engines.postgres.errors import (
    DSN_CURE,
    PORT,
    Address,
    Doubt,
    connect_error,
    dsn_error,
    server_error,
)
from dbdyno.engines.postgres.traced import held, note
from dbdyno.model.errors import TargetError, UsageError

APPLICATION = "dbdyno"
MINIMUM_VERSION = 140000
CONNECT_TIMEOUT_S = 10

Connection = control.Connection


def connect(dsn: str) -> Connection:
    """A connection with every statement in a transaction of its own. Raises the product's errors."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as e:
        raise dsn_error(e) from None
    _check_ports(str(given.get("port", "")))
    _check_hosts(str(given.get("host", "")))
    given.setdefault("fallback_application_name", APPLICATION)
    given["client_encoding"] = "UTF8"
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        given["connect_timeout"] = CONNECT_TIMEOUT_S
    password = given.get("password") or os.environ.get("PGPASSWORD")
    if password:
        connection_options.forbid_core_dumps()
    with Doubt(*_single_address(given)) as doubt:
        try:
            connection = control.connect({**given, **held(given)})
        except UnicodeError:
            raise TargetError("a host or user name cannot be encoded", "check the DSN") from None
        except psycopg.Error as e:
            raise connect_error(e, str(password) if password else None, doubt.answer) from None
    note(given, connection)
    connection.prepare_threshold = None
    _check_version(connection)
    try:
        connection.execute(sql.text("no_timeouts").encode())
        connection.take_text_as_it_is()
    except psycopg.Error as e:
        connection.close()
        raise server_error(e, "beginning a session") from None
    return connection


def secret_in(dsn: str) -> str | None:
    """Where to keep the password that the DSN holds. None: it holds none, or libpq cannot read it: then it is
    not used either."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    held = any(given.get(name) for name in ("password", "sslpassword"))
    return "keep it in ~/.pgpass, in a file named by PGPASSFILE, or in a service file" if held else None


def _single_address(given: Mapping[str, Any]) -> tuple[Address | None, float]:
    """Where libpq goes, as far as that is one place named here, and how many seconds it may take."""
    host = str(given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST", ""))
    port = str(given.get("port") or os.environ.get("PGPORT", "") or PORT)
    timeout = str(given.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT", ""))
    address = Address(host, int(port)) if host and "," not in host and port.isdigit() else None
    return address, float(timeout) if timeout.isdigit() else 0.0


def _check_ports(ports: str) -> None:
    """A password with a slash or a colon in a URI ends up here: it is not repeated."""
    if not all(port.isdigit() or port == "" for port in ports.split(",")):
        raise UsageError("the DSN is not valid: its port is not a number", DSN_CURE)


def _check_hosts(hosts: str) -> None:
    """Nor here, of a password with an at sign: its rest would be looked up as a host name."""
    if any("@" in host[1:] and not host.startswith("/") for host in hosts.split(",")):
        raise UsageError("the DSN is not valid: its host has an @ in it", DSN_CURE)


def _check_version(connection: Connection) -> None:
    number = connection.info.server_version
    if number < MINIMUM_VERSION:
        connection.close()
        raise TargetError(
            f"the server is PostgreSQL {number // 10000}, dbdyno needs {MINIMUM_VERSION // 10000} or later",
            "measure a later server",
        )


def driver_target(connection: Connection) -> dict[str, Any]:
    """``target`` of docs/core.md: the very server, user and TLS that libpq arrived at. Holds the password.

    Raises :class:`UsageError` for an option that the driver cannot honour.
    """
    info, options = connection.info, _options(connection)
    timeout_s = int(options.get("connect_timeout") or CONNECT_TIMEOUT_S)
    return {
        "host": options.get("hostaddr") or info.host,
        "port": info.port,
        "user": info.user,
        "password": info.password or None,
        "database": info.dbname,
        "tls": connection_options.tls(connection),
        "application_name": APPLICATION,
        "connect_timeout_ms": max(2, timeout_s or 3600) * 1000,
        **connection_options.driver_options(connection),
    }


def _options(connection: Connection) -> Mapping[str, str]:
    """libpq's options as they are in force, defaults and environment included."""
    found = {}
    for option in connection.pgconn.info:
        if option.val is not None:
            found[option.keyword.decode()] = option.val.decode(errors="replace")
    found["hostaddr"] = connection.info.hostaddr if "hostaddr" in found else ""
    return found


def where(connection: Connection) -> str:
    """Host and port or socket, database, user: no password."""
    info = connection.info
    host = info.host or info.hostaddr
    place = f"socket {host}, port {info.port}" if host.startswith(("/", "@")) else f"{host}:{info.port}"
    return f"{place}, database {info.dbname}, user {info.user}"


def tls_in_words(connection: Connection) -> str | None:
    """``TLSv1.3, TLS_AES_256_GCM_SHA384, sslmode=verify-full``; None: not encrypted."""
    if not connection.pgconn.ssl_in_use:
        return None
    row = connection.execute(
        "select version, cipher from pg_catalog.pg_stat_ssl where pid = pg_catalog.pg_backend_pid()"
    ).fetchone()
    mode = _options(connection).get("sslmode", "prefer")
    return ", ".join([*(str(v) for v in row or ()), f"sslmode={mode}"])
