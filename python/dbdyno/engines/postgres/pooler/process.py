"""The pooler's process: in a private directory of its own, as an unprivileged user, dead when we are.

PgBouncer refuses to run as root. Its configuration may hold a password, so it is a file that only its user
may read, and gone as soon as it was read. A process is known by that file's path on its command line: the
directory's name is random, so it is nobody else's.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from dbdyno.engines.postgres.embedded import launch, places
from dbdyno.engines.postgres.embedded.account import Account, server_account
from dbdyno.engines.postgres.embedded.postmaster import Process, start_ticks
from dbdyno.engines.postgres.pooler import config
from dbdyno.engines.postgres.pooler.config import Front
from dbdyno.model.errors import TargetError
from dbdyno.model.undo import Journal, Undo

_PATIENCE_S = 10.0
_POLL_S = 0.005
_LOG_LINES = 8
_NAME = re.compile(r"p[0-9a-f]{11}")
_STALE_S = 600.0
_PLACE = re.compile(r"dbdyno(-\d+)?")  # as places.runtime() has them
_STOPS = ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0))


class Pooler:
    """A running one. Ended by :meth:`close`."""

    def __init__(self, front: Front, journal: Journal | None) -> None:
        self.front = front
        account = account_for(str(front.target["host"]), int(front.target["port"]))
        self.directory = _private_directory(account)
        if journal is not None:
            journal.note(undo(self.directory))
        try:
            self._child = self._start(account)
        except BaseException:
            end(self.directory)
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def conninfo(self, database: str) -> str:
        """Without a password: whoever may enter the directory is let in."""
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
        """Returns when the process and its directory are gone."""
        end(self.directory)
        self._child.wait()

    def words(self, text: str) -> str:
        """``text`` without the password."""
        password = self.front.target["password"]
        return text.replace(str(password), "***") if password else text

    def _start(self, account: Account) -> subprocess.Popen[bytes]:
        text = config.render(self.front, self.directory)
        file = self.directory / config.FILE
        made = [file, *config.certificates(self.front.target["tls"], self.directory)]
        with os.fdopen(
            os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as out:
            out.write(text)
        for path in made if account.switch else ():
            os.chown(path, account.uid, account.gid)
        child = self._launch(account, file)
        self._await_ready(child)
        file.unlink()
        return child

    def _launch(self, account: Account, file: Path) -> subprocess.Popen[bytes]:
        ids = (str(account.uid), str(account.gid), f"{os.getpid()}:{int(signal.SIGKILL)}")
        return subprocess.Popen(
            [sys.executable, "-I", "-S", launch.__file__, *ids, self.front.program.path, "-q", file],
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
        try:
            lines = (self.directory / "log").read_text(errors="replace").splitlines()
        except OSError:
            return "(it wrote no log)"
        return self.words("\n".join(lines[-_LOG_LINES:])) or "(its log is empty)"


def account_for(host: str, port: int) -> Account:
    """Ourselves; as root the owner of the server's socket, who may reach it, else a system user."""
    account = server_account()
    if not account.switch or not host.startswith("/"):
        return account
    with suppress(OSError, KeyError):
        entry = pwd.getpwuid(Path(host, f".s.PGSQL.{port}").stat().st_uid)
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    return account


def _private_directory(account: Account) -> Path:
    place = places.runtime(account)
    sweep(place)
    directory = place / f"p{secrets.token_hex(6)[:11]}"
    directory.mkdir(mode=0o700)
    if account.switch:
        os.chown(directory, account.uid, account.gid)
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
    """Ends the process of that directory, and removes it; the processes that were ended."""
    found = _processes(directory)
    for sign, patience_s in _STOPS:
        for process in found:
            _send(process, sign)
        deadline = time.monotonic() + patience_s
        while any(p.alive for p in found) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    shutil.rmtree(directory, ignore_errors=True)
    return [p.pid for p in found]


def put_back(undo: Undo) -> str | None:
    """Of a run that was killed. ``None``: there was nothing any more, or it is none of our directories."""
    directory = Path(str(undo.data.get("directory", "")))
    if undo.kind != "pooler" or not _ours(directory):
        return None
    there = directory.is_dir()
    pids = end(directory)
    if pids:
        return f"ended {undo.what} (process {', '.join(map(str, pids))})"
    return f"removed what a {undo.what} had left" if there else None


def sweep(place: Path) -> None:
    """Removes what was left of poolers that no journal names: killed while they were tried."""
    for directory in place.glob("p*"):
        with suppress(OSError):
            old = time.time() - directory.stat().st_mtime > _STALE_S
            if old and _ours(directory) and not _processes(directory):
                shutil.rmtree(directory, ignore_errors=True)


def _ours(directory: Path) -> bool:
    """A directory of the kind we make, in such a place as we make them in."""
    return bool(_NAME.fullmatch(directory.name) and _PLACE.fullmatch(directory.parent.name))


def _processes(directory: Path) -> list[Process]:
    file = os.fsencode(directory / config.FILE)
    found = []
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        ticks = start_ticks(pid)
        if ticks is not None and file in _arguments(pid):
            found.append(Process(pid, ticks))
    return found


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _send(process: Process, sign: signal.Signals) -> None:
    """To exactly this process: a pidfd, which no later one of the same pid can take over."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:
            signal.pidfd_send_signal(handle, sign)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
