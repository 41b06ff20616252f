"""Standard output and standard error: nothing printed steers the terminal, and none of it ends a measurement.

All that is printed passes :class:`Guarded`, so that nothing from a server, a store or a file steers the
terminal; what rich draws passes :mod:`dbdyno.cli.console` instead, which lets its styles through. A terminal
that is closed, or a pipe whose reader has seen enough (`| head`), ends no run.
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

_PLAIN = {"…": "~", "±": "~", "²": "2", "∞": "*", "µ": "u", "×": "x"}  # one for one: columns stay in line


class Guarded:
    """A text stream that makes visible what it is given: ``print``, ``click.echo``, tracebacks, warnings."""

    buffer = None  # nobody writes past it (click would, where the encoding is ASCII)

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
    """Puts the guard before standard output and standard error; a closed one takes and forgets everything."""
    codecs.register_error("dbdyno", _encodable)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  until the end
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dbdyno")
        setattr(sys, name, Guarded(stream))


def _encodable(error: UnicodeError) -> tuple[str, int]:
    """In an encoding that lacks a character: a plain one for it, else its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c, f"\\u{ord(c):04x}") for c in part), error.end


_GONE = (errno.EPIPE, errno.EIO)  # pipe(7); write(2) to a terminal that hung up


class Lasting:
    """A stream that goes nowhere once its reader is gone: no output is worth a measurement."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as e:
            self._let_go(e)
        except RuntimeError as e:  # a signal's handler in the middle of a write: its words are dropped, too
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


def unread() -> bool:
    """Whether whoever read standard output is gone: nothing need be written to see that."""
    if getattr(sys.stdout, "gone", False):
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # none, or none of the system
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def last() -> None:
    """Output that cannot be written is dropped; SIGTERM and SIGHUP end the program as Ctrl-C does, so that
    what was begun is put back. What was ignored at the start (nohup, a shell's background) stays so."""
    _ends.clear()
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            setattr(sys, name, Lasting(stream))
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sign) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(sign, _end)


_ends: list[int] = []


def _end(number: int, _frame: FrameType | None) -> None:
    _ends.append(number)
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Whether a signal asked for the end: within an import or a library its exception may come out as any
    other."""
    return bool(_ends)


def deaf() -> None:
    """From here on Ctrl-C changes nothing: the work is done, and Python's end takes some milliseconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
