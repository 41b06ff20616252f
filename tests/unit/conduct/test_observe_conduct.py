"""An observation from plan to stored run, on the fake server in virtual time: windows, faults, endings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.fake_engine import FakeServer

from dbdyno import conduct, observe
from dbdyno.conduct.derive.rebuild import derived_anew
from dbdyno.conduct.measure.cell import clock_of
from dbdyno.conduct.measure.saving import Measurements
from dbdyno.conduct.observe.windows import PATIENCE_NS, ObservationSetting, Windows
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target, Watch
from dbdyno.model.errors import ServerLost, Unreachable, UsageError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.store import RunStore

pytestmark = [pytest.mark.whole, pytest.mark.queries]

S = 1_000_000_000
LAW = "fake:cpus=2,foreign=3,cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms"


class RecordingListener(conduct.NullObservationListener):
    """Records notices; ``at`` maps seconds since the start to an action at that time."""

    def __init__(self, at: dict[float, Callable[[], None]] | None = None) -> None:
        self.notices: list[str] = []
        self._at = at or {}

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def tick(self, look: conduct.Look) -> None:
        for when in [w for w in self._at if look.since_start_s >= w]:
            self._at.pop(when)()


class Busy(FakeServer):
    """Takes 3 s to open a watch, as on a busy machine."""

    def watch(self, spec: Mapping[str, Any]) -> Watch | None:
        clock_of(self).sleep(3)
        return super().watch(spec)


class Stalling(FakeServer):
    """Takes these seconds, in turn, to open a watch, as on a machine that stalls."""

    stalls: list[float]

    def watch(self, spec: Mapping[str, Any]) -> Watch | None:
        if self.stalls:
            clock_of(self).sleep(self.stalls.pop(0))
        opened = super().watch(spec)
        assert opened is not None
        start = opened.start

        def checked(t0_ns: int, t1_ns: int) -> None:
            assert t0_ns <= t1_ns, "the core's watch refuses it"
            start(t0_ns, t1_ns)

        opened.start = checked  # type: ignore[method-assign]
        return opened


class Frail(FakeServer):
    """The fake server with a connection that a test can break, as a restart would."""

    away = False
    attempts = 0

    def watch(self, spec: Mapping[str, Any]) -> Watch | None:
        opened = super().watch(spec)
        assert opened is not None
        opened.trouble = lambda: "connection lost" if self.away else None  # type: ignore[method-assign]
        return opened

    def backends(self) -> pl.DataFrame:
        if self.away:
            raise ServerLost("asking who is connected: terminating connection", "see the log")
        return super().backends()

    def counters(self, phase: str) -> pl.DataFrame:
        if self.away:
            raise ServerLost("reading counters: terminating connection", "see the log")
        return super().counters(phase)

    def reconnect(self) -> None:
        self.attempts += 1
        if self.away:
            raise Unreachable("connection refused", "start it")


def plan_of(**chosen: Any) -> Plan:
    experiment = conduct.observation_of({"engine": "fake"}, **chosen)
    return conduct.observation_plan(experiment, observe.host())


def windows_of(
    server: FakeServer, plan: Plan, listener: RecordingListener, interrupt: Interrupt
) -> list[RawCell]:
    windows = Windows(ObservationSetting(server, plan, clock_of(server), listener, interrupt))
    return [cell for (cell,) in windows.all()]


@pytest.fixture(scope="module")
def cells() -> list[RawCell]:
    """The windows of an observation of 25 s."""
    return windows_of(FakeServer(Target(dsn=LAW)), plan_of(duration="25s"), RecordingListener(), Interrupt())


def test_windows_follow_one_another_without_a_hole_and_fill_the_time(cells: list[RawCell]) -> None:
    assert [c.id for c in cells] == [f"000{n}-observed-base-s0-r{n}" for n in (1, 2, 3)]
    assert [(c.meta.t1_ns - c.meta.t0_ns) // S for c in cells] == [10, 10, 5]
    for before, after in pairwise(cells):
        assert before.meta.t1_ns == after.meta.t0_ns
    assert {c.meta.status for c in cells} == {"ok"}


def test_a_window_begins_when_its_watch_is_open_and_is_as_long_as_asked() -> None:
    server = Busy(Target(dsn=LAW))
    asked_ns = clock_of(server).now_ns()
    (cell,) = windows_of(server, plan_of(duration="5s"), RecordingListener(), Interrupt())
    assert cell.meta.t1_ns - cell.meta.t0_ns == 5 * S
    assert cell.meta.t0_ns - asked_ns == 6 * S, "as long again, as its first reads take long, too"
    reads = cell.tables["tasks"].filter(pl.col("role") == "session")
    assert int(reads["after_ns"].min()) < cell.meta.t0_ns  # type: ignore[arg-type]


@pytest.mark.parametrize("stalls", [[0, 9, 9], [0, 12, 12], [0, 0, 4, 9], [8, 8, 8, 8, 8]])
def test_a_machine_that_stalls_near_the_end_leaves_whole_windows(stalls: list[float]) -> None:
    server = Stalling(Target(dsn=LAW))
    server.stalls = stalls
    cells = windows_of(server, plan_of(duration="25s"), RecordingListener(), Interrupt())
    assert all(c.meta.t1_ns - c.meta.t0_ns >= S for c in cells)
    assert all(a.meta.t1_ns <= b.meta.t0_ns for a, b in pairwise(cells))


def test_a_rest_too_short_for_a_window_belongs_to_the_last_one() -> None:
    cells = windows_of(
        FakeServer(Target(dsn=LAW)), plan_of(duration="10500ms"), RecordingListener(), Interrupt()
    )
    assert [(c.meta.t1_ns - c.meta.t0_ns) / S for c in cells] == [10.5]


def test_sessions_keep_their_numbers_over_all_windows(cells: list[RawCell]) -> None:
    numbers = [
        set(c.tables["tasks"].filter(pl.col("role") == "session").select("pid", "session").iter_rows())
        for c in cells
    ]
    assert len(numbers[0]) == 3
    assert numbers[0] == numbers[1] == numbers[2]


def test_each_window_has_counters_and_backends_of_both_its_ends(cells: list[RawCell]) -> None:
    for cell in cells:
        assert set(cell.tables["counters"]["phase"]) == {"t0", "t1"}
        assert cell.tables["backends"]["at_ns"].n_unique() == 2
        names = set(cell.tables["sources"]["name"])
        assert "driver" not in names  # nothing was driven
        assert {"os tasks", "activity samples", "wait event word", "scheduler trace"} <= names


def test_an_end_that_was_asked_for_keeps_the_window_under_way() -> None:
    interrupt = Interrupt()
    listener = RecordingListener({13.0: interrupt.request})
    cells = windows_of(FakeServer(Target(dsn=LAW)), plan_of(), listener, interrupt)
    assert [(c.meta.status, c.meta.reason) for c in cells] == [("ok", None), ("short", "stopped by the user")]
    assert cells[1].meta.t1_ns - cells[1].meta.t0_ns == pytest.approx(3 * S, abs=S // 4)


def test_a_server_that_comes_back_leaves_a_gap_and_a_short_window() -> None:
    server = Frail(Target(dsn=LAW))
    listener = RecordingListener(
        {14.0: lambda: setattr(server, "away", True), 23.0: lambda: setattr(server, "away", False)}
    )
    cells = windows_of(server, plan_of(duration="40s"), listener, Interrupt())
    first, short, *after = cells
    assert (first.meta.status, short.meta.status) == ("ok", "short")
    assert "went away" in (short.meta.reason or "")
    assert short.meta.t1_ns <= first.meta.t1_ns + 10 * S  # no window covers the time after
    assert after[0].meta.t0_ns - short.meta.t1_ns > S
    assert all(c.meta.status == "ok" for c in after)
    assert any("is away" in n for n in listener.notices)
    assert any("is back" in n and f"attempt {server.attempts}" in n for n in listener.notices)
    assert server.attempts > 1
    assert len([n for n in listener.notices if "trying again" in n]) == 1  # each time for the same reason


def test_a_server_gone_for_good_is_raised_after_patience_and_what_was_measured_is_there() -> None:
    server = Frail(Target(dsn=LAW))
    listener = RecordingListener({14.0: lambda: setattr(server, "away", True)})
    cells_before: list[RawCell] = []
    clock = clock_of(server)
    since_ns = clock.now_ns()
    with pytest.raises(ServerLost, match="was not back"):
        for (cell,) in Windows(ObservationSetting(server, plan_of(), clock, listener, Interrupt())).all():
            cells_before.append(cell)
    assert [c.meta.status for c in cells_before] == ["ok", "short"]
    assert clock.now_ns() - since_ns > PATIENCE_NS


def test_a_filter_that_matches_nobody_is_one_notice_that_names_who_is_connected() -> None:
    listener = RecordingListener()
    cells = windows_of(
        FakeServer(Target(dsn=LAW)), plan_of(duration="20s", user="nobody"), listener, Interrupt()
    )
    assert len(cells) == 2  # the observation goes on
    (notice,) = listener.notices
    assert "no session matches user nobody" in notice
    assert "app@shop x 3" in notice


def run_observation(
    tmp_path: Path, listener: RecordingListener, interrupt: Interrupt, **chosen: Any
) -> conduct.Observed:
    return conduct.observe_server(
        plan_of(**chosen),
        conduct.RunContext(observe.host(), Target(dsn=LAW), RunStore(tmp_path), listener, interrupt),
    )


@pytest.fixture(scope="module")
def observation_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of an observation of 30 s."""
    root = tmp_path_factory.mktemp("stored")
    run_observation(root, RecordingListener(), Interrupt(), duration="30s")
    return root


