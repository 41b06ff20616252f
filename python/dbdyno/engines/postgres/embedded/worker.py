"""Works on files and processes of the server's user, with that user's rights only.

If dbdyno runs as root, it neither reads nor writes below directories that another user owns, since links
there could lead anywhere. A child that has become that user does it. Root itself writes only into its own
directories (locks, ``instance.json``, the log).
"""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dbdyno.engines.postgres.embedded import files, launch, postmaster
from dbdyno.engines.postgres.embedded.account import AS_A_USER, Account, account_of, lacking_rights
from dbdyno.engines.postgres.embedded.postmaster import Process
from dbdyno.model.errors import TargetError, UsageError

_PATIENCE_S = 60.0
_COPY_PATIENCE_S = 600.0  # for many or large files
_MODULES = {"files": files, "postmaster": postmaster}


def argv(account: Account, parent: str, *program: str | Path) -> list[str]:
    """Returns the command line that runs ``program`` as ``account``. ``parent``: see ``launch``."""
    ids = (str(account.uid), str(account.gid), parent)
    return [sys.executable, "-I", "-S", launch.__file__, *ids, *map(str, program)]


class Worker:
    """Runs operations as ``account``. Use it as a context manager, which may be nested."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._depth = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def __enter__(self) -> Worker:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._end_child()

    # -- files ------------------------------------------------------------------------------------
    def read(self, path: Path, offset: int = 0, most: int = files.MOST_BYTES) -> str | None:
        """Returns the text of a regular file; see ``files``."""
        text = self._call("files.read", os.fspath(path), offset, most)
        return None if text is None else str(text)

    def write(self, path: Path, text: str) -> None:
        self._call("files.write", os.fspath(path), text)

    def append(self, path: Path, text: str) -> None:
        self._call("files.append", os.fspath(path), text)

    def remove(self, path: Path) -> None:
        self._call("files.remove", os.fspath(path))

    def clear(self, directory: Path) -> None:
        self._call("files.clear", os.fspath(directory), patience_s=_COPY_PATIENCE_S)

    def copy(self, source: Path, target: Path) -> None:
        self._call("files.copy", os.fspath(source), os.fspath(target), patience_s=_COPY_PATIENCE_S)

    def clear_dead_socket(self, directory: Path, name: str, *, known: bool) -> bool:
        """Returns whether the directory is empty; see ``files``."""
        return bool(self._call("files.clear_dead_socket", os.fspath(directory), name, known))

    def disown(self, pid_file: Path) -> None:
        self._call("files.disown", os.fspath(pid_file), postmaster.NO_PID)

    # -- processes --------------------------------------------------------------------------------
    def judge(self, pid: int, data: Path, known_ticks: int | None) -> str:
        """Returns what the process is to the server; see ``postmaster``."""
        return str(self._call("postmaster.judge", pid, os.fspath(data), known_ticks))

    def start_ticks(self, pid: int) -> int | None:
        ticks = self._call("postmaster.start_ticks", pid)
        return None if ticks is None else int(ticks)

    def orphans(self, data: Path) -> list[Process]:
        return [Process(*p) for p in self._call("postmaster.orphans", os.fspath(data))]

    def holders(self, argument: Path) -> list[Process]:
        return [Process(*p) for p in self._call("postmaster.holders", os.fspath(argument))]

    def openers(self, file: Path) -> list[Process]:
        return [Process(*p) for p in self._call("postmaster.openers", os.fspath(file))]

    def end_orphans(self, data: Path) -> None:
        self._call("postmaster.end_orphans", os.fspath(data))

    def end_session(self, leader: int) -> None:
        self._call("postmaster.end_session", leader)

    def end(
        self, processes: Sequence[Process], stops: Sequence[tuple[int, float]] = postmaster.STOPS
    ) -> bool:
        """Ends these processes: sends each signal in turn and waits up to the seconds beside it. Returns
        whether all are gone."""
        pairs = [(p.pid, p.start_ticks) for p in processes]
        patience_s = _PATIENCE_S + len(pairs) * sum(s for _, s in stops)
        return bool(self._call("postmaster.end_all", pairs, [list(s) for s in stops], patience_s=patience_s))

    # -- the child --------------------------------------------------------------------------------
    def _call(self, name: str, *arguments: Any, patience_s: float = _PATIENCE_S) -> Any:
        module, _, function = name.partition(".")
        if not self.account.switch:
            return getattr(_MODULES[module], function)(*arguments)
        with self:
            deadline = time.monotonic() + patience_s
            try:
                child = self._running_child(deadline)
                self._send(child, json.dumps([name, arguments]).encode() + b"\n", deadline)
                answer = self._answer(child, deadline)
            except BaseException:  # else the next request would get the answer to this one
                self._end_child()
                raise
            if "failed" in answer:
                raise OSError(*answer["failed"])
            return answer["done"]

    def _running_child(self, deadline: float) -> subprocess.Popen[bytes]:
        if self._child is None:
            if missing := lacking_rights(self.account.uid, self.account.gid):
                raise UsageError(
                    f"dbdyno runs as root and cannot act as user {self.account.name}, whose server it is: "
                    f"{missing}",
                    AS_A_USER,
                )
            self._pending = b""
            self._child = subprocess.Popen(
                argv(self.account, f"{os.getpid()}:9"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env={"LC_ALL": "C.UTF-8", "HOME": "/", "PATH": os.defpath},
                start_new_session=True,  # a terminal's Ctrl-C does not reach it
            )
            self._answer(self._child, deadline)
        return self._child

    def _send(self, child: subprocess.Popen[bytes], request: bytes, deadline: float) -> None:
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        while request:
            self._await(child, child.stdin.fileno(), select.POLLOUT, deadline)
            try:
                request = request[os.write(child.stdin.fileno(), request) :]
            except BrokenPipeError:
                raise self._death_error(child) from None

    def _answer(self, child: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
        assert child.stdout is not None
        while b"\n" not in self._pending:
            self._await(child, child.stdout.fileno(), select.POLLIN, deadline)
            more = os.read(child.stdout.fileno(), 1 << 16)
            if not more:
                raise self._death_error(child)
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        return dict(json.loads(line))

    def _await(self, child: subprocess.Popen[bytes], fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TargetError(
                f"process {child.pid} of user {self.account.name} does not answer; dbdyno uses it to work in "
                "the server's directories",
                f"look at it: ps -fp {child.pid}",
            )

    def _death_error(self, child: subprocess.Popen[bytes]) -> TargetError:
        with suppress(subprocess.TimeoutExpired):
            child.wait(5)
        assert child.stderr is not None
        os.set_blocking(child.stderr.fileno(), False)
        lines = (child.stderr.read(4096) or b"").decode(errors="replace").strip().splitlines()
        return TargetError(
            f"dbdyno's process of user {self.account.name} for the server's directories ended: "
            f"{lines[-1] if lines else 'no message'}",
            AS_A_USER,
        )

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout, child.stderr):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.wait(5)


# -- directories of the server's user in directories of ours -----------------------------------------
def make_directory(directory: Path, account: Account) -> None:
    """Creates a directory that is private to ``account``. Its parent must be our own."""
    directory.mkdir(mode=0o700)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, 0o700)
        if account.switch:
            os.fchown(fd, account.uid, account.gid)
    finally:
        os.close(fd)


def remove_directory(directory: Path) -> None:
    """Removes a directory, its contents with the rights of its owner. Its parent must be our own."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise TargetError(
            f"{directory} is not a directory, and so it is not removed", "look at it, and remove it by hand"
        )
    with Worker(account_of(status.st_uid)) as worker:
        worker.clear(directory)
    directory.rmdir()
