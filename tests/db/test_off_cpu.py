"""Off-CPU stacks of programs and servers that sleep for known times in known functions.

Where the trace, or its stacks, are not permitted or not supported, the status says so, and no figure is
a zero.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.model.results.session_time import wait_label
from dbdyno.model.schema.data_sources.sleeps import OFF_CPU
from dbdyno.observe import frames
from tests.db.conftest import Waiting
from tests.db.test_trace import _spec
from tests.db.test_trace import old_and_new as old_and_new
from tests.db.test_trace import sessions as sessions

pytestmark = pytest.mark.db
ASKED = {"hz": 199.0}
REFUSED = ("not permitted", "not supported", "not here")
PATIENCE_S = 60
Tables = dict[str, pl.DataFrame]

PROGRAM = """
#include <stdlib.h>
#include <time.h>
static void nap(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
}
__attribute__((noinline)) void sleeps_long(long us) { nap(7 * us); __asm__ volatile(""); }
__attribute__((noinline)) void sleeps_short(long us) { nap(3 * us); __asm__ volatile(""); }
int main(int argc, char **argv)
{
	long us = atol(argv[argc - 1]);
	for (;;) {
		sleeps_long(us);
		sleeps_short(us);
	}
}
"""
POINTERS = ("-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-optimize-sibling-calls")
TABLES = ("-fomit-frame-pointer", "-fasynchronous-unwind-tables", "-fno-optimize-sibling-calls")


@pytest.fixture(params=[POINTERS, TABLES], ids=["frame pointers", "tables"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc libc6-dev")
    (tmp_path / "sleeps.c").write_text(PROGRAM)
    program = tmp_path / "sleeps"
    subprocess.run([compiler, "-O2", *request.param, "-o", program, tmp_path / "sleeps.c"], check=True)
    return program


def sample_stacks(
    spec: dict[str, Any], enough: Callable[[Tables], bool]
) -> tuple[tuple[str, str], Tables, tuple[int, int]]:
    """Returns the status of the stacks, the tables as soon as there are enough, and begin and end."""
    watch = _core.Watch(json.dumps({"off_cpu": ASKED, **spec}))
    begun = _core.now_ns()
    watch.start(begun, begun + PATIENCE_S * 10**9)
    end = time.monotonic() + PATIENCE_S
    while watch.source_status()[OFF_CPU.name][0] not in REFUSED and time.monotonic() < end:
        time.sleep(1.0)
        if enough(frames(watch)):
            break
    watch.stop()
    return watch.source_status()[OFF_CPU.name], frames(watch), (begun, _core.now_ns())


def with_time_stood_for(tables: Tables) -> pl.DataFrame:
    """Returns the chosen sleeps with the time that each stands for, in ns."""
    return tables["sleep_samples"].with_columns(ns=pl.col("slept_ns").fill_null(0) / pl.col("chance"))


def of_function(tables: Tables, function: str) -> pl.DataFrame:
    named = tables["sleep_frames"].filter(function=function)
    stacks = tables["sleep_stacks"].join(named, on="frame", how="semi")
    return with_time_stood_for(tables).join(stacks, on="stack", how="semi")


@pytest.mark.parametrize("us", [1000, 30])
def test_two_functions_have_their_shares_of_sleep(program: Path, us: int) -> None:
    """The trace takes all sleeps if they are long, and a part of them if they are short and many."""
    child = subprocess.Popen([program, str(us)])
    task = {"pid": child.pid, "tid": child.pid, "role": "other"}
    spec = {"os": True, "tasks": [task], "host": False}
    try:
        status, tables, _ = sample_stacks(spec, lambda t: t["sleep_samples"].height > 500)
    finally:
        child.kill()
        child.wait()
    if status[0] in REFUSED:
        assert status[1]
        return
    long, short = (of_function(tables, f) for f in ("sleeps_long", "sleeps_short"))
    assert long.height + short.height >= 0.98 * tables["sleep_samples"].height
    assert of_function(tables, "main").height >= 0.98 * tables["sleep_samples"].height, "unwound to the root"
    # what each sleeps on average is known from its own sleeps; the share of time from these
    each = [part["slept_ns"].mean() for part in (long, short)]
    truth = each[0] / sum(each)  # type: ignore[operator, arg-type]
    share = long["ns"].sum() / (long["ns"].sum() + short["ns"].sum())
    error = (
        math.sqrt(long["ns"].pow(2).sum() + short["ns"].pow(2).sum())
        / with_time_stood_for(tables)["ns"].sum()
    )
    assert share == pytest.approx(truth, abs=0.02 + 4.5 * error)
    exact = tables["waits"].filter(pl.col("after_ns") == pl.col("after_ns").max())["sleep_ns"].sum()
    assert with_time_stood_for(tables)["ns"].sum() == pytest.approx(exact, rel=0.05 + 4.5 * error)


@pytest.fixture
def waiting(old_and_new: Waiting) -> Iterator[dict[str, Any]]:
    """Yields the specification for a session in pg_sleep again and again, and two that wait for a lock
    that a third takes in turns."""
    server = old_and_new
    server.control.execute("create table if not exists locked (n int)")
    asleep = server.doing("do $$ begin loop perform pg_sleep(0.003); end loop; end $$")
    taking = (
        "do $$ begin loop lock table locked in access exclusive mode; perform pg_sleep(0.002); commit; "
        "end loop; end $$"
    )
    pids = [asleep, *(server.doing(taking) for _ in range(3))]
    yield _spec(server, pids)


def test_sleep_by_wait_event_is_that_of_the_trace(waiting: dict[str, Any]) -> None:
    def enough(tables: Tables) -> bool:
        events = tables["sleep_samples"].filter(role="session").group_by("wait_event").len()
        return events.filter(pl.col("len") > 150).height >= 2

    status, tables, _ = sample_stacks(waiting, enough)
    if status[0] in REFUSED:
        assert status[1]
        return
    sleeps = (
        with_time_stood_for(tables).filter(role="session", label_status="ok").with_columns(wait=wait_label())
    )
    by_wait = sleeps.group_by("wait").agg(pl.col("ns").sum(), error=pl.col("ns").pow(2).sum().sqrt())
    waits = tables["waits"].filter(role="session").with_columns(wait=wait_label())
    last = waits.filter(pl.col("after_ns") == pl.col("after_ns").max().over("pid"))
    exact = last.group_by("wait").agg(pl.col("sleep_ns").sum())
    for event in ("Timeout/PgSleep", "Lock/relation"):
        (_, ns, error), (_, truth) = (
            by_wait.row(by_predicate=pl.col("wait") == event),
            exact.row(by_predicate=pl.col("wait") == event),
        )
        assert ns == pytest.approx(truth, rel=0.1, abs=4.5 * error), event
    code = {
        event: set(
            sleeps.filter(wait=event)
            .join(tables["sleep_stacks"], on="stack")
            .join(tables["sleep_frames"], on="frame")["function"]
        )
        for event in ("Timeout/PgSleep", "Lock/relation")
    }
    assert "pg_sleep" in code["Timeout/PgSleep"] and "pg_sleep" not in code["Lock/relation"]
    assert "ProcSleep" in code["Lock/relation"]


@pytest.mark.parametrize("hz", [0.0, -1.0, 1e300])
def test_a_rate_that_cannot_be_is_refused_and_the_trace_goes_on(hz: float) -> None:
    watch = _core.Watch(json.dumps({"os": True, "host": False, "off_cpu": {"hz": hz}}))
    status, detail = watch.source_status()[OFF_CPU.name]
    trace = watch.source_status()["scheduler trace"][0]
    assert trace in ("ok", *REFUSED)
    assert (status, "at most" in detail) == ("not supported", True)


def test_stacks_without_the_trace_have_a_status_that_says_why(sessions: Waiting) -> None:
    spec = _spec(sessions, []) | {"off_cpu": ASKED}
    assert _core.Watch(json.dumps(spec | {"trace": "off"})).source_status()[OFF_CPU.name][0] == "off"
    assert _core.Watch(json.dumps(spec | {"os": False})).source_status()[OFF_CPU.name][0] == "not here"
    spec.pop("off_cpu")
    assert OFF_CPU.name not in _core.Watch(json.dumps(spec)).source_status()


def test_a_watch_after_another_begins_at_zero(sessions: Waiting) -> None:
    """The program stays loaded from one to the next."""
    pid = sessions.doing("do $$ begin loop perform pg_sleep(0.003); end loop; end $$")
    for _ in range(3):
        status, tables, (begun, ended) = sample_stacks(
            _spec(sessions, [pid]), lambda t: t["sleep_samples"].filter(role="session").height > 20
        )
        if status[0] in REFUSED:
            return
        samples = tables["sleep_samples"]
        assert samples["t_ns"].min() >= begun - 10**9 and samples["t_ns"].max() <= ended  # type: ignore[operator]
        traced = tables["traced"].filter(role="session")
        last = traced.filter(pl.col("after_ns") == pl.col("after_ns").max()).row(0, named=True)
        whole = last["run_ns"] + last["runq_ns"] + last["sleep_ns"]
        assert whole <= ended - begun + 10**9, "no time of the watch before"
        assert set(traced["pid"]) == {pid}
