"""A server, a load, observers, a listener and a store that write down in which order they are asked.

Everything is appended to one list, :class:`Events`, which also raises the faults of a test: the error of an
event is raised where the event happens. Time is that of the fake engine's world; a measurement of two
seconds takes no longer than its calculation.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tests.fake_engine
from tests.fake_engine import FakeServer
from tests.fake_engine.load import FakeLoad
from tests.fakery import environment_of

from dbdyno import conduct, observe
from dbdyno.conduct.measure import cell as measuring
from dbdyno.drive import Interrupt
from dbdyno.kernel.machine import ThisHost
from dbdyno.model.engine.caching import Processes, State
from dbdyno.model.engine.checking import Check
from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.engine.protocols import Calibration, Clock, Configured, Journal, Load, Target, Watch
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.plan.jobs import PlannedJob, ShellStart
from dbdyno.model.plan.plan import Cell, Plan, Variant, Workload
from dbdyno.model.plan.resetting import Cache, CacheDrop, CacheWarming, DataSet
from dbdyno.model.plan.table_making import PreparedTable
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import CoreColumn, empty, from_core, to_core
from dbdyno.model.units import NS_PER_S
from dbdyno.store import Parts, Run, RunStore

LAW = "fake:cpus=2,cpu=10ms,foreign=1"
STEP_NS = NS_PER_S // 2
Fault = BaseException | Callable[[], None]


class Events(list[str]):
    """Records events in order. ``faults`` are raised, or called, at the event of that name; the second one of
    a name is ``connect#2``."""

    def __init__(self, faults: Mapping[str, Fault] | None = None) -> None:
        super().__init__()
        self._faults = dict(faults or {})
        self._counts: dict[str, int] = {}

    def happened(self, name: str) -> None:
        self.append(name)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        fault = self._faults.get(name if count == 1 else f"{name}#{count}")
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            fault()


class RecordedWatch:
    """A watch of the fake engine."""

    def __init__(self, watch: Watch, events: Events) -> None:
        self._watch, self._events, self._stopped = watch, events, False
        events.happened("watch opens")

    def start(self, t0_ns: int, t1_ns: int) -> None:
        self._events.happened("watch starts")
        self._watch.start(t0_ns, t1_ns)

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._events.happened("watch stops")
        self._watch.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)


class RecordedLoad(FakeLoad):
    """The fake engine's load, whose time goes on by half a second each time that it is waited for."""

    events: Events
    once = False  # it ends with the first calls of the window
    _begun = _stopped = False
    _noted = ""

    def connect(self) -> None:
        self.events.happened("connect")
        super().connect()

    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None:
        self.events.happened("barrier")
        super().start(start_ns, t0_ns, t1_ns)

    def finish(self) -> None:
        self.events.happened("sessions leave")
        super().finish()

    def stop(self) -> None:
        self.events.happened("load stops")
        self._stopped = True

    def abort(self) -> None:
        self.events.happened("load aborted")
        self._stopped = True

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        machine = self.world.machine
        if self._planned is None or self._stopped:
            return True
        if not self._begun:
            self._begun = True
            machine.run_while = lambda _busy: None  # type: ignore[method-assign]
            self.world.play(self._planned)
        machine.run_until(machine.now_ns + STEP_NS)
        now_ns = machine.now_ns
        if self._planned.start_ns <= now_ns < self._planned.t0_ns:
            self._note("settling")
        if self._planned.t0_ns <= now_ns < self._planned.t1_ns:
            self._note("in the window")
            self._stopped = self.once
        return self._stopped or not self.world._busy()

    def _note(self, name: str) -> None:
        if name != self._noted:
            self._noted = name
            self.events.happened(name)


