"""The CPU profile of real servers: whose samples, their functions, and what is missing without rights.

Where it is not permitted each test asserts that this is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.model.data_sources import sampled
from dbdyno.observe import frames
from tests.db.limiting import needs_root
from tests.db.test_trace import NOBODY, SPIN, Sessions, _spec
from tests.db.test_trace import old_and_new as old_and_new
from tests.db.test_trace import sessions as sessions

pytestmark = pytest.mark.db
PROFILE = {"trace": "off", "profile": {"hz": 99.0}}
ENOUGH, PATIENCE_S = 20, 30
READ = "do $$ begin loop perform count(*) from pg_class a, pg_class b; end loop; end $$"
"""On a CPU, in the executor."""
Tables = dict[str, pl.DataFrame]


def profiled(spec: dict[str, Any], enough: int = ENOUGH) -> tuple[tuple[str, str], Tables]:
    """Status of the profile, and tables with at least so many samples, if there are any to be had."""
    watch = _core.Watch(json.dumps(spec))
    end = time.monotonic() + PATIENCE_S
    now = _core.now_ns()
    watch.start(now, now + PATIENCE_S * 10**9)
    status = watch.source_status()["CPU profile"]
    while time.monotonic() < end and status[0] == "ok":
        time.sleep(1.0)
        if frames(watch)["profile_samples"].filter(role="session").height >= enough:
            break
    watch.stop()
    return watch.source_status()["CPU profile"], frames(watch)


def test_samples_of_sessions_have_functions_and_end_at_main(old_and_new: Sessions) -> None:
    busy = old_and_new.doing(READ)
    idle = old_and_new.doing("select pg_sleep(100)")
    (status, detail), tables = profiled(_spec(old_and_new, [busy, idle], **PROFILE))
    if status != "ok":
        assert (status, bool(detail)) == ("not permitted", True)
        return
    samples, stacks, told = (tables[t] for t in sampled())
    assert set(samples.filter(role="session")["session"]) == {0}, "who sleeps is never on a CPU"
    assert set(samples["pid"]) <= {busy, *samples.filter(pl.col("role") != "session")["pid"]}
    mine = samples.filter(session=0).join(stacks, on="stack").join(told, on="frame", how="left")
    assert mine["kind"].null_count() == 0, "each frame of a stack is told"
    leaves = mine.filter(position=0)
    assert leaves.height == samples.filter(session=0).height, "each sample has a leaf"
    roots = mine.sort("position").group_by("t_ns", "cpu", maintain_order=True).last()
    assert set(roots.filter(~pl.col("cut"))["module"]) == {"postgres"}, "all begin in the program"
    named_ones = (
        mine.drop_nulls("function").select("t_ns", "cpu").unique()
    )  # its static functions may be stripped
    assert named_ones.height >= 0.9 * leaves.height
    assert samples.filter("cut").height <= 0.1 * samples.height
    assert "ExecutorRun" in set(mine["function"].str.replace("standard_", ""))
    assert "cpu-clock, 99 Hz" in detail


def test_a_session_that_began_later_is_in_it_as_other_and_its_end_is_no_error(sessions: Sessions) -> None:
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
    found = frames(watch)["profile_samples"].filter(pid=later)
    assert (set(found["role"]), set(found["session"])) == ({"other"}, {None})


def test_elsewhere_or_not_asked_for_it_says_so(sessions: Sessions) -> None:
    spec = _spec(sessions, [], **PROFILE)
    watch = _core.Watch(json.dumps(spec | {"os": False}))
    assert watch.source_status()["CPU profile"][0] == "not here"
    spec.pop("profile")
    assert "CPU profile" not in _core.Watch(json.dumps(spec)).source_status()


def test_a_profile_ends_at_its_time(sessions: Sessions) -> None:
    busy = sessions.doing(SPIN)
    until = _core.now_ns() + 500_000_000
    spec = _spec(sessions, [busy], trace="off", profile={"hz": 99.0, "until_ns": until})
    watch = _core.Watch(json.dumps(spec))
    watch.start(_core.now_ns(), until + 10**9)
    time.sleep(1.5)
    watch.stop()
    found = frames(watch)["profile_samples"]
    assert found.filter(pl.col("t_ns") > until + 400_000_000).is_empty()


AS_SOMEBODY = """
import json, sys, time
from dbdyno import _core
from dbdyno.observe import frames
watch = _core.Watch(sys.stdin.read())
now = _core.now_ns()
watch.start(now, now + 10**9)
time.sleep(3)
watch.stop()
told = frames(watch)["profile_frames"].select("kind", "module", "function").rows()
print(json.dumps({"status": watch.source_status()["CPU profile"], "frames": told}))
"""


def _as_nobody(spec: dict[str, Any], *rights: str) -> dict[str, Any]:
    caps = [f"--inh-caps={','.join(rights)}", f"--ambient-caps={','.join(rights)}"] if rights else []
    done = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *caps,
         sys.executable, "-c", AS_SOMEBODY],
        input=json.dumps(spec), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@needs_root
def test_without_rights_it_says_how_to_get_them_and_with_some_what_is_missing(sessions: Sessions) -> None:
    spec = _spec(sessions, [sessions.doing(READ)], **PROFILE)
    told = _as_nobody(spec)
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 0:
        assert told["status"][0] == "not permitted"
        assert "--ambient-caps=+perfmon" in told["status"][1]
        assert told["frames"] == []
    some = _as_nobody(spec, "+perfmon")
    if some["status"][0] != "ok":
        pytest.skip(f"root has no such right to give: {some['status'][1]}")
    assert "CAP_SYSLOG" in some["status"][1]
    kernel = [function for kind, _, function in some["frames"] if kind == "kernel"]
    assert kernel == [None] * len(kernel), "hidden from this user"
    whole = _as_nobody(spec, "+perfmon", "+sys_ptrace", "+syslog")
    assert {module for _, module, function in whole["frames"] if function} >= {"postgres"}
