"""Paced runs in the list of runs, in trends and compared as machines, and their line of progress."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.fakery import recorded
from tests.unit.conduct.test_paced_fake import paced_climb

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.cli.live import _status_line
from dbdyno.conduct.measure.progress import Tick
from dbdyno.model.engine.protocols import Progress
from dbdyno.model.plan.pacing import Pacing
from dbdyno.model.plan.plan import Cell, Experiment, Plan
from dbdyno.store import RunStore

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paced")
    law = "call=Timeout/PgSleep:20ms"  # two sessions deliver 100 calls/s
    for number, rates in enumerate(([40.0, 80.0, 150.0], [40.0, 80.0, 150.0], [30.0, 60.0]), 1):
        climb = paced_climb(law, rates, sessions=2, measure_s=5, arrivals="constant")
        id = f"2026010{number}-100000-lio-000{number}"
        run = recorded(RunStore(root), replace(climb, info=climb.info.model_copy(update={"id": id})))
        run.finish("complete")
        conduct.rebuild(run)
    return root


def _dbdyno(store: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--store", str(store)])


def _json(store: Path, *words: str) -> Any:
    done = _dbdyno(store, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_highest_rate_that_was_delivered_stands_for_the_peak(store: Path) -> None:
    assert [r["peak"] for r in _json(store, "runs")] == ["80.0/s kept", "80.0/s kept", "60.0/s kept"]


def test_throughput_that_was_set_has_no_history(store: Path) -> None:
    done = _dbdyno(store, "trend")
    assert done.exit_code != 0 and "its throughput was set (--figure p95)" in str(done.exception)


def test_response_times_are_followed_over_runs_of_the_same_rates(store: Path) -> None:
    output = _dbdyno(store, "trend", "--figure", "p95").output
    assert "at 60/s, 2 sessions" in " ".join(output.split())
    assert "other rates: 40/s, 80/s, 150/s" in " ".join(output.split())


def test_machines_are_not_compared_by_rates(store: Path) -> None:
    done = _dbdyno(store, "compare", "--machines", "last~2", "last~1")
    assert done.exit_code != 0 and "paced runs have rates" in str(done.exception)


def test_a_measurement_under_way_says_how_far_it_is_behind() -> None:
    cell = Cell(
        id="x",
        workload="lio",
        variant="base",
        sessions=8,
        repeat=1,
        params={},
        settle_ns=0,
        measure_ns=10**10,
        pacing=Pacing(rate_per_s=500),
    )
    plan = Plan(
        experiment=Experiment(workload="lio"), cpus=2, call_target_ns=None, cells=(cell,), expected_ns=1
    )

    def line(calls: int, waiting: int) -> str:
        before = Tick(cell, 1, "measuring", 4.0, Progress(0, 0, 8, 0), {}, 6.0)
        now = Progress(calls, 0, 8, 0, waiting, 24_000_000 if waiting else 0)
        return _status_line(plan, Tick(cell, 1, "measuring", 5.0, now, {}, 5.0), before, 120).plain

    assert "at 500/s" in line(498, 12)
    assert "498 calls/s, 12 waiting, the first for 24.0 ms" in line(498, 12)
    assert "500 calls/s, none waiting" in line(500, 0)
