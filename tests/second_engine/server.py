"""Its server and watches, which follow its own law, as the world is virtual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Capacity, Load, Target
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Calibration, Cell, DriverSetup, Observation, Parameter, Workload
from dbdyno.model.schema.rawtables import CLIENT_BACKEND
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import Family, Helper, WaitFamilies
from tests.second_engine.load import SecondLoad
from tests.second_engine.watch import GuestWatch, SecondWatch
from tests.second_engine.world import EPOCH, GUESTS, SERVER, S, tasks

PRODUCT = "Second"


def wait_families() -> WaitFamilies:
    return WaitFamilies({"Disk": Family.IO, "Mutex": Family.LOCK, "Peer": Family.CLIENT})


def helpers() -> dict[str, Helper]:
    return {}


def workloads() -> dict[str, Workload]:
    step = Workload(
        name="step",
        title="steps of a cycle",
        doc="A cycle of 100 ms in as many calls as speed says.",
        work_unit="steps",
        work_short="steps",
        work_constant=True,
        calibrated=False,
        parameters={"speed": Parameter(doc="calls a cycle", type="int", default=1, minimum=1)},
    )
    return {step.name: step}


def open_server(target: Target) -> SecondServer:
    return SecondServer(target)


class SecondServer:
    """The core of a server, its sessions, and a world of its own; nothing besides. ``params["speed"]``: calls
    a cycle."""

    wait_families = wait_families()
    machine: Machine = HERE
    counting = second_counting = statement_counting = settings = scripts = calibrating = pooling = None
    snapshots = truths = tables = checking = commands = resetting = planning = caching = conditions = None
    login_tracing = live = choosing = None

    def __init__(self, target: Target) -> None:  # noqa: ARG002
        self._load = SecondLoad(0, 1, EPOCH)
        self.world = self.listing = self.watching = self

    def facts(self) -> ServerFacts:
        return ServerFacts(
            engine="second",
            product=PRODUCT,
            version="0.1",
            version_num=1,
            description="a second engine",
            where="nowhere",
            embedded=True,
            tls=None,
            here=True,
            here_detail="",
            main_pid=SERVER,
            settings={},
            own_cpus=4,
        )

    def sources(self) -> list[Source]:
        return [Source(name="activity samples", provenance="the law", status="ok")]

    def capacity(self) -> Capacity:
        return Capacity(100, 0, 0, "it has room for 100 sessions")

    def claim(self, run: str) -> None: ...

    def check_driver(self, driver: DriverSetup) -> None: ...

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None: ...

    def clean(self) -> Sequence[str]:
        return ()

    def load(
        self,
        workload: Workload,  # noqa: ARG002
        cell: Cell,
        calibration: Calibration | None,  # noqa: ARG002
        log_calls: bool,  # noqa: ARG002
        max_calls: int | None,  # noqa: ARG002
    ) -> Load:
        speed = int(cell.params.get("speed", 1))
        self._load = SecondLoad(cell.sessions, speed, self._load.now_ns() + S)
        return self._load

    def watch_spec(self, load: Load) -> Mapping[str, Any]:  # noqa: ARG002
        return {"engine": "second"}

    def watch(self, spec: Mapping[str, Any]) -> SecondWatch:
        return GuestWatch(self._load, spec) if "known" in spec else SecondWatch(self._load, spec["seed"])

    def clock(self) -> SecondLoad:
        return self._load

    # -- sessions that are not ours -------------------------------------------------------------------
    def observation_spec(
        self, chosen: Observation, known: Mapping[tuple[int, int], int]
    ) -> Mapping[str, Any]:
        if chosen.some:
            raise UsageError("it has no users, databases or applications", "observe all sessions")
        return {"engine": "second", "known": [(*task, number) for task, number in known.items()]}

    def reconnect(self) -> None: ...

    def backends(self) -> pl.DataFrame:
        now_ns = self._load.now_ns()
        row = {"at_ns": now_ns, "kind": CLIENT_BACKEND, "status": "ok"}
        present = [t for t in tasks(GUESTS, now_ns + 1) if t.is_alive(now_ns)]
        return rows("backends", [row | {"pid": t.pid, "tid": t.tid} for t in present if t.pid == SERVER])

    def end_left(self, pids: Sequence[int]) -> int:
        return len(pids)

    def close(self) -> None: ...
