"""Finds out how an agent on the server's host connects to the server, and verifies that it is the same
server.

The address that the client uses may be unknown there, or lead to another server (the end of a tunnel). So
these are tried in turn: the client's address, the address at which the server accepted our connection, its
unix sockets. The control connection is asked whether this server was reached. Over the host's own addresses
no certificate is checked, so no password is sent in clear text.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from dbdyno.engines.postgres import sql
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.observation import OBSERVER
from dbdyno.model.engine.machine import Machine

_TIMEOUT_MS = 5_000
_SAFE = ("none", "scram-sha-256")
"""Authentication methods that do not send the password in clear text."""
_FILES = ("root_cert", "cert", "key")
_ADDRESS = "select pg_catalog.host(pg_catalog.inet_server_addr()), pg_catalog.inet_server_port()"
_SOCKETS = """select max(setting) filter (where name = 'unix_socket_directories'),
       max(setting) filter (where name = 'port')
from pg_catalog.pg_settings where name in ('unix_socket_directories', 'port')"""
_SAME = """select count(*) from pg_catalog.pg_stat_get_activity(null)
where pid = %s and application_name = %s"""


class FromThere:
    """Caches how observers on the server's host connect."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._target = machine, dict[str, Any]()

    def target(self, connection: Connection, target: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns ``target`` for observers: itself if the server is on this host."""
        if self._machine.reached is None:
            return target
        if not self._target:
            self._target = target_from_there(connection, target, self._machine)
        return self._target


def target_from_there(connection: Connection, target: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Returns ``target`` (docs/core.md) as ``machine`` can reach it. If it cannot, returns it unchanged,
    and the samples report the failure."""
    for candidate in _candidates(connection, dict(target)):
        name = f"{OBSERVER} {secrets.token_hex(4)}"

        def same(pid: int, name: str = name) -> bool:
            row = connection.execute(f"{_SAME}{sql.OWN}".encode(), (pid, name)).fetchone()
            return bool(row and row[0])

        trial = {**candidate, "application_name": name, "connect_timeout_ms": _TIMEOUT_MS}
        if machine.connects("postgres", _session(trial), same):
            return candidate
    return dict(target)


def _session(target: Mapping[str, Any]) -> dict[str, Any]:
    call = {"sql": "select 1", "params": []}
    return {"target": target, "sessions": [{"count": 1, "setup": [], "call": [call], "warm_calls": 0}]}


def _candidates(connection: Connection, target: dict[str, Any]) -> Iterator[dict[str, Any]]:
    tls = target["tls"] or {}
    host = str(target["host"])
    if not _is_local(host) and not any(str(tls.get(name) or "").startswith("/") for name in _FILES):
        yield target
    address, port = connection.execute(f"{_ADDRESS}{sql.OWN}".encode()).fetchone() or (None, None)
    if address is not None:
        yield _at_own_address(target, str(address), int(port))
    sockets, port = connection.execute(f"{_SOCKETS}{sql.OWN}".encode()).fetchone() or (None, None)
    for directory in (d.strip().strip('"') for d in str(sockets or "").split(",")):
        if directory.startswith("/") and port is not None:
            yield _at_own_address(target, directory, int(port), tls=False)
    for directory in ("/var/run/postgresql", "/run/postgresql", "/tmp") if not sockets and port else ():
        yield _at_own_address(target, directory, int(port), tls=False)


def _at_own_address(target: dict[str, Any], host: str, port: int, *, tls: bool = True) -> dict[str, Any]:
    """Returns the target at one of the host's own addresses. The server may still demand TLS."""
    given = target["auth"]["methods"]
    methods = [*_SAFE, *(["md5"] if given is None or "md5" in given else [])]
    auth = {"methods": methods, "channel_binding": "prefer"}
    encrypted = {"verify": "none", "root_cert": None, "cert": None, "key": None}
    own = {k: v for k, v in {**(target["tls"] or {}), **encrypted}.items() if k != "crls"}
    by_tls = own if tls and target["tls"] else None
    return {**target, "host": host, "port": port, "tls": by_tls, "auth": auth, "peer_uid": None}


def _is_local(host: str) -> bool:
    """Returns whether the address is a socket's directory or the loopback, which mean the client's host."""
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
