"""The wait event word read from real servers' memory, against what each server reports itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import polars as pl
import pytest

from dbdyno import _core
from dbdyno.engines.postgres import connect, presence
from dbdyno.engines.postgres.wait_events import word_spec
from dbdyno.model.schema.tables import from_core
from tests.db.conftest import Waiting, eventually

pytestmark = pytest.mark.db
ACTIVITY = """select pid, case when backend_type <> 'client backend' then backend_type end as helper, state,
    wait_event_type as wait_class, wait_event, query_id, leader_pid, application_name = 'chosen' as chosen
    from pg_stat_get_activity(null) where pid <> pg_backend_pid()"""
MEMORY = pl.col("via") == "memory"
NOBODY = 65534


def _target(dsn: str) -> dict[str, Any]:
    with closing(connect.connect(dsn)) as connection:
        return connect.driver_target(connection)


@pytest.fixture
def held(kind_dsn: str) -> Iterator[Waiting]:
    sessions = Waiting(kind_dsn)
    yield sessions
    sessions.close()


@pytest.fixture
def held_by_each(any_dsn: str) -> Iterator[Waiting]:
    """Yields sessions on each version, since the word's place and names are the version's own."""
    sessions = Waiting(any_dsn)
    yield sessions
    sessions.close()


def _spec(held: Waiting, **more: Any) -> dict[str, Any]:
    version = held.control.info.server_version
    here = presence.presence(held.control)
    return {
        "engine": "postgres",
        "activity": {"target": _target(held.dsn), "sql": ACTIVITY},
        "os": here.here,
        "main_pid": here.main_pid,
        "sample_hz": 20.0,
        "sample_budget": 1.0,
        "memory_hz": 100.0,
        "memory_budget": 1.0,
        "word": word_spec(version // 10000),
        "trace": "off",
        **more,
    }


def _watch(
    spec: dict[str, Any], seconds: float = 1.0, meanwhile: Callable[[_core.Watch], Any] | None = None
) -> tuple[_core.Watch, dict[str, pl.DataFrame]]:
    """Returns a watch and its tables. With ``meanwhile`` the window lasts as long as that call."""
    watch = _core.Watch(json.dumps(spec))
    t0 = _core.now_ns() + 50_000_000
    watch.start(t0, t0 + int((60 if meanwhile else seconds) * 1e9))
    if meanwhile is not None:
        meanwhile(watch)
    else:
        time.sleep(max(0.0, (t0 - _core.now_ns()) / 1e9 + seconds))
    watch.stop()
    return watch, {name: from_core(name, columns) for name, columns in watch.tables().items()}


def _labels(samples: pl.DataFrame, pid: int, via: str) -> set[tuple[str | None, str | None]]:
    of = samples.filter((pl.col("pid") == pid) & (pl.col("via") == via))
    return set(of.select("wait_class", "wait_event").rows())


def test_known_waits_read_from_memory_are_what_the_server_says(held_by_each: Waiting) -> None:
    held_by_each.control.execute("create table if not exists held_by_test ()")
    holder = held_by_each.session()
    holder.execute("begin")
    holder.execute("lock table held_by_test")
    holder.execute("select pg_advisory_lock(4711)")
    expected = {
        held_by_each.session().info.backend_pid: ("Client", "ClientRead"),
        holder.info.backend_pid: ("Client", "ClientRead"),
        held_by_each.doing("select pg_sleep(100)"): ("Timeout", "PgSleep"),
        held_by_each.doing("select from held_by_test"): ("Lock", "relation"),
        held_by_each.doing("select pg_advisory_lock(4711)"): ("Lock", "advisory"),
    }
    eventually(lambda: all(held_by_each.label(pid) == label for pid, label in expected.items()))
    shares: dict[str, float] = {}

    def meanwhile(watch: _core.Watch) -> None:
        time.sleep(1)
        shares.update(eventually(watch.latest))  # none in a second: a busy machine

    spec = _spec(held_by_each, sessions=[[n, pid] for n, pid in enumerate(expected)])
    watch, tables = _watch(spec, meanwhile=meanwhile)
    assert watch.source_status()["wait event word"] == ("ok", "")
    samples = tables["samples"]
    for pid, label in expected.items():
        seldom = {(None, None)} if label[0] == "Lock" else set()  # while it looks for deadlocks, once
        for via in ("memory", "sql"):
            assert _labels(samples, pid, via) - seldom == {label}
        of = samples.filter(MEMORY & (pl.col("pid") == pid))
        assert of["task_state"].mode().to_list() == ["S"]  # a lock waiter looks for deadlocks once
        assert of["start_ticks"].n_unique() == 1
    woken = {"run or queue"}  # a lock waiter looks for deadlocks once: a busy machine makes it wait
    assert set(shares) - woken == {"Client:ClientRead", "Timeout:PgSleep", "Lock:relation", "Lock:advisory"}
    assert shares["Client:ClientRead"] == pytest.approx(0.4, abs=0.05)


def test_the_servers_own_processes_are_read_too(held_by_each: Waiting) -> None:
    _, tables = _watch(_spec(held_by_each))
    samples = tables["samples"].filter(pl.col("role").str.starts_with("helper:"))
    asleep = samples.filter(pl.col("task_state") == "S")
    usual = asleep.group_by("role", "via").agg(
        pl.concat_str("wait_class", "wait_event", separator="/").mode().sort().first().alias("label")
    )
    by_role = usual.pivot(on="via", index="role", values="label").drop_nulls()
    assert by_role.height >= 4
    assert by_role["memory"].to_list() == by_role["sql"].to_list()


def test_without_names_of_events_waits_have_their_class_and_a_number(held: Waiting) -> None:
    pid = held.doing("select pg_sleep(100)")
    eventually(lambda: held.label(pid) == ("Timeout", "PgSleep"))
    spec = _spec(held, sessions=[[0, pid]])
    assert spec["word"] is not None
    spec["word"] |= {"names": []}
    _, tables = _watch(spec)
    ((wait_class, event),) = _labels(tables["samples"], pid, "memory")
    assert wait_class == "Timeout"
    assert re.fullmatch(r"#\d+", str(event))


def test_a_session_that_runs_has_no_wait_event_and_a_state_of_r(held: Waiting) -> None:
    sql = "do $$ begin loop perform 1; end loop; end $$"
    pid = held.doing(sql)
    eventually(lambda: held.label(pid) == (None, None))
    _, tables = _watch(_spec(held, sessions=[[0, pid]]))
    of = tables["samples"].filter(MEMORY & (pl.col("pid") == pid))
    assert _labels(of, pid, "memory") == {(None, None)}
    assert (of["task_state"] == "R").mean() == 1.0


def _sessions_at_last(of: pl.DataFrame) -> set[int | None]:
    """Returns the sessions of a backend's rows and of its last one. The first ones may lack it, before the
    backend has a name."""
    at = "task_ns" if "task_ns" in of.columns else "before_ns"
    return {*of["session"].drop_nulls(), of.drop_nulls(at).sort(at)["session"][-1]}


def test_backends_that_come_are_adopted_where_they_are_chosen(held: Waiting) -> None:
    known = held.session("chosen").info.backend_pid
    came: list[int] = []

    def come_and_go(watch: _core.Watch) -> None:
        def seen(pid: int, session: int | None) -> bool:
            """Returns whether every table that tells whose a process is has rows for ``session``."""
            recent = watch.recent(0)
            tables = [from_core(name, recent[name]) for name in ("samples", "tasks")]
            asked = [t.filter((pl.col("pid") == pid) & pl.col("session").eq_missing(session)) for t in tables]
            return all(t.height for t in asked)

        eventually(lambda: seen(known, 4))
        came.append(held.doing("select pg_sleep(100)", application="chosen"))
        eventually(lambda: seen(came[0], 5))
        came.append(held.doing("select pg_sleep(100)", application="someone"))
        late = held.session("someone")
        came.append(late.info.backend_pid)
        eventually(lambda: seen(came[1], None) and seen(came[2], None))
        late.execute("set application_name = 'chosen'")
        eventually(lambda: seen(came[2], 6))

    spec = _spec(held, sessions=[[4, known]], adopt=True)
    _, tables = _watch(spec, meanwhile=come_and_go)
    chosen, other, late = came
    for name in ("samples", "tasks"):
        table = tables[name]
        of = {pid: table.filter(pl.col("pid") == pid) for pid in (known, chosen, other, late)}
        assert set(of[known]["session"]) == {4}
        assert _sessions_at_last(of[chosen]) == {5}
        assert set(of[other]["role"]) == {"other"}
        assert of[other]["session"].is_null().all()
        assert _sessions_at_last(of[late]) == {6}
        assert set(of[late]["role"]) <= {"other", "session"}
    samples = tables["samples"]
    assert set(samples.filter(pl.col("pid") == late)["role"]) == {"other", "session"}
    in_memory = samples.filter(MEMORY & (pl.col("pid") == chosen))
    assert _labels(in_memory, chosen, "memory") >= {("Timeout", "PgSleep")}


def test_context_switches_are_read_at_the_ends_of_a_window_and_childrens_time_always(held: Waiting) -> None:
    pid = held.doing("do $$ begin for i in 1..100000 loop perform pg_sleep(0.005); end loop; end $$")
    watch, tables = _watch(_spec(held, sessions=[[0, pid]], task_interval_ms=200), 1.0)
    tasks = tables["tasks"].filter((pl.col("pid") == pid) & (pl.col("status") == "ok"))
    switches = tasks.drop_nulls("voluntary")
    assert 2 <= switches.height < tasks.height
    assert switches["voluntary"].is_sorted()
    assert switches["voluntary"][-1] - switches["voluntary"][0] > 20
    assert switches["involuntary"].is_not_null().all()
    assert tasks["children_ns"].is_not_null().all()
    since = int(tasks["before_ns"][tasks.height // 2])
    recent = {name: from_core(name, columns) for name, columns in watch.recent(since).items()}
    assert 0 < recent["tasks"].height < tables["tasks"].height
    assert recent["tasks"]["after_ns"].min() >= since  # type: ignore[operator]
    assert 0 < recent["samples"].height < tables["samples"].height


def test_without_the_right_the_status_says_so_and_samples_come_by_sql(held: Waiting) -> None:
    if os.geteuid() != 0:
        pytest.skip("becomes another user: run the tests as root")
    pid = held.doing("select pg_sleep(100)")
    eventually(lambda: held.label(pid) == ("Timeout", "PgSleep"))
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY],
        input=json.dumps(_spec(held, sessions=[[0, pid]])),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    status, detail = report["data_sources"]["wait event word"]
    assert status == "not permitted"
    assert "as the server's user" in detail
    assert "CAP_SYS_PTRACE" in detail
    assert report["data_sources"]["sampler priority"][0] == "not permitted"
    assert report["trouble"] is None
    rows = list(zip(*(report["samples"][c] for c in ("via", "pid", "wait_event", "status")), strict=True))
    assert ("sql", pid, "PgSleep", "ok") in rows
    assert {via for via, *_ in rows} == {"sql"}


AS_NOBODY = f"""
import json, os, sys, time
from dbdyno import _core
from dbdyno.model.schema.tables import empty, from_core
import numpy
empty("samples").to_dict(as_series=False)  # all is loaded,
watch = _core.Watch(sys.stdin.read())  # and connected: this user is let neither to files nor to the socket
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
t0 = _core.now_ns() + 50_000_000
watch.start(t0, t0 + 400_000_000)
time.sleep(0.5)
watch.stop()
samples = from_core("samples", watch.tables()["samples"]).to_dict(as_series=False)
print(json.dumps(dict(data_sources=watch.source_status(), trouble=watch.trouble(), samples=samples)))
"""
