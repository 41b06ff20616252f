"""A server that runs already, named by a connection string: nothing of it is started or changed."""

from __future__ import annotations

from contextlib import suppress

from dbdyno.engines.postgres import connect, sessions
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.protocols import LoadMaker
from dbdyno.model.errors import ServerLost


class Running:
    """The server of a connection string, connected while it is in use. A claim lasts until :meth:`close`,
    over a connection of its own: between its turns no other run may begin there."""

    is_started, is_current = False, True

    def __init__(self, address: str, drive: LoadMaker) -> None:
        self.address, self._drive = address, drive
        self._server: PostgresServer | None = None
        self._claiming: connect.Connection | None = None

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

    def claim(self, run: str) -> None:
        """Claims the server for the run, or makes sure that it still is claimed. Raises
        :class:`ServerBusy`."""
        if self._claiming is not None:
            with suppress(ServerLost), doing("claiming the server"):
                sessions.claim(self._claiming, run)
                return
            self._claiming.close()
        self._claiming = connect.connect(self.address)
        with doing("claiming the server"):
            sessions.claim(self._claiming, run)

    def close(self) -> None:
        """Ends the claim; :meth:`leave` has closed the other connections."""
        if self._claiming is not None:
            self._claiming.close()
