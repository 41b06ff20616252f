"""Runs and observations that the lab started: processes of their own, which go on when the server ends.

Each has two files in the folder ``started`` of the store: what it is, and what it printed. So every server on
the store lists it, also a later one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbdyno.kernel.private import make_private, open_private
from dbdyno.model.errors import NoSuchRun, StoreError, UsageError
from dbdyno.model.text.visible import visible
from dbdyno.store import RunStore, files
from dbdyno.store.listing import Listed, is_alive, list_run, run_ids, start_ticks

_FOLDER = "started"
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}", re.ASCII)
_KEPT = 50
"""Starts that are remembered."""
_MOST_BYTES = 64 << 10
_OUTPUT_BYTES = 16 << 10
"""End of the output that is shown."""
_SOONER_S = 2  # a run's id has whole seconds, and is made by another clock reading
PRESSES = 2
"""Ctrl-C twice: the first ends the calls in progress, the second stops at once."""
_FIRST_YEAR, _PID_END = 2000, 1 << 31
_PROGRAM = "dbdyno"
_WORDS_BEFORE = 8
"""First words of a command line, with the program's name: ``python -P -m dbdyno``, ``python .../dbdyno``."""


@dataclass(frozen=True)
class Start:
    """``words``: the command line without the program. ``pid``: 0 until it runs. ``stops``: how often Ctrl-C
    was sent."""

    id: str
    words: tuple[str, ...]
    pid: int
    ticks: int
    stops: int = 0

    @property
    def began(self) -> datetime:
        """Raises :class:`ValueError` for an id that has no time."""
        return datetime.strptime(self.id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)

    @property
    def command(self) -> str:
        """Returns the command line as one types it."""
        words = [w for w in self.words if not w.startswith("--store=")]
        if words[-2:-1] == ["--"]:
            words = [words[0], words[-1], *words[1:-2]]
        return shlex.join(["dbdyno", *words])

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid, self.ticks)


