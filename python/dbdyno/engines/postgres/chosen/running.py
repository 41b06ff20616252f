"""A server that runs already, named by a connection string: nothing of it is started or changed."""

from __future__ import annotations

from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.protocols import LoadMaker


class Running:
    """The server of a connection string, connected while it is in use."""

    is_started, is_current = False, True

    def __init__(self, address: str, drive: LoadMaker) -> None:
        self.address, self._drive = address, drive
        self._server: PostgresServer | None = None

    @property
    def server(self) -> PostgresServer:
        assert self._server is not None
        return self._server

    def uses(self, programs: Programs) -> bool:  # noqa: ARG002
        return False

    def enter(self) -> None:
        if self._server is None:
            self._server = PostgresServer(self.address, drive=self._drive)
        else:
            self._server.reconnect()

    def leave(self) -> None:
        self.server.leave()

    def close(self) -> None:
        """Does nothing: :meth:`leave` has closed the connections."""
