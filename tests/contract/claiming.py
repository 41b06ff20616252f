"""A relay in front of a real PostgreSQL that reports another version, and warns, at the end of each start-up.

The server's own answers (``show server_version``, the views it has) stay as they are.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from tests.contract.hostile import report
from tests.contract.relay import CLOSED, SSL_REQUEST, Relay, exactly, message, relay

GSS_REQUEST = 80877104
WARNING = report(b"N", "received an MD5-encrypted password", "WARNING", "01000")


@contextlib.contextmanager
def claiming(port: int, version: str, *notices: bytes) -> Iterator[Relay]:
    """Relays to the server at ``port``, which claims ``version`` and sends ``notices`` before it is ready."""

    def between(relay: Relay, near: socket.socket) -> None:
        start = _start_up(near)
        with relay.server() as far:
            far.sendall(start)
            threading.Thread(target=_copy, args=(near, far), daemon=True).start()
            _logged_in(far, near, version, notices)
            _copy(far, near)

    with relay(port, 0, between) as here:
        yield here


def _start_up(near: socket.socket) -> bytes:
    """Returns the start-up message or the request to cancel; declines encryption."""
    while True:
        head = exactly(near, 8)
        size, code = struct.unpack(">ii", head)
        if code not in (SSL_REQUEST, GSS_REQUEST):
            return head + exactly(near, size - 8)
        near.sendall(b"N")


def _logged_in(far: socket.socket, near: socket.socket, version: str, notices: tuple[bytes, ...]) -> None:
    """Passes the server's messages up to the first ReadyForQuery."""
    while True:
        head = exactly(far, 5)
        tag, body = head[:1], exactly(far, struct.unpack(">i", head[1:])[0] - 4)
        if tag == b"S" and body.startswith(b"server_version\0"):
            body = b"server_version\0" + version.encode() + b"\0"
        near.sendall(b"".join(notices if tag == b"Z" else ()) + message(tag, body))
        if tag == b"Z":
            return


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(*CLOSED):
        while data := source.recv(65536):
            target.sendall(data)
    for line in (source, target):
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
