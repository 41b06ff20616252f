"""The scheduler trace on real servers and a real kernel, against loads of known truth.

Where the trace is not permitted or not supported each test asserts that the status says so, and that
all else is still read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from dbdyno import _core
from dbdyno.conduct.selftest.quota import quota
from dbdyno.engines.postgres import presence
from dbdyno.engines.postgres.wait_events import word_spec
from dbdyno.model.schema.tables import from_core
from tests.db.conftest import Waiting, eventually

pytestmark = pytest.mark.db
SPIN = "do $$ begin loop perform 1; end loop; end $$"
NOBODY = 65534
Tables = dict[str, pl.DataFrame]


@pytest.fixture
def sessions(dsn18: str) -> Iterator[Waiting]:
    sessions = Waiting(dsn18)
    yield sessions
    sessions.close()


@pytest.fixture
def old_and_new(kind_dsn: str) -> Iterator[Waiting]:
    sessions = Waiting(kind_dsn)
    yield sessions
    sessions.close()


def _spec(sessions: Waiting, pids: list[int], **more: Any) -> dict[str, Any]:
    here = presence.presence(sessions.control)
    return {
        "os": here.here,
        "main_pid": here.main_pid,
        "sessions": list(enumerate(pids)),
        "task_interval_ms": 500,
        "word": word_spec(sessions.control.info.server_version // 10000),
        "memory_hz": 0,
        **more,
    }


def _watch(
    spec: dict[str, Any], seconds: float = 2.0, meanwhile: Callable[[], Any] | None = None
) -> tuple[_core.Watch, Tables]:
    watch = _core.Watch(json.dumps(spec))
    t0 = _core.now_ns() + 100_000_000
    watch.start(t0, t0 + int(seconds * 1e9))
    if meanwhile is not None:
        meanwhile()
    time.sleep(max(0.0, (t0 - _core.now_ns()) / 1e9 + seconds))
    watch.stop()
    return watch, {name: from_core(name, columns) for name, columns in watch.tables().items()}


def _was_traced(watch: _core.Watch, tables: Tables) -> bool:
    """Returns whether the trace was read. If not, checks that the status says why, and that the rest was
    read."""
    status, detail = watch.source_status()["scheduler trace"]
    if status == "ok":
        return True
    assert status in {"not permitted", "not supported"}, (status, detail)
    assert os.geteuid() != 0 or status == "not supported", detail
    assert "CAP_BPF" in detail or "kernel" in detail or "container" in detail
    assert not {"traced", "waits", "syscalls"} & set(tables)
    assert tables["tasks"].filter(pl.col("role") == "session").height > 0
    return False


SUMS = ("run_ns", "runq_ns", "throttled_ns", "sleep_ns", "blocked_ns", "voluntary", "involuntary")


def _window(tables: Tables, pid: int) -> dict[str, int]:
    """Returns differences of one process's sums from its first read to its last, and the time between
    them."""
    rows = tables["traced"].filter((pl.col("pid") == pid) & (pl.col("status") == "ok"))
    assert rows.height >= 3
    assert rows["start_ticks"].n_unique() == 1
    assert rows["start_ticks"].null_count() == 0
    first, last = rows.row(0, named=True), rows.row(-1, named=True)
    return {c: last[c] - first[c] for c in SUMS} | {"wall_ns": last["after_ns"] - first["after_ns"]}


def _waits(tables: Tables, pid: int) -> dict[str | None, dict[str, int]]:
    """Returns the same differences by wait event. An event may have several rows a read, one for each
    status."""
    columns = ("sleep_ns", "runq_ns", "sleeps", "begun", "unclear", "preempted")
    reads = tables["traced"].filter(pl.col("pid") == pid)["after_ns"]
    rows = tables["waits"].filter(pl.col("pid") == pid)
    sums = rows.group_by("wait_event", "after_ns", maintain_order=True).agg(pl.col(columns).sum())
    of = {(r["wait_event"], r["after_ns"]): r for r in sums.to_dicts()}
    none = dict.fromkeys(columns, 0)
    ends = {
        event: [of.get((event, reads[n]), none) for n in (0, -1)] for event in sums["wait_event"].unique()
    }
    return {event: {c: last[c] - first[c] for c in columns} for event, (first, last) in ends.items()}


def _adds_up(window: dict[str, int], waits: dict[str | None, dict[str, int]]) -> None:
    assert window["run_ns"] + window["runq_ns"] + window["sleep_ns"] == pytest.approx(
        window["wall_ns"], rel=0.01
    )
    assert sum(w["sleep_ns"] for w in waits.values()) == window["sleep_ns"]
    assert sum(w["runq_ns"] for w in waits.values()) == window["runq_ns"]
    assert window["blocked_ns"] <= window["sleep_ns"]
    assert window["throttled_ns"] <= window["runq_ns"]


def test_a_sleeper_is_asleep_in_its_wait_event_all_the_time(old_and_new: Waiting) -> None:
    pid = old_and_new.doing("select pg_sleep(100)")
    eventually(lambda: old_and_new.label(pid)[1] == "PgSleep")
    watch, tables = _watch(_spec(old_and_new, [pid]), 1.0)
    if not _was_traced(watch, tables):
        return
    window, waits = _window(tables, pid), _waits(tables, pid)
    _adds_up(window, waits)
    assert window["wall_ns"] >= 1_000_000_000
    assert window["sleep_ns"] == pytest.approx(window["wall_ns"], rel=0.01)
    assert waits["PgSleep"]["sleep_ns"] == pytest.approx(window["wall_ns"], rel=0.01)
    of = tables["waits"].filter((pl.col("pid") == pid) & (pl.col("wait_event") == "PgSleep"))
    assert set(of["wait_class"]) == {"Timeout"}
    assert set(of["role"]) == {"session"}


@pytest.mark.alone
def test_waiters_for_a_lock_are_asleep_in_it(old_and_new: Waiting) -> None:
    holder = old_and_new.session()
    holder.execute("select pg_advisory_lock(77)")
    waiters = [old_and_new.doing("select pg_advisory_lock(77)") for _ in range(3)]
    eventually(lambda: all(old_and_new.label(p)[1] == "advisory" for p in waiters))
    watch, tables = _watch(_spec(old_and_new, [*waiters, holder.info.backend_pid]), 1.5)
    if not _was_traced(watch, tables):
        return
    for pid in waiters:
        window, waits = _window(tables, pid), _waits(tables, pid)
        _adds_up(window, waits)
        # each looks for a deadlock once, after a second: when it is to run and has no CPU, it still waits
        waited_ns = waits["advisory"]["sleep_ns"] + waits["advisory"]["runq_ns"]
        assert waited_ns == pytest.approx(window["wall_ns"], rel=0.02)
        assert waits["advisory"]["sleep_ns"] > 0.8 * window["wall_ns"]
    held = _waits(tables, holder.info.backend_pid)
    assert held["ClientRead"]["sleep_ns"] == pytest.approx(1.5e9, rel=0.3)


def test_two_spinners_on_one_cpu_share_it_and_the_kernel_agrees(sessions: Waiting) -> None:
    cpu = min(os.sched_getaffinity(0))
    pids = [sessions.doing(SPIN, cpu) for _ in range(2)]
    eventually(lambda: all(_core.read_task(p, p)["state"] == "R" for p in pids))
    watch, tables = _watch(_spec(sessions, pids), 3.0)
    if not _was_traced(watch, tables):
        return
    windows = [_window(tables, pid) for pid in pids]
    for pid, window in zip(pids, windows, strict=True):
        _adds_up(window, _waits(tables, pid))
        assert window["sleep_ns"] == 0
        assert window["involuntary"] > 0 == window["voluntary"]
        os_run, os_wall = _schedstat(tables, pid)
        assert window["run_ns"] / window["wall_ns"] == pytest.approx(os_run / os_wall, abs=0.01)
    assert sum(w["run_ns"] for w in windows) <= windows[0]["wall_ns"] * 1.001
    assert min(w["runq_ns"] for w in windows) > 0.3 * windows[0]["wall_ns"]


def _schedstat(tables: Tables, pid: int) -> tuple[int, int]:
    """Returns time on a CPU by ``schedstat``, and the time between its reads."""
    tasks = tables["tasks"].filter((pl.col("pid") == pid) & (pl.col("status") == "ok"))
    first, last = tasks.row(0, named=True), tasks.row(-1, named=True)
    return last["run_ns"] - first["run_ns"], last["after_ns"] - first["after_ns"]


def test_waits_are_counted_though_each_may_have_several_sleeps(old_and_new: Waiting) -> None:
    """Each nap in a statement is a wait, and so is each flush, in which the kernel wakes the backend and
    lets it sleep again."""
    client = old_and_new.session()
    pid, naps, commits = client.info.backend_pid, 100, 100
    client.execute("create table if not exists public.flushed (n int)")

    def ask() -> None:
        time.sleep(0.3)
        client.execute(f"do $$begin for i in 1..{naps} loop perform pg_sleep(0.003); end loop; end$$")
        for _ in range(commits):
            client.execute("insert into public.flushed values (1)")

    watch, tables = _watch(_spec(old_and_new, [pid]), 3.0, ask)
    client.execute("drop table public.flushed")
    if not _was_traced(watch, tables):
        return
    waits = _waits(tables, pid)
    assert (
        sum(w["unclear"] for w in waits.values()) <= 5
    )  # the first few, before the kernel's flags are known
    assert naps <= waits["PgSleep"]["begun"] <= waits["PgSleep"]["sleeps"] <= naps + 5
    if (flushes := waits.get("WalSync") or waits.get("WALSync")) is not None:
        assert flushes["begun"] <= min(flushes["sleeps"], commits + 5)


FREEZERS = {"v1": Path("/sys/fs/cgroup/freezer"), "v2": Path("/sys/fs/cgroup/unified")}
if not any(root.is_dir() for root in FREEZERS.values()):
    FREEZERS["v2"] = Path("/sys/fs/cgroup")


@pytest.mark.parametrize("stop", ["signal", *FREEZERS])
def test_a_backend_that_is_stopped_is_in_no_wait_of_its_own(old_and_new: Waiting, stop: str) -> None:
    client = old_and_new.session()
    pid = client.info.backend_pid
    stood_ns: dict[str, int] = {}

    def stand() -> None:
        with halt(pid, stop) as event:
            begun_ns = time.monotonic_ns()
            time.sleep(0.5)
            stood_ns[event] = time.monotonic_ns() - begun_ns

    watch, tables = _watch(_spec(old_and_new, [pid]), 2.0, stand)
    if not _was_traced(watch, tables):
        return
    waits = _waits(tables, pid)
    _adds_up(_window(tables, pid), waits)
    ((event, least_ns),) = stood_ns.items()
    assert waits[event]["sleep_ns"] >= least_ns
    assert client.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("version", FREEZERS)
def test_a_backend_that_was_frozen_before_is_in_no_wait_of_its_own(sessions: Waiting, version: str) -> None:
    """This holds for the trace, and for samples of its task, whose state looks like sleep."""
    client = sessions.session()
    pid = client.info.backend_pid
    with halt(pid, version) as event:
        watch, tables = _watch(_spec(sessions, [pid], memory_hz=20), 1.0)
    states = tables["samples"].filter((pl.col("pid") == pid) & (pl.col("via") == "memory"))["task_state"]
    assert states.len() == 0 or set(states) == {"F"}  # the word may not be read here
    assert client.execute("select 1").fetchone() == (1,)
    if not _was_traced(watch, tables):
        return
    assert states.len() > 0
    waits = _waits(tables, pid)
    assert {name for name, wait in waits.items() if wait["sleep_ns"]} == {event}


@contextmanager
def halt(pid: int, how: str) -> Iterator[str]:
    """Stops a process by a signal, or with its control group, and yields the wait event that the trace has
    for it."""
    if how == "signal":
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: " (stopped)" in Path(f"/proc/{pid}/status").read_text())
            yield "Signal"
        finally:
            os.kill(pid, signal.SIGCONT)
        return
    with freeze(pid, how):
        yield "Frozen"


@contextmanager
def freeze(pid: int, version: str) -> Iterator[None]:
    """Freezes a process in a control group of its own. Skips the test where none can be made."""
    one, root = FREEZERS["v1"], FREEZERS[version]
    group = root / f"dbdyno-test-{os.getpid()}"
    was = next(
        (
            line.split(":", 2)[2]
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()
            if ("freezer" in line.split(":")[1].split(",") if root == one else line.startswith("0::"))
        ),
        "/",
    )
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as e:
        pytest.skip(f"no control group can be made here: {e}")
    file, on, off = ("freezer.state", "FROZEN", "THAWED") if root == one else ("cgroup.freeze", "1", "0")
    shown = group / (file if root == one else "cgroup.events")
    try:
        (group / file).write_text(on)
        eventually(lambda: "FROZEN" in (text := shown.read_text()) or "frozen 1" in text)
        yield
    finally:
        (group / file).write_text(off)
        (root / was.lstrip("/") / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def test_each_statement_is_one_sleep_for_the_client_and_one_answer(old_and_new: Waiting) -> None:
    client = old_and_new.session()
    pid, count = client.info.backend_pid, 2000

    def ask() -> None:
        time.sleep(0.3)
        for _ in range(count):
            client.execute("select 1", prepare=False)

    watch, tables = _watch(_spec(old_and_new, [pid], syscalls=True), 2.0, ask)
    if not _was_traced(watch, tables):
        return
    window, waits = _window(tables, pid), _waits(tables, pid)
    _adds_up(window, waits)
    # a backend that loses its CPU before it sleeps, and then finds the next statement there, does not sleep
    assert 0 < waits["ClientRead"]["sleeps"] <= count + 20
    kernels = tables["tasks"].filter(pl.col("pid") == pid).drop_nulls("voluntary")
    for kind in ("voluntary", "involuntary"):
        counted = kernels[kind][-1] - kernels[kind][0]
        assert window[kind] == pytest.approx(counted, abs=5 + 0.01 * counted)
    assert sum(w["sleeps"] for w in waits.values()) == window["voluntary"]
    calls = tables["syscalls"].filter(pl.col("pid") == pid).group_by("name").agg(pl.col("calls").max())
    by_name = dict(calls.iter_rows())
    assert count <= by_name["sendto"] <= count + 10  # up to version 14 statistics are sent so, too
    assert by_name["recvfrom"] >= count
    assert by_name["epoll_wait"] >= waits["ClientRead"]["sleeps"] - 1
    times = tables["syscalls"].filter((pl.col("pid") == pid) & (pl.col("name") == "epoll_wait"))
    assert times["time_ns"][-1] >= waits["ClientRead"]["sleep_ns"] * 0.99


def test_system_calls_of_a_session_have_their_sizes_and_sleep_for_the_client_apart(
    old_and_new: Waiting,
) -> None:
    """Each ``select 1`` is a message of 14 bytes, and its answers are equally long. A nap is no wait for
    the client."""
    client = old_and_new.session()
    pid, count, naps, nap_s = client.info.backend_pid, 500, 20, 0.01

    def ask() -> None:
        time.sleep(0.3)
        for _ in range(count):
            client.pgconn.exec_(b"select 1")
        client.pgconn.exec_(
            f"do $$begin for i in 1..{naps} loop perform pg_sleep({nap_s}); end loop; end$$".encode()
        )

    watch, tables = _watch(_spec(old_and_new, [pid], syscalls=True), 2.0, ask)
    if not _was_traced(watch, tables):
        return
    of_session = {n: tables[n].filter(pl.col("pid") == pid) for n in ("syscalls", "syscall_sizes", "traced")}
    sizes = of_session["syscall_sizes"].group_by("name", "size_bytes").agg(pl.col("calls").max())
    by_size = {(name, size): calls for name, size, calls in sizes.iter_rows()}
    assert by_size["recvfrom", 8] == count
    assert max(n for (name, _), n in by_size.items() if name == "sendto") >= count
    last = {r["name"]: r for r in of_session["syscalls"].sort("after_ns").to_dicts()}
    waited = last["epoll_wait"]
    asleep_ns = waited["time_ns"] - waited["cpu_ns"] - waited["runq_ns"]
    client_ns = _waits(tables, pid)["ClientRead"]["sleep_ns"]
    assert waited["client_ns"] >= 0.99 * client_ns
    assert asleep_ns - waited["client_ns"] >= 0.99 * naps * nap_s * 1e9
    run_ns = of_session["traced"]["run_ns"].max()
    assert sum(r["cpu_ns"] for r in last.values()) <= run_ns  # type: ignore[operator]


def test_sessions_that_come_and_go_between_reads_are_traced_too(sessions: Waiting) -> None:
    came: list[int] = []

    def come_and_go() -> None:
        for _ in range(3):
            with psycopg.connect(sessions.dsn, autocommit=True) as one:
                came.append(one.info.backend_pid)
                one.execute("select pg_sleep(0.05)")
        eventually(lambda: not any(os.path.exists(f"/proc/{p}") for p in came))  # noqa: PTH110

    spec = _spec(sessions, [sessions.control.info.backend_pid], task_interval_ms=10_000)
    watch, tables = _watch(spec, 2.0, come_and_go)
    if not _was_traced(watch, tables):
        return
    for pid in came:
        row = tables["traced"].filter(pl.col("pid") == pid).to_dicts()[-1]
        assert row["role"] == "other"
        assert row["session"] is None
        assert row["run_ns"] > 1_000_000  # a backend takes more than that to start
        assert row["sleep_ns"] + row["runq_ns"] > 50_000_000  # it may be woken late
        waits = tables["waits"].filter((pl.col("pid") == pid) & (pl.col("wait_event") == "PgSleep"))
        slept = waits.to_dicts()[-1]
        assert slept["sleep_ns"] == pytest.approx(50e6, rel=0.2)
        assert slept["sleeps"] >= 1


@pytest.mark.root
def test_time_throttled_by_a_quota_has_its_own_account(sessions: Waiting) -> None:
    if os.geteuid() != 0:
        pytest.skip("sets a quota: run the tests as root")
    cpus = sorted(os.sched_getaffinity(0))[:2]
    pids = [sessions.doing(SPIN, cpu) for cpu in cpus]
    here = presence.presence(sessions.control)
    assert here.main_pid is not None
    with quota(here.main_pid, 0.05 * len(cpus)) as (group, *_):
        version = 1 if (group / "cpu.cfs_quota_us").exists() else 2
        groups = [{"scope": "server", "version": version, "path": str(group)}]
        watch, tables = _watch(_spec(sessions, pids, cgroups=groups), 4.0)
    if not _was_traced(watch, tables):
        return
    windows = [_window(tables, pid) for pid in pids]
    throttled_ns = sum(w["throttled_ns"] for w in windows)
    for pid, window in zip(pids, windows, strict=True):
        _adds_up(window, _waits(tables, pid))
        assert 0 < window["throttled_ns"] <= window["runq_ns"]
        assert window["run_ns"] <= 0.05 * len(cpus) * window["wall_ns"] * 1.1
    # one spinner a queue: what the group's queues were throttled is what the spinners were
    kept = tables["cgroup"].filter(path=str(group), key="throttled_ns", status="ok")
    assert throttled_ns == pytest.approx(kept["value"][-1] - kept["value"][0], rel=0.1)


@pytest.mark.root
def test_throttled_time_of_a_session_that_is_moved_under_a_quota_is_its_groups(sessions: Waiting) -> None:
    """The session is alone on one queue of the group, so the group's own count is the session's throttled
    time."""
    if os.geteuid() != 0:
        pytest.skip("sets a quota: run the tests as root")
    pid = sessions.doing(SPIN, min(os.sched_getaffinity(0)))
    here = presence.presence(sessions.control)
    assert here.main_pid is not None
    with quota(here.main_pid, 0.1) as (group, *_):
        outside, version = group.parent, 1 if (group / "cpu.cfs_quota_us").exists() else 2
        (outside / "cgroup.procs").write_text(str(pid))
        groups = [{"scope": "sessions", "version": version, "path": str(group)}]

        def move() -> None:
            time.sleep(0.7)
            (group / "cgroup.procs").write_text(str(pid))

        watch, tables = _watch(_spec(sessions, [pid], cgroups=groups), 3.0, move)
    if not _was_traced(watch, tables):
        return
    window = _window(tables, pid)
    _adds_up(window, _waits(tables, pid))
    kept = tables["cgroup"].filter(path=str(group), key="throttled_ns", status="ok")
    grown = kept["value"][-1] - kept["value"][0]
    assert grown > 0
    assert window["throttled_ns"] == pytest.approx(grown, rel=0.1)


def test_without_a_quota_nothing_is_throttled(sessions: Waiting) -> None:
    pid = sessions.doing(SPIN)
    watch, tables = _watch(_spec(sessions, [pid]), 1.0)
    if _was_traced(watch, tables):
        assert _window(tables, pid)["throttled_ns"] == 0


def test_a_trace_that_is_off_or_elsewhere_has_that_status(sessions: Waiting) -> None:
    pid = sessions.doing("select pg_sleep(100)")
    for spec, status in (({"trace": "off"}, "off"), ({"os": False}, "not here")):
        watch, tables = _watch(_spec(sessions, [pid], **spec), 0.2)
        actual, detail = watch.source_status()["scheduler trace"]
        assert (actual, bool(detail)) == (status, True)
        assert not {"traced", "waits", "syscalls"} & set(tables)


def test_recent_returns_only_later_rows(sessions: Waiting) -> None:
    pid = sessions.doing("select pg_sleep(100)")
    watch, tables = _watch(_spec(sessions, [pid], task_interval_ms=100), 1.0)
    if not _was_traced(watch, tables):
        return
    since = int(tables["traced"]["after_ns"][-1]) - 300_000_000
    recent = {name: from_core(name, columns) for name, columns in watch.recent(since).items()}
    for name in ("traced", "waits"):
        assert 0 < recent[name].height < tables[name].height
        assert recent[name]["after_ns"].min() >= since  # type: ignore[operator]


AS_OTHER_USER = """
import json, sys, time
from dbdyno import _core
from dbdyno.model.schema.tables import from_core
watch = _core.Watch(sys.stdin.read())
t0 = _core.now_ns() + 50_000_000
watch.start(t0, t0 + 400_000_000)
time.sleep(0.5)
watch.stop()
wanted = ("tasks", "traced", "waits")
tables = {n: from_core(n, t).to_dicts() for n, t in watch.tables().items() if n in wanted}
print(json.dumps({"data_sources": watch.source_status(), "tables": tables}))
"""


Said = dict[str, tuple[str, str]]


def _as_other_user(spec: dict[str, Any], *words: str) -> tuple[Said, dict[str, list[dict[str, Any]]]]:
    if os.geteuid() != 0:
        pytest.skip("becomes another user: run the tests as root")
    done = subprocess.run(
        [*words, sys.executable, "-c", AS_OTHER_USER],
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return report["data_sources"], report["tables"]


def _as_user(rights: str) -> list[str]:
    return [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        f"--inh-caps={rights}",
        f"--ambient-caps={rights}",
    ]


def test_without_rights_the_trace_says_what_is_needed_and_all_else_is_read(sessions: Waiting) -> None:
    pid = sessions.doing("select pg_sleep(100)")
    sources, tables = _as_other_user(_spec(sessions, [pid]), *_as_user("-all"))
    status, detail = sources["scheduler trace"]
    assert status == "not permitted"
    assert "CAP_BPF and CAP_PERFMON" in detail
    assert "--ambient-caps=+bpf,+perfmon" in detail
    assert "traced" not in tables
    assert {row["status"] for row in tables["tasks"] if row["pid"] == pid} == {"ok"}


def test_the_two_rights_that_the_trace_names_are_enough(sessions: Waiting) -> None:
    pid = sessions.doing("select pg_sleep(100)")
    eventually(lambda: sessions.label(pid)[1] == "PgSleep")
    sources, tables = _as_other_user(_spec(sessions, [pid]), *_as_user("+bpf,+perfmon"))
    status, detail = sources["scheduler trace"]
    if status == "not supported":
        assert "kernel" in detail or "container" in detail
        return
    assert status == "ok"
    last = [row for row in tables["traced"] if row["pid"] == pid][-1]
    assert last["sleep_ns"] > 400_000_000
    # another user's memory map is not to be read: the switches are there, their labels are not
    of = [row for row in tables["waits"] if row["pid"] == pid]
    assert {(row["wait_event"], row["status"]) for row in of} == {(None, "not permitted")}


def test_processes_beyond_the_room_are_counted(sessions: Waiting) -> None:
    """More processes than there is room for come at once."""
    spec = _spec(sessions, [sessions.control.info.backend_pid], trace_room=3)
    with contextlib.ExitStack() as stack:

        def crowd() -> None:
            for _ in range(5):
                stack.enter_context(psycopg.connect(sessions.dsn, autocommit=True))

        watch, tables = _watch(spec, 0.5, crowd)
    status, detail = watch.source_status()["scheduler trace"]
    if status in {"not permitted", "not supported"}:
        assert not _was_traced(watch, tables)
        return
    assert status == "limited"
    assert "found no room" in detail
