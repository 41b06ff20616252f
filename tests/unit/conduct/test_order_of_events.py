"""The order of events of a run, of phases and of an observation, without a fault and with each kind of one.

What goes along with a measurement is asked before it in one order and after it in the opposite one. Whatever
went wrong, what has begun ends: observers, load, triggers, settings, the run in the store, the server.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.observe.test_plan import LIO
from tests.unit.recorded_events import (
    Commanding,
    Events,
    Fault,
    Listener,
    RecordedServer,
    host,
    recorded_store,
    run_recorded,
    served,
)

from dbdyno import conduct, observe
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.model.engine.protocols import Load, Target
from dbdyno.model.errors import DbdynoError, HostLost, ServerLost, StoreError, StoreFull
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.plan import resolve
from dbdyno.store import RunStore

FIRST, SECOND = "0001-lio-base-s1-r1", "0002-lio-base-s2-r1"
BEGIN = ["server claimed", "planned", "environment stored", "opened", "call calibrated"]
BEFORE = ["data brought back", "rows counted", "memory of the cache, start", "snapshot"]
CONNECT = ["tick, connecting", "counters, connect", "connect", "memory of processes", "counters, start"]
WINDOW = [
    "watch opens",
    "watch starts",
    "barrier",
    "settling",
    "tick, settling",
    "in the window",
    "counters, t0",
    "tick, measuring",
    "counters, t1",
    "tick, last calls",
    "watch stops",
]
LEAVE = ["tick, closing", "memory of processes", "sessions leave", "counters, end"]
AFTER = ["snapshot", "memory of the cache, end", "data checked"]
MEASUREMENT = [*BEFORE, *CONNECT, *WINDOW, *LEAVE, *AFTER]
TWO_CELLS = [
    *BEGIN,
    *["host revived", "settings of the variant", *MEASUREMENT, f"save {FIRST}", f"shown {FIRST}"],
    *["host revived", *MEASUREMENT, f"save {SECOND}", f"shown {SECOND}"],
]
WHOLE_END = ["settings put back", "run complete", f"derived {FIRST}", "conclusions stored", "server closed"]
CUT_END = ["settings put back", "run cut short", f"derived {FIRST}", "conclusions stored", "server closed"]
LOST_END = ["settings put back", "run discarded", "server closed"]
GONE = ServerLost("it went away", "see the log")


def run_plan(**options: Any) -> Plan:
    asked = {
        "workload": "lio",
        "engine": "fake",
        "sessions": "1,2",
        "measure": "2s",
        "settle": "1s",
        "call_target": "10ms",
        "snapshots": True,
    }
    return resolve(Experiment.model_validate(asked | options), LIO, 2.0, "")


class Recording:
    """Runs and observations whose events are recorded, in a store of their own."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root, self._patch = root, patch
        self.raised: BaseException | None = None

    def run(self, plan: Plan, server: RecordedServer, **options: Any) -> Events:
        return self._recorded(server, lambda store: run_recorded(plan, LIO, server, store, **options))

    def observation(self, plan: Plan, server: RecordedServer, interrupt: Interrupt | None = None) -> Events:
        listener = Listener(server.events)
        return self._recorded(
            server,
            lambda store: conduct.observe_server(
                plan, conduct.RunContext(host(), Target(), store, listener, interrupt or Interrupt())
            ),
        )

    def _recorded(self, server: RecordedServer, story: Callable[[RunStore], object]) -> Events:
        with recorded_store(server.events, self._patch, self._root) as store, served(server, self._patch):
            try:
                story(store)
            except BaseException as error:
                self.raised = error
        return server.events

    def stored(self) -> dict[str, str]:
        """Returns the status by measurement of the stored run."""
        run = RunStore(self._root).open("last")
        return {cell.id: cell.meta.status for cell in run.read_cells()[0]}


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    return Recording(tmp_path, monkeypatch)


def place(events: list[str], name: str) -> int:
    """Returns the index of the event ``name``; ``name#2`` is the second one of that name."""
    event, _, number = name.partition("#")
    return [n for n, e in enumerate(events) if e == event][int(number or 1) - 1]


