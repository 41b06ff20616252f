"""Runs that see each other by locked files: of living processes, never of those that have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dbdyno.kernel import turns
from dbdyno.kernel.turns import Turn, directory

HOLD = """
import sys
from pathlib import Path
from dbdyno.kernel.turns import Turn
held = Turn("cpu", Path(sys.argv[1]))
held.update(run="20261129-124424-cpu-e92e")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_of_another_process_is_seen_until_that_ends_however_it_ends(tmp_path: Path) -> None:
    own = Turn("lio", tmp_path)
    assert own.measuring() == [], "a run is none of the others"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        (other,) = own.measuring()
        assert (other.pid, other.what, other.run) == (process.pid, "cpu", "20261129-124424-cpu-e92e")
        assert other.run in other.words and str(process.pid) in other.words
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert own.measuring() == []
    own.close()
    assert list(tmp_path.iterdir()) == [], "nothing is left, of a crashed run neither"


def test_who_waits_is_ahead_of_those_that_came_later_and_behind_all_that_measure(tmp_path: Path) -> None:
    first, second, third = (Turn(what, tmp_path) for what in ("a", "b", "c"))
    first.update(since_s=1.0, waiting=True)
    second.update(since_s=2.0)
    third.update(since_s=3.0, waiting=True)
    assert [t.what for t in first.ahead()] == ["b"]
    assert [t.what for t in third.ahead()] == ["a", "b"]
    assert [t.what for t in third.measuring()] == ["b"]
    second.close()
    assert first.ahead() == []
    assert [t.what for t in third.ahead()] == ["a"]
    for turn in (first, third):
        turn.close()


def test_a_ticket_that_is_being_written_counts_without_its_words(tmp_path: Path) -> None:
    own, other = Turn("a", tmp_path), Turn("b", tmp_path)
    os.ftruncate(other._descriptor, 3)
    assert [t.what for t in own.measuring()] == ["a run"]
    other.close()
    own.close()


def test_without_a_directory_no_other_run_is_seen(tmp_path: Path) -> None:
    for place in (None, tmp_path / "missing"):
        alone = Turn("a", place)
        alone.update(run="x")
        assert alone.ahead() == []
        alone.close()


def test_the_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = directory()
    assert place == tmp_path / turns._NAME
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    assert directory() != place, "others could put files there"
