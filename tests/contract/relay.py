"""A relay in front of a PostgreSQL: it leaves the first connections alone and attacks those that follow."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

SSL_REQUEST = 80877103
CLOSED = (OSError, ValueError)  # ValueError: a selector met a socket that another thread has closed
Attack = Callable[["Relay", socket.socket], None]


def message(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack(">i", len(body) + 4) + body


def request(code: int, data: bytes = b"") -> bytes:
    """Returns an AuthenticationXXX message."""
    return message(b"R", struct.pack(">I", code) + data)


CLEARTEXT = request(3)
MD5 = request(5, b"salt")
GSS = request(7)
SASL = request(10, b"SCRAM-SHA-256\0\0")
SASL_PLUS = request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")
SASL_OTHER = request(10, b"OAUTHBEARER\0SCRAM-SHA-1\0\0")
ODD = request(4711)
LET_IN = request(0) + message(b"K", b"\0\0\0\1\0\0\0\2") + message(b"Z", b"I")


class Relay:
    """A relay in front of a server. ``taken``: bytes that attacked clients sent after their start-up
    message."""

    def __init__(self, port: int, leave: int, attack: Attack) -> None:
        self._port, self.leave, self.attack = port, leave, attack
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.met = 0  # connections
        self.taken = b""
        self._lines: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def attacked(self) -> int:
        return max(0, self.met - self.leave)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.met += 1
            self._lines.append(near)
            work = self._pass if self.met <= self.leave else self._guarded
            threading.Thread(target=work, args=(near,), daemon=True).start()

    def _guarded(self, near: socket.socket) -> None:
        with contextlib.suppress(*CLOSED), near:
            self.attack(self, near)

    def _pass(self, near: socket.socket) -> None:
        with contextlib.suppress(*CLOSED), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            self._lines.append(far)
            pump(near, far)

    def server(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port))

    def close(self) -> None:
        self._listener.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.close()


def pump(near: socket.socket, far: socket.socket) -> None:
    """Passes bytes both ways until one side ends."""
    other = {near: far, far: near}
    with selectors.DefaultSelector() as ready:
        for line in other:
            ready.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(5):
                line = key.fileobj
                assert isinstance(line, socket.socket)
                data = line.recv(65536)
                while isinstance(line, ssl.SSLSocket) and line.pending():
                    data += line.recv(line.pending())
                if not data:
                    return
                other[line].sendall(data)


def exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def welcome(line: socket.socket, certificate: Path | None) -> socket.socket:
    """Takes all up to the start-up message, under TLS of its own if it has a certificate."""
    while True:
        size, code = struct.unpack(">ii", exactly(line, 8))
        if code != SSL_REQUEST:
            exactly(line, size - 8)
            return line
        line.sendall(b"N" if certificate is None else b"S")
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.with_suffix(".crt"), certificate.with_suffix(".key"))
            line = context.wrap_socket(line, server_side=True)


def asks(what: bytes, certificate: Path | None = None) -> Attack:
    """Returns an attack that plays the server and sends ``what``, a request."""

    def attack(relay: Relay, near: socket.socket) -> None:
        with welcome(near, certificate) as line:
            line.sendall(what)
            while data := line.recv(4096):
                relay.taken += data

    return attack


def attack_between(certificate: Path, filtered: Callable[[bytes], bytes] = bytes) -> Attack:
    """Returns an attack in the middle of two TLS connections, with a certificate of its own."""

    def attack(relay: Relay, near: socket.socket) -> None:
        near.sendall(b"S" if exactly(near, 8) else b"")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.with_suffix(".crt"), certificate.with_suffix(".key"))
        line = context.wrap_socket(near, server_side=True)
        plain = relay.server()
        plain.sendall(struct.pack(">ii", 8, SSL_REQUEST))
        exactly(plain, 1)
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE
        with line, ours.wrap_socket(plain) as far:
            (size,) = struct.unpack(">i", exactly(line, 4))
            far.sendall(struct.pack(">i", size) + exactly(line, size - 4))
            line.sendall(filtered(far.recv(4096)))
            pump(line, far)

    return attack


def sends(what: bytes, again_s: float | None = None) -> Attack:
    """Returns an attack that sends ``what`` instead of any answer. ``again_s``: repeats it at this
    interval."""

    def attack(relay: Relay, near: socket.socket) -> None:  # noqa: ARG001
        near.recv(4096)
        near.sendall(what)
        while again_s is not None:
            threading.Event().wait(again_s)
            near.sendall(what)

    return attack


@contextlib.contextmanager
def relay(port: int, leave: int, attack: Attack) -> Iterator[Relay]:
    instance = Relay(port, leave, attack)
    try:
        yield instance
    finally:
        instance.close()
