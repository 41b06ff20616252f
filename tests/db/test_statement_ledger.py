"""Statements of known behaviour under the scheduler trace: sums close, durations are counted, ids agree.

Where the trace or the ids are refused, the status says so, and no figure is a zero.
"""

from __future__ import annotations

import json
import time
from typing import Any

import polars as pl
import psycopg
import pytest

from dbdyno import _core
from dbdyno.engines.postgres import presence
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.query_id import statement_spec
from dbdyno.engines.postgres.versions import QUERY_ID_OFFSETS as OFFSETS
from dbdyno.engines.postgres.wait_events import word_spec
from dbdyno.model.schema.tables import from_core
from tests.conftest import KINDS, Servers

pytestmark = pytest.mark.db
SLEEP, BURN = "select pg_sleep(0.01)", "select count(*) from generate_series(1, 100000)"
CALLS = 40
LATE = 3
"""So many sleeps may be short or none: pg_sleep sleeps until an instant, and on a busy machine a session that
is kept from its CPU comes to it after that."""
MS = 1_000_000


class Traced:
    """A watch of two sessions that call two statements in turn, with its tables at the end."""

    def __init__(self, dsn: str, offsets: dict[int, int] = OFFSETS) -> None:
        with Connection.connect(dsn, autocommit=True) as control:
            control.execute("set compute_query_id = on")
            here, major = presence.presence(control), control.info.server_version // 10000
            self.spec = statement_spec(control, here.pid, major, offsets)
            sessions = [_session(dsn) for _ in range(2)]
            pids = [s.info.backend_pid for s in sessions]
            spec = {
                "os": here.here,
                "main_pid": here.main_pid,
                "sessions": list(enumerate(pids)),
                "host": False,
            }
            word = {"word": word_spec(major, self.spec), "memory_hz": 0}
            watch = _core.Watch(json.dumps(spec | word))
            self.status = watch.source_status()
            watch.start(_core.now_ns(), _core.now_ns() + 60_000_000_000)
            self.burnt_ns = [_run(s, self, control) for s in sessions]
            watch.stop()
            for session in sessions:
                session.close()
        self.tables = {name: from_core(name, columns) for name, columns in watch.tables().items()}

    ids: dict[str, int]

    def last(self, table: str) -> pl.DataFrame:
        """Returns each session's latest rows."""
        sessions = self.tables[table].filter(pl.col("role") == "session")
        return sessions.filter(pl.col("after_ns") == pl.col("after_ns").max().over("pid"))

    @property
    def known(self) -> bool:
        return all(
            self.status[n][0] == "ok" for n in ("scheduler trace", "statements of the scheduler trace")
        )


@pytest.fixture(scope="module", params=KINDS, ids=lambda v: f"pg{v}")
def traced(servers: Servers, request: pytest.FixtureRequest) -> Traced:
    traced = Traced(servers.dsn(request.param))
    if not traced.known:
        pytest.skip(str(traced.status))
    return traced


