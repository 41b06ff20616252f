"""Channels that carry bytes to an agent and back."""

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
"""The connection counts as broken if the other end accepts no bytes for this time."""
_KILL_S, _STEP_S = 1.0, 0.1


class Channel(Protocol):
    """A stream of bytes both ways. Different threads call :meth:`send` and :meth:`receive`."""

    def send(self, data: bytes) -> None:
        """Sends all of ``data``. Raises OSError if the other end is gone, or accepts no more."""

    def receive(self) -> bytes:
        """Waits for some bytes; returns ``b""`` at the end. Raises OSError if the other end is gone."""

    def close(self) -> None:
        """Ends both ways; a waiting :meth:`receive` returns. Closing twice is no error."""


class ProcessChannel:
    """Standard input and output of a program started here: the agent itself, or a program that leads to one.

    ``words``: the program and its arguments, without secrets. ``errors``: the descriptor for its standard
    error. ``environment``: its environment. If None, these are this process's own.
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
        os.set_blocking(self._process.stdin.fileno(), False)  # sets this end of the pipe only
        self._sending, self._closed = threading.Lock(), False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status; below 0 the number of a signal; None while it runs."""
        return self._process.poll()

    def send(self, data: bytes) -> None:
        self.write(data, lambda: None)

    def write(self, data: bytes, waiting: Callable[[], None]) -> None:
        """Sends ``data``, and meanwhile calls ``waiting`` again and again, which may raise.

        Raises :class:`TimeoutError` if the other end accepts nothing for :data:`STALL_S`.
        """
        assert self._process.stdin is not None
        unsent, accepted_s = memoryview(data), time.monotonic()
        with self._sending:
            poll = select.poll()
            while unsent:
                waiting()
                if self._closed:
                    raise BrokenPipeError(errno.EPIPE, "it was closed")
                descriptor = self._process.stdin.fileno()
                poll.register(descriptor, select.POLLOUT)
                if poll.poll(_STEP_S * 1000):
                    with suppress(BlockingIOError):
                        unsent = unsent[os.write(descriptor, unsent[:_PIECE_BYTES]) :]
                    accepted_s = time.monotonic()
                elif time.monotonic() - accepted_s > STALL_S:
                    raise TimeoutError(errno.ETIMEDOUT, f"it has taken nothing for {STALL_S:g} s")

    def receive(self) -> bytes:
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), _PIECE_BYTES)

    def close(self) -> None:
        """Closes its input, waits for its end, and kills it if it does not end."""
        self._close_input()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:  # Ctrl-C
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it and its children at once: first by SIGTERM, at which ssh restores the terminal, then by
        SIGKILL."""
        self._close_input()
        all_ = [
            process for pid in processes.tree(self.pid) if (process := processes.identity(pid)) is not None
        ]
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in all_:
                if processes.identity(process.pid) == process:
                    with suppress(OSError):
                        os.kill(process.pid, sign)
            until_s = time.monotonic() + _KILL_S
            while any(processes.identity(k.pid) == k for k in all_) and time.monotonic() < until_s:
                time.sleep(_STEP_S / 10)
        self._process.wait()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._closed = True  # a waiting send then ends and releases the lock
        with self._sending, suppress(OSError):
            self._process.stdin.close()
