"""A server that dbdyno starts from a directory of programs, with a data directory of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

import psycopg

from dbdyno.engines.postgres.chosen.page_cache import read_anew
from dbdyno.engines.postgres.embedded import StartOptions, defaults, instance_of_programs
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.protocols import LoadMaker, Target
from dbdyno.model.errors import DbdynoError, UsageError

_UNKNOWN = re.compile(r"unknown server setting '([^']+)'")


class Cluster:
    """The data directory of a directory of programs, and its server while that is in use."""

    is_started = True

    def __init__(self, programs: Programs, target: Target, drive: LoadMaker) -> None:
        self._given, self._sessions, self._drive = dict(target.settings), target.sessions, drive
        self.found = programs
        """The programs where they were found; those of ``programs`` may be a copy that can be executed."""
        self.instance, self.programs = instance_of_programs(programs)
        self.lacking: set[str] = set()
        """Given settings that this server does not have."""
        self.same: Mapping[str, str] = {}
        """Settings that all servers of the run get, below those that were given."""
        self.read_anew = False
        """Whether the last start began with a new place of the program in the page cache."""
        self._server: PostgresServer | None = None
        self._reserved = False
        self._started_with: StartOptions | None = None

    @property
    def server(self) -> PostgresServer:
        assert self._server is not None
        return self._server

    @property
    def has_run(self) -> bool:
        return self._server is not None

    @property
    def address(self) -> str:
        return self.instance.address

    @property
    def is_current(self) -> bool:
        """Whether the server runs with the settings that it would be started with now."""
        return self._started_with == self._options()

    @property
    def own_settings(self) -> Mapping[str, str]:
        """Settings of its file that are not the same as the server's defaults on purpose."""
        return defaults.settings(StartOptions(self._given, self._sessions), self.instance.socket_dir)

    def uses(self, programs: Programs) -> bool:
        return self.found.bin_dir.resolve() == programs.bin_dir.resolve()

    def reserve(self) -> None:
        """Keeps the data directory for this run until :meth:`close`. Raises :class:`ServerBusy`."""
        if not self._reserved:
            self.instance.reserve()
            self._reserved = True

    def enter(self) -> None:
        """Starts the server and connects. Raises what keeps it from starting; then it does not run."""
        try:
            self.reserve()
            self._open()
            if self._server is None:
                self._server = PostgresServer(self.address, self.instance, self._drive)
            else:
                self._server.reconnect()
        except BaseException:
            self.instance.close()
            raise

    def _open(self) -> None:
        """Starts it without those given settings that it does not have."""
        self.read_anew = read_anew(self.programs.bin_dir / "postgres")
        while True:
            options = self._options()
            try:
                self.instance.open(self.programs, options)
            except UsageError as e:
                unknown = _UNKNOWN.search(e.message)
                lacking = {n for n in self._given if unknown and n.lower() == unknown[1].lower()}
                if not lacking - self.lacking:
                    raise
                self.lacking |= lacking
                self.instance.close()
            else:
                self._started_with = options
                return

    def _options(self) -> StartOptions:
        given = {name: value for name, value in self._given.items() if name not in self.lacking}
        return StartOptions({**self.same, **given}, self._sessions)

    def leave(self) -> None:
        """Closes the connections and stops the server. A checkpoint before keeps the shutdown, which writes
        one, within its time limit."""
        try:
            with suppress(DbdynoError, psycopg.Error):  # of a server that is gone
                self.server.checkpoint()
            self.server.leave()
        finally:
            self._started_with = None
            self.instance.close()

    def close(self) -> None:
        """Leaves the data directory to other runs."""
        self.instance.release()
