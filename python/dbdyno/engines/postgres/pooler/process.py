"""The pooler's process: runs in a private directory as an unprivileged user, and is killed when dbdyno dies.

PgBouncer refuses to run as root. Its configuration may hold a password, so only its user may read the file,
which is removed once it was read. The process is identified by that file's path on its command line: the
directory has a random name.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from dbdyno.engines.postgres.embedded import places
from dbdyno.engines.postgres.embedded.account import (
    Account,
    account_of,
    explain_os_errors,
    owner_of,
    server_account,
)
from dbdyno.engines.postgres.embedded.postmaster import Process
from dbdyno.engines.postgres.embedded.worker import Worker, argv, make_directory, remove_directory
from dbdyno.engines.postgres.errors import masked
from dbdyno.engines.postgres.pooler import config
from dbdyno.engines.postgres.pooler.config import Front
from dbdyno.model.engine.protocols import Journal, Undo
from dbdyno.model.errors import TargetError

_PATIENCE_S = 10.0
_POLL_S = 0.005
_LOG_LINES, _LOG_BYTES = 8, 1 << 16
_NAME = re.compile(r"p[0-9a-f]{11}")
_STALE_S = 600.0
_PLACE = re.compile(r"dbdyno(-\d+)?")  # as places.runtime() has them
_STOPS = ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0))


class Pooler:
    """A running pooler, until :meth:`close`."""

    def __init__(self, front: Front, journal: Journal | None) -> None:
        self.front = front
        account = account_for(str(front.target["host"]), int(front.target["port"]))
        self._worker = Worker(account)
        with explain_os_errors():
            self.directory = _private_directory(account)
        if journal is not None:
            journal.note(undo(self.directory))
        try:
            with explain_os_errors(), self._worker:
                self._child = self._start(account)
        except BaseException:
            end(self.directory)
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def conninfo(self, database: str) -> str:
        """Returns a connection string. It needs no password: only those who may enter the directory can
        connect."""
        return psycopg.conninfo.make_conninfo(
            host=str(self.directory),
            port=config.PORT,
            user=config.ALIAS,
            dbname=database,
            application_name=self.front.application,
            connect_timeout=int(_PATIENCE_S),
            sslmode="disable",
            gssencmode="disable",
        )

    def close(self) -> None:
        """Ends the process and removes its directory."""
        end(self.directory)
        if self._child.poll() is None:
            with suppress(PermissionError):
                self._child.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_PATIENCE_S)

    def _masked(self, text: str) -> str:
        """Returns ``text`` without the password."""
        password = self.front.target["password"]
        return masked(text, str(password) if password else None)

    def _start(self, account: Account) -> subprocess.Popen[bytes]:
        texts = config.certificates(self.front.target["tls"])
        file = self.directory / config.FILE
        for name, text in texts.items():
            self._worker.write(self.directory / name, text)
        self._worker.write(file, config.render(self.front, self.directory))
        child = self._launch(account, file)
        try:
            self._await_ready(child)
        except BaseException:
            self._child = child
            self.close()
            raise
        self._worker.remove(file)
        return child

    def _launch(self, account: Account, file: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv(account, f"{os.getpid()}:{int(signal.SIGKILL)}", self.front.program.path, "-q", file),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C", "HOME": "/", "PATH": os.defpath},
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        socket = self.directory / f".s.PGSQL.{config.PORT}"
        while not socket.exists() or not self._answers():
            if child.poll() is not None or time.monotonic() > deadline:
                raise TargetError(
                    f"{self.front.program.name} did not start; the end of its log:\n{self.log_tail()}",
                    f"does {self.front.program.path} run by hand?",
                )
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.conninfo("pgbouncer"), autocommit=True):
            return True
        return False

    def log_tail(self) -> str:
        text = self._worker.read(self.directory / "log", 0, _LOG_BYTES)
        if text is None:
            return "(it wrote no log)"
        return self._masked("\n".join(text.splitlines()[-_LOG_LINES:])) or "(its log is empty)"


def account_for(host: str, port: int) -> Account:
    """Returns the account for the pooler: this user; as root the owner of the server's socket, who may
    reach it, else a system user."""
    if os.geteuid() != 0 or not host.startswith("/"):
        return server_account()
    with suppress(OSError):
        owner = account_of(Path(host, f".s.PGSQL.{port}").stat().st_uid)
        if owner.uid != 0:
            return owner
    return server_account()


def _private_directory(account: Account) -> Path:
    place = places.runtime(account)
    sweep(place)
    directory = place / f"p{secrets.token_hex(6)[:11]}"
    make_directory(directory, account)
    return directory


# -- ending it, and whatever a killed run left ------------------------------------------------------
def undo(directory: Path) -> Undo:
    return Undo(
        kind="pooler",
        key=f"pooler {directory}",
        what=f"connection pooler in {directory}",
        data={"directory": str(directory)},
    )


def end(directory: Path) -> list[int]:
    """Ends the process that uses this directory, and removes it. Returns the pids of ended processes."""
    owner = owner_of(directory)
    if owner is None:
        return []
    with Worker(owner) as worker:
        processes = worker.holders(directory / config.FILE)
        worker.end(processes, _STOPS)
    with suppress(OSError, TargetError):
        remove_directory(directory)
    return [p.pid for p in processes]


def put_back(undo: Undo) -> str | None:
    """Ends the pooler of a killed run. Returns a description, None if nothing was left or the directory is
    not ours."""
    directory = Path(str(undo.data.get("directory", "")))
    if undo.kind != "pooler" or not _is_pooler_directory(directory):
        return None
    existed = directory.is_dir()
    pids = end(directory)
    if pids:
        return f"ended {undo.what} (process {', '.join(map(str, pids))})"
    return f"removed what a {undo.what} had left" if existed else None


def sweep(place: Path) -> None:
    """Removes directories that poolers left which no journal knows: those killed during a check."""
    for directory in place.glob("p*"):
        with suppress(OSError, TargetError):
            old = time.time() - directory.lstat().st_mtime > _STALE_S
            if old and _is_pooler_directory(directory) and not _processes(directory):
                remove_directory(directory)


def _is_pooler_directory(directory: Path) -> bool:
    """Returns whether the directory has a name and a parent as :func:`_private_directory` chooses them."""
    return bool(_NAME.fullmatch(directory.name) and _PLACE.fullmatch(directory.parent.name))


def _processes(directory: Path) -> list[Process]:
    owner = owner_of(directory)
    return [] if owner is None else Worker(owner).holders(directory / config.FILE)
