"""The fake server: in memory, in virtual time."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import polars as pl

from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import (
    PLAIN,
    Capacity,
    Configured,
    Journal,
    Load,
    Pool,
    Target,
    Undo,
    Watch,
)
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.engine.truth import TruthCase
from dbdyno.model.errors import NoSuchDatabase, ServerLost, UsageError
from dbdyno.model.plan.plan import (
    Calibration,
    Cell,
    DriverSetup,
    Observation,
    PlannedScript,
    Variant,
    Workload,
)
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.source import Source
from dbdyno.model.sources.wait_families import Helper, WaitFamilies
from dbdyno.model.units import NS_PER_S
from tests.fake_engine import backends, counters
from tests.fake_engine import settings as own_settings
from tests.fake_engine import snapshots as own_snapshots
from tests.fake_engine.dsn import parse_law
from tests.fake_engine.law import describe
from tests.fake_engine.load import FakeLoad
from tests.fake_engine.records import Work
from tests.fake_engine.sampling import is_down
from tests.fake_engine.truth import Truth
from tests.fake_engine.watch import FakeWatch
from tests.fake_engine.world import MAIN_PID, World

EPOCH_NS = 1_000_000_000_000
SETTLED_NS = 3_000_000_000  # an observed machine has been at it for so long before the first window

HALF: Mapping[str, Any] = {"engine": "fake", "memory_hz": 100.0}


@cache
def wait_families() -> WaitFamilies:
    text = resources.files(__package__).joinpath("wait_families.toml").read_text(encoding="utf-8")
    return WaitFamilies.model_validate(tomllib.loads(text))


def helpers() -> dict[str, Helper]:
    """Returns the purposes of the simulated server's own processes."""
    return {
        "io worker": Helper.IO,
        "checkpointer": Helper.CHECKPOINT,
        "autovacuum worker": Helper.CLEANUP,
    }


class FakeClock:
    """The virtual time of the latest world. Sleeping lets it pass there."""

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world

    def now_ns(self) -> int:
        return self._world().machine.now_ns

    def sleep(self, seconds: float) -> None:
        machine = self._world().machine
        machine.run_until(machine.now_ns + max(1, round(seconds * NS_PER_S)))


