"""How much a server may send libpq in answer to one question.

libpq keeps a result in memory until all of it has come, and has no limit for it. psycopg lets it read step by
step, and between the steps the socket knows how much has come. A step ends when nothing waits: a small buffer
makes that often, else a server that sends without a pause could fill a message of 1 GiB in one step.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
from collections.abc import Generator
from contextlib import suppress
from typing import Any

MOST_BYTES = 64 << 20
"""The most bytes of an answer, all its rows together."""
MOST_BYTES_TO_START = 1 << 20
"""Before the server is ready it has little to say."""
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received, 64 bits, in struct tcp_info (linux/tcp.h, from 4.1 on)
_LEAST_READ = 8192
"""libpq makes so much room before each read (src/interfaces/libpq/fe-misc.c, pqReadData)."""
_BUFFER_BYTES = 128 << 10
_SHOWN = 200  # characters of a statement


class TooMuch(Exception):
    """The server sends more than it may."""


class Received:
    """Counts the bytes of an answer: exactly over TCP. Over a unix socket what arrives while libpq reads
    cannot be told from what it leaves: of a server that sends as fast as it can, a part is not counted.
    """

    def __init__(self, most: int) -> None:
        self._most, self._taken, self._waiting = most, 0, 0
        self._start: tuple[int, int] | None = None

    def before(self, fd: int) -> None:
        """Looks before a step; the first one begins the answer, as does another socket (the next host's)."""
        self._waiting = _waiting(fd)
        if (self._start is None or self._start[0] != fd) and (received := _by_tcp(fd)) is not None:
            self._start = fd, received
            _keep_buffer_small(fd)

    def after(self, fd: int) -> None:
        """Counts after it. Raises :class:`TooMuch`."""
        if self._start is not None:
            self._taken = (_by_tcp(fd) or 0) - self._start[1]
        elif self._waiting:
            gone = self._waiting - _waiting(fd)
            self._taken += max(gone, min(self._waiting, _LEAST_READ))
        if self._taken > self._most:
            raise TooMuch


def _by_tcp(fd: int) -> int | None:
    """Bytes that the connection has received since it was opened; None: not a TCP socket, or closed."""
    try:
        with socket.socket(fileno=os.dup(fd)) as same:
            info = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
        count: int = struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0]
    except (OSError, struct.error):
        return None
    return count


def _keep_buffer_small(fd: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)


def _waiting(fd: int) -> int:
    """Bytes that can be read; 0 for a socket that is closed."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    except (OSError, ValueError):
        return 0
    return count


def statement(asked: Generator[Any, Any, Any]) -> str:
    """The beginning of the statement that psycopg's generator sends; nothing if it is none of a cursor's."""
    frame = getattr(asked, "gi_frame", None)
    query = frame.f_locals.get("query", "") if frame is not None else ""
    text = query.decode(errors="replace") if isinstance(query, bytes) else str(query)
    return " ".join(text.split())[:_SHOWN]
