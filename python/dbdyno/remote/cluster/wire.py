"""Requests and answers between dbdyno and its gateway: JSON after its length, open files beside it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
AGAIN = "+"
"""Separates a node's id from the number of an additional actor there."""
MOST_FILES = 250
"""Open files of one message (SCM_MAX_FD of Linux is 253)."""
MOST_BYTES = 64 << 20
"""Size of a message."""


def send(to: socket.socket, value: Any, files: Sequence[int] = ()) -> None:
    """Raises OSError if the other side is gone."""
    text = json.dumps(value).encode()
    socket.send_fds(to, [_LENGTH.pack(len(text))], files)
    to.sendall(text)


def receive(source: socket.socket, most_files: int = 0) -> tuple[Any, list[int]]:
    """Returns the value and the open files beside it; the kernel closes those beyond ``most_files``.

    Raises :class:`EOFError` if the other side has ended, :class:`ValueError` for an invalid message.
    """
    head, files, _, _ = socket.recv_fds(source, _LENGTH.size, most_files, socket.MSG_CMSG_CLOEXEC)
    if not head:
        raise EOFError
    size = _LENGTH.unpack(head + _exactly(source, _LENGTH.size - len(head)))[0]
    if size > MOST_BYTES:
        raise ValueError(f"a message of {size} bytes")
    try:
        return json.loads(_exactly(source, size)), files
    except RecursionError as e:
        raise ValueError("a message of too many levels") from e


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = source.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
