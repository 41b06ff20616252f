"""Operational laws and far quantiles on a real server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.model.schema.quantiles import QUANTILES
from dbdyno.store import RunStore
from tests.conftest import Servers

pytestmark = pytest.mark.db


@pytest.mark.parametrize("think", ["0s", "10ms"])
def test_littles_law_holds_between_the_drivers_clock_and_the_kernel(
    servers: Servers, tmp_path: Path, think: str
) -> None:
    """A server that sleeps 20 ms a call: N / (20 ms + think) is a bound that no load exceeds."""
    script = tmp_path / "brief.sql"
    script.write_text("select pg_sleep(0.02);\n")
    words = ["--sessions", "1,3", "--measure", "3s", "--settle", "300ms", "--think", think]
    to = ["--dsn", servers.dsn(18), "--store", str(tmp_path)]
    done = CliRunner().invoke(app, ["run", "-f", str(script), *words, *to])
    assert done.exit_code == 0, done.output
    tables, claims, *_ = RunStore(tmp_path).open("last").read_derived()  # type: ignore[misc]
    sessions, calls = (tables["laws"].filter(of=of) for of in ("sessions", "calls in progress"))
    assert sessions["value"].to_list() == pytest.approx([1, 3], rel=0.01)
    # A driver that waits for a CPU comes late: to the next call, and to the answer of the last one.
    assert (sessions["by_law"] <= 1.02 * sessions["value"]).all()
    assert (calls["value"] <= 1.02 * calls["by_law"]).all()
    if think == "0s":
        assert set(sessions["verdict"]) == {"holds"}
    broken = [c.id for c in claims if c.id.startswith("littles-law-violated")]
    assert ("littles-law" in {c.id for c in claims}) != ("violated" in set(tables["laws"]["verdict"]))
    assert not broken or "violated" in set(tables["laws"]["verdict"])
    most_s = 0.02 + (0.01 if think == "10ms" else 0.0)
    for row in tables["bounds"].iter_rows(named=True):
        assert row["verdict"] == "within"
        assert row["waitless_per_s"] <= 1.01 * row["sessions"] / most_s


def test_quantiles_are_those_of_the_single_calls(servers: Servers, tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("select 1;\n")
    words = ["--sessions", "2", "--measure", "3s", "--settle", "300ms", "--log-calls"]
    to = ["--dsn", servers.dsn(18), "--store", str(tmp_path)]
    done = CliRunner().invoke(app, ["run", "-f", str(script), *words, *to])
    assert done.exit_code == 0, done.output
    run = RunStore(tmp_path).open("last")
    (cell,) = run.read_cells()[0]
    calls = cell.tables["calls"].filter(pl.col("measured") & pl.col("ok"))["duration_ns"].to_numpy()
    (rung,) = run.read_derived()[0]["rungs"].to_dicts()  # type: ignore[index]
    known = {q: rung[q.response] for q in QUANTILES if rung[q.response] is not None}
    assert len(known) >= 3 and len(calls) == rung["calls"]
    for quantile, value in known.items():
        exact = float(np.quantile(calls, quantile.q, method="inverted_cdf"))
        assert exact <= value <= 1.001 * exact + 1
