"""Snapshots at the start and end of measurements give each rung its growth and change no figure."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tests.fake_engine import FakeServer
from tests.fake_engine.snapshots import PER_CALL
from tests.unit.cli.test_cli_observe import LAW
from tests.unit.conduct.test_observe_conduct import RecordingListener, plan_of

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.conduct.measure.cell import clock_of
from dbdyno.conduct.measure.measurement_snapshots import COST, MeasurementSnapshots, measured
from dbdyno.conduct.measure.saving import Measurements, save_each
from dbdyno.conduct.observe.windows import ObservationSetting, Windows
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Target
from dbdyno.model.engine.snapshot import ServerCache, Snapshot
from dbdyno.model.errors import ServerLost, UsageError
from dbdyno.model.plan.plan import Plan
from dbdyno.store import Run, RunStore, SnapshotStore

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("pages_unwritten")]

FAKE = ("--engine", "fake", "--dsn", "fake:cpus=2,cpu=10ms", "--measure", "5s", "--call-target", "10ms")


def run_ladder(root: Path, *more: str) -> Run:
    words = ["run", "lio", *FAKE, "--sessions", "1,4", "--store", str(root), *more]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return RunStore(root).open("last")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_ladder(tmp_path_factory.mktemp("store"), "--snapshots")


def test_each_measurement_has_a_snapshot_at_its_start_and_at_its_end(run: Run) -> None:
    infos = SnapshotStore(run.path).list()
    assert [(i.cell, i.phase) for i in infos] == [(c, p) for c in run.cells() for p in ("start", "end")]
    assert {i.run for i in infos} == {run.id}
    for cell in run.cells():
        sources = run.read_cell(cell).tables["sources"]
        assert sources.filter(pl.col("name") == "snapshots")["status"].to_list() == ["ok"]


def test_the_growth_of_a_measurement_is_that_of_all_its_calls(run: Run) -> None:
    for cell in run.cells():
        growth, covered, notes = measured(run, cell)
        calls = run.read_cell(cell).tables["sessions"]["calls_total"].sum()
        row = growth.relations.filter(pl.col("name").str.ends_with("orders")).to_dicts()[0]
        assert row["rows_inserted"] >= PER_CALL["rows_inserted"] * calls > 0
        assert (covered, notes) == ([cell], [])


def test_snapshots_change_no_figure_of_a_rung(run: Run, tmp_path: Path) -> None:
    without = run_ladder(tmp_path, "--no-snapshots")
    assert not (without.path / "snapshots").exists()
    own, other = (r.read_table("rungs") for r in (run, without))
    assert own is not None
    assert other is not None
    assert own.equals(other)
    line = without.read_cell(without.cells()[0]).tables["sources"].filter(pl.col("name") == "snapshots")
    assert line["status"].to_list() == ["off"]
    with pytest.raises(UsageError, match="switched off"):
        measured(without, without.cells()[0])


def test_the_plan_s_expected_time_holds_that_of_snapshots() -> None:
    def expected_ns(word: str) -> int:
        words = ["run", "lio", "--sessions", "1,2", "--dry-run", "--json", word]
        return int(json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)["expected_ns"])

    assert expected_ns("--snapshots") - expected_ns("--no-snapshots") == 4 * 250_000_000


class Slow(FakeServer):
    """Takes ``took_s`` of its clock for a snapshot, or refuses it."""

    took_s, refused = 0.0, False

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        if self.refused:
            raise ServerLost("taking a snapshot: terminating connection", "see the log")
        clock_of(self).sleep(self.took_s)
        return super().snapshot(name, databases, known)


def windows_of(server: FakeServer, plan: Plan, snapshots: MeasurementSnapshots) -> Measurements:
    return Windows(
        ObservationSetting(server, plan, clock_of(server), RecordingListener(), Interrupt()), snapshots
    ).all()


def run_observation(root: Path, took_s: float, seconds: int, refused: bool = False) -> tuple[Run, Plan]:
    plan = plan_of(duration=f"{seconds}s", window="10s")
    plan = plan.model_copy(update={"experiment": plan.experiment.model_copy(update={"snapshots": True})})
    server = Slow(Target(dsn=LAW))
    server.took_s, server.refused = took_s, refused
    record, clock = RunStore(root).create(plan), clock_of(server)
    snapshots = MeasurementSnapshots(server, plan, record, clock, observing=True)
    save_each(windows_of(server, plan, snapshots), snapshots, record)
    return record, plan


class Small(FakeServer):
    """Has a cache that is smaller than each table."""

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        taken = super().snapshot(name, databases, known)
        cache = ServerCache(cache_bytes=4, block_bytes=1, scan_bytes=0)
        return replace(taken, info=taken.info.model_copy(update={"cache": cache}))


def test_scans_of_large_tables_are_kept_with_each_window_the_last_one_too(tmp_path: Path) -> None:
    plan = plan_of(duration="40s", window="10s")
    plan = plan.model_copy(update={"experiment": plan.experiment.model_copy(update={"snapshots": True})})
    server = Small(Target(dsn=LAW))
    record, clock = RunStore(tmp_path).create(plan), clock_of(server)
    snapshots = MeasurementSnapshots(server, plan, record, clock, observing=True)
    save_each(windows_of(server, plan, snapshots), snapshots, record)
    tables = [record.read_cell(cell).tables["large_scans"] for cell in record.cells()]
    assert [t.height for t in tables] == [0, 1, 1, 2]  # one per window but the first, one more at the end
    *_, before, last = (SnapshotStore(record.path).read(i).tables for i in SnapshotStore(record.path).list())
    ends = [t["relations"].filter(pl.col("relation") == "orders")["table_bytes"][0] for t in (before, last)]
    assert tables[-1]["table_bytes"].to_list() == ends


def test_the_end_of_a_window_is_the_start_of_the_next(tmp_path: Path) -> None:
    record, _ = run_observation(tmp_path, 0.0, 30)
    cells = record.cells()
    assert len(cells) == 3
    infos = SnapshotStore(record.path).list()
    assert [(i.cell, i.phase) for i in infos] == [(cells[0], "start"), *((c, "end") for c in cells)]
    assert measured(record, cells[1])[1] == [cells[1]]


def test_snapshots_between_windows_are_taken_as_often_as_their_cost_allows(tmp_path: Path) -> None:
    record, _ = run_observation(tmp_path, 0.35, 80)
    cells, infos = record.cells(), SnapshotStore(record.path).list()
    assert len(cells) == 8
    inner = infos[1:-1]
    assert 1 <= len(inner) <= 80 * COST / 0.35
    for a, b in pairwise(infos[:-1]):
        assert (b.taken - a.taken).total_seconds() >= 0.35 / COST
    growth, covered, notes = measured(record, cells[1])
    assert cells[1] in covered
    assert len(covered) > 1
    assert len(notes) == 1
    assert growth.interval.seconds >= 10 * len(covered)


def test_a_snapshot_that_cannot_be_taken_is_a_status(tmp_path: Path) -> None:
    record, _ = run_observation(tmp_path, 0.0, 20, refused=True)
    line = record.read_cell(record.cells()[0]).tables["sources"].filter(pl.col("name") == "snapshots")
    assert line.select("status", "detail").rows() == [("lost", "taking a snapshot: terminating connection")]
    with pytest.raises(UsageError, match="terminating connection"):
        measured(record, record.cells()[0])


def test_the_report_of_a_measurement_has_its_time_model(run: Run) -> None:
    words = ["report", run.id, "--sessions", "4", "--store", str(run.path.parent)]
    record = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert (record["first"]["cell"], record["last"]["cell"]) == (run.cells()[1],) * 2
    time = record["time_model"]
    assert (time["runs"], time["windows"]) == ([run.id], 1)
    assert time["covered_s"] == pytest.approx(5.0, rel=0.01)
    profile = run.read_table("profile")
    assert profile is not None
    db_time = profile.filter((pl.col("cell") == run.cells()[1]) & (pl.col("name") == "DB time"))
    assert time["db_time_s"] == pytest.approx(db_time["total"][0])
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "Time model" in result.stdout


def test_the_time_model_of_an_interval_is_that_of_the_windows_inside(tmp_path: Path) -> None:
    words = ["observe", "--engine", "fake", "--dsn", LAW, "--for", "30s", "--store", str(tmp_path)]
    CliRunner().invoke(app, [*words, "--snapshots"], catch_exceptions=False)
    record = RunStore(tmp_path).open("last")
    infos = SnapshotStore(record.path).list()
    windows = record.read_table("windows")
    assert windows is not None
    begun = record.update_info(started_monotonic_ns=windows["t0_ns"].min()).started  # one clock for both
    ends = [infos[0].model_copy(update={"taken": begun + timedelta(seconds=s)}) for s in (-1, 25)]
    time = conduct.time_model(tmp_path, ends[0], ends[1])
    assert time is not None
    assert (time.runs, time.windows) == ((record.id,), 2)
    assert time.covered_s == pytest.approx(20.0)
    assert time.parts["seconds"].sum() > 0
    assert conduct.time_model(tmp_path, ends[0], ends[0].model_copy(update={"server": "other"})) is None


def test_tables_and_indexes_are_shown_per_call_and_unit_of_work(run: Run) -> None:
    words = ["show", run.id, "--objects", "--store", str(run.path.parent)]
    record = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)["objects"]
    assert (record["cell"], record["per"], record["work"]) == (run.cells()[1], "call", "LIO")
    orders = next(t for t in record["tables"] if t["name"].endswith("orders"))
    written = sum(PER_CALL[n] for n in ("rows_inserted", "rows_updated", "rows_deleted"))
    assert orders["rows_written"] == pytest.approx(written, rel=0.2)
    assert orders["blocks_per_work"] > 0
    output = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert "orders" in output
