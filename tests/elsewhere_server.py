"""Servers of other users, in namespaces of their own, behind unix sockets or TCP. See elsewhere.py."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from dbdyno.engines.postgres.embedded.account import server_account
from tests.elsewhere import World, as_user
from tests.ports import free_port

_number = itertools.count(1)
_SETTINGS = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "40", "jit": "off"}


def _owner() -> tuple[int, int]:
    account = server_account()
    return account.uid, account.gid


@dataclass
class ServerElsewhere:
    """A running server that trusts everybody. ``pid``: its main process, as this process sees it."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int
    host: str  # where TCP goes

    @property
    def pid(self) -> int:
        """Returns the server's process; in namespaces ``unshare --fork`` stands before it."""
        pid = self.process.pid
        while "postgres" not in Path(f"/proc/{pid}/comm").read_text():
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    @property
    def children(self) -> list[int]:
        return [int(p) for p in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def unix(self) -> str:
        return f"host={self.directory} port={self.port} dbname=postgres user=postgres"

    @property
    def tcp(self) -> str:
        return f"host={self.host} port={self.port} dbname=postgres user=postgres"

    def bridge(self) -> None:
        """Makes a way to a server in a network namespace of its own, as container programs do."""
        ours, theirs = (f"dy{os.getpid()}x{next(_number)}{end}" for end in "ab")
        block = (os.getpid() * 64 + next(_number) * 4) % 65_536
        net = f"198.18.{block >> 8}."
        inside = ["nsenter", "-t", str(self.pid), "-n", "ip"]
        for words in (
            ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", str(self.pid)],
            ["ip", "addr", "add", f"{net}{(block & 255) + 1}/30", "dev", ours],
            ["ip", "link", "set", ours, "up"],
            [*inside, "addr", "add", f"{net}{(block & 255) + 2}/30", "dev", theirs],
            [*inside, "link", "set", theirs, "up"],
        ):
            subprocess.run(words, check=True)
        self.host = f"{net}{(block & 255) + 2}"

    def wait(self, dsn: str | None = None) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(dsn or self.unix, connect_timeout=30).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.directory / "log").read_text()) from None
                time.sleep(0.05)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
            os.kill(self.pid, signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)


@dataclass
class Cluster:
    """An empty cluster that servers copy."""

    bin_dir: Path
    data: Path

    @contextlib.contextmanager
    def server(self, world: Sequence[str] = (), *options: str) -> Iterator[ServerElsewhere]:
        """Yields a server in ``world``, as PostgreSQL's user. ``options``: further ``-c name=value``
        texts."""
        directory = Path(tempfile.mkdtemp(dir=self.data.parent))
        directory.chmod(0o755)
        os.chown(directory, *_owner())
        subprocess.run(["cp", "-a", str(self.data), str(directory / "data")], check=True)
        port = free_port()
        settings = {
            **_SETTINGS,
            "port": str(port),
            "listen_addresses": "*",
            "unix_socket_directories": str(directory),
        }
        words = [str(self.bin_dir / "postgres"), "-D", str(directory / "data")]
        for setting in (*(f"{k}={v}" for k, v in settings.items()), *options):
            words += ["-c", setting]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*world, *_as_owner(), *words], cwd=directory, stdout=log, stderr=log, start_new_session=True
            )
        server = ServerElsewhere(process, directory, port, "127.0.0.1")
        try:
            server.wait()
            yield server
        finally:
            server.close()
            shutil.rmtree(directory, ignore_errors=True)


def _as_owner() -> World:
    return as_user(_owner())


def make_cluster(bin_dir: Path, parent: Path) -> Cluster:
    home = Path(tempfile.mkdtemp(dir=parent))
    home.chmod(0o755)
    os.chown(home, *_owner())
    words = [str(bin_dir / "initdb"), "-D", str(home / "data"), "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run([*_as_owner(), *words, "-E", "UTF8", "--locale=C"], check=True, capture_output=True)
    with (home / "data" / "pg_hba.conf").open("a") as hba:
        hba.write("host all all all trust\n")
    return Cluster(bin_dir, home / "data")