class PhasedLoad(RecordedLoad):
    """A recorded load that can be cut into windows."""

    def window_tables(self, window: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        self.events.happened(f"tables of phase {window + 1}")
        tables = {name: table for name, table in self.tables().items() if name != "counters"}
        known = pl.lit(0, pl.Int64)  # the fake engine's loads are of one window: it does not count these
        pace = from_core("pace", tables["pace"]).with_columns(backlog_begin=known, idle_ns=known)
        return {**tables, "pace": to_core("pace", pace.to_dicts())}


class RecordedMachine(ThisHost):
    """This host."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def revive(self) -> None:
        self._events.happened("host revived")


class BroughtBack:
    """Tables that are loaded at once."""

    rows, workers = 10, 1

    def __init__(self, events: Events) -> None:
        self._events = events
        events.happened("data brought back")

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True

    def progress(self) -> tuple[str, int, int]:
        return ("rows", 10, 100)

    def finish(self) -> Sequence[PreparedTable]:
        return [PreparedTable("orders", 10, 100, 100, 0)]

    def undo(self) -> Sequence[str]:
        self._events.happened("data left unfinished")
        return ()


class Capabilities:
    """The recorded server's capabilities: its cache, its data, its plans."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def processes(self) -> Processes:
        self._events.happened("memory of processes")
        return Processes({}, None)

    def cached(self, phase: str, most_ns: int) -> Mapping[str, pl.DataFrame]:  # noqa: ARG002
        self._events.happened(f"memory of the cache, {phase}")
        return {}

    def state(self) -> State:
        return State("ok", "")

    def counts(self, workload: str) -> Mapping[str, int]:  # noqa: ARG002
        self._events.happened("rows counted")
        return {}

    def checks(
        self,
        workload: str,  # noqa: ARG002
        params: Mapping[str, object],  # noqa: ARG002
        before: Mapping[str, int],  # noqa: ARG002
        tables: Mapping[str, pl.DataFrame],  # noqa: ARG002
    ) -> list[Check]:
        self._events.happened("data checked")
        return []

    def data_sets(
        self,
        workload: str,  # noqa: ARG002
        params: Mapping[str, object],  # noqa: ARG002
        texts: Sequence[str],  # noqa: ARG002
    ) -> Sequence[DataSet]:
        return [DataSet("orders", ("orders",), 10, written=True)]

    def begin(self, name: str, cache: Cache) -> BroughtBack:  # noqa: ARG002
        return BroughtBack(self._events)

    def check_dropping(self) -> None: ...

    def warm(
        self,
        workload: str,  # noqa: ARG002
        params: Mapping[str, Any],  # noqa: ARG002
        sessions: int,  # noqa: ARG002
        texts: Sequence[str],  # noqa: ARG002
    ) -> CacheWarming:
        self._events.happened("caches warmed")
        return CacheWarming(1, "")

    def cache_bytes(self, settings: Mapping[str, str]) -> int | None:  # noqa: ARG002
        return None

    def drop_cache(self, name: str) -> CacheDrop:  # noqa: ARG002
        return CacheDrop(0.0, None, "")


class Commanding:
    """Jobs stand for a workload of the fake engine."""

    def __init__(self, workload: Workload, events: Events) -> None:
        self._workload, self._events = workload, events

    def contain(self, journal: Journal) -> str:  # noqa: ARG002
        self._events.happened("commands contained")
        return "commands run here"

    def jobs(
        self,
        jobs: Sequence[PlannedJob],  # noqa: ARG002
        variant: Variant,  # noqa: ARG002
        name: str,  # noqa: ARG002
        keep_output: int,  # noqa: ARG002
    ) -> Workload:
        return self._workload

    def shell_start(self, shell: str) -> ShellStart:
        raise AssertionError(shell)

    def aside(self, argv: Sequence[str], directory: str | None, env: dict[str, Any]) -> None: ...


class RecordedServer(FakeServer):
    """A fake server that can all that a companion of a measurement asks for."""

    def __init__(self, events: Events, law: str = LAW, *, virtual: bool = True, phased: bool = False) -> None:
        super().__init__(Target(dsn=law))
        self.events, self._load_type = events, PhasedLoad if phased else RecordedLoad
        self.machine = RecordedMachine(events)
        asked = Capabilities(events)
        self.checking = self.resetting = asked  # type: ignore[assignment]
        if not virtual:  # memory is read of servers in the machine's time alone
            self.world = None  # type: ignore[assignment]
            self.caching = asked  # type: ignore[assignment]

    def claim(self, run: str) -> None:  # noqa: ARG002
        self.events.happened("server claimed")

    def configure(self, settings: Mapping[str, str], journal: Journal) -> Configured:
        self.events.happened("settings of the variant" if settings else "settings put back")
        return super().configure(settings, journal)

    def calibrate(self, *args: Any, **kwargs: Any) -> Calibration:
        self.events.happened("call calibrated")
        return super().calibrate(*args, **kwargs)

    def load(
        self,
        workload: Workload,
        cell: Cell,
        calibration: Calibration | None,
        log_calls: bool,
        max_calls: int | None,
    ) -> Load:
        load = super().load(workload, cell, calibration, log_calls, max_calls)
        load.__class__ = self._load_type  # type: ignore[assignment]
        load.events, load.once = self.events, cell.once  # type: ignore[attr-defined]
        return load

    def watch(self, spec: Mapping[str, Any]) -> Watch:
        return RecordedWatch(super().watch(spec), self.events)

    def counters(self, phase: str) -> pl.DataFrame:
        self.events.happened(f"counters, {phase}")
        return super().counters(phase)

    def backends(self) -> pl.DataFrame:
        return empty("backends")

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        self.events.happened("snapshot" if name is None else "snapshot of a trigger")
        return super().snapshot(name, databases, known)

    def reconnect(self) -> None:
        self.events.happened("reconnect")
        super().reconnect()

    def close(self) -> None:
        self.events.happened("server closed")
        super().close()


class Beside(RecordedServer):
    """The connection of a trigger's action."""

    def __init__(self, server: RecordedServer) -> None:
        super().__init__(server.events)
        self._here = server._here  # type: ignore[method-assign]

    def close(self) -> None:
        self.events.happened("connection of a trigger closed")


class Listener(conduct.NullProgressListener, conduct.NullObservationListener):
    """Records what a run or an observation reports."""

    def __init__(self, events: Events) -> None:
        self._events, self._phase = events, ""

    def planned(self, plan: Plan, run_id: str) -> None:  # noqa: ARG002
        self._events.happened("planned")

    def opened(self, environment: Environment) -> None:  # noqa: ARG002
        self._events.happened("opened")

    def noted(self, words: str) -> None:
        self._events.happened(f"noted: {words.partition(':')[0]}")

    notice = noted

    def tick(self, tick: Any) -> None:
        phase = getattr(tick, "phase", "observing")
        if phase != self._phase:
            self._phase = phase
            self._events.happened(f"tick, {phase}")

    def measured(self, results: Results) -> None:
        self._events.happened(f"shown {results.tables['windows']['cell'][0]}")

    def saved(self, window: RawCell) -> None:
        self._events.happened(f"shown {window.id}")


@contextmanager
def recorded_store(events: Events, patch: pytest.MonkeyPatch, root: Path) -> Iterator[RunStore]:
    """A store whose writes are events, but those of a trigger's captures."""

    def record(owner: type, method: str, named: Callable[..., str]) -> None:
        real = getattr(owner, method)

        def call(target: Any, *args: Any) -> Any:
            if target.path.is_relative_to(root) and "captures" not in target.path.parts:
                events.happened(named(*args))
            return real(target, *args)

        patched.setattr(owner, method, call)

    with patch.context() as patched:
        record(Run, "write_cell", lambda cell: f"save {cell.id}")
        record(Run, "write_environment", lambda _environment: "environment stored")
        record(Run, "write_derived", lambda *_tables: "conclusions stored")
        record(Run, "finish", lambda status, _reason=None: f"run {status}")
        record(Run, "discard", lambda: "run discarded")
        record(Parts, "write", lambda name, *_tables: f"derived {name}")
        yield RunStore(root)


class WorldClock:
    """The world's time in place of the machine's."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns, self.sleep = clock.now_ns, clock.sleep


@contextmanager
def served(server: RecordedServer, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine ``fake`` opens this server, and a second connection to it for whoever opens it again."""
    opened: list[None] = []

    def open_server(target: Target) -> RecordedServer:  # noqa: ARG001
        opened.append(None)
        return server if len(opened) == 1 else Beside(server)

    with patch.context() as patched:
        patched.setattr(tests.fake_engine, "open_server", open_server)
        if server.world is None:
            patched.setattr(measuring, "MachineClock", lambda: WorldClock(server.clock()))
            patched.setattr(
                observe, "open_watch", lambda server, load, _how: server.watch(server.watch_spec(load))
            )
        yield


def run_recorded(
    plan: Plan, workload: Workload, server: RecordedServer, store: RunStore, **options: Any
) -> Run:
    interrupt, crew = options.pop("interrupt", None) or Interrupt(), options.pop("crew", None)
    context = conduct.RunContext(host(), Target(), store, Listener(server.events), interrupt, crew=crew)
    return conduct.run(plan, workload, context, **options)


def host() -> Host:
    return environment_of(FakeServer(Target())).host
