"""``dbdyno report`` of two snapshots: how they are named, their order, and the file written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.snapshot_cases import NOON, snapshot

from dbdyno.cli.app import app
from dbdyno.conduct import loads_around
from dbdyno.model.errors import NoSuchSnapshot, UsageError
from dbdyno.model.units import NS_PER_S
from dbdyno.present.snapshots import load_chart
from dbdyno.store import SnapshotStore

SHOP = {"database_id": 5, "database": "shop"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    snapshots = SnapshotStore(tmp_path)
    for n, name in enumerate(("before", None, "after")):
        info = {"name": name, "own_transactions": {"shop": 1}}
        snapshots.add(snapshot(600.0 * n, info=info, databases=[{**SHOP, "commits": 1000 * n}]))
    snapshots.add(snapshot(3600, info={"name": "other", "server": "two"}, databases=[SHOP]))
    return tmp_path


def report(store: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["report", *words, "--store", str(store)])


def record(store: Path, *words: str) -> dict[str, Any]:
    return dict(json.loads(report(store, *words, "--json").output))


@pytest.mark.parametrize("words", [("before", "after"), ("before..after",), ("after", "before")])
def test_two_snapshots_are_reported_in_either_order(store: Path, words: tuple[str, ...]) -> None:
    document = record(store, *words)
    assert (document["first"]["name"], document["last"]["name"], document["seconds"]) == (
        "before",
        "after",
        1200,
    )
    (shop, _) = document["load_profile"]
    assert shop["commits"] == 2000 - 2  # without those of the first snapshot and of the one in between
    text = report(store, *words).output
    assert ("other order" in text) is (words[0] == "after")


def test_a_time_means_the_snapshot_nearest_to_it(store: Path) -> None:
    at = f"{NOON.astimezone():%Y-%m-%d %H:%M}"
    assert record(store, at, "last~1")["first"]["name"] == "before"


def test_the_text_begins_with_the_answer(store: Path) -> None:
    lines = report(store, "before", "after").output.splitlines()
    assert lines[0] == "before to after: 2026-11-23 12:00:00 to 12:20:00 UTC, 20 min"
    assert "1,998 transactions" in lines[1] and "(1.67/s)" in lines[1]
    assert any("127.0.0.1:5432" in line for line in lines)


def test_a_page_draws_the_load_around_the_interval_too(tmp_path: Path) -> None:
    """Minutes with 60, 120, 180 ... transactions: 1/s, 2/s, 3/s; the report is on the third and fourth."""
    snapshots = SnapshotStore(tmp_path)
    commits = 0
    for n in range(7):
        commits += 60 * n
        row = {**SHOP, "commits": commits, "active_ns": n * 30 * NS_PER_S}
        snapshots.add(snapshot(60.0 * n, info={"name": f"s{n}"}, databases=[row]))
    snapshots.add(snapshot(400, info={"name": "other", "server": "two"}, databases=[SHOP]))
    infos = {i.name: i for i in snapshots.list()}
    points = loads_around(snapshots, infos["s2"], infos["s4"])
    assert [p.transactions_per_s for p in points] == [1, 2, 3, 4, 5, 6]
    assert [p.active_ns_per_s for p in points] == [NS_PER_S / 2] * 6
    assert [p.reported for p in points] == [False, False, True, True, False, False]
    assert [c.id for c in load_chart.charts(points)] == ["load-transactions", "load-db-time"]
    page = tmp_path / "report.html"
    report(tmp_path, "s2", "s4", "-o", str(page))
    assert "load-transactions" in page.read_text("utf-8")


@pytest.mark.parametrize("ending", ["html", "md", "xlsx", "json"])
def test_a_report_is_written_in_the_form_of_its_ending(store: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"report.{ending}"
    result = report(store, "before", "after", "-o", str(path))
    assert (result.exit_code, result.output.strip()) == (0, f"report: {path}")
    head = {"html": b"<!doctype html>", "md": b"# before to after", "xlsx": b"pk", "json": b"{"}[ending]
    assert path.read_bytes().lower().startswith(head)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("before", "other"), "different servers"), (("after", "after"), "the same snapshot"),
        (("before..",), "two snapshots"), (("a..b..c",), "two snapshots"),
        (("before", "nowhere"), "no snapshot"),
        (("before", "after", "-o", "x.pdf"), "ends in .pdf"), (("last", "--json"), "show last --json"),
    ],
)  # fmt: skip
def test_snapshots_that_cannot_be_reported_are_refused(store: Path, words: tuple[str, ...], why: str) -> None:
    error = report(store, *words).exception
    assert isinstance(error, UsageError | NoSuchSnapshot) and why in f"{error} {error.cure}"


def test_a_clock_that_was_set_back_is_named_or_refused(tmp_path: Path) -> None:
    snapshots = SnapshotStore(tmp_path)
    for at in (0, 600, 300, 900):
        snapshots.add(snapshot(at, info={"name": f"at {at}"}, databases=[SHOP]))
    output = " ".join(report(tmp_path, "at 0", "at 900").output.split())
    assert "The clock was set back after snapshot" in output and "rates are over too short a time" in output
    error = report(tmp_path, "at 600", "at 300").exception
    assert isinstance(error, UsageError) and "set back" in f"{error.cure}"
