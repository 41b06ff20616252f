"""Runs in progress whose measuring process is the test: it stores the next measurement when it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from dbdyno import conduct, observe
from dbdyno.conduct.derive.derive import Making
from dbdyno.conduct.measure.cell import clock_of
from dbdyno.conduct.observe.windows import ObservationSetting, Windows
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.raw import RawCell
from dbdyno.plan import OBSERVED
from dbdyno.store import Run, RunStore
from tests.fake_engine import FakeServer
from tests.fakery import environment_of
from tests.web.conftest import Lab

LAW = "fake:cpus=2,foreign=3,cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms"


@dataclass
class Observing:
    """``left``: windows that are still to be stored."""

    record: Run
    left: Iterator[RawCell]
    making: Making

    def window(self) -> str:
        """Stores a window and derives it, as the deriving process does. Returns its id."""
        raw = next(self.left)
        self.record.write_cell(raw)
        self.making.more()
        return raw.id

    def end(self) -> None:
        self.record.write_derived({}, ())
        self.record.finish("complete")


def observing(store: Path, duration: str = "50s", **labels: Any) -> Observing:
    """Begins an observation of the simulated server with windows of 10 s, none of which is stored yet."""
    server = FakeServer(Target(dsn=LAW))
    plan = conduct.observation_plan(
        conduct.observation_of({"engine": "fake"}, duration=duration), observe.host()
    )
    record = RunStore(store).create(plan, workloads={OBSERVED.name: OBSERVED}, **labels)
    record.write_environment(environment_of(server))
    listener, clock = conduct.NullObservationListener(), clock_of(server)
    windows = Windows(ObservationSetting(server, plan, clock, listener, Interrupt()))
    return Observing(record, (cell for (cell,) in windows.all()), Making(record))


class Event(NamedTuple):
    kind: str
    id: str
    data: Any


class Reader:
    """A browser's EventSource."""

    def __init__(self, lab: Lab, path: str, after: str = "") -> None:
        headers = {"Cookie": lab.cookie, **({"Last-Event-ID": after} if after else {})}
        self._connection = HTTPConnection("127.0.0.1", lab.address.port, timeout=60)
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        self.status, self.headers = self._answer.status, self._answer.headers

    def next(self, *kinds: str) -> Event | None:
        """Returns the next event, of these kinds if some are named; None at the end of the stream."""
        found: dict[str, str] = {}
        while line := self._answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name in ("id", "event", "data"):
                found[name] = value
            if line == "\n" and "event" in found:
                if not kinds or found["event"] in kinds:
                    return Event(found["event"], found.get("id", ""), json.loads(found["data"]))
                found = {}
        return None

    def close(self) -> None:
        self._connection.close()


@contextmanager
def readers(lab: Lab, path: str, number: int = 1) -> Iterator[Sequence[Reader]]:
    opened = [Reader(lab, path) for _ in range(number)]
    try:
        yield opened
    finally:
        for reader in opened:
            reader.close()
