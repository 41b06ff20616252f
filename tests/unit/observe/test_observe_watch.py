"""Real watches over real processes of ours: a spinner and a sleeper; no engine."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.fakery import made_cell

from dbdyno import _core
from dbdyno.account.ledger.margins import throttle_bracket
from dbdyno.account.window import cut
from dbdyno.model.schema.data_sources import TRACED, sampled
from dbdyno.model.schema.tables import RAW
from dbdyno.observe import frames
from dbdyno.observe.watch import groups

MS = 1_000_000
PATIENCE_NS = 60_000 * MS


@contextlib.contextmanager
def running(*argv: str) -> Iterator[int]:
    process = subprocess.Popen(argv)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def spinner() -> Iterator[int]:
    with running(sys.executable, "-c", "while True: pass") as pid:
        yield pid


@pytest.fixture
def sleeper() -> Iterator[int]:
    with running("sleep", "1000") as pid:
        yield pid


def tables_of_watch(
    seconds: float, until: Callable[[], bool] = lambda: True, **spec: Any
) -> dict[str, pl.DataFrame]:
    """Tables of a watch over a window of ``seconds``, or longer if ``until`` is not yet true."""
    spec = {"engine": None, "os": True, "task_interval_ms": 250, "host": True} | spec
    watch = _core.Watch(json.dumps(spec))
    t0_ns = _core.now_ns() + 100 * MS
    t1_ns = t0_ns + int(seconds * 1e9)
    watch.start(t0_ns, t1_ns + PATIENCE_NS)
    while _core.now_ns() < t1_ns or not (until() or _core.now_ns() > t1_ns + PATIENCE_NS):
        time.sleep(0.01)
    watch.stop()
    return frames(watch)


def test_tables_are_as_the_schema_says(sleeper: int) -> None:
    tables = tables_of_watch(0.1, sessions=[[0, sleeper]])
    seen = {"samples", "blocked", "tasks", "cgroup", "host", "sampler", "devices", "places"}
    assert set(tables) == {*seen, *TRACED, *sampled()}
    for name, frame in tables.items():
        assert frame.columns == [c.name for c in RAW[name]]


def test_a_spinner_runs_or_waits_for_a_cpu_and_a_sleeper_does_neither(spinner: int, sleeper: int) -> None:
    tasks = tables_of_watch(1.5, sessions=[[0, spinner], [1, sleeper]])["tasks"]
    busy, idle = (tasks.filter(pl.col("session") == n) for n in (0, 1))
    assert idle.sort("before_ns")["state"][-1] == "S"  # at the first read it may be on its way to sleep
    assert idle["run_ns"].n_unique() == 1
    # From first to last read; while it waits for a CPU its figures stand still, so wide bounds.
    wall_ns = busy["after_ns"][-1] - busy["before_ns"][0]
    lived_ns = sum(busy[c][-1] - busy[c][0] for c in ("run_ns", "runq_ns"))
    assert 0.3 * wall_ns < lived_ns < 1.1 * wall_ns
    cpu_ns = sum(busy[c][-1] - busy[c][0] for c in ("user_ns", "system_ns"))
    assert abs(cpu_ns - (busy["run_ns"][-1] - busy["run_ns"][0])) < 0.3 * wall_ns


def test_block_io_delay_is_unknown_where_accounting_is_off(sleeper: int) -> None:
    switch = Path("/proc/sys/kernel/task_delayacct")
    if switch.exists() and switch.read_text().strip() == "1":
        pytest.skip("delay accounting is on here")
    tasks = tables_of_watch(0.1, sessions=[[0, sleeper]])["tasks"]
    assert tasks["blkio_ns"].null_count() == tasks.height


def test_roles_of_ourselves_the_driver_and_the_main_process(spinner: int, sleeper: int) -> None:
    driver = {"pid": os.getpid(), "tid": os.getpid(), "role": "driver"}
    tasks = tables_of_watch(0.1, sessions=[[0, spinner]], main_pid=sleeper, tasks=[driver])["tasks"]
    roles = {(tid, role) for tid, role in tasks.select("tid", "role").iter_rows()}
    assert {(spinner, "session"), (sleeper, "helper:main"), (os.getpid(), "driver")} <= roles
    assert (os.getpid(), "dbdyno") not in roles
    observer = tasks.filter(pl.col("comm") == "dbdyno-read")
    assert set(observer["role"]) == {"dbdyno"}


def test_of_a_server_elsewhere_only_our_own_tasks_are_read(sleeper: int) -> None:
    tasks = tables_of_watch(0.1, sessions=[[0, sleeper]], os=False)["tasks"]
    of_sessions = tasks.filter(pl.col("role") == "session")
    assert set(of_sessions["status"]) == {"not here"}
    assert of_sessions["run_ns"].null_count() == of_sessions.height > 0
    assert "ok" in set(tasks.filter(pl.col("role") == "dbdyno")["status"])


def test_host_figures_are_those_of_proc_stat() -> None:
    host = tables_of_watch(0.1)["host"].filter(pl.col("status") == "ok")
    before = host.filter(pl.col("key") == "cpus")["value"]
    assert set(before) == {os.sysconf("SC_NPROCESSORS_ONLN")}
    idle = host.filter(pl.col("key") == "cpu.idle_ns")["value"]
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert all(value % tick_ns == 0 for value in idle)
    now = int(Path("/proc/stat").read_text().split()[4]) * tick_ns
    assert 0 < idle[0] <= now
    switches = host.filter(pl.col("key") == "context_switches")["value"]
    assert switches.is_sorted()


def test_read_task_reads_this_process_and_marks_one_that_is_gone() -> None:
    me = _core.read_task(os.getpid(), os.getpid())
    assert me["status"] == "ok"
    assert me["run_ns"] > 0
    assert me["comm"] == Path("/proc/self/comm").read_text().strip()
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert me["start_ticks"] == started
    with running("true") as pid:
        pass
    gone = _core.read_task(pid, pid)
    assert gone["status"] == "vanished"
    assert {v for k, v in gone.items() if k != "status"} == {None}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{", "EOF"),
        ('{"engine": null}', "os"),
        ('{"engine": null, "os": true, "sample_hertz": 1}', "sample_hertz"),
        ('{"engine": null, "os": true, "sample_hz": 0}', "sample_hz"),
        ('{"engine": "oracle", "os": true}', "oracle"),
        ('{"engine": "postgres", "os": true, "activity": {"sql": "select 1"}}', "activity"),
    ],
)
def test_a_wrong_spec_is_refused(spec: str, says: str) -> None:
    with pytest.raises(_core.ObserverError, match=says) as caught:
        _core.Watch(spec)
    assert caught.value.args[0] == "spec"


def test_a_server_that_cannot_be_reached_costs_the_samples_only(tmp_path: Path) -> None:
    target = {"host": str(tmp_path), "port": 1, "user": "u", "database": "d", "password": "hush"}
    spec = {"engine": "postgres", "os": True, "activity": {"target": target, "sql": "select 1 as pid"}}
    watch = _core.Watch(json.dumps(spec))
    now = _core.now_ns()
    watch.start(now, now + MS)
    watch.stop()
    tables = frames(watch)
    assert tables["sampler"]["status"].to_list() == ["lost"]
    assert tables["host"].height > 0
    trouble = watch.trouble()
    assert trouble is not None
    assert str(tmp_path) in trouble
    assert "hush" not in trouble


@pytest.fixture
def quota_group() -> Iterator[list[Path]]:
    """A child group with a quota of a tenth of a CPU, in each v1 hierarchy with CPU figures."""
    groups: list[Path] = []
    try:
        for version, directory in _core.find_cgroups():
            child = Path(directory) / f"dbdyno-test-{os.getpid()}"
            if version == 1:
                child.mkdir()
                groups.append(child)
        for child in groups:
            if (child / "cpu.cfs_quota_us").exists():
                (child / "cpu.cfs_quota_us").write_text("10000")
    except OSError as e:
        for child in groups:
            child.rmdir()
        pytest.skip(f"no writable cgroup v1 here: {e}")
    if not groups:
        pytest.skip("no cgroup v1 here")
    yield groups
    for child in groups:
        child.rmdir()


@pytest.mark.root
def test_a_quota_shows_in_the_group_and_as_run_queue(quota_group: list[Path]) -> None:
    with running(sys.executable, "-c", "while True: pass") as pid:
        for child in quota_group:
            (child / "cgroup.procs").write_text(str(pid))
        result = [path for version, path in _core.find_cgroups(pid) if version == 1]
        assert {str(c) for c in quota_group} <= set(result)
        groups = [{"scope": "server", "version": 1, "path": str(c)} for c in quota_group]
        first = _core.read_task(pid, pid)

        def waited() -> bool:
            """The kernel counts a wait when the task has the CPU again."""
            now = _core.read_task(pid, pid)
            run_ns, runq_ns = (now[c] - first[c] for c in ("run_ns", "runq_ns"))
            return bool(runq_ns > 3 * run_ns > 0)

        tables = tables_of_watch(1.5, waited, sessions=[[0, pid]], cgroups=groups)
    deadline = time.monotonic() + 10
    while any((c / "cgroup.procs").read_text() for c in quota_group) and time.monotonic() < deadline:
        time.sleep(0.01)
    group = tables["cgroup"].filter(pl.col("scope") == "server")
    assert set(group["status"]) == {"ok"}
    delta = {
        key: values["value"][-1] - values["value"][0]
        for (key,), values in group.group_by("key", maintain_order=True)
    }
    assert set(delta) == {"usage_ns", "user_ns", "system_ns", "nr_periods", "nr_throttled", "throttled_ns"}
    assert 0 < delta["nr_throttled"] <= delta["nr_periods"]
    session = tables["tasks"].filter(pl.col("role") == "session")
    runq_ns, run_ns = (session[c][-1] - session[c][0] for c in ("runq_ns", "run_ns"))
    # A tenth of a CPU at most: it waits several times as long as it runs, and is throttled unless others are
    # in its way.
    assert runq_ns > 2 * run_ns
    assert delta["throttled_ns"] > 0
    assert delta["usage_ns"] < 3 * run_ns  # the task's own figure stands still while it waits


def _bracket(tables: dict[str, pl.DataFrame]) -> tuple[float, float]:
    """Least and greatest throttled time of the sessions (seconds per second), between the outermost reads."""
    cell = made_cell({}, t0=tables["tasks"]["before_ns"].min(), t1=tables["tasks"]["after_ns"].max())
    row = throttle_bracket(cut([replace(cell, tables={**cell.tables, **tables})]))
    low, high = row.select("low", "high").row(0)
    return low, high


def _move(pid: int, places: list[Path]) -> None:
    for group in places:
        (group / "cgroup.procs").write_text(str(pid))


@contextlib.contextmanager
def _moving(pid: int, steps: list[tuple[float, list[Path]]]) -> Iterator[None]:
    """Moves a process into groups; a step is the seconds to wait and the groups."""

    def work() -> None:
        for seconds, places in steps:
            time.sleep(seconds)
            _move(pid, places)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _server_groups(pid: int) -> list[dict[str, Any]]:
    return groups({"os": True, "sessions": [[0, pid]]})


@pytest.mark.root
@pytest.mark.parametrize("back", [False, True], ids=["stays", "and back"])
def test_a_session_that_is_moved_into_a_throttled_group_has_no_bracket_of_zero(
    quota_group: list[Path], spinner: int, back: bool
) -> None:
    """The group was unknown when the watch was opened; from that one alone the bracket would be 0 to 0."""
    before = _server_groups(spinner)
    steps = [(0.6, quota_group)] + ([(0.8, [group.parent for group in quota_group])] if back else [])
    with _moving(spinner, steps):
        tables = tables_of_watch(1.8, sessions=[[0, spinner]], cgroups=before)
    _move(spinner, [group.parent for group in quota_group])
    assert {str(group) for group in quota_group} & set(tables["cgroup"].filter(scope="shared")["path"])
    low, high = _bracket(tables)
    task = tables["tasks"].filter(role="session").drop_nulls("runq_ns")
    assert low == 0
    assert high * (task["after_ns"][-1] - task["before_ns"][0]) == pytest.approx(
        task["runq_ns"][-1] - task["runq_ns"][0], rel=0.1
    )
    assert high > 0


def test_a_session_that_stays_where_no_quota_is_was_not_throttled(spinner: int) -> None:
    before = _server_groups(spinner)
    if not before:
        pytest.skip("no control groups with CPU figures here")
    tables = tables_of_watch(0.6, sessions=[[0, spinner]], cgroups=before)
    assert "shared" not in set(tables["cgroup"]["scope"])
    throttled = tables["cgroup"].filter((pl.col("key") == "throttled_ns") & (pl.col("status") == "ok"))
    if throttled.is_empty() or throttled["value"].max():
        pytest.skip("this process is under a quota, or its group counts no throttling")
    assert _bracket(tables) == (0, 0)


@pytest.mark.root
def test_a_group_of_sessions_that_others_join_is_shared(
    quota_group: list[Path], spinner: int, sleeper: int
) -> None:
    """Throttled time of the group may be that of the others, so the least of the sessions' is 0."""
    server = _server_groups(sleeper)
    _move(spinner, quota_group)
    try:
        own = groups({"os": True, "main_pid": sleeper, "sessions": [[0, spinner]]})
        assert {str(group) for group in quota_group} <= {g["path"] for g in own if g["scope"] == "sessions"}
        alone = tables_of_watch(1.0, sessions=[[0, spinner]], cgroups=[*server, *own])
        with (
            running(sys.executable, "-c", "while True: pass") as stranger,
            _moving(stranger, [(0.4, quota_group)]),
        ):
            joined = tables_of_watch(1.0, sessions=[[0, spinner]], cgroups=[*server, *own])
    finally:
        _move(spinner, [group.parent for group in quota_group])
    assert _bracket(alone)[0] > 0
    assert _bracket(joined)[0] == 0
    assert _bracket(joined)[1] > 0


def test_find_cgroups_of_a_process_that_is_gone() -> None:
    with running("true") as pid:
        pass
    with pytest.raises(OSError, match="No such file"):
        _core.find_cgroups(pid)


CROWD = """
import json, resource, subprocess, time
from dbdyno import _core
from dbdyno.observe import frames
from dbdyno.observe.watch import groups

crowd = [subprocess.Popen(["sleep", "1000"], close_fds=True) for _ in range(60)]
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    sessions = [[n, p.pid] for n, p in enumerate(crowd)]
    watch = _core.Watch(json.dumps({"engine": None, "os": True, "sessions": sessions}))
    watch.start(_core.now_ns(), _core.now_ns())
    time.sleep(0.1)
    watch.stop()
    tasks = frames(watch)["tasks"]
    theirs = tasks.filter(tasks["role"] == "session")
    print(theirs["session"].n_unique(), *set(theirs["status"]), theirs["run_ns"].null_count())
finally:
    for p in crowd:
        p.kill()
"""


def test_more_tasks_than_descriptors_are_still_all_read() -> None:
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["60", "ok", "0"], "")
