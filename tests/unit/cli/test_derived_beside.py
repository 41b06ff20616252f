"""Cells are derived while the next ones are measured. Each is derived once and stored."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from polars.testing import assert_frame_equal
from tests.fakery import WITH_ENGINES, Climb, climb
from tests.unit.conduct.test_observe_conduct import LAW, RecordingListener, plan_of
from tests.unit.observe.test_plan import LIO

from dbdyno import conduct, observe
from dbdyno.cli import screen
from dbdyno.cli.observe import _end
from dbdyno.conduct.derive.derive import Part
from dbdyno.conduct.derive.deriving import Deriving, deriving, finish
from dbdyno.conduct.derive.rebuild import derived_anew
from dbdyno.conduct.measure.observed import Cost
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Progress, Target
from dbdyno.model.errors import Interrupted
from dbdyno.model.plan.plan import Experiment
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.plan import resolve
from dbdyno.store import Parts, Run, RunStore

pytestmark = pytest.mark.whole

PATIENCE_S = 120.0


@pytest.fixture
def derived_ids(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists the ids of cells, each time they are derived."""
    derived_cells: list[str] = []
    derive = sys.modules["dbdyno.conduct.derive.derive"]  # the package has a function of this name
    real = derive.part_of

    def part_of(cells: list[RawCell], *rest: object) -> Part:
        derived_cells.extend(c.id for c in cells)
        part: Part = real(cells, *rest)
        return part

    monkeypatch.setattr(derive, "part_of", part_of)
    return derived_cells


class Saved(RecordingListener):
    """Counts the stored parts at each saved window."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.parts: list[int] = []
        self._store = store

    def saved(self, window: RawCell) -> None:  # noqa: ARG002
        self.parts.append(len(RunStore(self._store).open("last").parts.names()))


def run_observation(store: Path, listener: RecordingListener) -> Run:
    plan = plan_of(duration="30s")
    return conduct.observe_server(
        plan, conduct.RunContext(observe.host(), Target(dsn=LAW), RunStore(store), listener, Interrupt())
    ).record


@pytest.fixture(scope="module")
def observation_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one observation, derived window by window."""
    return run_observation(tmp_path_factory.mktemp("watched"), RecordingListener()).path.parent


@pytest.fixture
def observed_run(observation_store: Path, tmp_path: Path) -> Run:
    """A copy of the observed run."""
    return RunStore(shutil.copytree(observation_store, tmp_path / "store")).open("last")


def assert_same(some: Results, others: Results) -> None:
    assert some.findings == others.findings
    assert some.answers == others.answers
    for name in others.tables:
        assert_frame_equal(some.whole(name), others.whole(name), check_row_order=False)


def test_each_window_is_derived_when_it_is_saved_and_none_again(
    tmp_path: Path, derived_ids: list[str]
) -> None:
    listener = Saved(tmp_path)
    run = run_observation(tmp_path, listener)
    assert listener.parts == [1, 2, 3]
    assert derived_ids == run.cells() == run.parts.names()
    conduct.reported(run, conduct.results_of(run))
    assert derived_ids == run.cells()
    assert_same(conduct.results_of(run), derived_anew(run))


def test_parts_that_a_killed_program_derived_are_used_and_the_rest_is_derived(
    observed_run: Run, derived_ids: list[str]
) -> None:
    run = observed_run
    before = conduct.results_of(run)
    last = run.cells()[-1]
    shutil.rmtree(run.path / "derived")
    shutil.rmtree(run.parts.path / last)
    derived_ids.clear()
    notices: list[str] = []
    assert_same(conduct.results_of(run, notices.append), before)
    assert derived_ids == [last]
    assert run.id in notices[0]
    assert_same(conduct.results_of(run, notices.append), before)  # now read from the store
    assert derived_ids == [last]


def test_parts_that_answer_other_questions_are_made_anew(observed_run: Run, derived_ids: list[str]) -> None:
    run = observed_run
    before = conduct.results_of(run)
    shutil.rmtree(run.path / "derived")
    (run.parts.path / run.cells()[1] / "part.json").write_text('{"format": 0}')
    derived_ids.clear()
    assert_same(conduct.results_of(run), before)
    assert derived_ids == run.cells()


def test_rebuild_makes_all_parts_anew_in_place_of_those_there(
    observed_run: Run, derived_ids: list[str]
) -> None:
    run = observed_run
    before = conduct.results_of(run)
    derived_ids.clear()
    results, _ = conduct.rebuild(run)
    assert derived_ids == run.cells()
    assert_same(results, before)
    assert sorted(p.name for p in run.path.iterdir() if p.name.startswith(".")) == []


