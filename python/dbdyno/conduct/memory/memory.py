"""Reads where the memory pages of a server and its machine are now.

``read_memory(server, phase, most_ns)`` reads once. For repeated reads keep a :class:`MemoryReader`: it
begins with the processes that the previous read had no time for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

from dbdyno.model.engine.caching import Processes
from dbdyno.model.engine.protocols import Server
from dbdyno.model.schema.data_sources.memory import RAW_MEMORY
from dbdyno.model.schema.tables import empty, raw, rows
from dbdyno.model.units import NS_PER_S
from dbdyno.observe.memory import group_rows, host_rows
from dbdyno.observe.process_memory import ProcessReader, executables

Phase = Literal["start", "end", "now"]
Tables = dict[str, pl.DataFrame]
READ_NS = NS_PER_S // 2
"""Approximate limit of a read at the start or end of a measurement."""
_PROCESSES, _PROGRAMS = 0.3, 0.2
"""Shares of the time limit; the rest is for the server's cache and its files."""


class MemoryReader:
    """Reads the memory of one server and its machine.

    If the engine does not report its cache, only the machine is read; for a simulated server nothing is. The
    machine of a server that is not seen is another one, so this one's memory is left out.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._machine = server, server.machine
        self._processes = ProcessReader(self._machine.root)
        facts = None if server.world is not None else server.facts()
        self._main_pid = facts.main_pid if facts is not None and server.caching is None else None
        self._here = facts is not None and facts.here

    def read(self, phase: Phase, most_ns: int = READ_NS) -> Tables:
        """Reads the tables of :data:`RAW_MEMORY` in about ``most_ns``. Raises :class:`TargetError` if the
        server is lost."""
        return joined(self.machine(phase, most_ns), self.cache(phase, most_ns))

    def machine(self, phase: Phase, most_ns: int = READ_NS) -> Tables:
        """Reads the machine, the server's control group and its processes. Raises as :meth:`read`."""
        server = self._server
        if server.world is not None:
            return joined()
        of_server = server.caching.processes() if server.caching else Processes({}, self._main_pid)
        root = self._machine.root
        groups = group_rows(of_server.main_pid, root) if of_server.main_pid is not None else ()
        host = (*host_rows(root), executables(int(_PROGRAMS * most_ns), root)) if self._here else ()
        memory = [*host, *groups]
        roles = {**of_server.roles, self._machine.pid: "dbdyno"}
        processes = self._processes.rows(roles, int(_PROCESSES * most_ns))
        raw_rows = {"memory": memory, "memory_processes": list(processes)}
        return joined(
            {
                name: rows(raw(name), [{"phase": phase, **r} for r in table_rows])
                for name, table_rows in raw_rows.items()
            }
        )

    def cache(self, phase: Phase, most_ns: int = READ_NS) -> Tables:
        """Reads the server's cache, and the files of its relations in the page cache. Raises as
        :meth:`read`."""
        caching, share = self._server.caching, 1 - _PROCESSES - _PROGRAMS
        return joined() if caching is None else joined(caching.cached(phase, int(share * most_ns)))


def read_memory(server: Server, phase: Phase, most_ns: int = READ_NS) -> Tables:
    """Reads once: see :meth:`MemoryReader.read`."""
    return MemoryReader(server).read(phase, most_ns)


def joined(*parts: Mapping[str, pl.DataFrame]) -> Tables:
    """Returns all tables of :data:`RAW_MEMORY` of several reads together."""
    return {
        name: pl.concat([empty(raw(name)), *(part[name] for part in parts if name in part)])
        for name in RAW_MEMORY
    }
