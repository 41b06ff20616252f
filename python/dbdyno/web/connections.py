"""Connections that wait for a request: they end after a while, and the oldest makes room for a new one.

Anybody on this machine can connect. uvicorn's limit counts all connections, and it times those alone that
have had a request, so that somebody who sends nothing could keep everybody else out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 200
"""Connections above which the longest waiting one is ended."""
WAIT_S = 15.0
"""Longest wait for a request, also for the rest of one that has begun."""


class Connection(H11Protocol):
    """A connection of one server. ``waiting``: of all of them, those without a request, oldest first."""

    waiting: dict[Connection, None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST and self.waiting:
            next(iter(self.waiting)).end()
        self._late: asyncio.TimerHandle | None = None
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._go_on()

    def on_response_complete(self) -> None:
        self._go_on()
        self._wait()
        super().on_response_complete()

    def end(self) -> None:
        self._go_on()
        self.transport.abort()

    def _wait(self) -> None:
        self.waiting[self] = None
        self._late = self.loop.call_later(WAIT_S, self.end)

    def _go_on(self) -> None:
        self.waiting.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None


def connection_class() -> type[Connection]:
    """Returns the class of a server's connections."""
    shared: dict[str, Any] = {"waiting": {}}
    return type("ServerConnection", (Connection,), shared)
