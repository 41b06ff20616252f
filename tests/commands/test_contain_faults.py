"""Ctrl-C, SIGTERM, SIGHUP, kill -9 and SIGSTOP in mid-run: no process is left, and measurements are kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno.engines.command import groups
from dbdyno.kernel import processes
from tests.elsewhere import needs_root
from tests.waiting import eventually

PROGRAM = Path(sysconfig.get_path("scripts"), "dbdyno")
BRIEF = "sleep 0.02"
LONG = "sleep 1000"


class Running:
    """A run in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.pid = home, 0
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "DBDYNO_"))}
        self.env = kept | {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "DBDYNO_STATE_DIR": str(home / "state"),
            "COLUMNS": "100",
        }

    def dbdyno(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *words], env=self.env, cwd=self.home, capture_output=True, text=True, timeout=60
        )

    @contextlib.contextmanager
    def run(self, command: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Yields the process of a run, which is killed at the end if it still goes on."""
        argv = [PROGRAM, "run", "--command", command, "--sessions", "1,2", *words]
        with subprocess.Popen(
            argv, env=self.env, cwd=self.home, stdout=-1, stderr=-1, text=True, start_new_session=True
        ) as process:
            self.pid = process.pid
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def children(self, command: str) -> set[int]:
        """Returns the processes of that command line."""
        wanted = command.replace(" ", "\0").encode() + b"\0"
        children = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    if (entry / "cmdline").read_bytes() == wanted and self.is_ours(entry):
                        children.add(int(entry.name))
        return children

    def is_ours(self, entry: Path) -> bool:
        return f"HOME={self.home}".encode() in (entry / "environ").read_bytes().split(b"\0")

    def launcher(self, run: subprocess.Popen[str]) -> int:
        """Returns the launcher. Its children come and go meanwhile."""
        for pid in processes.tree(run.pid):
            with contextlib.suppress(OSError):
                if b"launch_commands" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        raise AssertionError("there is no launcher")

    def saved(self) -> bool:
        return any(self.home.glob("data/dbdyno/*/cells/[!.]*"))

    def nothing_left(self) -> None:
        ours = [e for e in Path("/proc").iterdir() if e.name.isdecimal() and self._commanded(e)]
        assert ours == []
        begin = f"dbdyno-commands-{self.pid}-"
        assert not [n for _, names, _ in os.walk("/sys/fs/cgroup") for n in names if n.startswith(begin)]

    def _commanded(self, entry: Path) -> bool:
        with contextlib.suppress(OSError):
            return self.is_ours(entry) and f"{groups.RUN}=".encode() in (entry / "environ").read_bytes()
        return False

    def last(self) -> dict[str, Any]:
        done = self.dbdyno("show", "last", "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def cut_short(running: Running, reason: str) -> None:
    run = running.last()["run"]
    assert run["status"] == "cut short" and reason in run["reason"]


def test_ctrl_c_lets_executions_end_and_keeps_them(running: Running) -> None:
    with running.run(BRIEF, "--measure", "1s", "--settle", "0s", "--repeats", "9") as run:
        eventually(running.saved)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=90)
    assert run.returncode == 130, errors
    cut_short(running, "stopped by the user")
    running.nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ctrl_c_ends_long_commands_at_once(running: Running, number: int) -> None:
    with running.run(LONG) as run:
        eventually(lambda: running.children(LONG))
        run.send_signal(number)
        time.sleep(0.5)
        assert run.poll() is None and running.children(LONG), "calls in progress end by themselves"
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode in (130, 143), errors
    running.nothing_left()


def test_a_killed_dbdyno_leaves_nothing_but_its_journal(running: Running) -> None:
    with running.run("sh -c 'trap \"\" TERM; setsid sleep 999 & sleep 999; :'") as run:
        eventually(lambda: running.children("sleep 999"))
        run.kill()
        run.wait()
        eventually(lambda: not running.children("sleep 999"))
    eventually(
        lambda: not [e for e in Path("/proc").iterdir() if e.name.isdecimal() and running._commanded(e)]
    )
    done = running.dbdyno("clean", "--engine", "command")
    assert done.returncode == 0 and "was gone already" in done.stdout, done.stderr
    running.nothing_left()
    assert running.dbdyno("clean", "--engine", "command").stdout == "nothing to remove\n"


def test_clean_ends_what_dbdyno_and_its_launcher_left_when_killed_together(running: Running) -> None:
    with running.run("sh -c 'setsid sleep 998 & sleep 998; :'") as run:
        eventually(lambda: len(running.children("sleep 998")) == 2)
        launcher = running.launcher(run)
        os.kill(run.pid, signal.SIGSTOP)
        os.kill(launcher, signal.SIGKILL)
        run.kill()
        run.wait()
        assert running.children("sleep 998"), "what was in a session of its own lives on"
        done = running.dbdyno("clean", "--engine", "command")
    assert "that commands left" in done.stdout, done.stdout + done.stderr
    running.nothing_left()


def test_a_killed_launcher_cuts_the_run_short(running: Running) -> None:
    with running.run(BRIEF, "--measure", "1s", "--settle", "0s", "--repeats", "9") as run:
        eventually(running.saved)
        os.kill(running.launcher(run), signal.SIGKILL)
        _, errors = run.communicate(timeout=90)
    assert run.returncode == 5, errors
    assert "launcher" in errors
    cut_short(running, "launcher")
    running.nothing_left()


def test_a_stopped_launcher_is_ended_with_the_run(running: Running) -> None:
    with running.run(LONG) as run:
        eventually(lambda: running.children(LONG))
        os.kill(running.launcher(run), signal.SIGSTOP)
        run.send_signal(signal.SIGINT)
        time.sleep(0.3)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=90)
    assert run.returncode == 130, errors
    running.nothing_left()


@needs_root
def test_a_full_disk_keeps_what_was_measured(running: Running, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True)
    try:
        with running.run(BRIEF, "--measure", "1s", "--settle", "0s", "--repeats", "9") as run:
            eventually(running.saved)
            with contextlib.suppress(OSError):
                (place / "full").write_bytes(b"x" * (8 << 20))
            _, errors = run.communicate(timeout=90)
        (place / "full").unlink()
        assert run.returncode == 4 and "No space left" in errors, errors
        assert running.last()["run"]["status"] == "cut short"
        running.nothing_left()
    finally:
        subprocess.run(["umount", place], check=True)
