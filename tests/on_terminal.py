"""The program on a real pseudo-terminal, and the control sequences of its output that a terminal would
obey."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests import in_process

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\x08\u202eabc\u2028"
"""A title, a cleared screen, a C1 sequence, DEL, CR, BS, a right-to-left override, a line separator."""
_OURS = re.compile(
    "\x1b\\[[0-9;]*m"  # styles
    "|\x1b\\[\\?(25|1049)[hl]|\x1b\\[H|\x1b\\[(1A|2K)"  # cursor, other screen, and back to draw anew
    "|\x1b\\[\\d+;1H|\x1b\\[2J|\x1b\\[K"  # to a line, and the rest of the screen or line cleared
)
_OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
)


def unset() -> dict[str, str]:
    """Returns this environment without variables of the terminal's size and colours, which pytest's
    workers have."""
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}


def on_terminal(
    *words: str,
    columns: int = 100,
    rows: int = 50,
    env: dict[str, str] | None = None,
    seconds: float = 60,
    typed: str = "",
) -> tuple[int, str]:
    """Returns the exit code and all output to the terminal. ``typed`` waits there to be read."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    program = subprocess.Popen(
        [sys.executable, "-m", "dbdyno", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
        start_new_session=True,
        env={**unset(), "TERM": "xterm-256color", **(env or {})},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    written, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the last writer has closed it
            break
        if not part:
            break
        written += part
    os.close(ours)
    return program.wait(timeout=60), written.decode("utf-8")


def on_terminal_here(
    *words: str, columns: int = 100, rows: int = 50, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Does the same by the program in this process, which need not start.

    Its output goes to a pseudo-terminal, whose size is in variables.
    """
    ours, theirs = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the writer has closed it
            while part := os.read(ours, 1 << 16):
                written.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    size = {"COLUMNS": str(columns), "LINES": str(rows), "TERM": "xterm-256color"}
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        done = in_process.dbdyno(words, {**unset(), **size, **(env or {})}, Path.cwd(), terminal)
    reader.join()
    os.close(ours)
    return done.returncode, b"".join(written).decode("utf-8")


def obeyed(written: str) -> Sequence[str]:
    """Returns control characters that are left once dbdyno's own styles and movements are removed."""
    plain = _OURS.sub("", written).replace("\r\n", "\n")
    plain = re.sub("\r(?=\n|$)|^\r|\r$", "", plain, flags=re.M)
    return _OBEYED.findall(plain)


def frame(written: str) -> list[str]:
    """Returns the lines on a screen whose program goes to each line that it writes."""
    lines: dict[int, str] = {}
    row = 1
    for part in re.findall("\x1b\\[[0-9;?]*[A-Za-z]|[^\x1b]+", written):
        if part == "\x1b[2J":
            lines = {}
        elif place := re.fullmatch("\x1b\\[(\\d*)(;1)?H", part):
            row = int(place[1] or 1)
            lines[row] = ""
        elif part[0] != "\x1b":
            lines[row] = lines.get(row, "") + part
    return [lines.get(n, "").rstrip() for n in range(1, max(lines, default=0) + 1)]


def screen(written: str, columns: int) -> list[str]:
    """Returns the lines that remain on a terminal of so many columns, with those that have scrolled off
    it."""
    lines: list[str] = [""]
    row = place = 0
    for part in re.findall("\x1b\\[[0-9;?]*[A-Za-z]|[\r\n]|[^\r\n\x1b]", written):
        if part == "\r":
            place = 0
        elif part == "\n":
            row += 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif up := re.fullmatch("\x1b\\[(\\d+)A", part):
            row = max(0, row - int(up[1]))
        elif part[0] != "\x1b":
            row, place = (row + 1, 0) if place == columns else (row, place)
        lines += [""] * (row + 1 - len(lines))
        if part not in "\r\n" and part[0] != "\x1b":
            lines[row] = lines[row][:place].ljust(place) + part + lines[row][place + 1 :]
            place += 1
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").split("\n")
