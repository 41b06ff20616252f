"""A TCP proxy that can cut a message into pieces, go silent, or cut the line."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Passes bytes on, at most ``piece`` at a time, and counts them: ``sent`` to the server,
    ``received``, and lines that ``ended``."""

    def __init__(self, port: int, piece: int) -> None:
        self._port, self._piece = port, piece
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lines: list[socket.socket] = []
        self.sent = self.received = self.ended = 0
        self._silent = threading.Event()
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def silence(self) -> None:
        """Passes nothing from now on, and closes no connection."""
        self._silent.set()

    def cut(self) -> None:
        """Resets all lines."""
        self._closed.set()
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                line.close()

    def close(self) -> None:
        self.cut()
        self._listener.close()
        for thread in self._threads[1:]:
            thread.join(5)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for line in (near, far):
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines += [near, far]
            thread = threading.Thread(target=self._pass, args=(near, far), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as ready, contextlib.suppress(OSError, ValueError):
            for line in other:
                ready.register(line, selectors.EVENT_READ)
            while not self._closed.is_set():
                for key, _ in ready.select(0.05):
                    line = key.fileobj
                    assert isinstance(line, socket.socket)
                    data = line.recv(self._piece)
                    if not data:
                        self.ended += 1
                        near.close()
                        far.close()
                        return
                    if not self._silent.is_set():
                        other[line].sendall(data)
                        self.sent += len(data) if line is near else 0
                        self.received += len(data) if line is far else 0


@contextlib.contextmanager
def proxy(port: int, piece: int = 65536) -> Iterator[Proxy]:
    instance = Proxy(port, piece)
    try:
        yield instance
    finally:
        instance.close()