def test_a_stored_observation_is_complete_and_derives(observation_store: Path, tmp_path: Path) -> None:
    record = RunStore(shutil.copytree(observation_store, tmp_path / "store")).open("last")
    assert record.info.status == "complete"
    results, report = conduct.rebuild(record)
    assert results.tables["windows"].height == 3
    assert report.exists()
    run = results.tables["ledger"].filter((pl.col("scope") == "rung") & (pl.col("account") == "run"))
    assert run["aas"].min() > 0  # type: ignore[operator]
    again = RunStore(tmp_path / "store").open("last")
    assert conduct.results_of(again).tables["windows"].height == 3


def test_an_end_before_the_time_asked_for_is_cut_short_and_without_such_a_time_complete(
    tmp_path: Path,
) -> None:
    for duration, status in (("60s", "cut short"), (None, "complete")):
        interrupt = Interrupt()
        observation = run_observation(
            tmp_path, RecordingListener({6.0: interrupt.request}), interrupt, duration=duration
        )
        assert observation.record.info.status == status


def test_an_end_asked_for_while_the_last_window_is_derived_cuts_nothing_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = Interrupt()
    every = Windows.all

    def asked_for_at_the_end(windows: Windows) -> Measurements:
        yield from every(windows)
        interrupt.request()

    monkeypatch.setattr(Windows, "all", asked_for_at_the_end)
    record = run_observation(tmp_path, RecordingListener(), interrupt, duration="20s").record
    assert (record.info.status, len(record.cells())) == ("complete", 2)


def test_an_observation_stopped_before_its_first_second_is_not_kept(tmp_path: Path) -> None:
    interrupt = Interrupt()
    with pytest.raises(Exception, match="stopped"):
        run_observation(tmp_path, RecordingListener({0.2: interrupt.request}), interrupt)
    assert RunStore(tmp_path).list() == []


@pytest.mark.parametrize(
    "chosen",
    [{"duration": "500ms"}, {"window": "10ms"}, {"window": "x"}, {"pids": (0,)}, {"duration": "-1s"}],
    ids=str,
)
def test_times_and_pids_that_cannot_be_are_refused_with_the_cure(chosen: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as e:
        plan_of(**chosen)
    assert e.value.cure


def test_windows_with_very_many_samples_are_derived_apart_to_the_same_figures(
    observation_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunStore(observation_store).open("last")
    together = derived_anew(record)
    monkeypatch.setattr(sys.modules["dbdyno.conduct.derive.derive"], "MANY_ROWS", 100)
    parts = derived_anew(record)
    for name, frame in together.tables.items():
        assert_frame_equal(parts.tables[name], frame, check_row_order=False)
    assert parts.findings == together.findings
