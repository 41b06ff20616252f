"""One embedded server: a data directory for each major version, what runs on it, and whose it is.

``owner.lock`` is flock'ed by the process that owns a running server, for as long as it lives: the lock of a
process killed with -9 is free, and the next start ends its server. ``start.lock`` is held while anyone
decides. ``instance.json`` says what was started.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from dbdyno.engines.postgres.embedded import cluster, launch, memory, postmaster
from dbdyno.engines.postgres.embedded.account import Account
from dbdyno.engines.postgres.embedded.places import Places, check_private
from dbdyno.engines.postgres.embedded.postmaster import Process
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.wish import Started, Wish, check_fits
from dbdyno.model.errors import ServerBusy, ServerLost, TargetError, UsageError

_START_PATIENCE_S = 60.0
_LOG_LINES = 12
PORT = 5432


class Instance:
    """See the module."""

    def __init__(self, places: Places, account: Account, directory: Path) -> None:
        self.places, self.account, self.directory = places, account, directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.socket_dir = places.socket_dir(self.data)
        self._owner: IO[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log_from = 0  # where the log of the latest start begins
        self.sessions = 1  # that were wished for

    # -- looking --------------------------------------------------------------------------------
    def started(self) -> Started | None:
        """What was started last."""
        try:
            return Started(**json.loads((self.directory / "instance.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def process(self) -> Process | None:
        """The server running on our data directory, if one does."""
        last = self.started()
        known = None if last is None else Process(last.pid, last.start_ticks)
        return postmaster.find_postmaster(self.data, self.account.uid, known)

    @property
    def stays(self) -> bool:
        """Whether it goes on when those who use it end."""
        return self._owner is None

    @property
    def bin_dir(self) -> Path | None:
        """Where the programs of the running server are."""
        last = self.started()
        return None if last is None else Path(last.bin_dir)

    def has_owner(self) -> bool:
        """Whether a living process (we too) owns the server."""
        try:
            with (self.directory / "owner.lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def log_tail(self) -> str:
        """The last lines of the server's log, of its latest start."""
        try:
            lines = self.log.read_bytes()[self._log_from :].decode(errors="replace").splitlines()
        except OSError:
            return "(it wrote no log)"
        return "\n".join(lines[-_LOG_LINES:]) or "(its log is empty)"

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Nobody else starts or stops this server meanwhile."""
        self.directory.mkdir(exist_ok=True, mode=0o755)
        check_private(self.directory, writable_by=os.geteuid())
        with (self.directory / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # -- acting ---------------------------------------------------------------------------------
    def open(self, programs: Programs, wish: Wish) -> None:
        """The server runs when this returns: it did (to stay, or with a living owner), or we started it."""
        self.sessions = wish.sessions
        with self.deciding():
            running, last = self.process(), self.started()
            others = last is not None and (last.stay or self.has_owner())
            if running is not None and last is not None and others and self._becomes_ready(running):
                check_fits(last, wish)
                return
            if running is not None:
                postmaster.end(running)
            postmaster.end_orphans(self.data, self.account.uid)
            if not wish.stay:
                self._own()
            self._start(programs, wish)

    def close(self) -> None:
        """Ends the server if it is ours to end."""
        if self._owner is None:
            return
        with self.deciding():
            if (running := self.process()) is not None:
                self._end(running)
            self._owner.close()
            self._owner = None
        if self._child is not None:
            self._child.wait()

    def reconfigure(self, settings: Mapping[str, str], *, restart: bool) -> None:
        """Its file holds what it was started with and, over it, ``settings``; of earlier ones none.

        Without a restart the caller has the server reload it. Raises :class:`UsageError` where it does not
        start with them: then it runs without any. The thread that calls is the one that it lives with.
        """
        with self.deciding():
            running, last = self.process(), self.started()
            if running is None or last is None:
                raise ServerLost("the embedded server has ended", f"see {self.log}")
            if self._owner is None and not last.stay:
                raise ServerBusy(
                    f"the embedded server belongs to the run of process {last.owner_pid}",
                    "wait until that has ended",
                )
            wish = Wish(last.settings, max_connections=last.max_connections, stay=last.stay)
            base = last.base or self._settings(wish)
            if not restart:
                self._write({**base, **settings})
                return
            programs = Programs(Path(last.bin_dir), last.version)
            self._end_for_restart(running)
            try:
                self._run(programs, wish, base, settings)
            except TargetError as e:
                self._revive(programs, wish, base, settings, e)

    def is_as_started(self) -> bool:
        """Whether its file holds what it was started with, and no settings of a run that was killed."""
        last = self.started()
        if last is None or not last.base:
            return True
        try:
            found = (self.data / cluster.SETTINGS_FILE).read_text()
        except OSError:
            return False
        return found == cluster.settings_text(last.base)

    def _end_for_restart(self, running: Process) -> None:
        self._end(running)
        postmaster.end_orphans(self.data, self.account.uid)
        if self._child is not None:
            self._child.wait()

    def _revive(
        self,
        programs: Programs,
        wish: Wish,
        base: Mapping[str, str],
        settings: Mapping[str, str],
        error: TargetError,
    ) -> None:
        """Without the settings that it did not start with."""
        if (left := self.process()) is not None:
            self._end_for_restart(left)
        self._run(programs, wish, base, {})
        said = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise UsageError(
            f"with {said}: {error.message}",
            "mend the settings; the server runs without them",
        ) from None

    def stop(self) -> Process | None:
        """Ends the server, by hand; what was ended. Raises :class:`ServerBusy` while a run uses it."""
        with self.deciding():
            running, last = self.process(), self.started()
            if running is None:
                return None
            if self.has_owner() and last is not None:
                raise ServerBusy(
                    f"the embedded server belongs to a run (process {last.owner_pid})",
                    "wait until that has ended, or end it with Ctrl-C: the server ends with it",
                )
            self._end(running)
            return running

    def _end(self, running: Process) -> None:
        postmaster.end(running)
        with suppress(OSError):  # not empty where the server was killed: the next start clears it
            self.socket_dir.rmdir()

    def _own(self) -> None:
        self._owner = (self.directory / "owner.lock").open("w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)

    def _start(self, programs: Programs, wish: Wish) -> None:
        if wish.fresh:
            shutil.rmtree(self.data, ignore_errors=True)
        if not self.data.exists():
            cluster.make_data(self.data, programs, self.account, self.places.cache)
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        self._run(programs, wish, self._settings(wish), {})

    def _run(self, programs: Programs, wish: Wish, base: Mapping[str, str], over: Mapping[str, str]) -> None:
        """On a data directory that is there."""
        postmaster.disown_pid_file(self.data)
        self._make_socket_dir()
        self._write({**base, **over})
        with self.log.open("ab") as log:
            self._log_from = log.tell()
            self._child = self._launch(programs, wish, log)
        ticks = postmaster.start_ticks(self._child.pid)
        self._record(programs, wish, base, Process(self._child.pid, ticks or 0))
        self._await_ready(self._child)

    def _write(self, settings: Mapping[str, str]) -> None:
        cluster.write_settings(self.data, self.account, settings)

    def _settings(self, wish: Wish) -> dict[str, str]:
        ours = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            "max_connections": str(wish.connections),
            "shared_buffers": memory.shared_buffers(),
            "cluster_name": "dbdyno",
            "log_line_prefix": "%m [%p] ",
        }
        return ours | dict(wish.settings)

    def _make_socket_dir(self) -> None:
        """Private to the server's user. No server of ours runs: what lies in it is left over."""
        self.socket_dir.mkdir(exist_ok=True, mode=0o700)
        if self.account.switch:
            os.chown(self.socket_dir, self.account.uid, self.account.gid)
        check_private(self.socket_dir, writable_by=self.account.uid)
        for left in self.socket_dir.iterdir():
            left.unlink()

    def _launch(self, programs: Programs, wish: Wish, log: IO[bytes]) -> subprocess.Popen[bytes]:
        parent = 0 if wish.stay else os.getpid()
        ids = map(str, (self.account.uid, self.account.gid, parent))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", launch.__file__, *ids, programs.path("postgres"), "-D", self.data],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=cluster.clean_environment(),
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )

    def _record(self, programs: Programs, wish: Wish, base: Mapping[str, str], process: Process) -> None:
        started = Started(
            pid=process.pid,
            start_ticks=process.start_ticks,
            stay=wish.stay,
            owner_pid=os.getpid(),
            started=time.time(),
            max_connections=wish.connections,
            settings=dict(wish.settings),
            bin_dir=str(programs.bin_dir),
            version=programs.version,
            base=dict(base),
        )
        file = self.directory / "instance.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(started), indent=1))
        new.replace(file)

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        while not (postmaster.recorded_pid(self.data) == child.pid and postmaster.is_ready(self.data)):
            if child.poll() is not None:
                raise TargetError(
                    f"the embedded server did not start; the end of its log:\n{self.log_tail()}",
                    "if a setting is to blame, mend it; if the data directory is, start it anew: "
                    "dbdyno server start --fresh",
                )
            if time.monotonic() > deadline:
                raise TargetError(
                    f"the embedded server is not ready after {_START_PATIENCE_S:g} s; the end of its log:\n"
                    f"{self.log_tail()}",
                    f"see {self.log}",
                )
            time.sleep(0.002)

    def _becomes_ready(self, running: Process) -> bool:
        """Of one that somebody else started, who may have been killed meanwhile."""
        deadline = time.monotonic() + _START_PATIENCE_S
        while running.alive and not postmaster.is_ready(self.data) and time.monotonic() < deadline:
            time.sleep(0.002)
        return running.alive and postmaster.is_ready(self.data)

    def facts(self) -> dict[str, Any]:
        """Its status, fit for JSON; no credentials (there are none)."""
        running, last = self.process(), self.started()
        if running is None or last is None:
            return {"running": False, "data_dir": str(self.data) if self.data.exists() else None}
        owner = None if last.stay else last.owner_pid
        return {
            "running": True,
            "stays": last.stay,
            "owner_pid": owner,
            "pid": running.pid,
            "version": last.version,
            "dsn": f"postgresql://{cluster.ROLE}@/postgres?host={self.socket_dir}&port={PORT}",
            "socket": str(self.socket_dir),
            "data_dir": str(self.data),
            "log": str(self.log),
            "programs": last.bin_dir,
            "max_connections": last.max_connections,
            "settings": last.settings,
            "uptime_s": round(max(0.0, time.time() - last.started), 1),
        }
