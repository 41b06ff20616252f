"""One embedded server: a data directory for each major version, what runs on it, and whose it is.

``owner.lock`` is flock'ed by the process that owns a running server, for as long as it lives: the lock of a
process killed with -9 is free, and the next start ends its server. ``server.lock`` is held by the server's
processes, also where they are not to be seen. ``start.lock`` is held while anyone decides. ``instance.json``
says what was started. These and the log are ours; the data and the socket's directory are the server's
user's, and what is done in them is done with that user's rights (``worker``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dbdyno.engines.postgres.embedded import cluster, defaults, files, postmaster
from dbdyno.engines.postgres.embedded.account import Account, cure_of, explained, owner_of, refuse
from dbdyno.engines.postgres.embedded.defaults import Started, Wish, check_fits, last_started, make_extension
from dbdyno.engines.postgres.embedded.places import Places, alone, is_held, make_place, taken
from dbdyno.engines.postgres.embedded.postmaster import Process
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.worker import Worker, argv, make_directory, remove_directory
from dbdyno.kernel.private import check_private
from dbdyno.model.errors import ServerBusy, ServerLost, TargetError, UsageError

_START_PATIENCE_S = 60.0
_END_PATIENCE_S = 5.0  # of a process that was killed
_LOG_LINES, _LOG_BYTES = 12, 1 << 16


class Instance:
    """See the module."""

    def __init__(self, places: Places, account: Account, directory: Path) -> None:
        self.places, self.directory = places, directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.socket_dir = places.socket_dir(self.data)
        self._new_owner = account  # of data that are made
        self._belong_to(owner_of(self.data) or account)
        self._owner: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log_from = 0  # where the log of the latest start begins
        self.sessions = 1  # that were wished for

    def _belong_to(self, account: Account) -> None:
        self.account = account
        self._worker = Worker(account)

    def started(self) -> Started | None:
        """What was started last. Raises :class:`UsageError` where another user may have written it."""
        return last_started(self.directory / "instance.json")

    @explained()
    def process(self) -> Process | None:
        """The server running on our data directory, if one does. Raises :class:`ServerBusy` where a process
        may be it that we may not look at."""
        last = self.started()
        known = {} if last is None else {last.pid: last.start_ticks}
        unknown = None
        with self._worker as worker:
            recorded = postmaster.recorded_pid(self._pid_file())
            for pid in dict.fromkeys(([] if recorded is None else [recorded]) + list(known)):
                found = worker.judge(pid, self.data, known.get(pid))
                if found == "server" and (ticks := worker.start_ticks(pid)) is not None:
                    return Process(pid, ticks)
                if found == "unknown" and not (last and last.locked and pid in known):  # its lock decides
                    unknown = pid
            lock = self.directory / "server.lock"
            if unknown is None and not (is_held(lock) and not worker.openers(lock)):
                return None
        which = f"process {unknown}" if unknown else "a process, perhaps of another container,"
        raise ServerBusy(
            f"{which} may be the embedded server on {self.data}; this user may not inspect it",
            "stop it as the user, and in the container, where it was started: dbdyno server stop; or set "
            "DBDYNO_SERVER_DIR to another directory",
        )

    def _pid_file(self) -> str | None:
        return self._worker.read(self.data / postmaster.PID_FILE)

    @property
    def stays(self) -> bool:
        """Whether it goes on when those who use it end."""
        return self._owner is None

    @property
    def bin_dir(self) -> Path | None:
        """Where the programs of the running server are."""
        last = self.started()
        return None if last is None else Path(last.bin_dir)

    @property
    def address(self) -> str:
        """For libpq, of ours alone: empty values keep PGHOSTADDR and PGOPTIONS of the environment out."""
        host = re.sub(r"(['\\])", r"\\\1", str(self.socket_dir))  # of a home with a blank in its name
        where = f"host='{host}' port={defaults.PORT}"
        return f"{where} user={cluster.ROLE} dbname=postgres hostaddr='' options=''"

    def has_owner(self) -> bool:
        """Whether a living process (we too) owns the server."""
        return is_held(self.directory / "owner.lock")

    def log_tail(self) -> str:
        """The last lines of the server's log, of its latest start."""
        text = files.read(str(self.log), self._log_from, _LOG_BYTES)
        if text is None:
            return "(it wrote no log)"
        return "\n".join(text.splitlines()[-_LOG_LINES:]) or "(its log is empty)"

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Nobody else starts or stops this server meanwhile."""
        make_place(self.directory, self.account)
        with explained(), alone(self.directory / "start.lock"), self._worker:
            yield

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
                self._end(running)
            self._worker.end_orphans(self.data)
            if not wish.stay:
                self._own()
            self._start(programs, wish)

    def close(self) -> None:
        """Ends the server if it is ours to end."""
        if self._owner is None:
            return
        with self.deciding():
            try:
                self._end_child()
                if self._owns() and (running := self.process()) is not None:
                    self._end(running)
            finally:
                os.close(self._owner)
                self._owner = None

    def reconfigure(self, settings: Mapping[str, str], *, restart: bool) -> None:
        """Its file holds what it was started with and, over it, ``settings``; of earlier ones none.

        Without a restart the caller has the server reload it. Raises :class:`UsageError` where it does not
        start with them: then it runs without any. The thread that calls is the one that it lives with.
        """
        with self.deciding():
            running, last = self.process(), self.started()
            if running is None or last is None:
                raise ServerLost("the embedded server has ended", f"see {shlex.quote(str(self.log))}")
            if not self._owns() and not last.stay:
                raise ServerBusy(
                    f"the embedded server belongs to the run of process {last.owner_pid}",
                    "wait until that has ended",
                )
            wish = Wish(last.settings, max_connections=last.max_connections, stay=last.stay)
            base = last.base or defaults.settings(wish, self.socket_dir)
            if not restart:
                self._write({**base, **settings})
                return
            programs = Programs(Path(last.bin_dir), last.version)
            self._end(running)
            self._worker.end_orphans(self.data)
            try:
                self._run(programs, wish, base, settings)
            except TargetError as e:
                self._revive(programs, wish, base, settings, e)

    def is_as_started(self) -> bool:
        """Whether its file holds what it was started with, and no settings of a run that was killed."""
        last = self.started()
        if last is None or not last.base:
            return True
        return self._worker.read(self.data / cluster.SETTINGS_FILE) == cluster.settings_text(last.base)

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
            self._end(left)
            self._worker.end_orphans(self.data)
        self._run(programs, wish, base, {})
        said = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise UsageError(
            f"with {said}: {error.message}",
            "change the settings; the server runs without them",
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
        if not self._worker.end([running]):
            raise TargetError(
                f"server process {running.pid} does not end", "it may hang in the kernel (state D)"
            )
        self._end_child()

    def _end_child(self) -> None:
        """The process that we started, if we did, whatever may be seen of it; and the socket's directory."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            if (ticks := self._worker.start_ticks(child.pid)) is not None:
                self._worker.end([Process(child.pid, ticks)])
            if child.poll() is None:
                with suppress(PermissionError):
                    child.kill()
            try:
                child.wait(_END_PATIENCE_S)
            except subprocess.TimeoutExpired:
                cure = f"end it by hand: kill -QUIT {child.pid}"
                raise TargetError(f"server process {child.pid} does not end", cure) from None
        with suppress(OSError):  # not empty where the server was killed: the next start clears it
            self.socket_dir.rmdir()

    def _own(self) -> None:
        self._owner = taken(self.directory / "owner.lock")

    def _owns(self) -> bool:
        """Whether no other process took over, as it may when our server had died."""
        if self._owner is None:
            return False
        return os.path.samestat(os.fstat(self._owner), (self.directory / "owner.lock").stat())

    def _start(self, programs: Programs, wish: Wish) -> None:
        if wish.fresh:
            remove_directory(self.data)
        if not self.data.exists():
            if self.account != self._new_owner:
                self._belong_to(self._new_owner)
            cluster.make_data(self.data, programs, self._worker, self.places.cache)
        refuse(self.account, self._new_owner, self.data)
        if not self.account.switch:
            check_private(self.data.resolve())  # its files hold commands; a link to it is ours
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        self._run_with_statistics(programs, wish)

    def _run_with_statistics(self, programs: Programs, wish: Wish) -> None:
        """As far as the programs have what it needs."""
        base = defaults.settings(wish, self.socket_dir)
        try:
            self._run(programs, wish, base, {})
        except TargetError as e:
            self._run(programs, wish, defaults.without_statements(base, wish, e, programs), {})
        make_extension(self.address)

    def _run(self, programs: Programs, wish: Wish, base: Mapping[str, str], over: Mapping[str, str]) -> None:
        """On a data directory that is there, and no server on it."""
        self._worker.disown(self.data / postmaster.PID_FILE)
        self._make_socket_dir()
        self._write({**base, **over})
        self._child = self._launch(programs, wish)
        try:
            ticks = self._worker.start_ticks(self._child.pid)
            self._record(programs, wish, base, Process(self._child.pid, ticks or 0))
            self._await_ready(self._child)
        except BaseException:
            self._end_child()
            raise

    def _write(self, settings: Mapping[str, str]) -> None:
        self._worker.write(self.data / cluster.SETTINGS_FILE, cluster.settings_text(settings))

    def _make_socket_dir(self) -> None:
        """Private to the server's user. No server of ours runs: what lies in it is left over."""
        remove_directory(self.socket_dir)
        make_directory(self.socket_dir, self.account)

    def _launch(self, programs: Programs, wish: Wish) -> subprocess.Popen[bytes]:
        parent = 0 if wish.stay else os.getpid()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        lock = taken(self.directory / "server.lock")
        try:
            os.fchmod(log, 0o600)
            self._log_from = os.fstat(log).st_size
            return subprocess.Popen(
                argv(self.account, str(parent), programs.path("postgres"), "-D", self.data),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=cluster.clean_environment(),
                start_new_session=True,  # a terminal's Ctrl-C does not reach it
                pass_fds=(lock,),  # its processes hold it as long as they live
            )
        finally:
            os.close(log)
            os.close(lock)

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
            locked=True,
        )
        files.write(str(self.directory / "instance.json"), json.dumps(asdict(started), indent=1))

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        while True:
            text = self._pid_file()
            if postmaster.recorded_pid(text) == child.pid and postmaster.is_ready(text):
                return
            if child.poll() is not None:
                tail = self.log_tail()
                raise TargetError(
                    f"the embedded server did not start; the end of its log:\n{tail}",
                    cure_of(tail)
                    or "if a setting is to blame, change it; if the data directory is, begin with a new one: "
                    "dbdyno server start --fresh (it removes all data of the old one)",
                )
            if time.monotonic() > deadline:
                tail = self.log_tail()
                raise TargetError(
                    f"the embedded server is not ready after {_START_PATIENCE_S:g} s; the end of its log:\n"
                    f"{tail}",
                    cure_of(tail) or f"see {shlex.quote(str(self.log))}",
                )
            time.sleep(0.002)

    def _becomes_ready(self, running: Process) -> bool:
        """Whether a server that another process started, which may have been killed meanwhile, gets ready."""
        deadline = time.monotonic() + _START_PATIENCE_S
        while self._worker.start_ticks(running.pid) == running.start_ticks:
            if postmaster.is_ready(self._pid_file()):
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        return False

    def facts(self) -> dict[str, Any]:
        """Its status, fit for JSON, with settings as it was started; no credentials (there are none)."""
        try:
            running, last = self.process(), self.started()
        except ServerBusy as e:
            return {"running": None, "data_dir": str(self.data), "detail": e.message, "cure": e.cure}
        if running is None or last is None:
            return {"running": False, "data_dir": str(self.data) if self.data.exists() else None}
        owner = None if last.stay else last.owner_pid
        return {
            "running": True,
            "stays": last.stay,
            "owner_pid": owner,
            "pid": running.pid,
            "version": last.version,
            "dsn": f"postgresql://{cluster.ROLE}@/postgres?host={quote(str(self.socket_dir))}"
            f"&port={defaults.PORT}",
            "socket": str(self.socket_dir),
            "data_dir": str(self.data),
            "log": str(self.log),
            "programs": last.bin_dir,
            "max_connections": last.connections,
            "settings": last.settings,
            "uptime_s": round(max(0.0, time.time() - last.started), 1),
        }
