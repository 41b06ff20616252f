"""What the lab starts, and the files that say so: damaged, hostile, and on a full disk."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.model.errors import StoreFull
from dbdyno.store import RunStore
from dbdyno.web.started import Start, Starts
from tests.waiting import eventually
from tests.web.conftest import fill

BRIEF, OTHER = ("--version",), ("--help",)
ID = "20260101-100000-0000aaaa"
SOUND = {"words": ["run"], "pid": 1, "ticks": 0, "stops": 0}


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    """Those of a store that has the folder, and whose children have ended at last."""
    (tmp_path / "store" / "started").mkdir(mode=0o700, parents=True)
    starts = Starts(RunStore(tmp_path / "store"))
    yield starts
    eventually(lambda: not any(start.is_alive for start in starts.newest()))


def folder(starts: Starts) -> Path:
    return starts.store.root / "started"


def test_a_key_stands_for_the_same_words_only(starts: Starts) -> None:
    first = starts.begin(BRIEF, "k")
    assert starts.begin(BRIEF, "k") == first
    other = starts.begin(OTHER, "k")
    assert other.id != first.id and other.words == OTHER
    assert starts.begin(OTHER, "") != starts.begin(OTHER, "")
    assert len(starts.newest()) == 4


@pytest.mark.root
@pytest.mark.parametrize("left", [0, 1], ids=["no room for a record", "no room to add the pid"])
def test_nothing_runs_that_cannot_be_recorded(disk: Path, left: int) -> None:
    fill(disk, left)
    starts, words = Starts(RunStore(disk)), ("run", "lio", f"--store={disk}")
    for _ in range(2):
        with pytest.raises(StoreFull):
            starts.begin(words, "k")
    assert not [*folder(starts).iterdir()] and not starts.newest()
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if os.fsencode(words[-1]) in _content(p)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_output_without_a_record_is_removed(starts: Starts) -> None:
    left = folder(starts) / f"{ID}.txt"
    left.write_text("x")
    start = starts.begin(BRIEF, "k")
    assert not left.exists() and (folder(starts) / f"{start.id}.txt").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_file_of_ours_is_shown_as_output(starts: Starts, kind: str) -> None:
    path = folder(starts) / f"{ID}.txt"
    start = Start(ID, BRIEF, 1, 0)
    path.write_text("printed")
    assert starts.output(start) == "printed"
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
        assert starts.output(start) == ""
        return
    os.mkfifo(path, 0o600)
    shown: list[str] = []
    reader = threading.Thread(target=lambda: shown.append(starts.output(start)), daemon=True)
    reader.start()
    try:
        reader.join(30)
        assert shown == [""], "waits for a writer"
    finally:
        os.close(os.open(path, os.O_RDWR))  # ends the wait


@pytest.mark.parametrize(
    ("id", "content"),
    [
        ("20269999-999999-0000aaaa", json.dumps(SOUND)),
        ("00010101-000000-0000aaaa", json.dumps(SOUND)),
        (ID, json.dumps(SOUND).replace('"pid": 1', '"pid": 1e999')),
        (ID, json.dumps(SOUND | {"pid": 1 << 40})),
        (ID, json.dumps(SOUND | {"pid": -1})),
        (ID, json.dumps(SOUND | {"stops": -5})),
        (ID, json.dumps(SOUND | {"stops": 3})),
        (ID, "[" * 50_000),
        (ID, "{{{"),
        (ID, "[]"),
    ],
)
def test_a_damaged_record_is_ignored(starts: Starts, id: str, content: str) -> None:
    sound, damaged = folder(starts) / f"{ID}.json".replace("aaaa", "bbbb"), folder(starts) / f"{id}.json"
    for path, text in (sound, json.dumps(SOUND)), (damaged, content):
        path.write_text(text)
        path.chmod(0o600)
    assert [f"{start.id}.json" for start in starts.newest()] == [sound.name]
