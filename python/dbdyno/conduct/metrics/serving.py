"""A small HTTP server for scrapers, which a hostile client can neither fill nor slow down.

Few threads serve, each connection has a deadline, and only so many are accepted per second, so that a flood
of them takes no CPU from what is measured.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATH = "/metrics"
_THREADS = 8
_DEADLINE_S = 10.0
"""Prometheus gives up a scrape after 10 s by default."""
_SILENCE_S = 5.0  # longest wait for a client's next bytes
_PAUSE_S = 0.02  # between two accepted connections
_LOOK_S = 0.5
"""Interval of looking for connections that last too long, and the longest that stopping waits."""
_ROOM_S = 1.0  # longest wait until a connection that was ended leaves its thread


class Answer(NamedTuple):
    content_type: str
    body: bytes
    encoding: str = ""


Answering = Callable[[str, str], Answer]
"""Returns the metrics for the headers Accept and Accept-Encoding."""


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves metrics in threads of its own from :meth:`start` to :meth:`stop`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, family: int, address: Any, answering: Answering, token: str | None) -> None:
        """Binds and listens. ``token``: what a client has to send; None: nothing. Raises :class:`OSError`."""
        self.address_family = family
        self.answering, self.token = answering, token
        self._slots = threading.BoundedSemaphore(_THREADS)
        self._active: dict[socket.socket, float] = {}  # since when, oldest first
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def start(self) -> None:
        threading.Thread(
            target=self.serve_forever, args=(_LOOK_S,), name="dbdyno-metrics", daemon=True
        ).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread. The oldest one makes room for it if all threads are busy."""
        with self._lock:
            if len(self._active) >= _THREADS:
                _hang_up(next(iter(self._active)))
        if not self._slots.acquire(timeout=_ROOM_S):
            self.shutdown_request(request)
            return
        with self._lock:
            self._active[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no further thread can be started
            self._leave(request)
            self.shutdown_request(request)
        time.sleep(_PAUSE_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def service_actions(self) -> None:
        """Ends connections that last too long. Called between connections and at each look."""
        with self._lock:
            for request, since in self._active.items():
                if time.monotonic() - since > _DEADLINE_S:
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores that a client went away or sent garbage."""

    def _leave(self, request: socket.socket) -> None:
        with self._lock:
            self._active.pop(request, None)
        self._slots.release()


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _SILENCE_S
    server_version, sys_version = "dbdyno", ""

    def do_GET(self) -> None:
        if not self._is_permitted():
            self._send(
                HTTPStatus.UNAUTHORIZED,
                Answer("text/plain", b"401: send the token of --metrics-token-file as Bearer\n"),
                {"WWW-Authenticate": 'Bearer realm="dbdyno"'},
            )
        elif urlsplit(self.path).path != PATH:
            self._send(HTTPStatus.NOT_FOUND, Answer("text/plain", f"404: see {PATH}\n".encode()))
        else:
            accept, encoding = (self.headers.get(name, "") for name in ("Accept", "Accept-Encoding"))
            self._send(HTTPStatus.OK, self.server.answering(accept, encoding))

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuses in plain text. A method that is not implemented is one that is not allowed here."""
        status, headers = HTTPStatus(code), {}
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, headers = HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"}
        self._send(status, Answer("text/plain", f"{status.value}: {status.phrase}\n".encode()), headers)

    def _is_permitted(self) -> bool:
        token = self.server.token
        given = self.headers.get("Authorization", "").partition(" ")
        return token is None or (
            given[0].lower() == "bearer"
            and hmac.compare_digest(given[2].strip().encode(errors="replace"), token.encode())
        )

    def _send(self, status: HTTPStatus, answer: Answer, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            **({"Content-Encoding": answer.encoding} if answer.encoding else {}),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the screen belongs to the measurement."""
