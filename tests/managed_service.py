"""A server as managed services give it: their roles, TLS and a password over TCP, and namespaces of its own.

Amazon: "Understanding the rds_superuser role". Google: "About PostgreSQL users and roles" of Cloud SQL.
Microsoft: "Access management for Azure Database for PostgreSQL". None of these roles is a superuser, reads or
writes files of the server, starts programs there, or may ALTER SYSTEM.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.elsewhere import in_namespaces
from tests.elsewhere_server import Cluster, make_cluster
from tests.openssl import openssl

PASSWORD = "as:given\\by it"
_HBA = """
local   all all trust
hostssl rdsadmin all all reject
hostssl all token all password
hostssl all all all scram-sha-256
"""
ATTRIBUTES = {
    "rds_superuser": "nologin",
    "cloudsqlsuperuser": "nologin createdb createrole",
    "azure_pg_admin": "nologin createdb createrole replication bypassrls",
}
"""Attributes of the administrators' role of each service, a member of pg_monitor and pg_signal_backend."""


@dataclass
class Managed:
    """A running server. ``boss`` is the provider's own way in."""

    host: str
    port: int
    authority: Path
    boss: str
    role: str

    def dsn(self, user: str = "master", **more: str) -> str:
        """Returns the DSN without a password, which verifies the server's certificate."""
        given = {"host": self.host, "port": str(self.port), "dbname": "app", "user": user}
        tls = {"sslmode": "verify-full", "sslrootcert": str(self.authority)}
        return make_conninfo("", **{**given, **tls, **more})

    def pgpass(self, folder: Path, password: str = PASSWORD) -> Path:
        """Returns a password file."""
        file = folder / "pgpass"
        escaped = password.replace("\\", "\\\\").replace(":", "\\:")
        file.write_text(f"{self.host}:{self.port}:*:*:{escaped}\n")
        file.chmod(0o600)
        return file

    def administrators_are(self, role: str) -> None:
        """Gives the administrators' role the name that it has at another service."""
        if role != self.role:
            self.as_provider(
                f"alter role {self.role} rename to {role}", f"alter role {role} {ATTRIBUTES[role]}"
            )
            self.role = role

    def as_provider(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(make_conninfo(self.boss, dbname=database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextlib.contextmanager
def managed(bin_dir: Path, parent: Path, role: str = "rds_superuser") -> Iterator[Managed]:
    """Yields a server whose administrators have this role. Its main database is ``app``, of its user
    ``master``; the database ``rdsadmin`` lets nobody in but the provider."""
    cluster = make_cluster(bin_dir, parent)
    authority = _with_certificate(cluster)
    world = in_namespaces(pid=True, net=True)
    settings = ("ssl=on", "shared_preload_libraries=pg_stat_statements")
    with cluster.server(world, *settings) as server:
        server.bridge()
        managed = Managed(server.host, server.port, authority, server.unix, role)
        _sign(cluster, server.directory / "data", server.host)
        quoted = "'" + PASSWORD.replace("'", "''") + "'"
        managed.as_provider(
            f"create role {role} {ATTRIBUTES[role]}",
            f"grant pg_monitor, pg_signal_backend to {role} with admin option",
            f"create role master login createdb createrole password {quoted} in role {role}",
            f"create role token login password {quoted} in role pg_monitor",
            "create database app owner master",
            "create database rdsadmin",
            "revoke connect on database rdsadmin from public",
            "select pg_reload_conf()",
        )
        managed.as_provider("create extension pg_stat_statements", database="app")
        yield managed


def _with_certificate(cluster: Cluster) -> Path:
    """Makes an authority, and gives the cluster its rules for logins and a first certificate."""
    place = cluster.data.parent / "tls"
    place.mkdir()
    place.chmod(0o755)
    subject = ("-subj", "/CN=test authority", "-addext", "basicConstraints=critical,CA:TRUE")
    openssl(*_NEW, "-keyout", "ca.key", "-out", "ca.crt", *subject, folder=place)
    (cluster.data / "pg_hba.conf").write_text(_HBA)
    _sign(cluster, cluster.data, "127.0.0.1")
    return place / "ca.crt"


_NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def _sign(cluster: Cluster, data: Path, address: str) -> None:
    """Gives the server a certificate for its address, which is known once it has one."""
    place = cluster.data.parent / "tls"
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE")
    name = ("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}")
    openssl(*_NEW, "-keyout", "server.key", "-out", "server.crt", *name, *signed, folder=place)
    owner = data.stat()
    for file in ("server.crt", "server.key"):
        copied = Path(shutil.copy(place / file, data))
        os.chown(copied, owner.st_uid, owner.st_gid)
        copied.chmod(0o600)
