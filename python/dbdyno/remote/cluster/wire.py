"""Requests and answers between dbdyno and its gateway: JSON behind its length, open files beside."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
AGAIN = "+"
"""Between a node's id and the number of one more actor there."""
MOST_FILES = 250
"""That many open files go with one message (SCM_MAX_FD of Linux is 253)."""
MOST_BYTES = 64 << 20
"""Of a message."""


def send(to: socket.socket, value: Any, files: Sequence[int] = ()) -> None:
    """Raises OSError where the other side is gone."""
    text = json.dumps(value).encode()
    socket.send_fds(to, [_LENGTH.pack(len(text))], files)
    to.sendall(text)


def receive(of: socket.socket, most_files: int = 0) -> tuple[Any, list[int]]:
    """Returns the value and the open files beside it; the kernel closes those above ``most_files``. Raises
    :class:`EOFError` where the other side has ended, :class:`ValueError` for what is no such message."""
    head, files, _, _ = socket.recv_fds(of, _LENGTH.size, most_files, socket.MSG_CMSG_CLOEXEC)
    if not head:
        raise EOFError
    size = _LENGTH.unpack(head + _exactly(of, _LENGTH.size - len(head)))[0]
    if size > MOST_BYTES:
        raise ValueError(f"a message of {size} bytes")
    try:
        return json.loads(_exactly(of, size)), files
    except RecursionError as e:
        raise ValueError("a message of too many levels") from e


def _exactly(of: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = of.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
