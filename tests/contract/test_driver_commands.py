"""The driver's contract, kept with commands as calls: exact counts, phases, stop, abort, loss, pacing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.contract.driving import SECOND_NS, start, tables, until_done
from tests.waiting import eventually

from dbdyno import _core
from dbdyno.engines.command.launching import Launcher
from dbdyno.engines.command.server import NO_GRACE_MS


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher("contract")
    yield launcher
    launcher.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def job(*argv: str, name: str = "job", **more: Any) -> dict[str, Any]:
    return {"name": name, "argv": list(argv), **more}


def logging_job(log: Path, *, then: str = "") -> dict[str, Any]:
    """Returns a job that adds a line to the log."""
    return job("sh", "-c", f"echo {{job}} {{session}} $DBDYNO_SESSION >> {log}; {then}")


def connect_load(launcher: Launcher, *jobs: dict[str, Any], sessions: int = 1, **more: Any) -> _core.Load:
    spec = {"control": launcher.control.fileno(), "run": "contract", "sessions": sessions, "jobs": jobs}
    load = _core.Load("command", json.dumps(spec | {"grace_ms": NO_GRACE_MS} | more))
    load.connect()
    until_done(load)
    return load


def run(
    launcher: Launcher,
    *jobs: dict[str, Any],
    sessions: int = 1,
    seconds: float = 60,
    settle_s: float = 0,
    **more: Any,
) -> dict[str, pl.DataFrame]:
    running = connect_load(launcher, *jobs, sessions=sessions, **more)
    start(running, seconds, settle_s)
    return tables(running)


# -- counting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sessions", "threads"), [(1, 1), (2, 2), (7, 2), (40, None)])
def test_a_limit_of_calls_is_met_exactly(
    launcher: Launcher, log: Path, sessions: int, threads: int | None
) -> None:
    result = run(launcher, logging_job(log), sessions=sessions, threads=threads, max_calls=3)
    rows = result["sessions"]
    assert rows["calls"].to_list() == [3] * sessions and set(rows["end_reason"]) == {"limit"}
    assert sorted(log.read_text().split("\n")[:-1]) == sorted(
        f"job {n} {n}" for n in range(sessions) for _ in range(3)
    )
    executed = result["executions"]
    assert executed.select("session", "number").rows() == [(n, k) for n in range(sessions) for k in range(3)]
    assert executed["measured"].all() and set(executed["outcome"]) == {"ok"}
    assert executed.select(
        (pl.col("start_ns") <= pl.col("exec_ns")) & (pl.col("exec_ns") <= pl.col("end_ns"))
    )["start_ns"].all()


@pytest.mark.parametrize("sessions", [1, 4])
def test_what_was_executed_is_what_the_driver_counted(launcher: Launcher, log: Path, sessions: int) -> None:
    running = connect_load(launcher, logging_job(log), sessions=sessions)
    t1 = start(running, seconds=0.4, settle_s=0.2)
    result = tables(running)
    rows, executed = result["sessions"], result["executions"]
    assert rows["calls_total"].sum() == len(log.read_text().splitlines()) == len(executed)
    assert rows["errors_total"].sum() == 0 and result["errors"].is_empty()
    t0 = t1 - 400_000_000
    assert (executed["measured"] == executed["start_ns"].is_between(t0, t1, closed="left")).all()
    assert (executed["start_ns"] < t1).all()
    assert executed["measured"].sum() == rows["calls"].sum() == result["histogram"]["count"].sum()
    lengths = executed.filter("measured").select(pl.col("end_ns") - pl.col("start_ns"))["end_ns"].sum()
    assert lengths == rows["in_call_ns"].sum()


@pytest.mark.parametrize("sessions", [1, 2, 9])
def test_sessions_share_calls_and_each_job_is_run_once(launcher: Launcher, log: Path, sessions: int) -> None:
    jobs = [logging_job(log) | {"name": f"j{n}"} for n in range(5)]
    result = run(launcher, *jobs, sessions=sessions, shared_calls=5, in_turn=True)
    assert sorted(line.split()[0] for line in log.read_text().splitlines()) == [f"j{n}" for n in range(5)]
    assert result["sessions"]["calls"].sum() == 5 and set(result["sessions"]["end_reason"]) == {"limit"}
    assert sorted(result["executions"]["job"]) == [f"j{n}" for n in range(5)]
    if sessions == 1:
        assert result["executions"]["job"].to_list() == [f"j{n}" for n in range(5)]


def test_sessions_run_their_jobs_in_turn_each_from_another(launcher: Launcher) -> None:
    result = run(launcher, *(job("true", name=f"j{n}") for n in range(3)), sessions=2, max_calls=4)
    assert result["executions"]["job"].to_list() == ["j0", "j1", "j2", "j0", "j1", "j2", "j0", "j1"]


def test_failed_calls_are_errors_with_their_reason(launcher: Launcher) -> None:
    jobs = [
        job("sh", "-c", "echo first >&2; echo oops >&2; exit 3", name="code"),
        job("sh", "-c", "kill -SEGV $$", name="signal"),
        job("/nonexistent/program", name="missing"),
        job("sleep", "60", name="slow", timeout_ns=50_000_000),
        job("true", name="wrong", verify=["sh", "-c", "echo differs >&2; exit 1"]),
        job("true", name="unready", prepare=["false"]),
        job("echo", "done many", name="number", work_regex=r"done (\w+)"),
        job("echo", "nothing", name="none", work_regex=r"done (\w+)"),
    ]
    result = run(launcher, *jobs, shared_calls=len(jobs), in_turn=True)
    rows = {r["job"]: r for r in result["executions"].iter_rows(named=True)}
    words = ["exit", "signal", "not started", "timeout", "verify", "not started", "verify", "verify"]
    assert [r["outcome"] for r in rows.values()] == words
    assert [r["exit_code"] for r in rows.values()][:5] == [3, 11, None, 15, 0]
    assert rows["code"]["detail"] == "exit code 3: first\noops"
    assert "SIGSEGV" in rows["signal"]["detail"] and "No such file" in rows["missing"]["detail"]
    assert "timeout of 0.05 s" in rows["slow"]["detail"] and "differs" in rows["wrong"]["detail"]
    assert "no number" in rows["number"]["detail"] and "has no done" in rows["none"]["detail"]
    assert result["sessions"].select("calls", "errors").rows() == [(0, len(jobs))]
    assert {"X0003", "S0011", "START", "TIMED", "CHECK"} == set(result["errors"]["sqlstate"])


# -- when calls begin -------------------------------------------------------------------------------


def test_no_call_begins_after_the_end_and_the_last_ends_by_itself(launcher: Launcher) -> None:
    running = connect_load(launcher, job("sleep", "0.3"), sessions=2)
    t1 = start(running, seconds=0.1)
    result = tables(running)
    assert set(result["executions"]["outcome"]) == {"ok"} and (result["executions"]["start_ns"] < t1).all()
    assert result["sessions"]["straddle_out"].to_list() == [1, 1]
    assert set(result["sessions"]["end_reason"]) == {"deadline"}


def test_after_a_stop_the_calls_under_way_end(launcher: Launcher, log: Path) -> None:
    running = connect_load(
        launcher, logging_job(log, then=f"while [ -e {log} ]; do sleep 0.01; done"), sessions=2
    )
    start(running)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    running.stop()
    assert not running.wait(0.1)
    log.unlink()
    result = tables(running)
    assert result["sessions"].select("calls", "end_reason").rows() == [(1, "stopped")] * 2


def test_after_an_abort_nothing_is_left(launcher: Launcher, log: Path) -> None:
    running = connect_load(launcher, logging_job(log, then="exec sleep 60"), sessions=2)
    start(running)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    running.abort()
    result = tables(running)
    assert set(result["executions"]["outcome"]) == {"stopped"} and not result["executions"]["measured"].any()
    assert set(result["sessions"]["end_reason"]) == {"aborted"}
    eventually(lambda: not _children(launcher.pid))


def _children(pid: int) -> list[str]:
    _children: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            _children += (task / "children").read_text().split()
    return _children


def test_a_launcher_that_is_killed_loses_its_sessions() -> None:
    launcher = Launcher("killed")
    running = connect_load(launcher, job("sleep", "0.2"), sessions=2)
    start(running)
    os.kill(launcher.pid, signal.SIGKILL)
    result = tables(running)
    assert result["sessions"]["end_reason"].to_list() == ["lost", "lost"]
    assert result["sessions"]["end_detail"].str.starts_with("the launcher of commands has ended").all()
    launcher.close()


def test_calls_begin_when_they_are_due(launcher: Launcher) -> None:
    arrivals = {"kind": "constant", "rate": [[60, 50, 50]], "seed": 1, "latency_limit_us": None}
    running = connect_load(launcher, job("true"), sessions=3, arrivals=arrivals)
    start_ns = start(running, seconds=0.5) - SECOND_NS // 2
    result = tables(running)
    begun = result["executions"]["start_ns"].sort()
    assert 0 < len(begun) == result["sessions"]["calls"].sum() <= 25
    assert all(at >= start_ns + k * SECOND_NS // 50 for k, at in enumerate(begun))


def test_what_prepares_and_checks_a_call_is_no_part_of_it(launcher: Launcher, tmp_path: Path) -> None:
    data = tmp_path / "data"
    aside = {
        "prepare": ["sh", "-c", "sleep 1; echo 12345 > data"],
        "verify": ["grep", "12345", "data"],
        "conclude": ["rm", "data"],
    }
    wanted = job("cat", "data", directory=str(tmp_path), work_file="data", **aside)
    result = run(launcher, wanted, max_calls=2)
    assert result["executions"].select("outcome", "work").rows() == [("ok", 6.0)] * 2
    spans = result["executions"].select(pl.col("end_ns") - pl.col("start_ns"))["end_ns"]
    assert result["sessions"]["in_call_ns"].sum() == spans.sum() and spans.max() < SECOND_NS
    assert not data.exists()
    late = run(launcher, wanted, seconds=0.2)  # by then it is too late to begin
    assert late["executions"].is_empty() and late["sessions"]["calls_total"].to_list() == [0]


# -- what a command gets ----------------------------------------------------------------------------


def test_a_command_gets_nothing_of_ours_but_two_variables(launcher: Launcher, tmp_path: Path) -> None:
    script = """
        ls /proc/self/fd | wc -l
        grep -E 'Sig(Blk|Ign)' /proc/self/status
        ulimit -n
        umask
        readlink /proc/self/fd/0
        cat /dev/tty 2>/dev/null || echo no terminal
        ps -o pgid=,sid= -p $$
        echo $$ $GIVEN $DBDYNO_RUN {job}
        pwd
    """
    asked = job("sh", "-c", script, directory=str(tmp_path), env={"GIVEN": "s{session}"})
    result = run(launcher, asked, max_calls=1, keep_output=4096)
    kept = dict(result["outputs"].select("stream", "text").iter_rows())
    lines = [line.split() for line in kept["output"].splitlines()]
    assert lines[0] == ["4"]  # one is the listing's own
    not_ours = 0b11 << 31  # signals 32 and 33, which the C library keeps to itself
    assert [int(line[1], 16) & ~not_ours for line in lines[1:3]] == [0, 0]
    assert lines[3:7] == [[_soft_limit()], [f"{_umask():04o}"], ["/dev/null"], ["no", "terminal"]]
    pid = lines[8][0]
    assert lines[7] == [pid, pid] and lines[8][1:] == ["s0", "contract", "job"]
    assert lines[9] == [str(tmp_path)] and kept["error"] == ""


def _soft_limit() -> str:
    line = next(
        x for x in Path("/proc/self/limits").read_text().splitlines() if x.startswith("Max open files")
    )
    return line.split()[3]


def _umask() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("Umask"))
    return int(line.split()[1], 8)


def test_output_is_counted_and_its_end_is_kept(launcher: Launcher) -> None:
    much = job(
        "sh",
        "-c",
        "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo done 7; echo done 8.5",
        work_regex=r"done (\S+)",
    )
    result = run(launcher, much, max_calls=1, keep_output=12)
    assert result["outputs"].rows() == [
        (0, 0, "output", " 7\ndone 8.5\n", 20_000_017),
        (0, 0, "error", "", 0),
    ]
    assert result["executions"]["work"].to_list() == [8.5]


def test_input_is_the_file_that_is_given(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "in0").write_text("a line\n")
    result = run(
        launcher, job("cat", directory=str(tmp_path), input="in{session}"), max_calls=1, keep_output=100
    )
    assert result["outputs"]["text"][0] == "a line\n"


def test_cpu_of_children_is_the_execution_s_and_orphans_are_killed(launcher: Launcher) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    tree = job("sh", "-c", f"python3 -I -S -c '{busy}'; (setsid sleep 60 &); sleep 60 & exit 0")
    execution = run(launcher, tree, max_calls=1)["executions"].row(0, named=True)
    assert execution["user_ns"] + execution["system_ns"] >= 300_000_000
    assert (execution["outcome"], execution["left_over"]) == ("ok", 2)
    assert execution["end_ns"] - execution["start_ns"] < 30 * SECOND_NS


def test_a_largest_resident_set_below_the_launcher_s_is_not_known(launcher: Launcher) -> None:
    much = "b = bytearray(200 << 20); b[::4096] = b[::4096]"
    jobs = [job("true"), job("python3", "-I", "-S", "-c", much)]
    small, large = run(launcher, *jobs, max_calls=2)["executions"]["max_rss_bytes"].to_list()
    assert small is None and 200 << 20 <= large < 300 << 20


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"]])
def test_a_spec_without_a_valid_command_is_refused_on_connecting(launcher: Launcher, argv: list[str]) -> None:
    with pytest.raises(_core.DriverError) as caught:
        connect_load(launcher, job(*argv))
    assert caught.value.args[0] == "statement"
