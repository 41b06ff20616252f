"""pgbench as a load that dbdyno did not start, and a terminal to look at it from."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.on_terminal import frame


def program() -> str:
    """Returns any installed pgbench; it speaks to all versions."""
    path = shutil.which("pgbench") or next(
        (str(p) for p in sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)), None
    )
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("pgbench is not here: install PostgreSQL's client programs or contrib package")
        pytest.skip("no pgbench here: apt-get install postgresql-15")
    return path


@contextlib.contextmanager
def load(dsn: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs pgbench, and ends it at the end."""
    process = subprocess.Popen(
        [program(), "-n", "-T", "600", *words, dsn], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Terminal:
    """A program on a terminal of its own, with its present screen and keys to press."""

    def __init__(self, argv: list[str], env: Mapping[str, str], rows: int = 40, columns: int = 120) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        kept = {k: v for k, v in env.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            argv,
            env=kept | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=self._controlling,
        )
        self._slave = slave
        self.data = b""

    @staticmethod
    def _controlling() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def modes(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def read(self, seconds: float = 0.2) -> None:
        deadline = time.monotonic() + seconds
        while select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            self.data += os.read(self._master, 65536)

    def screen(self) -> str:
        """Returns the latest screen without colours."""
        return "\n".join(frame(self.data.decode("utf-8", "replace")))

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def until(self, shown: Callable[[str], object], timeout_s: float = 60) -> str:
        """Returns the first screen of which ``shown`` is true."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.read()
            if shown(self.screen()):
                return self.screen()
        raise AssertionError(f"was not shown within {timeout_s} s; last:\n{self.screen()}")

    def wait(self, timeout_s: float = 60) -> int:
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        self.read(0.1)
        return self.process.wait(0.1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextlib.contextmanager
def terminal(argv: list[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(argv, env)
    try:
        yield terminal
    finally:
        terminal.close()
