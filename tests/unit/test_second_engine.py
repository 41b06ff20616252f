"""The seam lets an engine through whose sessions are several processes in turn and a thread of the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fakery import LIO, S, environment_of, info_of
from tests.second_engine import SecondServer

from dbdyno import drive, present
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.scaling.scaled import scalings_of
from dbdyno.conduct.cell import Unit, measure
from dbdyno.conduct.derive import derive
from dbdyno.model.errors import UsageError
from dbdyno.model.ledger_rows import top_level
from dbdyno.model.plan import Cell, Experiment, Plan
from dbdyno.model.protocols import Target, needed
from dbdyno.model.raw import RawCell
from dbdyno.model.results import Results
from dbdyno.model.variant import Variant
from dbdyno.observe.glance import glance

UNIT = Unit(LIO.model_copy(update={"calibrated": False}), None)
SPEEDS = {"base": 1, "fast": 2}


def _cell(number: int, variant: str, sessions: int, repeat: int) -> Cell:
    return Cell(
        id=f"{number:04}-lio-{variant}-s{sessions}-r{repeat}",
        workload="lio",
        variant=variant,
        sessions=sessions,
        repeat=repeat,
        params={"speed": SPEEDS[variant]},
        settle_ns=2 * S,
        measure_ns=10 * S,
    )


@pytest.fixture(scope="module")
def run() -> tuple[Results, list[RawCell]]:
    planned = [
        _cell(number, variant, n, r)
        for number, (r, n, variant) in enumerate(
            ((r, n, v) for r in (1, 2) for n in (1, 4) for v in SPEEDS), 1
        )
    ]
    plan = Plan(
        experiment=Experiment(workload="lio", engine="second", repeats=2),
        cpus=4,
        call_target_ns=None,
        variants=tuple(Variant(name=name, params={"speed": s}) for name, s in SPEEDS.items()),
        cells=tuple(planned),
        expected_ns=1,
    ).sealed()
    server = SecondServer(Target())
    interrupt = drive.Interrupt()
    cells = [measure(server, plan, c, UNIT, interrupt, lambda *_: None) for c in planned]  # type: ignore[arg-type]
    environment = environment_of(FakeServer(Target())).model_copy(
        update={"server": server.facts(), "sources": tuple(server.sources())}
    )
    return derive(info_of(), plan, environment, cells), cells


def test_the_ledger_is_that_of_all_tasks_of_a_session(run: tuple[Results, list[RawCell]]) -> None:
    """A thread (run 0.2, run queue 0.2, Mutex 0.6) and processes in turn (run 0.4, Disk 0.2, Peer 0.4)."""
    results, _ = run
    ledger = results.tables["ledger"].filter(pl.col("cell") == "0003-lio-base-s4-r1")
    rung = {
        (r["account"], r["detail"]): r for r in top_level(ledger).filter(pl.col("scope") == "rung").to_dicts()
    }
    assert rung["run", None]["aas"] == pytest.approx(4 * 0.6, abs=0.01)
    assert rung["runq", None]["aas"] == pytest.approx(4 * 0.2, abs=0.01)
    for account, detail, law in (
        ("sleep", "Mutex/Page", 0.6),
        ("sleep", "Disk/Read", 0.2),
        ("client", None, 0.4),
    ):
        row = rung[account, detail]
        assert row["low"] <= 4 * law <= row["high"]
        assert row["aas"] == pytest.approx(4 * law, rel=0.25)
    assert rung["unaccounted", None]["aas"] == pytest.approx(0, abs=0.05)
    each = ledger.filter((pl.col("scope") == "session") & (pl.col("account") == "run"))
    assert each["aas"].to_list() == [pytest.approx(0.6, abs=0.01)] * 4


def test_every_task_has_its_line_and_its_family(run: tuple[Results, list[RawCell]]) -> None:
    results, _ = run
    lines = results.tables["microstates"].filter(pl.col("cell") == "0003-lio-base-s4-r1")
    assert lines["role"].unique().to_list() == ["session"]
    threads = lines.filter(pl.col("tid") != pl.col("pid"))
    assert sorted(threads["tid"]) == [501, 502, 503, 504]
    assert threads["lock"].to_list() == [pytest.approx(0.6, abs=0.01)] * 4
    processes = lines.filter((pl.col("tid") == pl.col("pid")) & (pl.col("wall_s") > 0.1))
    assert processes.height == 4 * 5


def test_report_and_comparison_work(run: tuple[Results, list[RawCell]], tmp_path: Path) -> None:
    results, _ = run
    compared = compare_variants(results)
    claims = [claim for table in compared.metrics if table.metric == "calls_per_s" for claim in table.claims]
    assert [claim.effect.ratio for claim in claims] == [pytest.approx(2.0)] * 2
    page = present.write_html(replace(results, comparison=compared), tmp_path / "report.html").read_text()
    assert "Second 0.1" in page and "asleep in Mutex" in page and "asleep in Disk" in page
    (scaling, *_) = scalings_of(results)
    assert scaling.ladder.points["throughput"].to_list() == [pytest.approx(v) for v in (10, 10, 40, 40)]


def test_a_live_view_tells_threads_of_one_process_apart(run: tuple[Results, list[RawCell]]) -> None:
    _, cells = run
    cell = next(c for c in cells if c.id == "0003-lio-base-s4-r1")
    seen = glance(cell.tables, cell.meta.wait_families, 10**12)
    assert {s.pid for s in seen.sessions} >= {501, 502, 503, 504}


def test_what_an_engine_has_not_is_said_where_it_is_needed() -> None:
    server = SecondServer(Target())
    with pytest.raises(UsageError, match="this engine has no connection pooler"):
        needed(server.pooling, "connection pooler")
    assert needed(server.world, "world") is server
