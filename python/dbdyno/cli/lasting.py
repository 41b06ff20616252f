"""What a program must outlive: a terminal that is closed, a pipe whose reader has seen enough (`| head`)."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from types import FrameType
from typing import Any, TextIO

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
    what was begun is put back. A SIGHUP that was ignored at the start (nohup) stays so."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            setattr(sys, name, Lasting(stream))
    for sign in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sign) is signal.SIG_DFL:
            signal.signal(sign, _end)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