def test_parts_of_a_long_run_are_merged_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive = sys.modules["dbdyno.conduct.derive.derive"]
    monkeypatch.setattr(derive, "TOGETHER", 2)
    reads: list[str] = []
    real = Parts._documents
    monkeypatch.setattr(Parts, "_documents", lambda self: [reads.append("parts"), real(self)][1])
    plan = plan_of(duration="50s")
    run = conduct.observe_server(
        plan,
        conduct.RunContext(
            observe.host(), Target(dsn=LAW), RunStore(tmp_path), RecordingListener(), Interrupt()
        ),
    ).record
    cells = run.cells()
    assert len(cells) == 5
    assert run.parts.names() == [cells[0], cells[2], cells[4]]
    assert reads == []
    stored, anew = conduct.results_of(run), derived_anew(run)
    assert_same(stored, anew)
    for cell in cells:
        assert_frame_equal(
            stored.of_cell("strips", cell), anew.of_cell("strips", cell), check_row_order=False
        )


def test_a_part_left_behind_by_an_interrupted_merge_is_not_counted_twice(
    tmp_path: Path, derived_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["dbdyno.conduct.derive.derive"], "TOGETHER", 2)
    run = run_observation(tmp_path, RecordingListener())
    before, names = conduct.results_of(run), run.cells()
    assert run.parts.names() == [names[0], names[2]]
    shutil.copytree(run.parts.path / names[2], run.parts.path / names[1])
    shutil.rmtree(run.path / "derived")
    derived_ids.clear()
    assert_same(conduct.results_of(run), before)
    assert derived_ids == [] and run.parts.names() == [names[0], names[2]]


def test_rows_of_one_cell_are_those_of_the_whole(observed_run: Run) -> None:
    run = observed_run
    results, anew = conduct.results_of(run), derived_anew(run)
    for table in ("ledger", "events", "microstates", "strips"):
        for cell in run.cells():
            assert_frame_equal(results.of_cell(table, cell), anew.of_cell(table, cell), check_row_order=False)


@pytest.fixture(scope="module")
def climbed() -> Climb:
    return climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (1, 2))


