"""Devices below a real server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.db.conftest import Bench

pytestmark = pytest.mark.db

INSERT = "insert into written select repeat('x', 2000) from generate_series(1, 20);\n"


@pytest.fixture(scope="module")
def written(bench: Bench) -> dict[str, Any]:
    """A ladder of inserts, whose WAL is flushed at each commit."""
    bench.ask("drop table if exists written; create table written (a text)")
    script = bench.home / "insert.sql"
    script.write_text(INSERT)
    words = ("run", "-f", str(script), "--sessions", "1,2", "--measure", "2s", "--settle", "100ms")
    done = bench.here(*words, "--dsn", bench.dsn, "--no-memory", "--no-snapshots")
    assert done.returncode == 0, done.stderr
    return bench.last()


@pytest.fixture(scope="module")
def number(bench: Bench) -> int:
    """The number of the device that the data directory is on."""
    ((directory,),) = bench.ask("show data_directory")
    return Path(directory).stat().st_dev


def test_devices_are_those_of_the_data_directory(written: dict[str, Any], number: int) -> None:
    rows = [r for r in written["device_io"] if r["places"]]
    assert {r["places"] for r in rows} == {"data, WAL, temporary files"}
    assert {"all", *(r["cell"] for r in written["ledger"])} == {r["cell"] for r in rows}
    if os.major(number) == 0:
        assert all(r["device"] is None and r["status"].startswith("no device: ") for r in rows)
        return
    name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
    assert {(r["device"], r["status"], r["counted"]) for r in rows} == {(name, "ok", True)}


def test_the_device_wrote_what_the_server_counted_as_wal(
    bench: Bench, written: dict[str, Any], number: int
) -> None:
    """A lower bound: others write, too, and the server writes pages. The WAL of the last calls may follow."""
    if bench.ask("show fsync") != [("on",)] or os.major(number) == 0:
        pytest.skip("the server's files are in memory, or not flushed: run the tests on a disk")
    for row in written["device_io"]:
        if row["counted"] and row["cell"] != "all":
            profile = [r for r in written["profile"] if r["cell"] == row["cell"] and r["unit"] == "bytes"]
            (wal,) = [r["total"] for r in profile if "WAL" in r["name"]]
            assert wal > 100_000 and row["written_bytes"] > 0.8 * wal
            assert row["writes"] > 0 and row["write_await_ns"] > 0 and 0 < row["utilisation"] <= 1.05


@pytest.mark.usefixtures("written")
def test_screen_and_page_show_them(bench: Bench) -> None:
    shown = bench.here("show", "last", "--devices")
    assert shown.returncode == 0 and "Devices at 2 sessions" in shown.stdout
    page = bench.home / "page.html"
    assert bench.here("report", "last", "-o", str(page)).returncode == 0
    assert "Devices" in page.read_text()
