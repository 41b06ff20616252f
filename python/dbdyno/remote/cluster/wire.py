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


def send(to: socket.socket, value: Any, files: Sequence[int] = ()) -> None:
    """Raises OSError where the other side is gone."""
    text = json.dumps(value).encode()
    socket.send_fds(to, [_LENGTH.pack(len(text))], files)
    to.sendall(text)


def receive(of: socket.socket) -> tuple[Any, list[int]]:
    """The value and the open files beside it. Raises EOFError where the other side has ended."""
    head, files, _, _ = socket.recv_fds(of, _LENGTH.size, MOST_FILES)
    head += _exactly(of, _LENGTH.size - len(head)) if head else b""
    if not head:
        raise EOFError
    return json.loads(_exactly(of, _LENGTH.unpack(head)[0])), files


def _exactly(of: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = of.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
