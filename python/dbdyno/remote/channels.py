"""What carries bytes to an agent and back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

_PIECE_BYTES = 1 << 20
_END_S = 6.0
"""The agent ends its loads within 5 s of the end of its input."""


class Channel(Protocol):
    """A stream of bytes both ways. :meth:`send` and :meth:`receive` are called by different threads."""

    def send(self, data: bytes) -> None:
        """All of it. Raises OSError where the other end is gone."""

    def receive(self) -> bytes:
        """Waits for some bytes; ``b""``: there will be no more. Raises OSError if the other end is gone."""

    def close(self) -> None:
        """Ends both ways; a :meth:`receive` that waits returns. Closing twice is no error."""


class ProcessChannel:
    """Standard input and output of a program that is started here: the agent itself, or what leads to one.

    ``words``: the program's name and its arguments; they hold no secret. ``errors``: the descriptor that its
    standard error goes to; None: this process's own.
    """

    def __init__(self, words: Sequence[str], errors: int | None = None) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status; below 0: the signal. None: it runs."""
        return self._process.poll()

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        left = memoryview(data)
        try:
            while left:
                left = left[self._process.stdin.write(left) :]
        except ValueError as e:  # of a closed file
            raise BrokenPipeError(str(e)) from None

    def receive(self) -> bytes:
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), _PIECE_BYTES)

    def close(self) -> None:
        """Closes its input, waits for its end, and kills it if that does not come."""
        process = self._process
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