def _session(dsn: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    connection.execute("set compute_query_id = on")
    return connection


def _run(session: psycopg.Connection[Any], traced: Traced, control: Connection) -> int:
    """Returns CPU time of the burning statements by the operating system, in ns."""
    burnt_ns, traced.ids, pid = 0, {}, session.info.backend_pid
    for _ in range(CALLS):
        for name, sql in (("sleep", SLEEP), ("burn", BURN)):
            before_ns = _cpu_ns(pid)
            session.execute(sql)
            if name == "burn":
                time.sleep(0.002)  # it is asleep at its client, and its books are closed
                burnt_ns += _cpu_ns(pid) - before_ns
            if name not in traced.ids:
                asked = control.execute("select query_id from pg_stat_activity where pid = %s", [pid])
                row = asked.fetchone()
                traced.ids[name] = row[0] if row else None  # type: ignore[call-overload,index]
    return burnt_ns


def _cpu_ns(pid: int) -> int:
    return int(_core.read_task(pid, pid)["run_ns"])


def test_the_layout_is_that_of_this_version(any_dsn: str) -> None:
    with Connection.connect(any_dsn, autocommit=True) as control:
        control.execute("set compute_query_id = on")
        here, major = presence.presence(control), control.info.server_version // 10000
        assert "symbol" in statement_spec(control, here.pid, major)
        wrong = statement_spec(control, here.pid, major, {major: OFFSETS[major] - 8})
        assert wrong["refused"][0] == "not supported"
        assert statement_spec(control, here.pid, major, {})["refused"][0] == "not supported"
        assert statement_spec(control, None, major)["refused"][0] == "not here"
        control.execute("set compute_query_id = off")
        assert statement_spec(control, here.pid, major)["refused"][0] == "off"


@pytest.mark.root
def test_each_statement_has_its_sleep_and_its_cpu_time(traced: Traced) -> None:
    waits, of = traced.last("waits"), traced.ids
    sums = traced.last("traced")
    for figure in ("run_ns", "runq_ns", "sleep_ns"):
        assert waits[figure].sum() == sums[figure].sum()  # to the nanosecond
    slept = waits.filter(wait_event="PgSleep")
    assert set(slept["query_id"]) == {of["sleep"]}
    assert 2 * CALLS - LATE <= slept["sleeps"].sum() <= 2 * CALLS, waits.rows()
    assert slept["sleep_ns"].sum() >= (2 * CALLS - LATE) * 10 * MS
    burnt = waits.filter(query_id=of["burn"])
    spent = burnt["run_ns"].sum() - burnt["came_ns"].sum(), burnt["run_ns"].sum() + burnt["left_ns"].sum()
    truth = sum(traced.burnt_ns)
    assert spent[0] <= truth * 1.1 + 5 * MS
    assert spent[1] >= truth * 0.9 - 5 * MS


@pytest.mark.root
def test_the_labels_of_every_read_add_up_to_its_sums(traced: Traced) -> None:
    """They add up to the nanosecond, with what is under way. The open part belongs to the queue of one
    label."""
    figures, key = ("run_ns", "runq_ns", "sleep_ns"), ["pid", "start_ticks", "after_ns"]
    reads = traced.tables["traced"].filter((pl.col("status") == "ok") & (pl.col("role") == "session"))
    sums = traced.tables["waits"].group_by(key).agg(pl.col(figures).sum())
    both = reads.join(sums, on=key, how="left", suffix="_labels", maintain_order="left")
    assert both.height >= 4
    for name in figures:
        assert both[name].to_list() == both[f"{name}_labels"].fill_null(0).to_list()
    waits = traced.tables["waits"]
    assert waits.filter((pl.col("open_ns") > pl.col("runq_ns")) | (pl.col("open_ns") < 0)).is_empty()
    elsewhere = (pl.col("open_ns") > 0) & (pl.col("wait_event").ne_missing(pl.lit("ClientRead")))
    assert waits.filter(elsewhere).is_empty()


@pytest.mark.root
def test_every_wait_is_in_one_bucket(traced: Traced) -> None:
    times, key = traced.last("wait_times"), ["pid", "wait_event", "query_id"]
    counted = times.filter(part="sleep").group_by(key).agg(pl.col("count").sum())
    sleeps = traced.last("waits").filter(pl.col("sleeps") > 0).group_by(key).agg(pl.col("sleeps").sum())
    both = sleeps.join(counted, on=key, nulls_equal=True, how="full", coalesce=True)
    assert both["sleeps"].to_list() == both["count"].to_list()
    queued = times.filter(part="runq").group_by("pid").agg(pl.col("count").sum()).sort("pid")
    preempted = (
        traced.last("waits").group_by("pid").agg((pl.col("sleeps") + pl.col("preempted")).sum()).sort("pid")
    )
    started = preempted["sleeps"] - queued["count"]
    assert started.is_between(0, 0).all(), (preempted, queued)
    slept = times.filter((pl.col("wait_event") == "PgSleep") & (pl.col("part") == "sleep"))
    whole = slept.filter(pl.col("from_ns") >= 8 << 20)  # 10 ms are in the bucket of 8.4 to 10.5 ms, or later
    assert whole["from_ns"].min() == 8 << 20
    assert 2 * CALLS - LATE <= whole["count"].sum() <= slept["count"].sum() <= 2 * CALLS, times.rows()


@pytest.mark.root
def test_an_id_that_the_memory_does_not_have_is_not_used(dsn18: str) -> None:
    traced = Traced(dsn18, {18: OFFSETS[18] - 8})
    if traced.status["scheduler trace"][0] != "ok":
        pytest.skip(str(traced.status))
    status, detail = traced.status["statements of the scheduler trace"]
    assert status == "not supported"
    assert "layout" in detail
    waits = traced.last("waits")
    assert waits["query_id"].null_count() == waits.height
    assert set(waits["query_status"]) == {"not supported"}
    assert waits["run_ns"].sum() == traced.last("traced")["run_ns"].sum()
