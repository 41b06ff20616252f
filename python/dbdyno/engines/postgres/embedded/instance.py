"""One embedded server: its data directory, one per major version, its processes and its owner.

The process that owns a running server holds a flock on ``owner.lock`` as long as it lives. If it is killed,
even with -9, the lock is free, and the next start ends its server. The server's processes hold
``server.lock``, which shows that they live even if they are invisible in /proc. ``start.lock`` is held while
a process decides about starting or stopping. ``instance.json`` records what was started. These files and the
log belong to dbdyno; the data and the socket's directory belong to the server's user, and are only changed
with that user's rights (``worker``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dbdyno.engines.postgres.embedded import cluster, defaults, files, leftovers, postmaster
from dbdyno.engines.postgres.embedded.account import (
    Account,
    check_owner,
    cure_for,
    explain_os_errors,
    owner_of,
)
from dbdyno.engines.postgres.embedded.defaults import (
    Started,
    StartOptions,
    check_fits,
    last_started,
    make_extension,
)
from dbdyno.engines.postgres.embedded.places import Places, exclusive, is_held, lock_new_file, make_place
from dbdyno.engines.postgres.embedded.postmaster import Process
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.worker import Worker, argv, make_directory, remove_directory
from dbdyno.kernel.private import check_private
from dbdyno.model.errors import Abandoned, ServerBusy, ServerLost, TargetError, UsageError, requests

_START_PATIENCE_S = 60.0
_END_PATIENCE_S = 5.0  # of a process that was killed
_RESERVED = "run.lock"
_LOG_LINES, _LOG_BYTES = 12, 1 << 16


class Instance:
    """The embedded server of one data directory, which may be running."""

    def __init__(self, places: Places, account: Account, directory: Path) -> None:
        self.places, self.directory = places, directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.socket_dir = places.socket_dir(self.data)
        self._new_owner = account  # owns data directories made from now on
        self._belong_to(owner_of(self.data) or account)
        self._owner: int | None = None
        self._reserved: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._log_from = 0  # where the log of the latest start begins
        self.sessions = 1  # that the last start asked for
        self._requests: int | None = None  # requests to stop before the step that a further one ends

    def _belong_to(self, account: Account) -> None:
        self.account = account
        self._worker = Worker(account)

    def started(self) -> Started | None:
        """Returns how the server was started last, None if unknown. Raises :class:`UsageError` if another
        user may have written that."""
        return last_started(self.directory / "instance.json")

    @explain_os_errors()
    def process(self) -> Process | None:
        """Returns the server running on this data directory, None if none does. Raises :class:`ServerBusy`
        if a process may be it that we may not inspect."""
        last = self.started()
        known = {} if last is None else {last.pid: last.start_ticks}
        unknown = None
        with self._worker as worker:
            recorded = postmaster.recorded_pid(self._pid_file())
            for pid in dict.fromkeys(([] if recorded is None else [recorded]) + list(known)):
                verdict = worker.judge(pid, self.data, known.get(pid))
                if verdict == "server" and (ticks := worker.start_ticks(pid)) is not None:
                    return Process(pid, ticks)
                if verdict == "unknown" and not (
                    last and last.locked and pid in known
                ):  # else its lock decides
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
    def of_programs(self) -> bool:
        """Whether it belongs to one directory of programs that variants name, and not to a major version."""
        return "-" in self.directory.name

    @property
    def stays(self) -> bool:
        """Whether the server keeps running when the processes that use it end."""
        return self._owner is None

    @property
    def bin_dir(self) -> Path | None:
        """Directory of the programs of the running server."""
        last = self.started()
        return None if last is None else Path(last.bin_dir)

    @property
    def address(self) -> str:
        """Connection string for libpq. Its empty values override PGHOSTADDR and PGOPTIONS of the
        environment."""
        host = re.sub(r"(['\\])", r"\\\1", str(self.socket_dir))  # the path may contain blanks
        where = f"host='{host}' port={defaults.PORT}"
        return f"{where} user={cluster.ROLE} dbname=postgres hostaddr='' options=''"

    def has_owner(self) -> bool:
        """Returns whether a living process, possibly this one, owns the server."""
        return is_held(self.directory / "owner.lock")

    def log_tail(self) -> str:
        """Returns the last lines that the server logged since its latest start."""
        text = files.read(str(self.log), self._log_from, _LOG_BYTES)
        if text is None:
            return "(it wrote no log)"
        return "\n".join(text.splitlines()[-_LOG_LINES:]) or "(its log is empty)"

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Keeps other processes from starting or stopping this server meanwhile."""
        make_place(self.directory, self.account)
        lock = exclusive(self.directory / "start.lock", self._check_stop)
        with explain_os_errors(), lock, self._worker:
            yield

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Raises :class:`Abandoned` from waits within it once the user requests a stop. Earlier requests do
        not count."""
        self._requests = requests()
        try:
            yield
        finally:
            self._requests = None

    def _check_stop(self) -> None:
        if self._requests is not None and requests() > self._requests:
            raise Abandoned

    def open(self, programs: Programs, options: StartOptions) -> None:
        """Makes sure that the server runs: uses one that was started to stay or has a living owner, else
        starts it. Raises :class:`Abandoned` if the user requests a stop meanwhile."""
        self.sessions = options.sessions
        with self._stoppable(), self.deciding():
            running, last = self.process(), self.started()
            others = last is not None and (last.stay or self.has_owner())
            if running is not None and last is not None and others and self._becomes_ready(running):
                check_fits(last, options)
                return
            if running is not None:
                self._end(running)
            self._worker.end_orphans(self.data)
            if not options.stay:
                self._own()
            self._start(programs, options)

    def close(self) -> None:
        """Ends the server if this process owns it."""
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
        """Writes a settings file with the settings of its start and ``settings`` over them, and none of
        earlier calls.

        Without ``restart`` the caller makes the server reload the file. Raises :class:`UsageError` if the
        server does not start with the settings; then it runs without them. The server lives as long as the
        calling thread.
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
            options = StartOptions(last.settings, max_connections=last.max_connections, stay=last.stay)
            base = last.base or defaults.settings(options, self.socket_dir)
            if not restart:
                self._write({**base, **settings})
                return
            programs = Programs(Path(last.bin_dir), last.version)
            self._end(running)
            self._worker.end_orphans(self.data)
            try:
                self._run(programs, options, base, settings)
            except TargetError as e:
                self._revive(programs, options, base, settings, e)

    def is_as_started(self) -> bool:
        """Returns whether its file has the settings of its start, without those of a killed run."""
        last = self.started()
        if last is None or not last.base:
            return True
        return self._worker.read(self.data / cluster.SETTINGS_FILE) == cluster.settings_text(last.base)

    def _revive(
        self,
        programs: Programs,
        options: StartOptions,
        base: Mapping[str, str],
        settings: Mapping[str, str],
        error: TargetError,
    ) -> None:
        """Restarts the server without the settings it failed with. Raises :class:`UsageError`."""
        if (left := self.process()) is not None:
            self._end(left)
            self._worker.end_orphans(self.data)
        self._run(programs, options, base, {})
        asked = ", ".join(f"{name} = {value}" for name, value in settings.items())
        raise UsageError(
            f"with {asked}: {error.message}",
            "change the settings; the server runs without them",
        ) from None

    def stop(self) -> Process | None:
        """Ends the server on the user's request. Returns its process, None if it did not run. Raises
        :class:`ServerBusy` while a run uses it."""
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

    def reserve(self) -> None:
        """Keeps the data directory for this run, also while its server does not run. Raises
        :class:`ServerBusy` if another run has it."""
        with self._stoppable(), self.deciding():
            if is_held(self.directory / _RESERVED):
                raise ServerBusy(
                    f"another run uses the data directory {self.data}",
                    "wait until that has ended: with --wait this one begins then",
                )
            self._reserved = lock_new_file(self.directory / _RESERVED)

    def release(self) -> None:
        """Ends :meth:`reserve`."""
        if self._reserved is not None:
            os.close(self._reserved)
            self._reserved = None

    def remove(self) -> list[str]:
        """Ends the server and removes its data directory unless a run uses it. Returns what was done, in
        words."""
        with self.deciding():
            running, words = self.process(), f"data directory {self.data} of a server that variants named"
            if is_held(self.directory / _RESERVED):
                return [f"{words}: a run uses it, left alone"]
            if running is not None:
                self._end(running)
            self._worker.end_orphans(self.data)
            remove_directory(self.data)
            return [f"removed {words}"]

    def remove_unfinished(self) -> list[str]:
        """Removes the data directory that a run was making when it was killed. Returns what was done, in
        words."""
        unfinished = cluster.unfinished(self.data)
        if not unfinished.exists():
            return []
        with self.deciding():  # by now, a run that is making it has ended that
            if not unfinished.exists():
                return []
            remove_directory(unfinished)
        return [f"removed {unfinished}, which a killed run left unfinished"]

    def sweep(self) -> None:
        """Removes what killed servers of this user left where the sockets are."""
        with self._worker:
            leftovers.sweep(self.places, self._worker)

    def _end(self, running: Process) -> None:
        if not self._worker.end([running]):
            raise TargetError(
                f"server process {running.pid} does not end", "it may hang in the kernel (state D)"
            )
        self._worker.end_session(running.pid)
        self._end_child()

    def _end_child(self, stops: Sequence[tuple[int, float]] = postmaster.STOPS) -> None:
        """Ends the process that this object started, if any, even if it cannot be inspected, and its
        children. Removes the socket's directory."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            if (ticks := self._worker.start_ticks(child.pid)) is not None:
                self._worker.end([Process(child.pid, ticks)], stops)
            if child.poll() is None:
                with suppress(PermissionError):
                    child.kill()
            try:
                child.wait(_END_PATIENCE_S)
            except subprocess.TimeoutExpired:
                cure = f"end it by hand: kill -QUIT {child.pid}"
                raise TargetError(f"server process {child.pid} does not end", cure) from None
        if child is not None:
            self._worker.end_session(child.pid)
        leftovers.remove_empty(
            self.socket_dir
        )  # not empty where the server was killed: a later start clears it

    def _own(self) -> None:
        self._owner = lock_new_file(self.directory / "owner.lock")

    def _owns(self) -> bool:
        """Returns whether this process still owns the server: after the server died, another process may
        have taken over."""
        if self._owner is None:
            return False
        return os.path.samestat(os.fstat(self._owner), (self.directory / "owner.lock").stat())

    def _start(self, programs: Programs, options: StartOptions) -> None:
        if options.fresh:
            remove_directory(self.data)
        if not self.data.exists():
            if self.account != self._new_owner:
                self._belong_to(self._new_owner)
            cluster.make_data(self.data, programs, self._worker, self.places.cache, self._check_stop)
        check_owner(self.account, self._new_owner, self.data)
        if not self.account.switch:
            check_private(self.data.resolve())  # its files contain commands; the link to it is ours
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        self._run_with_statistics(programs, options)

    def _run_with_statistics(self, programs: Programs, options: StartOptions) -> None:
        """Starts the server with pg_stat_statements if its programs include that."""
        base = defaults.settings(options, self.socket_dir)
        try:
            self._run(programs, options, base, {})
        except Abandoned:
            raise
        except TargetError as e:
            self._run(programs, options, defaults.without_statements(base, options, e, programs), {})
        make_extension(self.address)

    def _run(
        self, programs: Programs, options: StartOptions, base: Mapping[str, str], changed: Mapping[str, str]
    ) -> None:
        """Starts the server on an existing data directory on which none runs. ``over`` replaces settings of
        ``base``."""
        self._worker.disown(self.data / postmaster.PID_FILE)
        self._make_socket_dir()
        self._write({**base, **changed})
        self._child = self._launch(programs, options)
        try:
            ticks = self._worker.start_ticks(self._child.pid)
            self._record(programs, options, base, Process(self._child.pid, ticks or 0))
            self._await_ready(self._child)
        except Abandoned:
            self._end_child(postmaster.STOPS_OF_START)
            raise
        except BaseException:
            self._end_child()
            raise

    def _write(self, settings: Mapping[str, str]) -> None:
        self._worker.write(self.data / cluster.SETTINGS_FILE, cluster.settings_text(settings))

    def _make_socket_dir(self) -> None:
        """Creates the directory, private to the server's user. Removes an old one, since no server runs, and
        what killed servers left beside it."""
        leftovers.sweep(self.places, self._worker)
        remove_directory(self.socket_dir)
        leftovers.record(self.socket_dir, self.data)
        make_directory(self.socket_dir, self.account)

    def _launch(self, programs: Programs, options: StartOptions) -> subprocess.Popen[bytes]:
        parent = 0 if options.stay else os.getpid()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        lock = lock_new_file(self.directory / "server.lock")
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

    def _record(
        self, programs: Programs, options: StartOptions, base: Mapping[str, str], process: Process
    ) -> None:
        started = Started(
            pid=process.pid,
            start_ticks=process.start_ticks,
            stay=options.stay,
            owner_pid=os.getpid(),
            started=time.time(),
            max_connections=options.connections,
            settings=dict(options.settings),
            bin_dir=str(programs.bin_dir),
            version=programs.version,
            base=dict(base),
            locked=True,
        )
        files.write(str(self.directory / "instance.json"), json.dumps(asdict(started), indent=1))

    @property
    def _title(self) -> str:
        return "the server" if self.of_programs else "the embedded server"

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        while True:
            self._check_stop()
            text = self._pid_file()
            if postmaster.recorded_pid(text) == child.pid and postmaster.is_ready(text):
                return
            if child.poll() is not None:
                tail = self.log_tail()
                again = "dbdyno clean" if self.of_programs else "dbdyno server start --fresh"
                raise TargetError(
                    f"{self._title} did not start; the end of its log:\n{tail}",
                    cure_for(tail)
                    or "if a setting is to blame, change it; if the data directory is, begin with a new one: "
                    f"{again} (it removes all data of the old one)",
                )
            if time.monotonic() > deadline:
                tail = self.log_tail()
                raise TargetError(
                    f"{self._title} is not ready after {_START_PATIENCE_S:g} s; the end of its log:\n{tail}",
                    cure_for(tail) or f"see {shlex.quote(str(self.log))}",
                )
            time.sleep(0.002)

    def _becomes_ready(self, running: Process) -> bool:
        """Waits until a server that another process started accepts connections. Returns False if it ended
        or did not get ready; that process may have been killed meanwhile."""
        deadline = time.monotonic() + _START_PATIENCE_S
        while self._worker.start_ticks(running.pid) == running.start_ticks:
            self._check_stop()
            if postmaster.is_ready(self._pid_file()):
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        return False

    def facts(self) -> dict[str, Any]:
        """Returns its status as JSON values, with the settings of its start and without credentials."""
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
