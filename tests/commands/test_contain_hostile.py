"""Commands that misbehave: each execution ends, has its outcome, and leaves no process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.engines.command import groups
from dbdyno.kernel import processes
from dbdyno.model.errors import ServerLost, UsageError
from dbdyno.store.journal import FileJournal
from tests.commands.executing import Opened, eventually, open_commands

S = 1_000_000_000


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBDYNO_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        with open_commands() as commands:
            commands.contain(FileJournal("hostile"))
            yield commands


@pytest.fixture(autouse=True)
def no_process_left(commands: Opened) -> Iterator[None]:
    yield
    assert processes.tree(commands.launcher) == {commands.launcher}


def sh(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def py(script: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", script)


def test_programs_that_cannot_be_started_are_errors_with_the_reason(commands: Opened, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for argv in (("dbdyno-no-such-program",), (str(plain),), (str(tmp_path),)):
        with pytest.raises(UsageError) as caught:
            commands.run(*argv)
        assert argv[0] in caught.value.message and caught.value.cure
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    (row,) = commands.run(str(plain))
    assert row["outcome"] == "not started" and "the interpreter that it names is missing" in row["detail"]


def test_arguments_that_are_too_long_are_a_failure_to_start(commands: Opened) -> None:
    (row,) = commands.run("true", "x" * 3_000_000)
    assert row["outcome"] == "not started" and "Argument list too long" in row["detail"]


ENDS = {
    "at once": ("exit 3", "exit", 3, "exit code 3"),
    "with words": ("echo the reason >&2; exit 1", "exit", 1, "the reason"),
    "without output": ("exec >&- 2>&-; sleep 0.05", "ok", 0, None),
    "by its own group": ("kill -TERM 0; sleep 5", "signal", 15, "SIGTERM"),
    "asking a terminal": ("read line < /dev/tty", "exit", None, "/dev/tty"),
    "reading its input": ("cat", "ok", 0, None),
    "nicer": ("nice -n 5 setsid -w sleep 0.05", "ok", 0, None),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_command_that_ends_by_itself_has_its_outcome_and_exit_code(commands: Opened, how: str) -> None:
    script, outcome, code, detail = ENDS[how]
    (row,) = commands.run(*sh(script))
    assert row["outcome"] == outcome and code in (None, row["exit_code"])
    assert (row["detail"] is None) if detail is None else (detail in row["detail"])


NEVER = {
    "sleeping": "sleep 1000",
    "ignoring SIGTERM": "trap '' TERM INT HUP; while :; do sleep 0.1; done",
    "stopped": "kill -STOP $$",
    "in sessions of their own": "setsid sh -c 'sleep 1000; :' & setsid -w sleep 1000; :",
}


@pytest.mark.parametrize("how", NEVER)
def test_a_timeout_ends_all_processes(commands: Opened, how: str) -> None:
    (row,) = commands.run(*sh(NEVER[how]), timeout_ns=S // 5)
    assert row["outcome"] == "timeout" and "timeout of 0.2 s" in row["detail"]
    assert S // 5 <= row["end_ns"] - row["start_ns"] < 20 * S


def test_all_processes_may_end_in_good_order_first(commands: Opened, tmp_path: Path) -> None:
    inner = f"trap 'echo ended > {tmp_path}/inner; exit' TERM; while :; do sleep 0.02; done"
    (row,) = commands.run(*sh(f'setsid sh -c "{inner}" & sleep 9; wait'), timeout_ns=2 * S)
    assert row["outcome"] == "timeout"
    assert (tmp_path / "inner").read_text() == "ended\n"


SUBREAPER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(100)
    os._exit(0)
time.sleep(0.1)
"""
ZOMBIES = "import os, time\nfor _ in range(50):\n    os.fork() or os._exit(0)\ntime.sleep(0.3)\n"
DAEMONS = {
    "that hold its output": (sh("sleep 100 & echo begun"), 1),
    "after a double fork": (sh("setsid sh -c 'setsid sleep 100 & exit' & wait; sleep 0.1"), 1),
    "below a subreaper": (py(SUBREAPER), 1),
    "that are zombies": (py(ZOMBIES), 0),
}


