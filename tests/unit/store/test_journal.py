"""The journal of changes to undo: on disk before the change, found when its run is dead."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno.model.engine.protocols import Undo
from dbdyno.model.errors import StoreError, StoreFull
from dbdyno.store.journal import FileJournal, left_over, state_dir


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "undo"


def undo(key: str, before: str = "1") -> Undo:
    return Undo(kind="settings", key=key, what=f"setting {key}", data={"before": before})


def on_disk(journal: FileJournal) -> Any:
    return json.loads(journal.path.read_text())


def test_on_disk_when_note_returns_and_of_one_key_the_first_counts(place: Path) -> None:
    journal = FileJournal("20261121-104501-lio-3f9a")
    assert not place.exists(), "nothing is changed, nothing is written"
    journal.note(undo("a"))
    journal.note(undo("b"))
    journal.note(undo("a", before="2"))
    assert [(u["key"], u["data"]["before"]) for u in on_disk(journal)["undos"]] == [("a", "1"), ("b", "1")]
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    journal.forget("a")
    journal.forget("unknown")
    assert [u.key for u in journal.undos] == ["b"]
    journal.close()
    assert journal.path.exists(), "something is still to be put back"
    journal.forget("b")
    assert list(place.iterdir()) == []
    journal.close()


def test_a_journal_of_this_process_is_alive(place: Path) -> None:
    journal = FileJournal("mine")
    journal.note(undo("a"))
    assert [(j.run, j.owner_pid) for j in left_over().alive] == [("mine", os.getpid())]
    assert left_over().dead == []
    assert place.exists()


KILLED = """
import os, signal, sys
from dbdyno.model.engine.protocols import Undo
from dbdyno.store.journal import FileJournal
journal = FileJournal(sys.argv[1])
for key in "ab":
    journal.note(Undo(kind="settings", key=key, what=key))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_processs_journals_are_found_the_newest_first() -> None:
    for run in ("first", "second"):
        subprocess.run([sys.executable, "-c", KILLED, run], check=False)
        time.sleep(0.02)
    left = left_over()
    assert [(j.run, [u.key for u in j.undos]) for j in left.dead] == [
        ("second", ["a", "b"]),
        ("first", ["a", "b"]),
    ]
    for journal in left.dead:
        for one in journal.undos:
            journal.forget(one.key)
    assert left_over() == ([], [], [])


@pytest.mark.parametrize("change", [{"pid_start_ticks": 1}, {"boot": "another"}, {"pid": 2**22 + 1}])
def test_a_reused_pid_and_another_boot_are_dead(change: dict[str, object]) -> None:
    journal = FileJournal("mine")
    journal.note(undo("a"))
    journal.path.write_text(json.dumps(on_disk(journal) | change))
    assert [j.run for j in left_over().dead] == ["mine"]


def test_a_damaged_journal_is_named_and_hides_no_other(place: Path) -> None:
    FileJournal("whole").note(undo("a"))
    damaged = place / "damaged.json"
    damaged.write_text('{"run": "x"')
    (place / ".tmp-whole.json-1").write_text("{")
    journals = left_over()
    assert [j.run for j in journals.alive] == ["whole"]
    assert [str(damaged) in str(e) for e in journals.damaged] == [True]
    assert "by hand" in str(journals.damaged[0])


def test_a_name_of_a_run_leads_nowhere_else(place: Path) -> None:
    journal = FileJournal("../../etc/x")
    journal.note(undo("a"))
    assert journal.path.parent == place
    assert left_over().alive[0].run == "../../etc/x"


def test_the_journals_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DBDYNO_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "dbdyno" / "undo"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_dir() == tmp_path / ".local" / "state" / "dbdyno" / "undo"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 64 kB."""
    where = tmp_path / "small"
    where.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(where))
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_full_disk_is_an_error_before_the_change(small: Path) -> None:
    journal = FileJournal("full")
    journal.note(undo("a"))
    (small / "filler").write_bytes(bytes(64 * 1024 - 4 * os.sysconf("SC_PAGESIZE")))
    with pytest.raises(StoreFull, match="cannot write down what is to be put back") as raised:
        journal.note(undo("b", before="x" * 60_000))
    assert "DBDYNO_STATE_DIR" in str(raised.value)
    assert [u.key for u in journal.undos] == ["a"]
    assert [u["key"] for u in on_disk(journal)["undos"]] == ["a"]
    (small / "filler").write_bytes(bytes(60 * 1024))
    journal.forget("a")  # needs no room
    assert left_over() == ([], [], [])


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="Not a directory"):
        FileJournal("x").note(undo("a"))
