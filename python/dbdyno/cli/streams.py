"""Standard output and standard error: nothing printed can control the terminal, and a lost reader ends no
measurement.

All output passes :class:`Guarded`, so that control characters of a server, a store or a file have no effect.
What rich draws passes :mod:`dbdyno.cli.console` instead, which lets its styles through. A run goes on after
its terminal is closed, or the reader of its pipe has ended (`| head`).
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, TextIO

from dbdyno.model.text.visible import visible

_PLAIN = {
    "…": "~",
    "±": "~",
    "²": "2",
    "∞": "*",
    "µ": "u",
    "×": "x",
    "─": "-",
    "•": "*",
}  # one character each: columns stay aligned


class Guarded:
    """A text stream that makes control characters visible: from ``print``, ``click.echo``, tracebacks,
    warnings."""

    buffer = None  # click would write to it directly if the encoding is ASCII

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """Puts :class:`Guarded` before standard output and standard error; replaces a closed one by a null
    device."""
    codecs.register_error("dbdyno", _encodable)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  open until the process ends
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dbdyno")
        setattr(sys, name, Guarded(stream))


def _encodable(error: UnicodeError) -> tuple[str, int]:
    """An encoding error handler: replaces a character by a plain one, or by its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, f"\\u{ord(c):04x}") for c in part), error.end


_GONE = (errno.EPIPE, errno.EIO)  # pipe(7); write(2) to a terminal that hung up


class Lasting:
    """A stream that drops its output once its reader is gone: a measurement is worth more than its output."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as e:
            self._let_go(e)
        except RuntimeError as e:  # from a signal handler within a write; its text is dropped, too
            if "reentrant" not in str(e):
                raise
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as e:
            self._let_go(e)
        except RuntimeError as e:
            if "reentrant" not in str(e):
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _let_go(self, error: OSError) -> None:
        if error.errno not in _GONE:
            raise error
        self.gone = True
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self._stream.fileno(), inheritable=True)
        os.close(nowhere)


def reader_is_gone() -> bool:
    """Returns whether the reader of standard output is gone, without writing to it."""
    if getattr(sys.stdout, "gone", False):
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no stream, or one without a file descriptor
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def tolerate_hangups() -> None:
    """Drops output that cannot be written, and lets SIGTERM and SIGHUP end the program as Ctrl-C does.

    So changes are undone at the end. Signals that were ignored at the start (nohup, a shell's background)
    stay ignored.
    """
    _signals.clear()
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            setattr(sys, name, Lasting(stream))
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sign) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(sign, _end)


_signals: list[int] = []


def _end(number: int, _frame: FrameType | None) -> None:
    _signals.append(number)
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Returns whether a signal came in: an import or a library may turn its KeyboardInterrupt into another
    exception."""
    return bool(_signals)


def ignore_interrupts() -> None:
    """Ignores Ctrl-C from now on: the work is done, and Python's own end takes some milliseconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