@pytest.mark.parametrize("which", DAEMONS)
def test_processes_that_outlive_a_command_are_killed_and_counted(commands: Opened, which: str) -> None:
    argv, count = DAEMONS[which]
    (row,) = commands.run(*argv)
    assert (row["outcome"], row["left_over"]) == ("ok", count)
    assert row["end_ns"] - row["start_ns"] < 50 * S, "it ends with its first process"


def test_a_daemon_without_its_environment_does_not_outlive_the_sessions(commands: Opened) -> None:
    (row,) = commands.run(*sh("env -i setsid sleep 100 & sleep 0.1"))
    assert row["outcome"] == "ok"
    eventually(lambda: processes.tree(commands.launcher) == {commands.launcher})


def test_gigabytes_of_output_are_drained(commands: Opened) -> None:
    before = commands.peak_kb()
    rows = commands.run(*sh("head -c 500M /dev/zero; head -c 500M /dev/zero >&2"), keep=4096)
    assert [r["outcome"] for r in rows] == ["ok"]
    kept = {r["stream"]: (r["bytes"], len(r["text"])) for r in commands.outputs}
    assert {n for n, _ in kept.values()} == {500 << 20} and all(0 < k <= 4096 for _, k in kept.values())
    assert commands.peak_kb() - before < 16_000
    (row,) = commands.run(*sh("head -c 200M /dev/zero; head -c 200M /dev/zero >&2"))
    assert row["outcome"] == "ok" and commands.outputs == []


def test_a_full_disk_is_the_commands_own_failure(commands: Opened, tmp_path: Path) -> None:
    script = "trap '' XFSZ; ulimit -f 1; head -c 1M /dev/zero > out"
    (row,) = commands.run(*sh(script), directory=str(tmp_path))
    assert row["outcome"] == "exit" and "File too large" in row["detail"]


BOMB = "bomb() { bomb | bomb & }; bomb; sleep 100"
ESCAPING = "while :; do setsid sh -c 'sleep 100' & done"


FORKING = {"bomb": (BOMB, True), "escaping": (ESCAPING, True), "without groups": (ESCAPING, False)}


@pytest.mark.parametrize(("script", "grouped"), FORKING.values(), ids=FORKING)
def test_a_command_that_forks_without_end_is_killed(
    script: str, grouped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path))
    if not grouped:
        monkeypatch.setattr(groups, "candidates", lambda name: [])  # noqa: ARG005
    monkeypatch.setattr(groups, "limit", lambda: groups.Limit(300, "a test"))
    with open_commands() as commands:
        commands.contain(FileJournal("bomb"))
        (row,) = commands.run(*sh(script), timeout_ns=8 * S)
        # A shell ends when a fork is refused; a bomb whose processes end at once never has many alive.
        assert row["outcome"] in ("signal", "exit", "timeout")
        assert any(words in row["detail"] for words in ("300 tasks", "fork", "timeout"))
        assert row["end_ns"] - row["start_ns"] < 25 * S
        eventually(lambda: processes.tree(commands.launcher) == {commands.launcher})  # the killed take time
        (row,) = commands.run("true")
        assert row["outcome"] == "ok"


def test_a_command_that_kills_the_launcher_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path))
    with open_commands() as commands:
        journal = FileJournal("killer")
        commands.contain(journal)
        token, group_paths = (journal.undos[0].data[key] for key in ("token", "groups"))
        (row,) = commands.run(*sh("setsid sleep 100 & kill -9 $PPID; sleep 100"))
        assert row["outcome"] == "stopped"
        eventually(lambda: processes.identity(commands.launcher) is None)
        with pytest.raises(ServerLost, match="signal 9"):
            commands.server.facts()
    assert processes.with_variable(groups.RUN, token) == set()
    assert not any(Path(group).exists() for group in group_paths)
