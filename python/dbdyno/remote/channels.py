"""What carries bytes to an agent and back."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from dbdyno.kernel import processes

_PIECE_BYTES = 1 << 20
_END_S = 6.0
"""The agent ends its loads within 5 s of the end of its input."""
STALL_S = 30.0
"""So long the other end may take none of what is sent, before the connection counts as broken."""
_KILL_S, _STEP_S = 1.0, 0.1


class Channel(Protocol):
    """A stream of bytes both ways. :meth:`send` and :meth:`receive` are called by different threads."""

    def send(self, data: bytes) -> None:
        """All of it. Raises OSError where the other end is gone, or takes no more."""

    def receive(self) -> bytes:
        """Waits for some bytes; ``b""``: there will be no more. Raises OSError if the other end is gone."""

    def close(self) -> None:
        """Ends both ways; a :meth:`receive` that waits returns. Closing twice is no error."""


class ProcessChannel:
    """Standard input and output of a program that is started here: the agent itself, or what leads to one.

    ``words``: the program's name and its arguments; they hold no secret. ``errors``: the descriptor that its
    standard error goes to; None: this process's own. ``environment``: None: this process's own.
    """

    def __init__(
        self,
        words: Sequence[str],
        errors: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0, env=environment
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # of this end of the pipe alone
        self._sending, self._closed = threading.Lock(), False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status; below 0: the signal. None: it runs."""
        return self._process.poll()

    def send(self, data: bytes) -> None:
        self.write(data, lambda: None)

    def write(self, data: bytes, waiting: Callable[[], None]) -> None:
        """:meth:`send`; ``waiting`` is called again and again meanwhile, and may raise. Raises
        :class:`TimeoutError` where the other end takes nothing for :data:`STALL_S`."""
        assert self._process.stdin is not None
        left, taken_s = memoryview(data), time.monotonic()
        with self._sending:
            poll = select.poll()
            while left:
                waiting()
                if self._closed:
                    raise BrokenPipeError(errno.EPIPE, "it was closed")
                descriptor = self._process.stdin.fileno()
                poll.register(descriptor, select.POLLOUT)
                if poll.poll(_STEP_S * 1000):
                    with suppress(BlockingIOError):
                        left = left[os.write(descriptor, left[:_PIECE_BYTES]) :]
                    taken_s = time.monotonic()
                elif time.monotonic() - taken_s > STALL_S:
                    raise TimeoutError(errno.ETIMEDOUT, f"it has taken nothing for {STALL_S:g} s")

    def receive(self) -> bytes:
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), _PIECE_BYTES)

    def close(self) -> None:
        """Closes its input, waits for its end, and kills it if that does not come."""
        self._close_input()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:  # Ctrl-C
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it at once, and what it has started: by SIGTERM, at which ssh gives the terminal back as it
        was, then by SIGKILL."""
        self._close_input()
        all_ = [known for pid in processes.tree(self.pid) if (known := processes.identity(pid)) is not None]
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for known in all_:
                if processes.identity(known.pid) == known:
                    with suppress(OSError):
                        os.kill(known.pid, sign)
            until_s = time.monotonic() + _KILL_S
            while any(processes.identity(k.pid) == k for k in all_) and time.monotonic() < until_s:
                time.sleep(_STEP_S / 10)
        self._process.wait()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._closed = True  # a send that waits ends, and lets go of it
        with self._sending, suppress(OSError):
            self._process.stdin.close()
