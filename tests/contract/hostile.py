"""A server that speaks the start-up of PostgreSQL's protocol, and then misbehaves as a test tells it.

PostgreSQL, "Message Formats". Each connection has a thread of its own, which runs the test's ``script``
with a :class:`Line`; when the script returns, the connection is closed.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PARAMETERS = {
    "server_version": "17.4",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "TimeZone": "UTC",
    "application_name": "",
}


def message(tag: bytes, body: bytes = b"") -> bytes:
    return tag + struct.pack(">i", len(body) + 4) + body


def report(tag: bytes, text: str | bytes, severity: str = "ERROR", sqlstate: str = "XX000") -> bytes:
    """Returns an ErrorResponse (``E``) or NoticeResponse (``N``)."""
    words = text if isinstance(text, bytes) else text.encode()
    kind = severity.encode()
    fields = (b"S" + kind, b"V" + kind, b"C" + sqlstate.encode(), b"M" + words)
    return message(tag, b"".join(f + b"\0" for f in fields) + b"\0")


class Line:
    """One connection, from the server's side. A client that disconnects ends the script
    (:class:`OSError`)."""

    def __init__(self, peer: socket.socket, number: int) -> None:
        self._peer, self.number = peer, number

    def send(self, *messages: bytes) -> None:
        self._peer.sendall(b"".join(messages))

    def exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            if not (more := self._peer.recv(count - len(got))):
                raise ConnectionError
            got += more
        return got

    def receive(self) -> tuple[bytes, bytes]:
        """Returns tag and body of the next message."""
        head = self.exactly(5)
        return head[:1], self.exactly(struct.unpack(">i", head[1:])[0] - 4)

    def hello(self) -> None:
        """Takes the start-up message, and declines TLS and GSSAPI."""
        while True:
            (length,) = struct.unpack(">i", self.exactly(4))
            body = self.exactly(length - 4)
            if struct.unpack(">i", body[:4])[0] not in (80877103, 80877104):
                return
            self.send(b"N")

    def ready(self) -> None:
        """Lets the client in without authentication, up to ReadyForQuery."""
        parameters = (message(b"S", f"{n}\0{v}\0".encode()) for n, v in PARAMETERS.items())
        key = message(b"K", struct.pack(">ii", 4242 + self.number, 1))
        self.send(message(b"R", struct.pack(">i", 0)), *parameters, key, message(b"Z", b"I"))

    def scram(self, iterations: int) -> None:
        """Asks for SCRAM-SHA-256 with so many rounds, and waits for the answer."""
        self.send(message(b"R", struct.pack(">i", 10) + b"SCRAM-SHA-256\0\0"))
        _, body = self.receive()
        nonce = body.split(b"r=")[1].decode() + "server"
        salt = base64.b64encode(b"0123456789abcdef").decode()
        words = f"r={nonce},s={salt},i={iterations}".encode()
        self.send(message(b"R", struct.pack(">i", 11) + words))
        self.receive()

    def silence(self) -> None:
        """Sends nothing until the client disconnects."""
        while self._peer.recv(65536):
            pass


Script = Callable[[Line], Any]


class Hostile:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.lines = 0
        self._peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=u dbname=d sslmode=disable"

    def close(self) -> None:
        for one in (self._listener, *self._peers):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._peers.append(peer)
                self.lines += 1
                threading.Thread(target=self._serve, args=(Line(peer, self.lines),), daemon=True).start()

    def _serve(self, line: Line) -> None:
        peer = self._peers[line.number - 1]
        with contextlib.suppress(OSError), peer:
            self._script(line)


@contextlib.contextmanager
def hostile(script: Script) -> Iterator[Hostile]:
    server = Hostile(script)
    try:
        yield server
    finally:
        server.close()


# -- scripts -------------------------------------------------------------------------------------------


def silent_when_ready(line: Line) -> None:
    line.hello()
    line.ready()
    line.silence()


def notices(line: Line) -> None:
    """Sends a notice each half second, and never becomes ready."""
    line.hello()
    line.send(message(b"R", struct.pack(">i", 0)))
    while True:
        line.send(report(b"N", "patience", "NOTICE", "00000"))
        time.sleep(0.5)


def endless_scram(line: Line) -> None:
    line.hello()
    line.scram(2**31 - 1)
    line.silence()


def hang_up_after(first: bytes) -> Script:
    """Returns a script that sends ``first`` as soon as a client connects, then hangs up."""

    def script(line: Line) -> None:
        line.send(first)
        with contextlib.suppress(OSError):
            line.hello()

    return script


def reply_with(*reply: bytes) -> Script:
    """Returns a script that completes the start-up, and answers every request with ``reply``."""

    def script(line: Line) -> None:
        line.hello()
        line.ready()
        while True:
            tag, _ = line.receive()
            if tag in (b"Q", b"S"):
                line.send(*reply)
            if tag == b"X":
                return

    return script


def row(*values: bytes | None) -> bytes:
    """Returns a RowDescription of texts and one DataRow."""
    columns = b"".join(b"c%d\0" % n + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0) for n in range(len(values)))
    data = b"".join(struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v for v in values)
    count = struct.pack(">h", len(values))
    return message(b"T", count + columns) + message(b"D", count + data)


DONE = message(b"C", b"SELECT 1\0") + message(b"Z", b"I")


def notices_when_ready(line: Line) -> None:
    """Sends notices without end in place of the first answer."""
    line.hello()
    line.ready()
    line.receive()
    flood = report(b"N", "flood", "NOTICE", "00000") * 100
    while True:
        line.send(flood)


class Endless:
    """Sends ``head`` and then ``part`` without end.

    ``sent``: bytes that the client's socket has taken. ``ready``: whether they come after the start-up,
    as the answer to the first statement, or in its place.
    """

    def __init__(self, part: bytes, head: bytes = b"", *, ready: bool = True) -> None:
        self._head, self._part, self._ready = head, part * max(1, 100_000 // len(part)), ready
        self.sent = 0

    def __call__(self, line: Line) -> None:
        line.hello()
        if self._ready:
            line.ready()
            line.receive()
        line.send(self._head)
        while True:
            line.send(self._part)
            self.sent += len(self._part)
