"""Its server, and who watches it: by its own law, as the world is virtual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbdyno.model.environment import ServerFacts
from dbdyno.model.plan import Calibration, Cell, DriverSetup, Parameter, Workload
from dbdyno.model.protocols import Capacity, Load, Target
from dbdyno.model.source import Source
from dbdyno.model.tables import CoreColumn, to_core
from dbdyno.model.wait_families import Family, Helper, WaitFamilies
from tests.second_engine.load import SecondLoad
from tests.second_engine.world import EPOCH, SERVER, S, reads, samples

PRODUCT = "Second"
UNREAD = (
    "driver tasks",
    "block I/O delay",
    "wait event word",
    "scheduler trace",
    "cgroup",
    "host",
    "pressure",
)


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


class _Clock:
    def __init__(self, load: SecondLoad) -> None:
        self.now_ns = load.now_ns

    def sleep(self, seconds: float) -> None: ...


class SecondWatch:
    """See :class:`dbdyno.model.protocols.Watch`."""

    def __init__(self, load: SecondLoad, seed: int) -> None:
        self._load, self._seed = load, seed

    def start(self, t0_ns: int, t1_ns: int) -> None: ...

    def stop(self) -> None: ...

    def latest(self) -> Mapping[str, float]:
        return {}

    def trouble(self) -> str | None:
        return None

    def source_status(self) -> Mapping[str, tuple[str, str]]:
        return dict.fromkeys(UNREAD, ("not supported", "the law says nothing of it"))

    def recent(self, since_ns: int) -> Mapping[str, Mapping[str, CoreColumn]]:  # noqa: ARG002
        return self.tables()

    def tables(self) -> Mapping[str, Mapping[str, CoreColumn]]:
        load = self._load
        found = load.tasks()
        read = [row for task in found for row in reads(task, load.t1_ns)]
        seen, taken = samples(found, load.began_ns, load.t1_ns, self._seed)
        made = {"tasks": read, "samples": seen, "sampler": taken, "cgroup": [], "host": []}
        return {name: to_core(name, rows) for name, rows in made.items()}


class SecondServer:
    """The core of a server, and a world of its own; nothing besides. ``params["speed"]``: calls a cycle."""

    wait_families = wait_families()
    counting = statement_counting = listing = watching = settings = scripts = calibrating = pooling = (
        snapshots
    ) = truths = None

    def __init__(self, target: Target) -> None:  # noqa: ARG002
        self._load = SecondLoad(0, 1, EPOCH)
        self.world = self

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
        return SecondWatch(self._load, spec["seed"])

    def clock(self) -> _Clock:
        return _Clock(self._load)

    def close(self) -> None: ...
