"""Loads of known truth on a real server: every permitted tier of the ledger agrees with it.

On a busy machine an account may be inconclusive; none is off. A ledger that is broken on purpose is
off.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.conduct import selftest
from dbdyno.model.errors import EXIT_OFF

pytestmark = [pytest.mark.db, pytest.mark.alone]

CASES = ["asleep", "spin-1x", "spin-4x", "quota", "convoy", "blocking", "think", "mixture", "commit", "brief"]
TIERS = {"sampled", "scheduler trace"}


class Found(NamedTuple):
    code: int
    truths: list[dict[str, Any]]
    summary: str

    def of(self, case: str) -> list[dict[str, Any]]:
        return [t for t in self.truths if t["case"] == case]


@pytest.fixture(scope="module")
def all_of_them(server_home: Path) -> Iterator[Found]:  # noqa: ARG001
    done = subprocess.run(
        [sys.executable, "-m", "dbdyno", "selftest", *CASES, "--measure", "1s", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    yield Found(done.returncode, json.loads(done.stdout), done.stderr)


@pytest.mark.parametrize("case", CASES)
def test_the_ledger_says_the_truth(all_of_them: Found, case: str) -> None:
    of = all_of_them.of(case)
    assert not [t for t in of if t["verdict"] == "off"]
    assert {t["tier"] for t in of if t["account"] != "not run"} <= TIERS
    assert all(t["reason"] and t["disturbance"] for t in of if t["verdict"] == "inconclusive")
    if case != "brief":
        assert any(t["account"] in ("unaccounted", "not run") for t in of)


def test_a_selftest_with_nothing_off_succeeds(all_of_them: Found) -> None:
    off = [t for t in all_of_them.truths if t["verdict"] == "off"]
    assert (all_of_them.code, off) == (0, [])
    assert all_of_them.summary.splitlines()


def test_a_ledger_that_is_broken_on_purpose_fails_the_selftest(
    server_home: Path,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of all sleep is lost, and each session's run and run queue are swapped."""
    right = selftest.__globals__["ledger"]

    def wrong(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        swapped = {"run": "runq", "runq": "run"}
        figures = {
            n: pl.when(account="sleep").then(pl.col(n) / 2).otherwise(n) for n in ("aas", "low", "high")
        }
        return right(tables).with_columns(pl.col("account").replace(swapped), **figures)

    monkeypatch.setitem(selftest.__globals__, "ledger", wrong)
    done = CliRunner().invoke(app, ["selftest", "asleep", "quota", "--measure", "1s", "--json"])
    off = {(t["case"], t["account"]) for t in json.loads(done.stdout) if t["verdict"] == "off"}
    assert done.exit_code == EXIT_OFF, done.output
    assert ("asleep", "sleep Timeout/PgSleep") in off
