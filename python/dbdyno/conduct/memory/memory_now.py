"""Reads the memory of a running server on demand, adds it up and concludes."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

from dbdyno.account.memory import on_demand
from dbdyno.conclude.run.memory import now
from dbdyno.conduct.hosts.hosts import observed_target
from dbdyno.conduct.memory.measurement_memory import source, state
from dbdyno.conduct.memory.memory import MemoryReader
from dbdyno.engines import embedded, open_server
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.errors import UsageError
from dbdyno.model.results.memory_now import CELL, NOW, MemoryNow
from dbdyno.model.units import NS_PER_S

MOST_NS = 10 * NS_PER_S
"""Approximate limit of a read that a user waits for."""


def memory_target(engine: str, dsn: str | None) -> Target:
    """Returns the same target as for an observation.

    An embedded server that was started to stay is dbdyno's own: dbdyno may create what reading its memory
    needs.
    """
    if dsn is None:
        with contextlib.suppress(UsageError):  # the engine has no embedded server
            running = embedded(engine).status()
            if running.get("running") and running.get("stays"):
                return Target()
    return observed_target(engine, dsn)


def memory_of(engine: str, target: Target) -> MemoryNow:
    """Returns the memory of ``target``'s server and changes nothing. Raises
    :class:`dbdyno.model.errors.TargetError`."""
    with open_server(engine, target) as server:
        return memory_now(server, MemoryReader(server))


def memory_now(server: Server, reader: MemoryReader) -> MemoryNow:
    """Returns the memory as ``reader`` reads it now. What one read has no time for comes first in the
    next."""
    facts = server.facts()
    taken, begun_s = datetime.now(UTC), time.monotonic()
    raw = reader.read(NOW, MOST_NS)
    sources = (source(state(server, raw)),)
    took_s = time.monotonic() - begun_s
    tables = on_demand(raw, CELL)
    named = f"{facts.name} at {facts.where}"
    return MemoryNow(taken, took_s, named, tables, now(tables), sources)
