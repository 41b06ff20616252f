"""Memory at the start and end of measurements: the tables of a cell, and the cost beside a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from dbdyno.conduct.memory.measurement_memory import COST, MeasurementMemory, wanted
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.caching import Processes, State
from dbdyno.model.errors import ServerLost
from dbdyno.model.plan.plan import Experiment
from dbdyno.model.schema.tables import empty, raw, rows

S = 10**9
ROW = {"before_ns": 1, "after_ns": 2, "database": "db", "relation": "r", "kind": "table", "status": "ok"}


@dataclass
class Caching:
    """Takes ``took_ns`` of the clock for a read of the cache."""

    clock: Clock
    took_ns: int = 0
    asked_ns: list[int] = field(default_factory=list)
    lost: bool = False

    def processes(self) -> Processes:
        return Processes({}, None)

    def cached(self, phase: str, most_ns: int) -> Mapping[str, pl.DataFrame]:
        if self.lost:
            raise ServerLost("it went away", "")
        self.asked_ns.append(most_ns)
        self.clock.at_ns += self.took_ns
        return {"memory_relations": rows(raw("memory_relations"), [{**ROW, "phase": phase}])}

    def state(self) -> State:
        return State("ok", "half of it")


@dataclass
class Clock:
    at_ns: int = 0

    def now_ns(self) -> int:
        return self.at_ns

    def sleep(self, seconds: float) -> None:
        self.at_ns += int(seconds * S)


def memory_of(
    caching: Caching | None, clock: Clock, *, observing: bool = False, **chosen: Any
) -> MeasurementMemory:
    server = SimpleNamespace(
        caching=caching, world=None, machine=HERE, facts=lambda: SimpleNamespace(main_pid=None, here=True)
    )
    plan = SimpleNamespace(experiment=Experiment.model_validate(chosen))
    return MeasurementMemory(server, plan, clock, observing=observing)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Raw:
    tables: Mapping[str, pl.DataFrame] = field(default_factory=lambda: {"sources": empty("sources")})
    meta: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(t0_ns=0, t1_ns=10 * S))

    def relations(self) -> list[str]:
        return self.tables["memory_relations"]["phase"].to_list()

    def source(self) -> tuple[str, str]:
        (line,) = self.tables["sources"].filter(pl.col("name") == "memory").select("status", "detail").rows()
        return line


CELL: Any = None
LOAD: Any = None


def after(memory: MeasurementMemory, *raws: Raw) -> list[Raw]:
    """Returns the measurement, by default one cell, with what the companion adds."""
    return list(memory.after(raws or (Raw(),)))  # type: ignore[arg-type]


def window(ns: int) -> Raw:
    return Raw(meta=SimpleNamespace(t0_ns=0, t1_ns=ns))


def test_phases_of_a_measurement_share_its_start_and_its_end() -> None:
    clock = Clock()
    memory = memory_of(Caching(clock), clock)
    memory.before(CELL)
    memory.connected(LOAD)
    memory.leaving()
    first, middle, last = after(memory, Raw(), Raw(), Raw())
    assert (first.relations(), middle.relations(), last.relations()) == (["start"], [], ["end"])
    assert first.tables["memory"].height and first.tables["memory_processes"]["role"].to_list() == ["dbdyno"]
    assert last.source() == ("ok", "half of it")
    assert after(memory)[0].relations() == ["end"]  # the next measurement has no start


def test_reading_the_cache_beside_a_load_takes_its_share_and_no_more() -> None:
    clock = Clock()
    caching = Caching(clock, took_ns=S // 2)
    memory = memory_of(caching, clock, observing=True)
    for _ in range(60):
        clock.sleep(10)
        after(memory, window(10 * S))
    spent = len(caching.asked_ns) * caching.took_ns
    assert 0.8 * COST < spent / clock.at_ns <= 1.2 * COST
    assert all(0 < most_ns <= 0.5 * S for most_ns in caching.asked_ns)
    caching.asked_ns.clear()
    clock.sleep(1000)
    after(memory, window(S))  # the window is too short for its share
    assert caching.asked_ns == []


def test_a_server_that_is_lost_is_a_status() -> None:
    clock = Clock()
    memory = memory_of(Caching(clock, lost=True), clock)
    assert after(memory)[0].source() == ("lost", "it went away")


def test_an_engine_without_a_cache_has_the_machines_memory() -> None:
    clock = Clock()
    memory = memory_of(None, clock)
    memory.before(CELL)
    memory.connected(LOAD)
    (raw,) = after(memory)
    assert "host" in set(raw.tables["memory"]["scope"]) and raw.relations() == []
    assert raw.source()[0] == "ok" and "does not say" in raw.source()[1]


@pytest.mark.parametrize(
    ("chosen", "cure"), [({"memory": False}, "--no-memory"), ({"observe": False}, "--no-observe")]
)
def test_nothing_is_read_if_memory_is_switched_off(chosen: dict[str, bool], cure: str) -> None:
    clock = Clock()
    memory = memory_of(Caching(clock), clock, **chosen)
    memory.before(CELL)
    memory.connected(LOAD)
    memory.leaving()
    (raw,) = after(memory)
    assert raw.tables["memory"].is_empty() and raw.source() == ("off", f"switched off with {cure}")


def test_a_server_with_a_clock_of_its_own_is_not_read() -> None:
    server, plan = SimpleNamespace(world=object()), SimpleNamespace(experiment=Experiment())
    assert not wanted(plan, server)  # type: ignore[arg-type]
