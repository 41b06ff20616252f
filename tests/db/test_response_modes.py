"""Modes of response time on a real server: a lock held at known times is their cause, and nothing else is.

The lock is taken at irregular times, so that nothing with a timer fits. Bounds hold on any machine: a slower
one makes fewer calls, and its other calls may take longer.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import psycopg
import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.conduct.derive.rebuild import conclude
from dbdyno.model.results.results import Results
from dbdyno.store import RunStore
from tests.conftest import Servers
from tests.db.meanwhile import disturbed

pytestmark = pytest.mark.db
HELD_S = 2.0
GAPS_S = (1.1, 4.2, 1.9, 5.3, 2.4, 3.6)
"""Seconds without the lock before each time it is taken."""
SECONDS = 30
PAGES = 100
"""Rows of the table, each on a page of its own."""


def _run(store: Path, dsn: str, *words: str) -> Result:
    script = store / "touch.sql"
    script.write_text("\\set id random(1, 100)\nupdate touched set v = v + 1 where id = :id;\n")
    load = ("--sessions", "12", "--think", "5ms", "--measure", f"{SECONDS}s", "--settle", "500ms")
    return CliRunner().invoke(
        app, ["run", "-f", str(script), "--dsn", dsn, "--store", str(store), *load, *words]
    )


def _results(store: Path) -> Results:
    """Returns the results of the last run, once no call is missing in its heat map."""
    record = RunStore(store).open("last")
    results = conclude(record, lambda _: None)
    calls = sum(cell.tables["sessions"]["calls"].sum() for cell in record.read_cells()[0])
    assert results.tables["response_heat"]["count"].sum() == calls > 0
    return results


@pytest.fixture
def touched(servers: Servers) -> str:
    dsn = servers.dsn(18)
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("drop table if exists touched")
        filled = "filler char(1500) default 'x') with (fillfactor = 20)"
        session.execute(f"create table touched (id int primary key, v int, {filled}".encode())
        session.execute(f"insert into touched select n, 0 from generate_series(1, {PAGES}) n".encode())
        session.execute("vacuum analyze touched")
    return dsn


def test_a_lock_held_at_known_times_is_what_slow_calls_go_with(touched: str, tmp_path: Path) -> None:
    lock = "begin; lock table touched in access exclusive mode"
    steps = [step for gap in GAPS_S for step in ((gap, lock), (HELD_S, "commit"))]
    with disturbed(touched, "update touched", *steps):
        done = _run(tmp_path, touched)
    assert done.exit_code == 0, done.output
    results = _results(tmp_path)
    claim = next(c for c in results.findings if c.id == "response-modes")
    slow = results.tables["response_modes"].sort("mode").row(-1, named=True)
    assert slow["middle_ns"] > HELD_S / 2 * 1e9
    # Each time at most one call of each session waits.
    assert len(GAPS_S) - 2 <= slow["calls"] <= 12 * (len(GAPS_S) + 2)
    goes = results.tables["mode_activities"].filter(pl.col("goes") & (pl.col("mode") == slow["mode"]))
    assert "Lock/relation" in goes["name"].to_list()
    assert "Lock/relation" in claim.text


def test_checkpoints_at_known_times_have_no_wrong_cause(touched: str, tmp_path: Path) -> None:
    """Whether calls are slow meanwhile depends on the disk. If they are, no lock and no driver is named.

    A page is written to WAL as a whole once after each checkpoint, however many calls change it.
    """
    with disturbed(touched, "update touched", *((gap, "checkpoint") for gap in GAPS_S)):
        done = _run(tmp_path, touched)
    assert done.exit_code == 0, done.output
    results = _results(tmp_path)
    activities = results.tables["activity_over_time"]
    assert "checkpoint" in activities["name"].to_list()
    goes = results.tables["mode_activities"].filter("goes")
    assert not set(goes["name"]) & {"Lock/relation", "Lock/tuple", "CPU quota"}
    images = activities.filter(name="full-page images").select(
        pl.col("value") * (pl.col("end_s") - pl.col("start_s"))
    )
    assert PAGES < images.sum().item() < 2 * PAGES * (len(GAPS_S) + 2)
    assert results.tables["response_heat"]["count"].sum() > images.sum().item()
