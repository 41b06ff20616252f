"""The live view on a pseudo-terminal: what is written, a terminal that takes nothing, saved screens."""

from __future__ import annotations

import os
import pty
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import polars as pl
import pytest
from rich.text import Text
from tests.fakery import WITH_ENGINES
from tests.on_terminal import frame, obeyed, on_terminal_here
from tests.waiting import eventually

from dbdyno.cli.console import SafeConsole
from dbdyno.cli.observe_listeners import LiveObservation
from dbdyno.cli.terminal import TerminalScreen
from dbdyno.model.schema.tables import empty
from dbdyno.model.sources.wait_families import WaitFamilies
from dbdyno.observe.glance import Glance, SessionLine

if TYPE_CHECKING:
    from dbdyno.conduct import Look

FAKE = ("observe", "--engine", "fake", "--dsn", "fake:cpus=2,cpu=10ms,foreign=3", "--for", "3s")


class Pty:
    """A terminal that is read when asked."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        self.file = os.fdopen(theirs, "w", encoding="utf-8")
        self.written = b""

    def read(self, seconds: float = 0.0) -> bytes:
        new = b""
        while select.select([self.ours], [], [], seconds)[0]:
            new += os.read(self.ours, 1 << 16)
        self.written += new
        return new

    def frame(self) -> list[str]:
        self.read()
        return frame(self.written.decode())


@contextmanager
def screen_on(terminal: Pty) -> Iterator[TerminalScreen]:
    screen = TerminalScreen(SafeConsole(terminal.file))
    screen.start()
    yield screen
    screen.close()


def test_only_lines_that_changed_are_written() -> None:
    terminal = Pty()
    with screen_on(terminal) as screen:
        screen.draw([Text(f"line {n}") for n in range(20)])
        eventually(lambda: terminal.frame()[-1:] == ["line 19"])
        screen.draw([Text("changed" if n == 7 else f"line {n}") for n in range(20)])
        eventually(lambda: "changed" in terminal.frame())
        assert terminal.written.count(b"line 3") == 1
        assert terminal.frame() == ["changed" if n == 7 else f"line {n}" for n in range(20)]
        screen.draw([Text("fewer")] * 5)  # the terminal became smaller
        eventually(lambda: terminal.frame() == ["fewer"] * 5)
    eventually(lambda: terminal.read() or terminal.written.endswith(b"\x1b[?25h\x1b[?1049l"))
    assert obeyed(terminal.written.decode()) == []


def test_a_terminal_that_takes_no_output_holds_nobody_up() -> None:
    terminal = Pty()
    with screen_on(terminal) as screen:
        drawn = threading.Event()

        def draw() -> None:
            for n in range(2000):  # far more than a terminal's buffer holds
                screen.draw([Text(f"frame {n} " + "x" * 50)] * 10)
            drawn.set()

        threading.Thread(target=draw, daemon=True).start()
        assert drawn.wait(60)  # nothing was read
        eventually(lambda: "frame 1999 x" in terminal.frame()[-1])
        assert terminal.written.count(b"frame") < 2000 * 10  # frames in between were left out


def test_a_screen_is_saved_in_a_new_file_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _format: "now")
    terminal = Pty()
    view = LiveObservation(SafeConsole(terminal.file), "", 1.0)
    for _ in range(2):
        view._handle_keys(["s"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dbdyno-now-1.txt", "dbdyno-now.txt"]
    assert "dbdyno observe" in (tmp_path / "dbdyno-now.txt").read_text(encoding="utf-8")
    assert str(tmp_path / "dbdyno-now-1.txt") in view._notice
    tmp_path.joinpath("gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    tmp_path.joinpath("gone").rmdir()
    view._handle_keys(["s"])
    assert "not saved" in view._notice


def _readings(span_s: float) -> dict[str, pl.DataFrame]:
    sampler = pl.DataFrame({"end_ns": [0, int(span_s * 1e9)], "via": "sql", "status": "ok"})
    return {name: empty(name) for name in ("samples", "blocked")} | {"sampler": sampler}


def test_the_last_figures_stay_until_a_new_window_has_some() -> None:
    view = LiveObservation(SafeConsole(Pty().file), "", 1.0)
    known = Glance(4.0, "", 40, (SessionLine(7, 0, "active", None, 1, 0.5, 0.1, 0.4, 0.0, 1.0),))
    unknown = Glance(1.0, "", 10, (SessionLine(7, 0, "active", None, 1, None, None, None, None, 1.0),))
    look = cast("Look", SimpleNamespace(families=WaitFamilies({}), names=SimpleNamespace(frame=pl.DataFrame)))
    for fresh, span_s, now_s, shown in (
        (unknown, 0.002, 0.0, None),  # waits for the first readings
        (known, 4.0, 1.0, known),
        (unknown, 0.002, 20.0, known),
        (known, 4.0, 20.0, known),
        (unknown, 3.0, 23.0, known),  # the tasks of the new window were not read twice yet
        (unknown, 5.0, 60.0, unknown),  # nor will they be
    ):
        view._take(fresh, _readings(span_s), look, now_s)
        assert view._glance is shown


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    env = {"DBDYNO_STORE": str(tmp_path), "PYTHONPATH": WITH_ENGINES}
    code, written = on_terminal_here(*FAKE, env={**env, "TERM": "dumb"})
    assert code == 0
    assert "\x1b[?1049h" not in written and "top wait (in the run queue)" in written
