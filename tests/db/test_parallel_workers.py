"""Parallel workers that live for a few milliseconds, on a real server: their CPU time is their sessions'."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from tests.db.conftest import Bench

PARALLEL = {
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "parallel_leader_participation": "off",
    "max_parallel_workers_per_gather": "2",
}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("waits", ["exact", "sampled"])
def test_brief_workers_are_in_the_time_of_their_sessions(bench: Bench, waits: str) -> None:
    """Nothing but workers executes the scan, so all CPU time of children that the server's main process has
    waited for is theirs, and that of a call is theirs divided by calls."""
    bench.ask("create table if not exists brief (n int)")
    bench.ask("insert into brief select generate_series(1, 60000)")
    bench.ask("vacuum analyze brief")
    (bench.home / "brief.sql").write_text("select count(*) from brief where n % 7 = 3;\n")
    main = int(Path(bench.ask("show data_directory")[0][0], "postmaster.pid").read_text().split()[0])
    options = " ".join(f"-c {name}={value}" for name, value in PARALLEL.items())
    before_s = _ended_children_s(main)
    run = ("run", "-f", "brief.sql", "--dsn", bench.with_words(options=options), "--sessions", "2")
    done = bench.dbdyno(*run, "--measure", "3s", "--warmup", "0", "--waits", waits)
    after_s = _ended_children_s(main)
    if waits == "exact" and done.returncode != 0:
        assert "scheduler trace" in done.stderr  # not permitted here
        return
    assert done.returncode == 0, done.stderr
    (folder,) = (p for p in (bench.home / "data" / "dbdyno").iterdir() if p.name == bench.last()["run"]["id"])
    calls = pl.read_parquet(folder / "cells" / "*" / "sessions.parquet")["calls_total"].sum()
    rung = pl.read_parquet(folder / "derived" / "rungs.parquet").row(0, named=True)
    truth_s = (after_s - before_s) / calls
    assert rung["run_aas"] / rung["calls_per_s"] == pytest.approx(truth_s, rel=0.25)
    shares = [rung[f"{part}_aas"] for part in ("run", "runq", "sleep", "client")]
    if waits == "exact":
        assert sum(shares) == pytest.approx(rung["tasks_aas"], rel=0.02)
        assert rung["tasks_aas"] > 2.5
    else:
        assert shares[1] is None  # unknown, not that of the sessions alone


def _ended_children_s(pid: int) -> float:
    """Returns the CPU time of ended children: fields 16 and 17 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S