# A plain run.


def test_the_events_of_a_run_of_two_cells_are_in_order(recording: Recording) -> None:
    events = recording.run(run_plan(settings={"think": "1ms"}), RecordedServer(Events(), virtual=False))
    assert events == [*TWO_CELLS, *WHOLE_END]
    assert recording.stored() == {FIRST: "ok", SECOND: "ok"}


@pytest.mark.parametrize(
    ("at", "fault", "meanwhile"),
    [
        ("host revived#2", GONE, []),
        ("data brought back#2", GONE, []),
        ("rows counted#2", GONE, []),
        ("snapshot#3", StoreError("not written"), []),
        ("memory of the cache, start#2", RuntimeError("a defect"), []),
        ("connect#2", GONE, ["load aborted"]),
        ("connect#2", Interrupted(), ["load aborted"]),
        ("memory of processes#3", RuntimeError("a defect"), ["load aborted"]),
        ("watch opens#2", GONE, ["load aborted"]),
        ("settling#2", GONE, ["watch stops", "load aborted"]),
        ("in the window#2", GONE, ["watch stops", "load aborted"]),
        ("tick, measuring#2", RuntimeError("a defect"), ["watch stops", "load aborted"]),
        ("memory of processes#4", RuntimeError("a defect"), ["load aborted"]),
        ("sessions leave#2", GONE, ["load aborted"]),
        ("snapshot#4", StoreError("not written"), []),
        ("memory of the cache, end#2", RuntimeError("a defect"), []),
        ("data checked#2", RuntimeError("a defect"), []),
        (f"save {SECOND}", StoreError("not written"), []),
        (f"shown {SECOND}", RuntimeError("a defect"), []),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_in_the_second_cell_keeps_the_first(
    recording: Recording, at: str, fault: Fault, meanwhile: list[str]
) -> None:
    server = RecordedServer(Events({at: fault}), virtual=False)
    events = recording.run(run_plan(settings={"think": "1ms"}), server)
    until = TWO_CELLS[: place(TWO_CELLS, at) + 1]
    foreseen = isinstance(fault, DbdynoError | Interrupted)
    end = CUT_END if foreseen else ["settings put back", "run cut short", "server closed"]
    assert events == [*until, *meanwhile, *end]
    assert recording.raised is (None if foreseen else fault)
    assert set(recording.stored()) == ({FIRST, SECOND} if at.startswith("shown") else {FIRST})


@pytest.mark.parametrize(
    ("at", "fault", "meanwhile"),
    [
        ("call calibrated", GONE, []),
        ("settings of the variant", GONE, []),
        ("connect", GONE, ["load aborted"]),
        ("settling", Interrupted(), ["watch stops", "load aborted"]),
        ("in the window", GONE, ["watch stops", "load aborted"]),
        (f"save {FIRST}", StoreFull("no space"), []),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_before_the_first_cell_is_saved_keeps_nothing(
    recording: Recording, at: str, fault: DbdynoError, meanwhile: list[str]
) -> None:
    server = RecordedServer(Events({at: fault}), virtual=False)
    events = recording.run(run_plan(settings={"think": "1ms"}), server)
    assert events == [*TWO_CELLS[: place(TWO_CELLS, at) + 1], *meanwhile, *LOST_END]
    assert recording.raised is fault


def test_a_full_disk_at_the_second_cell_is_raised_once_all_is_put_back(recording: Recording) -> None:
    full = StoreFull("no space")
    server = RecordedServer(Events({f"save {SECOND}": full}), virtual=False)
    events = recording.run(run_plan(settings={"think": "1ms"}), server)
    until = TWO_CELLS[: place(TWO_CELLS, f"save {SECOND}") + 1]
    assert events == [*until, "settings put back", "run cut short", "server closed"]
    assert recording.raised is full


@pytest.mark.parametrize("at", ["snapshot#3", "snapshot#4", "memory of the cache, end#2", "counters, t1#2"])
def test_a_companion_without_its_data_ends_no_run(recording: Recording, at: str) -> None:
    server = RecordedServer(Events({at: GONE}), virtual=False)
    events = recording.run(run_plan(settings={"think": "1ms"}), server)
    without = ["counters, end#2"] if at.startswith("counters") else []
    expected = [e for n, e in enumerate(TWO_CELLS) if n not in [place(TWO_CELLS, w) for w in without]]
    assert events == [*expected, *WHOLE_END]
    assert set(recording.stored()) == {FIRST, SECOND}


def test_an_end_that_is_asked_for_saves_the_cell_under_way(recording: Recording) -> None:
    interrupt = Interrupt()
    server = RecordedServer(Events({"settling": interrupt.request}), virtual=False)
    events = recording.run(run_plan(settings={"think": "1ms"}), server, interrupt=interrupt)
    cell = place(TWO_CELLS, "settling")
    assert events == [
        *TWO_CELLS[: cell + 1],
        *["load stops", "tick, settling", "watch stops"],
        *LEAVE,
        *["snapshot", "memory of the cache, end", f"save {FIRST}", f"shown {FIRST}"],
        *CUT_END,
    ]
    assert recording.stored() == {FIRST: "invalid"}


def test_sessions_that_are_lost_in_the_window_end_the_run_when_the_cell_is_saved(
    recording: Recording,
) -> None:
    law = "fake:cpus=2,cpu=10ms,lose=0@2500ms"
    server = RecordedServer(Events(), law, virtual=False)
    events = recording.run(run_plan(measure="4s"), server)
    assert events[-6:] == [f"save {FIRST}", f"shown {FIRST}", *CUT_END[1:]]
    assert recording.stored() == {FIRST: "short"}


# Hosts that drive, triggers, warm-up.


class Hosts:
    """Two hosts that drive, one of which is lost while it connects."""

    warning = None

    def __init__(self, server: RecordedServer) -> None:
        self._events = server.events
        self.lost: list[str] = []

    def make_load(self, engine: str, specification: Any) -> Load:
        raise AssertionError(engine, specification)

    def check_clocks(self, window_ns: int) -> None:  # noqa: ARG002
        self._events.happened("clocks checked")

    def words(self) -> str:
        return "2 drivers: a, b"

    def left_by(self, host: str) -> list[int]:  # noqa: ARG002
        return []

    def lose(self, error: HostLost) -> str:
        self._events.happened(f"host {error.host} left out")
        return f"driver {error.host} is lost"

    def check(self) -> bool:
        self._events.happened("hosts checked")
        return False


def test_a_host_that_is_lost_while_it_connects_is_left_out_and_the_others_begin_again(
    recording: Recording,
) -> None:
    server = RecordedServer(Events({"connect": HostLost("b", "no answer")}), virtual=False)
    events = recording.run(run_plan(sessions="1"), server, crew=Hosts(server))
    again = ["load aborted", "host b left out", "hosts checked", "noted: driver b is lost"]
    begin = [*BEGIN[:-1], "clocks checked", "noted: 2 drivers", "call calibrated"]
    before = ["host revived", "settings put back", *BEFORE, *CONNECT[:3], *again]
    assert events == [
        *begin,
        *before,
        *[*CONNECT[1:], *WINDOW, *LEAVE, *AFTER, f"save {FIRST}", f"shown {FIRST}", "hosts checked"],
        *WHOLE_END[1:],
    ]
    assert recording.stored() == {FIRST: "ok"}


def test_triggers_are_looked_at_in_the_window_and_their_actions_end_with_it(recording: Recording) -> None:
    plan = run_plan(sessions="1", measure="4s", triggers=[{"when": "sessions >= 1", "do": "trace 20s"}])
    events = recording.run(plan, RecordedServer(Events()))
    inside = ["watch opens", "watch starts", "noted: trigger 1", "counters, t1", "tick, last calls"]
    ended = ["watch stops", "noted: trace 20s of trigger 1 has ended, 109 KiB", "watch stops"]
    begin, end = place(events, "tick, measuring"), place(events, "tick, closing")
    assert [e.partition(",")[0] for e in events[begin + 1 : end]] == [
        e.partition(",")[0] for e in inside + ended
    ]


def test_each_variant_of_jobs_is_warmed_up_before_the_companions_begin(recording: Recording) -> None:
    plan = run_plan(sessions="1", repeats=2)
    base = plan.variants[0]
    jobs = (PlannedJob(name="job", argv=("true",), shown="true"),)
    experiment = plan.experiment.model_copy(update={"warmup": 1})
    warmed = {"experiment": experiment, "variants": (base.model_copy(update={"jobs": jobs}),)}
    server = RecordedServer(Events(), virtual=False)
    server.commands = Commanding(LIO, server.events)  # type: ignore[assignment]
    events = recording.run(plan.model_copy(update=warmed).sealed(), server)
    warm_up = [
        *["tick, connecting", "connect", "watch opens", "watch starts", "barrier", "in the window"],
        *["tick, measuring", "watch stops", "tick, closing", "sessions leave"],
    ]
    again = SECOND.replace("s2-r1", "s1-r2")
    assert events == [
        *["server claimed", "planned", "commands contained", "environment stored", "opened"],
        *["host revived", "settings put back", *warm_up, *MEASUREMENT, f"save {FIRST}", f"shown {FIRST}"],
        *["host revived", *MEASUREMENT, f"save {again}", f"shown {again}"],
        *WHOLE_END[1:],
    ]


# Phases.

CALM, SPIKE = "0001-lio-calm-s1-20ps-r1", "0002-lio-spike-s1-40ps-r1"
PHASES = [
    *[*BEGIN, "host revived", "settings put back", *BEFORE],
    *["tick, connecting", "connect", "memory of processes", "watch opens", "watch starts", "barrier"],
    *["settling", "tick, settling", "in the window", "counters, t0", "tick, measuring"],
    *["watch opens", "watch starts", "counters, t1", "watch stops"],
    *["counters, t1", "tick, last calls", "watch stops"],
    *["tick, closing", "memory of processes", "sessions leave", "tables of phase 1", "tables of phase 2"],
    *[*AFTER, f"save {CALM}", f"shown {CALM}", f"save {SPIKE}", f"shown {SPIKE}"],
]


def run_phases(recording: Recording, faults: dict[str, Fault]) -> Events:
    phases = [{"name": "calm", "duration": "2s", "rate": 20}, {"name": "spike", "duration": "2s", "rate": 40}]
    plan = run_plan(sessions="1", measure="10s", phases=phases)
    return recording.run(plan, RecordedServer(Events(faults), virtual=False, phased=True))


def test_phases_share_one_measurement_and_are_saved_one_by_one(recording: Recording) -> None:
    end = ["run complete", f"derived {CALM}", "conclusions stored", "server closed"]
    assert run_phases(recording, {}) == [*PHASES, *end]
    assert recording.stored() == {CALM: "ok", SPIKE: "ok"}


@pytest.mark.parametrize(
    ("at", "fault", "meanwhile"),
    [
        ("connect", GONE, ["load aborted"]),
        ("memory of processes", RuntimeError("a defect"), ["load aborted"]),
        ("watch opens", GONE, ["load aborted"]),
        ("in the window", GONE, ["watch stops", "load aborted"]),
        ("tick, last calls", RuntimeError("a defect"), ["watch stops", "load aborted"]),
        ("sessions leave", GONE, ["load aborted"]),
        ("snapshot#2", StoreError("not written"), []),
        (f"save {CALM}", StoreError("not written"), []),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_in_a_phase_keeps_none(
    recording: Recording, at: str, fault: BaseException, meanwhile: list[str]
) -> None:
    foreseen = isinstance(fault, DbdynoError)
    end = ["run discarded" if foreseen else "run cut short", "server closed"]
    assert run_phases(recording, {at: fault}) == [*PHASES[: place(PHASES, at) + 1], *meanwhile, *end]
    assert recording.raised is fault


def test_a_fault_between_two_phases_keeps_those_that_are_saved(recording: Recording) -> None:
    at = f"save {SPIKE}"
    events = run_phases(recording, {at: StoreError("not written")})
    end = ["run cut short", f"derived {CALM}", "conclusions stored", "server closed"]
    assert events == [*PHASES[: place(PHASES, at) + 1], *end]
    assert recording.stored() == {CALM: "ok"}


# An observation.

WINDOW_1, WINDOW_2 = "0001-observed-base-s0-r1", "0002-observed-base-s0-r2"
TRIGGER = ["snapshot of a trigger", "connection of a trigger closed", "noted: trigger 1"]
OBSERVATION = [
    *["planned", "environment stored", "opened", "snapshot", "watch opens", "watch starts"],
    *["tick, observing", "counters, t0", *TRIGGER, "noted: snapshot of trigger 1 has ended"],
    *["watch opens", "watch starts", "counters, t1", "watch stops"],
    *[f"save {WINDOW_1}", f"derived {WINDOW_1}", f"shown {WINDOW_1}", "snapshot"],
    *["counters, t1", "watch stops", "snapshot"],
    *[f"save {WINDOW_2}", f"derived {WINDOW_2}", f"shown {WINDOW_2}"],
]


def run_observation(
    recording: Recording, faults: dict[str, Fault], interrupt: Interrupt | None = None
) -> Events:
    triggers = ({"when": "sessions >= 1", "do": "snapshot"},)
    asked = {"engine": "fake", "snapshots": True, "triggers": triggers}
    experiment = conduct.observation_of(asked, duration="10s", window="5s")
    plan = conduct.observation_plan(experiment, observe.host())
    return recording.observation(plan, RecordedServer(Events(faults)), interrupt)


def test_the_events_of_an_observation_are_in_order(recording: Recording) -> None:
    events = run_observation(recording, {})
    assert events == [*OBSERVATION, "run complete", "conclusions stored", "server closed"]
    assert recording.stored() == {WINDOW_1: "ok", WINDOW_2: "ok"}


@pytest.mark.parametrize(
    ("at", "fault", "meanwhile", "windows"),
    [
        ("snapshot", StoreError("not written"), [], ()),
        ("watch opens", GONE, [], ()),
        ("tick, observing", RuntimeError("a defect"), ["watch stops"], ()),
        (f"save {WINDOW_1}", StoreFull("no space"), ["watch stops"], ()),
        (f"shown {WINDOW_1}", RuntimeError("a defect"), ["watch stops"], (WINDOW_1,)),
        ("snapshot#2", StoreError("not written"), ["watch stops"], (WINDOW_1,)),
        ("snapshot#3", StoreError("not written"), [], (WINDOW_1,)),
        (f"save {WINDOW_2}", StoreError("not written"), [], (WINDOW_1,)),
        (f"shown {WINDOW_2}", StoreError("not written"), [], (WINDOW_1, WINDOW_2)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_in_an_observation_keeps_the_windows_before(
    recording: Recording, at: str, fault: BaseException, meanwhile: list[str], windows: tuple[str, ...]
) -> None:
    events = run_observation(recording, {at: fault})
    foreseen = isinstance(fault, DbdynoError)
    end = ["run cut short" if windows or not foreseen else "run discarded"]
    end += ["conclusions stored"] if windows and foreseen else []
    assert events == [*OBSERVATION[: place(OBSERVATION, at) + 1], *meanwhile, *end, "server closed"]
    assert recording.raised is (None if windows and foreseen else fault)
    assert not windows or tuple(recording.stored()) == windows


def test_an_end_that_is_asked_for_in_the_first_second_of_an_observation_keeps_nothing(
    recording: Recording,
) -> None:
    interrupt = Interrupt()
    events = run_observation(recording, {"snapshot of a trigger": interrupt.request}, interrupt)
    until = OBSERVATION[: place(OBSERVATION, "connection of a trigger closed") + 1]
    end = ["noted: snapshot of trigger 1 has ended", "run discarded", "server closed"]
    assert events == [*until, "noted: trigger 1", "counters, t1", "watch stops", *end]
