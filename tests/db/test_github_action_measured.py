"""The GitHub Action on a real server: a ref whose calls take four times as long fails the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbdyno.model.errors import EXIT_GATE
from tests.db.conftest import QUICK, Bench
from tests.github_runner import Runner, repository

pytestmark = pytest.mark.db


def test_a_slower_ref_fails_and_a_faster_one_passes(bench: Bench, tmp_path: Path) -> None:
    """Sleeps of 50 and 200 ms: throughput at most 0.25 times, since all else takes longer on both sides."""
    words = f"-f {{tree}}/q.sql --sessions 1 --repeats 4 {' '.join(QUICK)}"
    inputs = {"mode": "refs", "run": words, "fail-on": "worse:50%\nmean:worse:100%"}
    runner = Runner(tmp_path, inputs, bench.env)
    repository(runner.workspace, "select pg_sleep(0.05);", "select pg_sleep(0.2);")
    slower = runner.step("measure", base="main", head="slow")
    assert slower.returncode == EXIT_GATE, slower.stdout + slower.stderr
    assert runner.outputs["verdict"] == "failed"
    assert "Gate failed" in runner.summary and "worse:50%" in runner.summary
    assert Path(runner.outputs["report"]).read_text("utf-8").startswith("<!")
    faster = runner.step("measure", base="slow", head="main")
    assert faster.returncode == 0, faster.stdout + faster.stderr
    assert runner.outputs["verdict"] == "passed"