@pytest.fixture
def run(climbed: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTHONPATH", WITH_ENGINES)
    record = RunStore(tmp_path).create(climbed.plan)
    record.write_environment(climbed.environment)
    return record


def derive_beside(run: Run) -> Deriving:
    """Derives the run in another process, as for a server with the machine's clock."""
    from dbdyno.conduct.derive.deriving import _Beside

    return _Beside(run)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("each_s", "asked_at"), [(0.05, [1, 5, 9]), (0.4, [1, 4, 7, 10]), (1.5, list(range(1, 11)))]
)
def test_cells_that_are_soon_derived_wait_for_others(
    each_s: float, asked_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbdyno.conduct.derive import deriving

    clock_s, saved, done = 0.0, 0, 0
    asked: list[int] = []
    monkeypatch.setattr(deriving, "time", SimpleNamespace(process_time=lambda: clock_s))

    def lines() -> Iterator[str]:
        nonlocal saved
        for saved in range(1, 11):  # noqa: B007
            yield "\n"

    def derive() -> None:
        nonlocal clock_s, done
        asked.append(saved)
        clock_s += each_s * (saved - done)
        done = saved

    deriving.derive_each(lines(), derive)
    assert asked == asked_at
    clock_s, saved, done = 0.0, 0, 0
    asked.clear()
    deriving.derive_each(lines(), derive, together=1)
    assert asked == list(range(1, 11)), "figures that are served are wanted soon"


@pytest.mark.parametrize(
    ("window", "together"), [("1s", 4), ("10s", 4), ("15s", 2), ("30s", 1), ("10min", 1)]
)
def test_windows_whose_figures_are_served_do_not_wait_long_for_others(window: str, together: int) -> None:
    from dbdyno.conduct.derive.deriving import LAG_NS, _together_within

    experiment = conduct.observation_of({"engine": "fake"}, window=window)
    assert _together_within(conduct.observation_plan(experiment, observe.host()), LAG_NS) == together


def test_a_process_beside_derives_cells_and_concludes(climbed: Climb, run: Run) -> None:
    derived = derive_beside(run)
    try:
        pids = {task["pid"] for task in derived.tasks()}
        assert {task["role"] for task in derived.tasks()} == {"dbdyno"} and os.getpid() not in pids
        for cell in climbed.cells:
            run.write_cell(cell)
            derived.more()
            wait_until(lambda: run.parts.names()[:1] == [climbed.cells[0].id])
        assert derived.cpu_s() > 0
        derived.finish(print)
    finally:
        derived.close()
    run.finish("complete")
    stored, anew = conduct.results_of(run), derived_anew(run)
    assert_same(stored, anew)
    assert [s.fits for s in stored.scaling] == [s.fits for s in anew.scaling]


def test_cells_that_are_not_derived_in_time_are_derived_when_the_run_is_shown_first(
    climbed: Climb, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cells derived in time are used; the results equal those of a run derived at its end."""
    derived = derive_beside(run)
    try:
        run.write_cell(climbed.cells[0])
        derived.more()
        wait_until(lambda: bool(run.parts.names()))
        for cell in climbed.cells[1:]:
            run.write_cell(cell)
        assert not finish(derived, run, print, patience_s=0.0)
        assert derived.tasks() == [], "it has ended"
    finally:
        derived.close()
    run.finish("complete")
    assert run.read_derived() is None
    options = {"as_json": False, "output": None}
    _end(conduct.Observed(run, Cost(0.0, None, None), derived=False), options, Interrupt())
    assert f"dbdyno show {run.id}" in " ".join(capsys.readouterr().out.split())
    notices: list[str] = []
    results = conduct.results_of(run, notices.append)
    assert run.id in notices[0]
    assert_same(results, derived_anew(run))
    notices.clear()
    assert_same(conduct.results_of(run, notices.append), results)
    assert notices == [], "once"


def test_the_deriving_process_stands_still_while_a_cell_is_measured(run: Run) -> None:
    derived = derive_beside(run)
    pid = derived.tasks()[0]["pid"]

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    try:
        tick = derived.resting_while_measured(lambda *_: None)
        tick("measuring", 0.0, Progress(0, 0, 0, 0), {})
        wait_until(lambda: state() == "T")
        tick("last calls", 0.0, Progress(0, 0, 0, 0), {})
        wait_until(lambda: state() != "T")
    finally:
        derived.close()


def test_what_a_deriving_process_that_died_left_is_derived_at_the_end(climbed: Climb, run: Run) -> None:
    derived = derive_beside(run)
    try:
        for cell in climbed.cells:
            run.write_cell(cell)
        os.kill(derived.tasks()[0]["pid"], signal.SIGKILL)
        derived.more()
        derived.finish(print)
    finally:
        derived.close()
    run.finish("complete")
    assert_same(conduct.results_of(run), derived_anew(run))


def test_an_engine_with_a_clock_of_its_own_is_derived_in_this_process(run: Run) -> None:
    with open_server("fake", Target(dsn=LAW)) as server, deriving(run, server) as derived:
        assert derived.tasks() == []


@pytest.mark.parametrize(
    ("options", "is_beside"),
    [
        ({"sessions": "1,2"}, False),
        ({"sessions": "1:3"}, True),
        ({"sessions": "1:3", "measure": "5s"}, False),
        ({"sessions": "1:6", "measure": "1s"}, True),
        ({"sessions": "1", "repeats": 3}, True),
        ({"sessions": "1", "until": "5%"}, True),  # the number of repeats is open
        ({"sessions": "auto:2"}, True),
    ],
)
def test_a_process_beside_is_started_where_it_can_have_something_to_do(
    options: dict[str, Any], is_beside: bool, climbed: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Deriving.__module__], "_alone", [])  # as in a program that a user starts
    plan = resolve(Experiment(engine="fake", workload="lio", **options), LIO, 2, "")
    record = RunStore(tmp_path).create(plan)
    record.write_environment(climbed.environment)
    with deriving(record, mock.Mock(world=None)) as derived:
        assert bool(derived.tasks()) == is_beside


@pytest.mark.parametrize(
    ("chosen", "is_beside"),
    [
        ({"duration": "15s", "window": "5s"}, False),
        ({"duration": "20s", "window": "10s"}, True),
        ({"duration": "6s", "window": "1s"}, True),
        ({}, True),
    ],
)
def test_a_brief_observation_is_derived_at_its_end(
    chosen: dict[str, Any], is_beside: bool, climbed: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Deriving.__module__], "_alone", [])
    record = RunStore(tmp_path).create(plan_of(**chosen))
    record.write_environment(climbed.environment)
    with deriving(record, mock.Mock(world=None)) as derived:
        assert bool(derived.tasks()) == is_beside


def test_an_interrupt_while_waiting_for_results_says_that_the_measurements_are_kept(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_server("fake", Target(dsn=LAW)) as server, deriving(run, server) as derived:
        derived.finish = mock.Mock(side_effect=Interrupted)  # type: ignore[method-assign]
        with pytest.raises(Interrupted) as end:
            finish(derived, run, lambda _: None)
    assert end.value.kept == run.id
    screen.report_stop(end.value, "anything was measured")
    assert f"dbdyno show {run.id}" in capsys.readouterr().err
