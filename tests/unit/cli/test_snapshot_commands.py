"""``dbdyno snapshot`` and its subcommands, on the fake engine and on snapshots written by hand."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.fakery import WITH_ENGINES
from tests.unit.made_snapshots import BEGAN, snapshot

from dbdyno.cli.app import app
from dbdyno.cli.snapshot_lines import brief_reasons
from dbdyno.model.engine.snapshot import SINCE
from dbdyno.model.errors import DbdynoError, NoSuchSnapshot, UsageError
from dbdyno.store import SnapshotStore

pytestmark = pytest.mark.whole

TAKE = ("snapshot", "--engine", "fake", "--dsn", "fake:cpus=2")


class Program:
    def __call__(self, *words: str, code: int = 0, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, words, catch_exceptions=False, input=input)
        assert result.exit_code == code, result.output
        return result

    def fails(self, *words: str) -> DbdynoError:
        with pytest.raises(DbdynoError) as e:
            CliRunner().invoke(app, words, catch_exceptions=False)
        return e.value


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    yield Program()


def _listing(run: Program) -> Any:
    return json.loads(run("snapshot", "list", "--json").stdout)


def test_a_snapshot_is_taken_listed_shown_and_removed(run: Program, tmp_path: Path) -> None:
    first = run(*TAKE, "--name", "before the release").stdout.split()[0]
    last = json.loads(run(*TAKE, "--json").stdout)
    assert [s["id"] for s in _listing(run)] == [first, last["id"]]
    assert last["rows"]["relations"] == 2 and "io" in last["missing"]
    assert first in run("snapshot", "list").stdout and "before the release" in run("snapshot", "list").stdout
    info = json.loads(run("snapshot", "show", "before the release", "--json").stdout)
    assert info["id"] == first and info["name"] == "before the release"
    assert "the fake server has no I/O" in run("snapshot", "show", "last").stdout
    assert f"removed {first}" in run("snapshot", "rm", first, "--yes").stdout
    assert [s["id"] for s in _listing(run)] == [last["id"]]
    assert [i.id for i in SnapshotStore(tmp_path).list()] == [last["id"]]


def test_rm_without_yes_removes_nothing(run: Program) -> None:
    first = json.loads(run(*TAKE, "--json").stdout)["id"]
    error = run.fails("snapshot", "rm", first)
    assert isinstance(error, UsageError) and error.cure == "add --yes"
    assert isinstance(run.fails("snapshot", "rm"), UsageError)
    assert [s["id"] for s in _listing(run)] == [first]


def test_prune_removes_the_older_and_a_dry_run_none(run: Program, tmp_path: Path) -> None:
    store, now = SnapshotStore(tmp_path), datetime.now(UTC)
    for hours in (50, 30, 1):
        store.add(snapshot((now - timedelta(hours=hours) - BEGAN).total_seconds() / 60))
    assert isinstance(run.fails("snapshot", "prune", "--keep", "30"), UsageError), "30 s or 30 days?"
    gone = json.loads(run("snapshot", "prune", "--keep", "1d", "--dry-run", "--json").stdout)
    assert (len(gone["removed"]), gone["left"], len(_listing(run))) == (2, 1, 3)
    assert "2 snapshots" in run("snapshot", "prune", "--keep", "1d").stdout
    assert len(_listing(run)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--name", "last"), ("--name", "14:00"), ("--name", "yesterday 14:00"), ("--name", "a\nb"),
        ("--for", "1h"), ("--keep", "1d"), ("--every", "0.1s"), ("--every", "soon"),
        ("--database", "a", "--all-databases"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(run: Program, words: tuple[str, ...]) -> None:
    assert isinstance(run.fails(*TAKE, *words), UsageError)


def test_options_of_taking_one_do_not_stand_before_a_subcommand(run: Program, tmp_path: Path) -> None:
    assert isinstance(run.fails("snapshot", "--name", "x", "list"), UsageError)
    SnapshotStore(tmp_path / "other").add(snapshot())
    assert "db1:5432" in run("snapshot", "--store", str(tmp_path / "other"), "list").stdout
    assert isinstance(run.fails("snapshot", "lst"), UsageError)


def test_gaps_restarts_and_a_clock_that_was_set_back_are_marked(run: Program, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    for minute in (0, 10, 50, 60):
        store.add(snapshot(minute, every_s=600.0))
    store.add(snapshot(70, every_s=600.0, started=BEGAN + timedelta(minutes=65)))
    store.add(snapshot(30))
    remarks = [s["remark"] for s in _listing(run)]
    assert [bool(r) for r in remarks] == [False, False, True, False, True, True]
    assert "gap" in remarks[2] and "restarted" in remarks[4] and "clock" in remarks[5]


def test_names_that_are_hostile_stay_on_their_line(run: Program, tmp_path: Path) -> None:
    SnapshotStore(tmp_path).add(snapshot(name="a\nb\x1b[31m", address="x\ny"))
    lines = run("snapshot", "list").stdout.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in run("snapshot", "show").stdout


def test_without_a_snapshot_the_error_names_those_there_are(run: Program, tmp_path: Path) -> None:
    assert "no snapshots" in run("snapshot", "list").stdout
    assert isinstance(run.fails("snapshot", "show"), NoSuchSnapshot)
    SnapshotStore(tmp_path).add(snapshot(name="before"))
    error = run.fails("snapshot", "show", "befor")
    assert isinstance(error, NoSuchSnapshot) and "before" in str(error.cure)


def _series(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    around = {**os.environ, "DBDYNO_STORE": str(tmp_path), "PYTHONPATH": WITH_ENGINES}
    return subprocess.Popen(
        [sys.executable, "-m", "dbdyno", *TAKE, *words],
        env=around,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("sign", "words", "code"),
    [
        (signal.SIGINT, (), 0),
        (signal.SIGTERM, (), 0),
        (signal.SIGTERM, ("--for", "1h"), 130),
        (signal.SIGKILL, (), -9),
    ],
)
def test_a_series_goes_on_until_it_is_stopped(
    sign: signal.Signals, words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    with _series(tmp_path, "--every", "1s", "--json", *words) as program:
        assert program.stdout is not None
        ids = [json.loads(program.stdout.readline())["id"] for _ in range(2)]
        program.send_signal(sign)
        program.communicate(timeout=60)
    assert program.returncode == code
    infos = SnapshotStore(tmp_path).list()
    assert [i.id for i in infos][:2] == ids and infos[0].every_s == 1
    SnapshotStore(tmp_path).add(snapshot())
    assert not [p for p in (tmp_path / "snapshots").iterdir() if p.name.startswith(".tmp")]


def test_a_series_ends_when_its_time_is_over_and_keeps_what_is_young(
    run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted_s, now_s = time.monotonic(), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now_s() - booted_s)  # as on a machine just started
    SnapshotStore(tmp_path).add(snapshot(-(10**6)))
    output = run(*TAKE, "--every", "1s", "--for", "2s", "--keep", "1h").stdout
    lines = [line for line in output.splitlines() if re.match(r"\d{8}-", line)]
    assert len(lines) >= 1
    store = SnapshotStore(tmp_path)
    assert BEGAN - timedelta(minutes=10**6) not in [i.taken for i in store.list()]


@pytest.mark.usefixtures("run")
def test_ids_and_names_are_completed(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    ids = [store.add(snapshot(minute, name=name)).id for minute, name in ((0, "before"), (5, None))]
    around = {"_DBDYNO_COMPLETE": "bash_complete", "COMP_WORDS": "dbdyno snapshot show ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "dbdyno"], env=os.environ | around, capture_output=True, text=True, check=True
    )
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == ["last", "before", *reversed(ids)]


def test_what_a_new_snapshot_lacks_names_top_sql_first_and_later_versions_in_one_line() -> None:
    later = {f"server.figure_{n}": f"DB 15 does not count it{SINCE}{16 + n}" for n in range(3)}
    missing = {**later, "io": "timing is off", "statements": "no extension: CREATE EXTENSION x"}
    lines = brief_reasons(missing)
    assert lines[0].startswith("no Top SQL: no extension: CREATE EXTENSION x")
    assert lines[1:] == ["io: timing is off", "3 figures of later versions: dbdyno snapshot show"]
    assert brief_reasons({}) == []
