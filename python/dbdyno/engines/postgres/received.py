"""Limits the size of a server's answer to one statement.

libpq keeps a result in memory until it is complete, without any limit. psycopg lets libpq read step by step;
between steps the socket knows how many bytes have come. A step ends when the socket is empty. A small buffer
makes that frequent: otherwise a server that sends without pause could send a message of 1 GiB in one step.
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
"""Largest size of an answer, all rows together."""
MOST_BYTES_TO_START = 1 << 20
"""Largest size of all messages before the server is ready."""
_BYTES_RECEIVED = 128  # offset of tcpi_bytes_received, 64 bits, in struct tcp_info (linux/tcp.h, from 4.1 on)
_LEAST_READ = 8192
"""libpq reads at least so many bytes at a time (src/interfaces/libpq/fe-misc.c, pqReadData)."""
_BUFFER_BYTES = 128 << 10
_SHOWN = 200  # characters of a statement


class TooMuch(Exception):
    """The server sends more than the limit."""


class Received:
    """Counts the bytes of an answer, exactly over TCP. Over a unix socket, bytes that arrive while libpq
    reads look like bytes that it left unread, so part of a very fast answer is not counted."""

    def __init__(self, most: int) -> None:
        self._most, self._taken, self._waiting = most, 0, 0
        self._start: tuple[int, int] | None = None

    def before(self, fd: int) -> None:
        """Notes the state before a step. The first step begins an answer, and so does another socket (the
        next host's)."""
        self._waiting = _waiting(fd)
        if (self._start is None or self._start[0] != fd) and (received := _by_tcp(fd)) is not None:
            self._start = fd, received
            _keep_buffer_small(fd)

    def after(self, fd: int) -> None:
        """Counts after a step. Raises :class:`TooMuch`."""
        if self._start is not None:
            self._taken = (_by_tcp(fd) or 0) - self._start[1]
        elif self._waiting:
            read = self._waiting - _waiting(fd)
            self._taken += max(read, min(self._waiting, _LEAST_READ))
        if self._taken > self._most:
            raise TooMuch


def _by_tcp(fd: int) -> int | None:
    """Returns the bytes received since the connection was opened, None if it is no TCP socket or closed."""
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
    """Returns the bytes that can be read, 0 if the socket is closed."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    except (OSError, ValueError):
        return 0
    return count


def statement(generator: Generator[Any, Any, Any]) -> str:
    """Returns the beginning of the statement that psycopg's generator sends, empty if it sends none."""
    frame = getattr(generator, "gi_frame", None)
    query = frame.f_locals.get("query", "") if frame is not None else ""
    text = query.decode(errors="replace") if isinstance(query, bytes) else str(query)
    return " ".join(text.split())[:_SHOWN]
