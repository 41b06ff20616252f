"""The fake server: in memory, in virtual time."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import polars as pl

from dbdyno.engines.fake.law import describe, parse_law
from dbdyno.engines.fake.load import FakeLoad
from dbdyno.engines.fake.records import Work
from dbdyno.engines.fake.watch import FakeWatch
from dbdyno.engines.fake.world import MAIN_PID, Truth, World
from dbdyno.model.environment import ServerFacts
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Cell
from dbdyno.model.protocols import Capacity, Load, Target, Watch
from dbdyno.model.source import Source
from dbdyno.model.tables import empty, rows
from dbdyno.model.workload import Calibration, Workload

EPOCH_NS = 1_000_000_000_000


class FakeServer:
    """See :class:`dbdyno.model.protocols.Server`."""

    def __init__(self, target: Target) -> None:
        self.law = parse_law(target.dsn)
        self._now_ns = EPOCH_NS
        self._worlds: dict[str, World] = {}  # cell id -> its world
        self._last: World | None = None

    def facts(self) -> ServerFacts:
        return ServerFacts(
            engine="fake",
            version="1.0",
            version_num=10000,
            description="dbdyno's fake server: virtual time, a known law",
            where="in memory",
            embedded=True,
            tls=None,
            here=True,
            here_detail="it is a part of dbdyno, on a machine of its own",
            main_pid=MAIN_PID,
            settings=describe(self.law),
        )

    def sources(self) -> Sequence[Source]:
        return (
            Source(name="engine counters", provenance="the fake server's own, per session", status="ok"),
            Source(name="activity samples", provenance="the fake world's timelines", status="ok"),
        )

    def capacity(self) -> Capacity:
        return Capacity(self.law.maximum, 0, 0, f"maximum = {self.law.maximum}")

    def claim(self, run: str) -> None:
        """It belongs to this process alone."""

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None:
        """Nothing to make."""

    def script(self, text: str, name: str) -> Workload:
        return Workload(
            name=name,
            title=f"own script {name}",
            doc=text.strip()[:200],
            work_unit="calls",
            work_short="calls",
            work_constant=False,
            calibrated=False,
        )

    def calibrate(
        self,
        workload: Workload,
        params: Mapping[str, Any],  # noqa: ARG002
        target_ns: int,
        reason: str,
    ) -> Calibration:
        size = max(1, round(target_ns / max(1, self.law.cpu)))
        half = _half(workload)
        measured = size * self.law.cpu
        return Calibration(
            workload=workload.name,
            target_ns=target_ns,
            target_reason=reason,
            size=size,
            size_unit=half["size_unit"],
            measured_ns=measured,
            basis="cpu",
            work_per_call=float(size * half["work_per_size"]),
            steps=((1, self.law.cpu), (size, measured)),
        )

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,
        log_calls: bool,
        max_calls: int | None,
    ) -> Load:
        size = 1 if calibration is None else calibration.size
        if self._last is not None:
            self._now_ns = self._last.machine.now_ns
        self._last = self._worlds[cell.id] = World(self.law, cell.sessions, size, self._now_ns)
        half = _half(workload)
        work = Work(workload.work_short.lower(), half["work_unit"], size * half["work_per_size"])
        return FakeLoad(self._last, work, log_calls, max_calls)

    def watch_spec(self, load: Load) -> Mapping[str, Any]:
        return {"engine": "fake", "sessions": [list(pair) for pair in load.backends()]}

    def watch(self, spec: Mapping[str, Any]) -> Watch | None:
        if self._last is None:
            raise UsageError("fake server: a watch needs a load", "make the load first")
        return FakeWatch(self._last, spec)

    def counters(self, phase: str) -> pl.DataFrame:
        """Calls that the sessions of the latest load had made at t0 or t1, whichever ``phase`` is."""
        world = self._last
        if world is None or world.schedule is None:
            return empty("counters")
        now_ns = min(world.machine.now_ns, world.schedule.t0_ns if phase == "t0" else world.schedule.t1_ns)
        ends = [c.end_ns for s in world.sessions for c in s.calls]
        since = world.reset_ns if world.reset_ns is not None and world.reset_ns <= now_ns else 0
        done = sum(since < end_ns <= now_ns for end_ns in ends)
        row = {
            "before_ns": now_ns,
            "after_ns": now_ns,
            "phase": phase,
            "scope": "server",
            "name": "calls",
            "kind": "counter",
            "unit": "count",
            "value": float(done),
            "status": "ok",
        }
        return rows("counters", [row])

    def clean(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        self._worlds.clear()

    def truth(self, cell_id: str, start_ns: int, end_ns: int) -> dict[int, Truth]:
        """Where the time of each session of a cell really went in [start, end)."""
        world = self._worlds[cell_id]
        return {n: world.truth(n, start_ns, end_ns) for n in world.tasks}


def _half(workload: Workload) -> dict[str, Any]:
    """This engine's half of a workload."""
    folder = resources.files("dbdyno.engines.fake") / "workloads"
    path = folder / f"{workload.name}.toml"
    if not path.is_file():
        path = folder / "script.toml"
    return tomllib.loads(path.read_text())
