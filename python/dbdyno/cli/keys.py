"""Keys of a terminal, one by one and without echo; the terminal is as before at the end, come what may."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator

_NAMES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}
_LONGEST = 32


def parse(data: bytes) -> list[str]:
    """``b"k\\x1b[A"`` -> ``["k", "up"]``; unknown escape sequences are left out."""
    keys = []
    while data:
        name = next((n for n in sorted(_NAMES, key=len, reverse=True) if data.startswith(n)), None)
        if name == b"\x1b" and len(data) > 1 and data[1:2] in b"[O":
            data = data[_length(data) :]
        elif name is not None:
            keys.append(_NAMES[name])
            data = data[len(name) :]
        else:
            text = data[:1].decode("ascii", "ignore")
            keys += [text] if text.isprintable() and text else []
            data = data[1:]
    return keys


def _length(data: bytes) -> int:
    """Of an escape sequence: up to its final byte (ECMA-48, 5.4)."""
    return next((i + 1 for i in range(2, len(data)) if 0x40 <= data[i] <= 0x7E), len(data))


class Keyboard:
    """Keys pressed since last asked; never any where standard input is no terminal."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def pressed(self) -> list[str]:
        if self._descriptor is None or not select.select([self._descriptor], [], [], 0)[0]:
            return []
        data = b""
        with contextlib.suppress(OSError):  # EIO
            data = os.read(self._descriptor, _LONGEST)
        if not data:  # the terminal is gone
            self._descriptor = None
        return parse(data)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Keyboard]:
        """Within it keys come here; Ctrl-C still is a signal, Ctrl-Z is not: a pause would be a hole."""
        if not sys.stdin.isatty():
            yield self
            return
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            now = termios.tcgetattr(descriptor)
            now[6][termios.VSUSP] = os.fpathconf(descriptor, "PC_VDISABLE").to_bytes(1, "little")
            termios.tcsetattr(descriptor, termios.TCSANOW, now)
            self._descriptor = descriptor
            yield self
        finally:
            self._descriptor = None
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