class FakeServer:
    """See :class:`dbdyno.model.engine.protocols.Server`."""

    machine: Machine = HERE

    def __init__(self, target: Target) -> None:
        self._dsn = target.dsn
        self._set: Mapping[str, str] = {}  # over the DSN's law
        self.law = parse_law(target.dsn)
        self._now_ns = EPOCH_NS
        self._starts, self._loads = 0, 0
        self._worlds: dict[str, World] = {}  # cell id -> its world
        self._last: World | None = None
        self._work_per_call = 0
        self.counting = self.listing = self.watching = self.settings = self.world = self
        self.statement_counting, self.snapshots, self.tables, self.checking = None, self, None, None
        self.second_counting = None
        self.resetting = self.planning = self.caching = self.conditions = self.login_tracing = None
        self.commands = self.live = self.choosing = None
        self.scripts = self.calibrating = self.pooling = self.truths = self

    @property
    def wait_families(self) -> WaitFamilies:
        return wait_families()

    def facts(self) -> ServerFacts:
        return ServerFacts(
            engine="fake",
            product="simulated server",
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
            helpers=helpers(),
            own_cpus=min(self.law.cpus, self.law.quota or self.law.cpus),
        )

    def sources(self) -> Sequence[Source]:
        return (
            Source(name="engine counters", provenance="the fake server's own, per session", status="ok"),
            Source(name="activity samples", provenance="the fake world's timelines", status="ok"),
        )

    def capacity(self) -> Capacity:
        return Capacity(self.law.maximum, 0, 0, f"maximum = {self.law.maximum}")

    def claim(self, run: str) -> None:
        """Does nothing, as the server belongs to this process alone."""

    def check_settings(self, settings: Mapping[str, str]) -> Sequence[str]:
        own_settings.law_with(self._dsn, settings)
        return own_settings.needing_restart({}, settings)

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:  # noqa: ARG002
        """See the protocol. A setting ends with its process, so nothing is left for a journal to put back."""
        law = own_settings.law_with(self._dsn, settings)
        restarted = bool(own_settings.needing_restart(self._set, settings))
        self.law, self._set = law, dict(settings)
        if restarted:
            self._let_pass(own_settings.RESTART_NS)
        return Configured(dict(settings), restarted)

    def restart(self) -> None:
        self._starts += 1
        self._let_pass(own_settings.RESTART_NS)

    def _let_pass(self, ns: int) -> None:
        self._now_ns += ns
        if self._last is not None:
            self._last.machine.run_until(self._last.machine.now_ns + ns)

    def check_driver(self, driver: DriverSetup) -> None:
        """Accepts every setup, because a simulated session sends nothing."""

    def check_pool(self, pool: Pool) -> None:
        raise UsageError(
            f"fake server: no pooler of {pool.size} connections can be put in front of it",
            "leave out the limit pool=, or measure a real server",
        )

    def use_pool(self, pool: Pool | None, journal: Journal) -> None:  # noqa: ARG002
        if pool is not None:
            self.check_pool(pool)

    def put_back(self, undo: Undo) -> str | None:  # noqa: ARG002
        return None

    def prepare(self, workload: Workload, params: Mapping[str, Any], sessions: int) -> None:
        """Does nothing, as there is nothing to make."""

    def script(
        self,
        scripts: Sequence[PlannedScript],
        variant: Variant = PLAIN,  # noqa: ARG002
        name: str = "",
    ) -> Workload:
        return workload_of(scripts, name).model_copy(update={"work_unit": "calls", "work_short": "calls"})

    def needs_simple(self, scripts: Sequence[PlannedScript], variant: Variant) -> str | None:  # noqa: ARG002
        return None

    def scale(self, scripts: Sequence[PlannedScript]) -> tuple[int, str] | None:
        return (3, "the tables have 3") if any(s.builtin for s in scripts) else None

    def calibrate(
        self,
        workload: Workload,
        params: Mapping[str, Any],  # noqa: ARG002
        target_ns: int,
        reason: str,
        size: int | None = None,
    ) -> Calibration:
        unit_ns, given = self.law.unit_cpu_ns, size is not None
        size = size or max(1, round(target_ns / max(1, unit_ns)))
        half = _half(workload)
        measured = size * unit_ns
        return Calibration(
            workload=workload.name,
            target_ns=target_ns,
            target_reason=reason,
            size=size,
            size_unit=half["size_unit"],
            measured_ns=measured,
            basis="cpu",
            work_per_call=float(size * half["work_per_size"]),
            steps=() if given else ((1, unit_ns), (size, measured)),
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
        self._loads += 1
        law = self.law.with_noise(self._starts, self._loads, self._now_ns - EPOCH_NS)
        law = replace(law, think=cell.think_ns) if cell.think_ns else law
        self._last = self._worlds[cell.id] = World(law, cell.sessions, size, self._now_ns)
        self._last.pacing = None if cell.pacing is None else (cell.pacing, cell.seed)
        half = _half(workload)
        work = Work(workload.work_short.lower(), half["work_unit"], size * half["work_per_size"])
        self._work_per_call = work.per_call
        return FakeLoad(self._last, work, log_calls, max_calls, rounds=cell.driver.rounds)

    def watch_spec(self, load: Load) -> Mapping[str, Any]:
        return {**HALF, "sessions": [list(task) for task in load.backends()]}

    def observation_spec(
        self, chosen: Observation, known: Mapping[tuple[int, int], int]
    ) -> Mapping[str, Any]:
        sessions = [[number, *task] for task, number in known.items()]
        return {**HALF, "sessions": sessions, "adopt": True, "filter": backends.filters(chosen)}

    def backends(self) -> pl.DataFrame:
        return rows("backends", backends.rows(self._asked()))

    def end_left(self, pids: Sequence[int]) -> int:
        return len(pids)

    def watch(self, spec: Mapping[str, Any]) -> Watch:
        if spec.get("adopt"):
            return FakeWatch(self._here(), spec, backends.chooser(spec.get("filter", {})))
        if self._last is None:
            raise UsageError("fake server: a watch needs a load", "make the load first")
        return FakeWatch(self._last, spec)

    def clock(self) -> FakeClock:
        return FakeClock(self._here)

    def clock_facts(self) -> Mapping[str, str]:
        return {"clock": "virtual: to read it costs nothing"}

    def reconnect(self) -> None:
        self._asked()

    def counters(self, phase: str) -> pl.DataFrame:
        """Returns counters of a load, at t0 or t1, whichever ``phase`` is; of somebody else's load, now."""
        return rows("counters", counters.rows(self._asked(), phase, self._work_per_call))

    def keep_connection(self) -> None: ...

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        """Returns a snapshot of now, in virtual time. ``databases`` may name the only one."""
        if databases and set(databases) - {own_snapshots.DATABASE}:
            raise NoSuchDatabase(f"no database {databases}", f"it is called {own_snapshots.DATABASE}")
        return own_snapshots.snapshot(self._asked(), self._work_per_call, name, known)

    def truth_cases(self) -> Sequence[TruthCase]:
        """Returns no cases for the command line, because here the truth of every law is known."""
        return ()

    def truth_setup(self, case: TruthCase) -> None:
        """Does nothing, as there is nothing to make."""

    def brief_session(self, case: TruthCase) -> int | None:  # noqa: ARG002
        return None

    def truth_teardown(self, case: TruthCase) -> None:
        """Does nothing, as nothing was made."""

    def _here(self) -> World:
        """Returns the latest world; without a load, one with somebody else's sessions alone."""
        if self._last is None:
            self._last = World(self.law, 0, 1, self._now_ns - SETTLED_NS)
            self._last.machine.run_until(self._now_ns)
        return self._last

    def _asked(self) -> World:
        """Returns the world, if it answers. Raises :class:`ServerLost` if it is away."""
        world = self._here()
        if world.schedule is None and is_down(self.law, world.machine.now_ns - world.zero_ns):
            raise ServerLost("the fake server is away", "wait until the instant of its law")
        return world

    def clean(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        self._worlds.clear()

    def truth(self, cell_id: str, start_ns: int, end_ns: int, *, workers: bool = False) -> dict[int, Truth]:
        """Returns where the time of each session of a cell really went in [start, end). ``workers`` adds
        its parallel workers' time."""
        world = self._worlds[cell_id]
        return {n: world.truth(n, start_ns, end_ns, workers=workers) for n in world.tasks}

    def truth_of_tasks(self, start_ns: int, end_ns: int) -> dict[tuple[int, int], Truth]:
        """Returns the same of all tasks of the latest world that existed then, by pid and start_ticks."""
        world = self._last
        if world is None:
            return {}
        tasks = {(t.pid, t.start_ticks): t for t in world.machine.tasks}
        truths = {key: Truth.of([t.timeline], start_ns, end_ns) for key, t in tasks.items()}
        return {key: truth for key, truth in truths.items() if truth.wall}

    def truth_of_roles(self, start_ns: int, end_ns: int) -> dict[str, Truth]:
        """Returns the same in sum by role."""
        world = self._last
        tasks = [] if world is None else world.machine.tasks
        by_role = {role: [t.timeline for t in tasks if t.role == role] for role in {t.role for t in tasks}}
        return {role: Truth.of(lives, start_ns, end_ns) for role, lives in by_role.items()}


def _half(workload: Workload) -> dict[str, Any]:
    """Returns this engine's half of a workload."""
    folder = resources.files("tests.fake_engine") / "workloads"
    path = folder / f"{workload.name}.toml"
    if not path.is_file():
        path = folder / "script.toml"
    return tomllib.loads(path.read_text())
