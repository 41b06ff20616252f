"""Reads memory at the start and the end of each measurement.

Processes are read while all sessions are connected and none makes calls: before the barrier and after the
last call. The server's cache is read before the first session connects and after the last has left, so that
the cost of reading is not in the server's exact counters. In an observation both are read between two
windows, beside the load. The time of reading, counted as if it had kept a CPU busy, is at most :data:`COST`
of the time since the previous read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import polars as pl

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.memory.memory import READ_NS, MemoryReader, Phase, Tables, joined
from dbdyno.model.engine.caching import State
from dbdyno.model.engine.protocols import Clock, Load, Server
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.memory import MEMORY_SOURCE
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.source import Source
from dbdyno.model.units import counted

COST = 0.01
"""Share of a CPU that reads beside a load may take."""
_LEAST_NS = 20_000_000
"""Least time of a read."""
_ROOM = 3
"""A read beside a window needs a window at least this many times as long as the last read took."""


class MeasurementMemory(Companion):
    """Reads memory during one run. If that is not possible, the data source has the reason."""

    def __init__(self, server: Server, plan: Plan, clock: Clock, *, observing: bool = False) -> None:
        self._server, self._clock, self._observing = server, clock, observing
        self._reader = MemoryReader(server) if wanted(plan, server) else None
        self._off = (
            MEMORY_SOURCE.cures["off"] if plan.experiment.observe else "switched off with --no-observe"
        )
        self._tables = joined()
        self._read_at_ns, self._took_ns = clock.now_ns(), 0
        self._why = ""  # the error of the last read

    def before(self, cell: Cell) -> None:  # noqa: ARG002
        if not self._observing:
            self._cache("start")

    def connected(self, load: Load) -> None:  # noqa: ARG002
        self._machine("start")

    def leaving(self) -> None:
        self._machine("end")

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Adds the start to the first phase of a measurement, and the end to the last one."""
        if self._observing:
            self.beside(raws[-1].meta.t1_ns - raws[-1].meta.t0_ns)
        else:
            self._cache("end")
        if self._server.world is not None:
            return raws
        read, self._tables = self._tables, joined()
        line = rows("sources", [self._source(read).model_dump()])
        return [
            _with_tables(raw, read, line, ["start"] * (raw is raws[0]) + ["end"] * (raw is raws[-1]))
            for raw in raws
        ]

    def _cache(self, phase: Phase) -> None:
        self._add(lambda reader: reader.cache(phase))

    def _machine(self, phase: Phase) -> None:
        self._add(lambda reader: reader.machine(phase))

    def beside(self, window_ns: int) -> None:
        """Reads at the end of a window of this length, while the next one is in progress."""
        now_ns = self._clock.now_ns()
        allowed_ns = COST * (now_ns - self._read_at_ns)
        if allowed_ns < max(_LEAST_NS, self._took_ns) or window_ns < _ROOM * self._took_ns:
            return
        most_ns = int(min(READ_NS, allowed_ns, window_ns / _ROOM))
        self._add(lambda reader: reader.read("end", most_ns))
        self._read_at_ns = self._clock.now_ns()
        self._took_ns = self._read_at_ns - now_ns

    def _add(self, read: Callable[[MemoryReader], Tables]) -> None:
        if self._reader is None:
            return
        try:
            self._tables = joined(self._tables, read(self._reader))
            self._why = ""
        except TargetError as error:
            self._why = error.message

    def _source(self, read: Tables) -> Source:
        if self._reader is None:
            return source(State("off", self._off))
        if self._why:
            return source(State("lost", self._why))
        return source(state(self._server, read))


def _with_tables(raw: RawCell, read: Tables, line: pl.DataFrame, phases: Sequence[str]) -> RawCell:
    """Returns the cell with the tables read in ``phases``, and the row of this data source."""
    its = {name: table.filter(pl.col("phase").is_in(phases)) for name, table in read.items()}
    return replace(raw, tables={**raw.tables, **its, "sources": pl.concat([raw.tables["sources"], line])})


def wanted(plan: Plan, server: Server) -> bool:
    """Returns whether memory is read: by default if anything is observed. Never of a simulated server."""
    chosen = plan.experiment.memory
    return server.world is None and (plan.experiment.observe if chosen is None else chosen)


def state(server: Server, tables: Tables) -> State:
    """Returns how complete the read of ``tables`` was."""
    if server.caching is None:
        return State(detail="this engine does not say what is in its cache")
    cache = server.caching.state()
    details = [d for d in (cache.detail, *_processes(tables["memory_processes"])) if d]
    return cache._replace(detail="; ".join(details))


def _processes(read: pl.DataFrame) -> Iterator[str]:
    for status, why in _UNREAD.items():
        if count := read.filter(pl.col("status") == status).height:
            yield f"the memory of {count:,} of {counted(read.height, 'process')} is unknown: {why}"


_UNREAD = {
    "not permitted": "run dbdyno as root or as the server's user",
    "not supported": "needs Linux 4.14 or newer",
    "lost": "there was no time for them; the next read begins with them",
}


def source(read: State) -> Source:
    """Returns the row of this data source."""
    enabling = MEMORY_SOURCE.enabling._replace(steps=read.steps or MEMORY_SOURCE.enabling.steps)
    return Source(
        name=MEMORY_SOURCE.name,
        provenance=MEMORY_SOURCE.provenance,
        status=read.status,
        detail=read.detail,
        enabling=enabling if read.status != "ok" or read.steps else MEMORY_SOURCE.enabling._replace(steps=()),
    )