class Starts:
    """All starts of a store."""

    def __init__(self, store: RunStore) -> None:
        self.store, self._folder = store, store.root / _FOLDER
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stops: dict[tuple[int, int], int] = {}  # of runs that were started elsewhere
        self._keys: dict[str, tuple[tuple[str, ...], str]] = {}  # what was started by a form, and its id
        self._alone = threading.Lock()

    def begin(self, words: Sequence[str], key: str) -> Start:
        """Starts a command, once for each ``key`` with the same words: a button may be pressed twice. An
        empty key is no key. Raises :class:`StoreError`, and then nothing runs."""
        with self._alone:
            before, id = self._keys.get(key, ((), ""))
            if before == tuple(words):
                return self.find(id)
            with files.guard(self._folder):
                make_private(self._folder)
            self._forget_old()
            start = self._record_and_spawn(words)
            if key:
                self._keys.pop(key, None)  # the newest are at the end
                self._keys = dict([*self._keys.items()][1 - _KEPT :]) | {key: (start.words, start.id)}
            return start

    def _record_and_spawn(self, words: Sequence[str]) -> Start:
        """Writes the record first: what runs is listed, and a full disk shows before anything runs."""
        id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        start = Start(id, tuple(words), 0, 0)
        try:
            self._write(start)
            child = self._spawn(start)
            try:
                start = replace(start, pid=child.pid, ticks=start_ticks(child.pid) or 0)
                self._write(start)
            except BaseException:
                child.kill()  # it has hardly begun
                child.wait()
                raise
        except BaseException:
            self._forget(id)
            raise
        self._children[id] = child
        return start

    def _spawn(self, start: Start) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-P", "-m", _PROGRAM, *start.words]
        with files.guard(self._folder):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            output = os.open(self._output(start.id), flags, 0o600)
        try:
            return subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as e:
            raise UsageError(f"cannot start dbdyno: {e.strerror}", "give it fewer or shorter values") from e
        finally:
            os.close(output)

    def newest(self) -> Sequence[Start]:
        """Returns the newest starts, the newest first."""
        self._reap()
        starts = (self._read(path) for path in self._records()[:_KEPT])
        return [start for start in starts if start is not None]

    def find(self, id: str) -> Start:
        """Raises :class:`NoSuchRun`."""
        self._reap()
        start = self._read(self._record(id)) if _ID.fullmatch(id) else None
        if start is None:
            raise NoSuchRun("nothing was started by this name", "/start lists what was started")
        return start

    def runs_of(self, start: Start) -> Sequence[Listed]:
        """Returns the runs that the process recorded: several if it observes several servers."""
        if not start.pid:
            return []
        since = f"{datetime.fromtimestamp(start.began.timestamp() - _SOONER_S, UTC):%Y%m%d-%H%M%S}"
        listed = (list_run(self.store.root / id) for id in run_ids(self.store.root) if id >= since)
        return [r for r in listed if process_of(r) == (start.pid, start.ticks)]

    def output(self, start: Start) -> str:
        """Returns the end of what it printed."""
        try:
            with os.fdopen(open_private(self._output(start.id)), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return ""
                file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
                return visible(file.read(_OUTPUT_BYTES).decode(errors="replace"))
        except OSError:
            return ""

    def stop(self, start: Start, press: int) -> Start:
        """Sends Ctrl-C if this is the next press. Raises :class:`Ended`."""
        with self._alone:
            start = self.find(start.id)
            if press == start.stops + 1 <= PRESSES:
                interrupt(start.pid, start.ticks)
                start = replace(start, stops=press)
                self._write(start)
            return start

    def stop_run(self, run: Listed, press: int) -> int:
        """Does the same for a run that may have been started elsewhere; returns the number of presses."""
        process = process_of(run)
        for start in self.newest():
            if (start.pid, start.ticks) == process:
                return self.stop(start, press).stops
        with self._alone:
            sent = self._stops.get(process, 0)
            if press == sent + 1 <= PRESSES:
                if run.status != "running":
                    raise Ended("the run has ended", "nothing is left to stop")
                interrupt(*process)
                sent = self._stops[process] = press
            return sent

    def stops_of(self, run: Listed) -> int:
        """Returns how often Ctrl-C was sent to a run."""
        process = process_of(run)
        ours = [s.stops for s in self.newest() if (s.pid, s.ticks) == process]
        return ours[0] if ours else self._stops.get(process, 0)

    # The files.

    def _records(self) -> list[Path]:
        """Returns them newest first."""
        try:
            records = self._paths(".json")
        except StoreError as e:
            if isinstance(e.__cause__, FileNotFoundError):
                return []
            raise
        return sorted(records, reverse=True)

    def _paths(self, suffix: str) -> list[Path]:
        with files.guard(self._folder):
            return [p for p in self._folder.iterdir() if _ID.fullmatch(p.stem) and p.suffix == suffix]

    def _record(self, id: str) -> Path:
        return self._folder / f"{id}.json"

    def _output(self, id: str) -> Path:
        return self._folder / f"{id}.txt"

    def _write(self, start: Start) -> None:
        files.write_atomic(self._record(start.id), json.dumps(asdict(start)).encode())

    def _read(self, path: Path) -> Start | None:
        """Returns None for a file that is absent or damaged."""
        try:
            data: dict[str, Any] = files.from_json(files.read_limited(path, _MOST_BYTES, private=True))
            words = tuple(str(w) for w in data["words"])
            start = Start(path.stem, words, int(data["pid"]), int(data["ticks"]), int(data["stops"]))
            in_range = start.began.year >= _FIRST_YEAR and 0 <= start.pid < _PID_END and start.ticks >= 0
            return start if in_range and 0 <= start.stops <= PRESSES else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _forget_old(self) -> None:
        records = self._records()
        for path in records[_KEPT - 1 :]:
            start = self._read(path)
            if start is None or not start.is_alive:
                self._forget(path.stem)
        for id in {p.stem for p in self._paths(".txt")} - {p.stem for p in records}:
            self._forget(id)

    def _forget(self, id: str) -> None:
        """Removes the output first: without a record nobody would look for it."""
        with contextlib.suppress(OSError):
            self._output(id).unlink(missing_ok=True)
            self._record(id).unlink(missing_ok=True)

    def _reap(self) -> None:
        """Lets the kernel forget children that have ended."""
        for id, child in [*self._children.items()]:
            if child.poll() is not None:
                self._children.pop(id, None)


class Ended(UsageError):
    """The process that was to be stopped has ended."""


def process_of(run: Listed) -> tuple[int, int]:
    """Returns pid and start time of the process that measures."""
    return int(run.document["pid"]), int(run.document["pid_start_ticks"])


def interrupt(pid: int, ticks: int) -> None:
    """Sends SIGINT to a dbdyno of this user. Raises :class:`Ended`, or :class:`UsageError` if it is another
    user's, or another program: a record that was changed by hand may name any process."""
    try:
        with _process(pid) as descriptor:
            if not is_alive(pid, ticks):  # after opening: the pid cannot be used again meanwhile
                raise ProcessLookupError
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116
                raise PermissionError
            if not _is_dbdyno(pid):
                raise UsageError(f"process {pid} is no dbdyno command", "stop it where it was started")
            signal.pidfd_send_signal(descriptor, signal.SIGINT)
    except ProcessLookupError:
        raise Ended("the process has ended", "nothing is left to stop") from None
    except PermissionError:
        raise UsageError("the process belongs to another user", "stop it as that user") from None


def _is_dbdyno(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        raise ProcessLookupError from None
    return any(Path(os.fsdecode(word)).name == _PROGRAM for word in words[:_WORDS_BEFORE])


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    if pid <= 0:
        raise ProcessLookupError
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
