"""Control groups of commands, and `dbdyno clean` after kill -9: no process and no group is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.engines.command import groups
from dbdyno.kernel import processes
from dbdyno.kernel.control_groups import members
from dbdyno.store.journal import FileJournal, left_over
from tests.elsewhere import as_user, in_namespaces, needs, needs_root

LIMIT = groups.Limit(300, "a test")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))


TOKEN = f"test-{os.getpid()}"
SHELL = f"""
read go
export {groups.RUN}={TOKEN}
sleep 300 &
setsid sh -c 'trap "" TERM HUP; sleep 300 & echo ready; while :; do sleep 1; done' &
read never
"""
"""A launcher: what it starts has the variable."""


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(["sh", "-c", SHELL], stdin=-1, stdout=-1, text=True) as process:
        yield process
        for pid in processes.with_variable(groups.RUN, TOKEN):
            os.kill(pid, 9)
        process.kill()


def begun(launcher: subprocess.Popen[str]) -> None:
    assert launcher.stdin and launcher.stdout
    launcher.stdin.write("go\n")
    launcher.stdin.flush()
    assert launcher.stdout.readline() == "ready\n"


def test_put_back_ends_all_processes_and_removes_their_groups(launcher: subprocess.Popen[str]) -> None:
    tried = groups.candidates(groups.new_name())
    data = json.loads(groups.undo_of(TOKEN, tried, launcher.pid).model_dump_json())["data"]
    containment = groups.make(tried, launcher.pid, LIMIT)
    begun(launcher)
    tree = processes.tree(launcher.pid)
    assert len(tree) >= 4
    for group in containment.groups:
        assert tree <= set(members(group.entered))
    launcher.kill()  # its descendants are nobody's children now
    launcher.wait()
    message = groups.put_back(data)
    assert "processes that commands left" in message
    assert processes.with_variable(groups.RUN, TOKEN) == set()
    assert not any(group.path.exists() for group in containment.groups)
    assert groups.put_back(data) == "what commands left was gone already"


def test_a_keeper_leaves_no_process_group_or_journal(launcher: subprocess.Popen[str]) -> None:
    keeper, journal = groups.Keeper(TOKEN, launcher.pid), FileJournal("kept")
    containment = keeper.contain(journal)
    assert keeper.contain(journal) is containment and [u.kind for u in journal.undos] == ["commands"]
    assert containment.for_launcher(TOKEN)["token"] == TOKEN
    begun(launcher)
    keeper.end()
    assert processes.with_variable(groups.RUN, TOKEN) == set() and launcher.wait() == -9
    assert not any(group.path.exists() for group in containment.groups) and not journal.path.exists()


def test_without_groups_processes_are_known_by_their_environment(launcher: subprocess.Popen[str]) -> None:
    data = json.loads(groups.undo_of(TOKEN, [], launcher.pid).model_dump_json())["data"]
    begun(launcher)
    launcher.kill()
    launcher.wait()
    assert "processes that commands left" in groups.put_back(data)
    assert processes.with_variable(groups.RUN, TOKEN) == set()


def test_a_forged_journal_kills_nothing(launcher: subprocess.Popen[str]) -> None:
    data = groups.undo_of("x", [], launcher.pid).data
    with pytest.raises(ValueError, match="no groups of dbdyno"):
        groups.put_back({**data, "groups": ["/sys/fs/cgroup"]})
    other = groups.put_back({**data, "boot": "another"})
    assert "restarted" in other
    later = groups.put_back({**data, "launcher": [launcher.pid, 1]})  # a later process of that pid
    assert later == "what commands left was gone already" and launcher.poll() is None


def test_the_limit_is_one_that_the_machine_has() -> None:
    limit = groups.limit()
    assert 256 <= limit.tasks < 1 << 22 and limit.words


KILLED = """
import os, signal, subprocess, sys
from dbdyno.engines.command import groups
from dbdyno.store.journal import FileJournal
env = {groups.RUN: sys.argv[1], "PATH": os.environ["PATH"]}
child = subprocess.Popen(["sleep", "60"], env=env, stdout=-3, stderr=-3, start_new_session=True)
tried = groups.candidates(groups.new_name())
FileJournal("killed").note(groups.undo_of(sys.argv[1], tried, child.pid))
print(groups.make(tried, child.pid, groups.limit()).source().detail, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", ["as we are", pytest.param("as a user", marks=needs_root)])
def test_clean_ends_what_a_killed_run_left(way: str, open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = as_user() if way == "as a user" else []
    if world:
        open_dir.chmod(0o1777)
        monkeypatch.setenv("DBDYNO_STATE_DIR", str(open_dir / "state"))
    token = f"{TOKEN}-clean"
    killed = subprocess.run(
        [*world, sys.executable, "-c", KILLED, token], capture_output=True, text=True, timeout=20
    )
    assert killed.returncode == -9, killed.stderr
    if world:
        assert "found as descendants" in killed.stdout and "systemd" in killed.stdout
    assert len(processes.with_variable(groups.RUN, token)) == 1
    assert world or len(left_over().dead) == 1
    code = "from dbdyno.cli.server import _Work; from dbdyno import engines, store\n"
    code += "work = _Work(store.left_over()); work.put_back(('commands',), engines.put_back); work.end()"
    done = subprocess.run([*world, sys.executable, "-c", code], capture_output=True, text=True)
    assert "run killed: ended a process that commands left" in done.stdout, done.stderr
    assert processes.with_variable(groups.RUN, token) == set()
    assert left_over().dead == []


@needs_root
def test_groups_that_cannot_be_made_are_reported() -> None:
    world = in_namespaces(
        before="mount -o remount,bind,ro /sys/fs/cgroup/unified 2>/dev/null || true; "
        "for d in /sys/fs/cgroup /sys/fs/cgroup/*; do "
        "mountpoint -q $d && mount -o remount,bind,ro $d; done"
    )
    needs(world)
    code = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "child.kill()")
    done = subprocess.run(
        [*world, sys.executable, "-c", code, "ro"], capture_output=True, text=True, timeout=20
    )
    assert "cannot be made: Read-only file system: processes are found" in done.stdout, done.stderr
