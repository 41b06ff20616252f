"""The CPU profile of real servers: whose samples, their functions, and what is missing without rights.

Where it is not permitted each test asserts that the status says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.model.schema.data_sources.profile import PROFILE as PROFILED
from dbdyno.observe import frames
from tests.db.conftest import Waiting, eventually
from tests.db.limiting import needs_root
from tests.db.test_trace import NOBODY, SPIN, _spec
from tests.db.test_trace import old_and_new as old_and_new
from tests.db.test_trace import sessions as sessions

pytestmark = pytest.mark.db
PROFILE = {"trace": "off", "profile": {"hz": 99.0}}
ENOUGH, FEW, PATIENCE_S = 20, 2, 30
READ = "do $$ begin loop perform count(*) from pg_class a, pg_class b; end loop; end $$"
"""On a CPU, in the executor."""
READ_AT_TIMES = READ.replace("end loop", "perform pg_sleep(0.03); end loop")
"""The same for a fourth of its time: where its samples need not be many."""
Tables = dict[str, pl.DataFrame]


def profile(spec: dict[str, Any], enough: int = ENOUGH, *also: pl.Expr) -> tuple[tuple[str, str], Tables]:
    """Returns the status of the profile, and tables with at least so many samples if it is permitted.

    ``also`` selects samples of which there must be a few, too, where samples carry wait events.
    """
    watch = _core.Watch(json.dumps(spec))
    end = time.monotonic() + PATIENCE_S
    now = _core.now_ns()
    watch.start(now, now + PATIENCE_S * 10**9)
    status = watch.source_status()["CPU profile"]
    wanted = () if "samples have no wait event" in status[1] else also
    while time.monotonic() < end and status[0] == "ok":
        time.sleep(0.2)
        samples = frames(watch)["profile_samples"].filter(role="session")
        if samples.height >= enough and all(samples.filter(which).height >= FEW for which in wanted):
            break
    watch.stop()
    return watch.source_status()["CPU profile"], frames(watch)


def test_samples_of_sessions_have_functions_and_end_at_main(old_and_new: Waiting) -> None:
    busy = old_and_new.doing(READ)
    idle = old_and_new.doing("select pg_sleep(100)")
    (status, detail), tables = profile(_spec(old_and_new, [busy, idle], **PROFILE), 5 * ENOUGH)
    if status != "ok":
        assert (status, bool(detail)) == ("not permitted", True)
        return
    samples, stacks, functions, _ = (tables[t] for t in PROFILED)
    assert set(samples.filter(role="session")["session"]) == {0}, "who sleeps is never on a CPU"
    assert set(samples["pid"]) <= {busy, *samples.filter(pl.col("role") != "session")["pid"]}
    stacked = samples.filter(session=0).join(stacks, on="stack").join(functions, on="frame", how="left")
    assert stacked["kind"].null_count() == 0, "a frame of a stack is not described"
    leaves = stacked.filter(position=0)
    assert leaves.height == samples.filter(session=0).height, "each sample has a leaf"
    roots = stacked.sort("position").group_by("t_ns", "cpu", maintain_order=True).last()
    assert set(roots.filter(~pl.col("cut"))["module"]) == {"postgres"}, "all begin in the program"
    named_ones = (
        stacked.drop_nulls("function").select("t_ns", "cpu").unique()
    )  # its static functions may be stripped
    assert named_ones.height >= 0.9 * leaves.height
    assert samples.filter("cut").height <= 0.1 * samples.height
    assert "ExecutorRun" in set(stacked["function"].str.replace("standard_", ""))
    assert "cpu-clock, 99 Hz" in detail


def test_a_session_that_began_later_is_in_it_as_other_and_its_end_is_no_error(sessions: Waiting) -> None:
    spec = _spec(sessions, [], **PROFILE)
    watch = _core.Watch(json.dumps(spec))
    now = _core.now_ns()
    watch.start(now, now + PATIENCE_S * 10**9)
    later = sessions.doing(SPIN)
    end = time.monotonic() + PATIENCE_S
    while frames(watch)["profile_samples"].filter(pid=later).is_empty() and time.monotonic() < end:
        if watch.source_status()["CPU profile"][0] != "ok":
            watch.stop()
            return
        time.sleep(0.5)
    sessions.control.execute("select pg_terminate_backend(%s)", [later])
    watch.stop()
    samples = frames(watch)["profile_samples"].filter(pid=later)
    assert (set(samples["role"]), set(samples["session"])) == ({"other"}, {None})


def test_a_profile_has_the_status_not_here_elsewhere_and_none_unasked(sessions: Waiting) -> None:
    spec = _spec(sessions, [], **PROFILE)
    watch = _core.Watch(json.dumps(spec | {"os": False}))
    assert watch.source_status()["CPU profile"][0] == "not here"
    spec.pop("profile")
    assert "CPU profile" not in _core.Watch(json.dumps(spec)).source_status()


SLEEPS = "do $$ begin loop perform pg_sleep(0.00002); end loop; end $$"
"""Mostly asleep; on a CPU to set its timer and to wake up, in part under its wait event."""


def _labels(tables: Tables, pid: int) -> pl.DataFrame:
    """Returns the samples of one process with their wait event."""
    samples = tables["profile_samples"].filter(pid=pid)
    named = pl.concat_str("wait_class", "wait_event", separator="/").fill_null("none")
    return samples.with_columns(event=named)


def test_samples_carry_the_wait_event_and_the_statement_of_their_moment(old_and_new: Waiting) -> None:
    for setting in ("compute_query_id", "track_activities"):
        old_and_new.control.execute(f"set {setting} to on")
    busy, sleeper = old_and_new.doing(READ), old_and_new.doing(SLEEPS)
    spec = _spec(old_and_new, [busy, sleeper], profile={"hz": 499.0})
    woken_up = pl.col("wait_event") == "PgSleep"
    (status, detail), tables = profile(spec, 6 * ENOUGH, woken_up)
    if status != "ok":
        return
    samples = tables["profile_samples"]
    if "samples have no wait event" in detail:
        assert set(samples["label_status"]) <= {"not permitted", "not supported"}
        assert samples["wait_event"].null_count() == samples.height
        return
    assert samples.filter(label_status="ok").height >= 0.99 * samples.height, "read at each sample"
    spinning, sleeping = _labels(tables, busy), _labels(tables, sleeper)
    assert spinning.filter(event="none").height >= 0.95 * spinning.height, "it waits for nothing"
    woken = sleeping.filter(event="Timeout/PgSleep")
    assert woken.height > 0, "it enters and leaves its sleep under that event"
    frames_of = tables["profile_stacks"].join(tables["profile_frames"], on="frame")
    under = woken.join(frames_of, on="stack").filter(kind="kernel")
    functions = " ".join(under["function"].drop_nulls().unique())
    assert not functions or any(f in functions for f in ("epoll", "nanosleep", "poll", "schedule")), functions
    shares_agree(tables, sleeper, sleeping)


def shares_agree(tables: Tables, pid: int, sleeping: pl.DataFrame) -> None:
    """Checks that the scheduler trace, by its own clock at another rate, meets the same labels as often."""
    if "waits" not in tables:
        return
    ticks = tables["waits"].filter(pid=pid, status="ok").sort("after_ns").group_by("wait_event").last()
    n, hits = (ticks.filter(of)["run_samples"].sum() for of in (True, pl.col("wait_event") == "PgSleep"))
    if n < ENOUGH:
        return
    ours, theirs = sleeping.filter(event="Timeout/PgSleep").height / sleeping.height, hits / n
    error = (0.25 / n + 0.25 / sleeping.height) ** 0.5
    assert abs(ours - theirs) <= 4.5 * error, (ours, theirs, n, sleeping.height)


def test_a_read_from_the_page_cache_is_on_a_cpu_under_its_wait_event(old_and_new: Waiting) -> None:
    """A table is read again and again, and its CPU time in pread has the event.

    It is larger than a fourth of the server's cache, so that a scan reads it through a ring of a few buffers.
    """
    run = old_and_new.control.execute
    run("drop table if exists read_again")
    run("create unlogged table read_again as select g, repeat('x', 900) x from generate_series(1, 60000) g")
    run("vacuum read_again")
    row = run("show server_version_num").fetchone()
    assert row is not None
    reader = old_and_new.session()
    reader.execute("set max_parallel_workers_per_gather to 0")
    reader.execute("set synchronize_seqscans to off")
    reader.pgconn.send_query(b"do $$ begin loop perform count(*) from read_again; end loop; end $$")
    pid = reader.info.backend_pid
    try:
        (status, detail), tables = profile(_spec(old_and_new, [pid], profile={"hz": 499.0}), 10 * ENOUGH)
    finally:
        run("select pg_terminate_backend(%s)", [pid])
        eventually(lambda: run("select count(*) from pg_locks where pid = %s", [pid]).fetchone() == (0,))
        run("drop table read_again")
    if status != "ok" or "samples have no wait event" in detail:
        return
    samples = _labels(tables, pid)
    stacks = tables["profile_stacks"].join(tables["profile_frames"], on="frame")
    functions = stacks.group_by("stack").agg(pl.col("function").drop_nulls().str.join(" ").alias("functions"))
    inside = pl.col("functions").str.contains("pread|preadv|read_iter|filemap_read")
    reads = samples.filter(mode="kernel").join(functions, on="stack").filter(inside)
    if int(row[0]) >= 180000:
        return  # its I/O workers read
    assert reads.height >= ENOUGH, samples.group_by("event").len()
    assert reads.filter(event="IO/DataFileRead").height >= 0.9 * reads.height, reads.group_by("event").len()


def test_samples_of_two_statements_have_their_ids(sessions: Waiting) -> None:
    statements = (
        "select count(*) from pg_class a, pg_class b, pg_class c",
        "select sum(g) from generate_series(1, 1e9) g",
    )
    pids = [sessions.doing(s) for s in statements]
    (status, detail), tables = profile(_spec(sessions, pids, trace="off", profile={"hz": 499.0}), 5 * ENOUGH)
    if status != "ok" or "samples have no" in detail:
        return
    samples = tables["profile_samples"]
    for pid in pids:
        asked = sessions.control.execute("select query_id from pg_stat_activity where pid = %s", [pid])
        row = asked.fetchone()
        assert set(samples.filter(pid=pid)["query_id"]) == {row and row[0]}
    assert set(samples["query_status"]) == {"ok"}


def test_a_profile_ends_at_its_time(sessions: Waiting) -> None:
    busy = sessions.doing(READ_AT_TIMES)
    until = _core.now_ns() + 500_000_000
    spec = _spec(sessions, [busy], trace="off", profile={"hz": 99.0, "until_ns": until})
    watch = _core.Watch(json.dumps(spec))
    watch.start(_core.now_ns(), until + 10**9)
    time.sleep(1.5)
    watch.stop()
    samples = frames(watch)["profile_samples"]
    assert samples.filter(pl.col("t_ns") > until + 400_000_000).is_empty()


AS_SOMEBODY = f"""
import json, sys, time
from dbdyno import _core
from dbdyno.observe import frames
watch = _core.Watch(sys.stdin.read())
now = _core.now_ns()
end = now + {PATIENCE_S} * 10**9
watch.start(now, end)
while watch.source_status()["CPU profile"][0] == "ok" and _core.now_ns() < end:
    time.sleep(0.2)
    if frames(watch)["profile_samples"].filter(role="session").height >= {ENOUGH}:
        break
