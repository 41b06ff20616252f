"""A PostgreSQL of a test's own: its pg_hba.conf, its TLS, its faults. Unix socket and loopback."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from tests.clusters import in_memory, shared
from tests.ports import free_port

NOBODY = 65534


def unprivileged_user() -> dict[str, Any]:
    """Returns arguments of :func:`subprocess.run` for a user who may run PostgreSQL."""
    if os.getuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


class PlainServer:
    """A server with superuser ``boss``, let in by the unix socket without a password. The test sets all
    else."""

    def __init__(self, bin_dir: Path, home: Path) -> None:
        self.bin_dir, self.home = bin_dir, home
        self.data = home / "data"
        self.port = free_port()

    def program(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.bin_dir / name), *words],
            **unprivileged_user(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if name == "initdb" else subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, (done.stdout or b"").decode() + self.log()

    def _initdb(self, data: Path) -> None:
        words = ("-U", "boss", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        self.program("initdb", "-D", str(data), *words)

    def _cluster(self) -> Path:
        """Returns the cluster that initdb makes of this version, once in a run of the tests."""
        place = shared("plain")
        if os.getuid() == 0:
            shutil.chown(place, NOBODY, NOBODY)
        template = place / hashlib.sha256(bytes(self.bin_dir)).hexdigest()[:12]
        if not template.exists():
            new = template.with_suffix(f".{os.getpid()}")
            self._initdb(new)
            with contextlib.suppress(OSError):  # another worker was quicker
                new.rename(template)
        return template

    def make(self, settings: Mapping[str, str], hba: Sequence[str], *, copied: bool = True) -> None:
        """Makes the data directory. ``copied``: with the same system identifier as all others."""
        if copied:
            subprocess.run(["cp", "-a", "--reflink=auto", self._cluster(), self.data], check=True)
        else:
            self._initdb(self.data)
        here = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.home),
            "max_connections": "400",
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        lines = [f"{name} = '{value}'" for name, value in (here | dict(settings)).items()]
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("\n".join(["", *lines, ""]))
        (self.data / "pg_hba.conf").write_text("\n".join(["local all boss trust", *hba, ""]))

    def start(self) -> None:
        self.program("pg_ctl", "-D", str(self.data), "-l", str(self.home / "log"), "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        self.program("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def log(self) -> str:
        log = self.home / "log"
        return log.read_text() if log.exists() else ""

    @property
    def dsn(self) -> str:
        return f"host={self.home} port={self.port} user=boss dbname=postgres"

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def target(self, **given: Any) -> dict[str, Any]:
        """Returns a target of the core: ``boss`` by the unix socket, unless changed."""
        here = {"host": str(self.home), "port": self.port, "user": "boss", "password": None}
        return here | {"database": "postgres", "tls": None} | given


@contextlib.contextmanager
def plain_server(
    bin_dir: Path,
    settings: Mapping[str, str] | None = None,
    hba: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    *,
    on_disk: bool = False,
) -> Iterator[PlainServer]:
    """Yields a running server. It alone can read ``files``, which are put beside its data."""
    home = Path(tempfile.mkdtemp(prefix="dyno-", dir="/tmp" if on_disk else in_memory()))
    server = PlainServer(bin_dir, home)
    try:
        for name, content in (files or {}).items():
            (home / name).write_bytes(content)
            (home / name).chmod(0o600)
        if os.getuid() == 0:
            for path in (home, *home.iterdir()):
                shutil.chown(path, NOBODY, NOBODY)
        server.make({k: v.replace("HOME", str(home)) for k, v in (settings or {}).items()}, hba)
        server.start()
        yield server
    finally:
        if (server.data / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(home, ignore_errors=True)