watch.stop()
tables = frames(watch)
functions = tables["profile_frames"].select("kind", "module", "function").rows()
labels = tables["profile_samples"]["label_status"].unique().to_list()
print(json.dumps({{"status": watch.source_status()["CPU profile"], "frames": functions, "labels": labels}}))
"""


def _as_nobody(spec: dict[str, Any], *rights: str) -> dict[str, Any]:
    caps = [f"--inh-caps={','.join(rights)}", f"--ambient-caps={','.join(rights)}"] if rights else []
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return report_of(["setpriv", *user, *caps, sys.executable, "-c", AS_SOMEBODY], spec)


def report_of(command: list[str], spec: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        command, input=json.dumps(spec), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@needs_root
def test_without_rights_a_profile_says_how_to_get_them_and_with_some_what_is_missing(
    sessions: Waiting,
) -> None:
    spec = _spec(sessions, [sessions.doing(READ_AT_TIMES)], **PROFILE)
    report = _as_nobody(spec)
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 0:
        assert report["status"][0] == "not permitted"
        assert "--ambient-caps=+perfmon" in report["status"][1]
        assert report["frames"] == []
    some = _as_nobody(spec, "+perfmon")
    if some["status"][0] != "ok":
        pytest.skip(f"root has no such right to give: {some['status'][1]}")
    assert "CAP_SYSLOG" in some["status"][1]
    assert "samples have no wait event" in some["status"][1]
    assert set(some["labels"]) <= {"not permitted", "not supported"}, "never as if it waited for nothing"
    kernel = [function for kind, _, function in some["frames"] if kind == "kernel"]
    assert kernel == [None] * len(kernel), "hidden from this user"
    whole = _as_nobody(spec, "+perfmon", "+sys_ptrace", "+syslog", "+bpf")
    assert {module for _, module, function in whole["frames"] if function} >= {"postgres"}
    labelled = "samples have no wait event" not in whole["status"][1]
    assert labelled == ("ok" in whole["labels"])


FORBID = """
import ctypes, struct, sys
libc, number = ctypes.CDLL(None), int(sys.argv[1])
# load the number; if it is this one, EPERM (1); else allow
program = b"".join(struct.pack("HBBI", *i) for i in (
    (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 1), (0x06, 0, 0, 0x7FFF0000)))
kept = ctypes.create_string_buffer(program)
header = struct.pack("HxxxxxxP", 4, ctypes.addressof(kept))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
"""
"""seccomp(2): one system call is not permitted."""
NUMBERS = {"x86_64": {"perf_event_open": 298, "bpf": 321}, "aarch64": {"perf_event_open": 241, "bpf": 280}}


@needs_root
@pytest.mark.parametrize("forbidden", ["perf_event_open", "bpf"])
def test_a_call_forbidden_by_a_filter_is_in_the_status(sessions: Waiting, forbidden: str) -> None:
    numbers = NUMBERS.get(os.uname().machine)
    if numbers is None:
        pytest.skip("numbers of system calls are not known here")
    spec = _spec(sessions, [sessions.doing(READ_AT_TIMES)], **PROFILE)
    command = [sys.executable, "-c", FORBID + AS_SOMEBODY, str(numbers[forbidden])]
    report = report_of(command, spec)
    if forbidden == "perf_event_open" or report["status"][0] != "ok":
        assert (report["status"][0], report["frames"]) == ("not permitted", [])
    else:
        assert "samples have no wait event" in report["status"][1]
        assert set(report["labels"]) <= {"not permitted", "not supported"}
