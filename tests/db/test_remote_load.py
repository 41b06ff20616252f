"""Loads and watches of agents on a real server: their counts, their clocks, and what remains of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import polars as pl
import psycopg
import pytest

from dbdyno import _core, remote
from dbdyno.drive import frames
from dbdyno.engines.driving import local_load
from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.sessions import end_left
from dbdyno.model.engine.protocols import Load
from dbdyno.model.errors import HostLost
from dbdyno.model.schema.data_sources.drivers import with_host
from dbdyno.model.schema.tables import from_core
from tests.agents import INSTANTS, OtherClock, agent
from tests.waiting import eventually

pytestmark = pytest.mark.db
S = 1_000_000_000
NAME = "dbdyno-remote-test"
AHEAD_NS, DRIFT = 5 * S // 2, 200e-6


def other_clock(channel: remote.Channel) -> OtherClock:
    return OtherClock(channel, AHEAD_NS, DRIFT, INSTANTS)


def spec(dsn: str, sessions: int, sql: str = "select 1", **more: Any) -> dict[str, Any]:
    with connect.connect(dsn) as connection:
        target = {**connect.driver_target(connection), "application_name": NAME}
    call = [{"sql": sql, "params": []}]
    one = {"count": sessions, "setup": [], "call": call, "warm": [], "warm_calls": 0}
    return {"target": target, "sessions": [one], "probe": None, "threads": 2, **more}


def phase(load: Load) -> None:
    assert load.wait(120)


def run(load: Load, seconds: float = 1.5, settle_s: float = 0.2) -> tuple[int, int, int]:
    """Runs a load from start to end and returns start, t0 and t1."""
    load.connect()
    phase(load)
    start_ns = _core.now_ns() + S // 2
    t0_ns = start_ns + round(settle_s * S)
    t1_ns = t0_ns + round(seconds * S)
    load.start(start_ns, t0_ns, t1_ns)
    phase(load)
    return start_ns, t0_ns, t1_ns


def connection_count(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as asking:
        query = "select count(*) from pg_stat_activity where application_name = %s"
        row = asking.execute(query, (NAME,)).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def counted(dsn18: str) -> Iterator[str]:
    """Yields a DSN whose server has a sequence to count calls with."""
    with psycopg.connect(dsn18, autocommit=True) as connection:
        connection.execute("create sequence if not exists public.remote_calls")
        connection.execute("select setval('public.remote_calls', 1, false)")
        yield dsn18
        connection.execute("drop sequence public.remote_calls")


COUNT = "select nextval('public.remote_calls')"


def calls_at(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select last_value from public.remote_calls").fetchone()
        assert row is not None
        return int(row[0])


def test_calls_of_agents_and_of_this_host_are_those_of_the_server(counted: str) -> None:
    with agent() as (first, _), agent(other_clock) as (last, _):
        clocks = [remote.HostClock(first.clock), remote.HostClock(last.clock)]

        def driver(at: remote.Agent, clock: remote.HostClock) -> remote.Driver:
            def make(engine: str, spec: Mapping[str, Any]) -> Load:
                return remote.RemoteLoad(at, clock, engine, spec)

            return remote.Driver(at.name, make, clock=clock, cpus=2)

        drivers = [remote.Driver("here", local_load, 2), driver(first, clocks[0]), driver(last, clocks[1])]
        load = remote.SpreadLoad(drivers, "postgres", spec(counted, 8, COUNT, log_calls=True))
        start_ns, t0_ns, t1_ns = run(load)
        assert load.progress().calls == calls_at(counted)
        load.finish()
        phase(load)
        by_table = frames(load)
    sessions, drivers_ = by_table["sessions"], by_table["drivers"]
    assert sessions["session"].to_list() == list(range(8))
    assert sessions["calls_total"].sum() == calls_at(counted)
    assert sessions["calls"].sum() == by_table["histogram"]["count"].sum()
    assert by_table["calls"].height == calls_at(counted)
    assert by_table["calls"].filter("measured")["session"].value_counts().sort("session")[
        "count"
    ].to_list() == (sessions["calls"].to_list())
    assert with_host(sessions, drivers_)["host"].to_list() == ["here"] * 4 + ["elsewhere"] * 4
    assert drivers_["sessions"].to_list() == [4, 2, 2]
    # The other clock is 2.5 s ahead: on ours its calls lie where all others do.
    bound_ns = int(drivers_["clock_bound_ns"].max())  # type: ignore[arg-type]
    assert bound_ns < 100_000_000
    off_ns = bound_ns + round(DRIFT * 60 * S)  # the start is foretold before the drift is known
    assert sessions["began_ns"].min() >= start_ns - off_ns  # type: ignore[operator]
    assert sessions["first_start_ns"].min() >= t0_ns - off_ns  # type: ignore[operator]
    assert sessions["first_start_ns"].max() < t1_ns + off_ns  # type: ignore[operator]
    assert drivers_["clock_offset_ns"][0] is None
    assert abs(drivers_["clock_offset_ns"][1]) <= drivers_["clock_bound_ns"][1]
    assert abs(drivers_["clock_offset_ns"][2] - AHEAD_NS) < S // 10


def test_a_clock_that_is_off_and_drifts_is_mapped_within_its_bound(dsn18: str) -> None:
    clocks: list[OtherClock] = []

    def wrapped(channel: remote.Channel) -> OtherClock:
        clocks.append(other_clock(channel))
        return clocks[0]

    with agent(wrapped) as (peer, _):
        clock = remote.HostClock(peer.clock)
        load = remote.RemoteLoad(peer, clock, "postgres", spec(dsn18, 2, log_calls=True))
        load.connect()
        phase(load)
        clock.measure()
        start_ns = _core.now_ns() + S // 10
        load.start(start_ns, start_ns, start_ns + 3 * S)
        phase(load)
        clock.measure()
        mapping = clock.mapping()
        assert mapping.bound_ns > 0
        for share in range(11):
            real_ns = start_ns + share * 3 * S // 10
            error_ns = clock.to_ours(clocks[0].theirs(real_ns)) - real_ns
            assert abs(error_ns) <= mapping.bound_ns + 3
        # A server that drifts so cannot be told from one that does not by less than the bounds allow.
        span_ns = mapping.last.at_ns - mapping.first.at_ns
        assert abs(mapping.drift - DRIFT) <= (mapping.first.bound_ns + mapping.last.bound_ns) / span_ns
        load.finish()
        phase(load)
        calls = frames(load)["calls"]
        assert calls["start_ns"].min() >= start_ns - 2 * mapping.bound_ns - S // 1000  # type: ignore[operator]


def test_a_driver_that_is_killed_fails_the_rung_and_the_others_tables_are_there(counted: str) -> None:
    with agent() as (first, _), agent() as (last, channel):
        first.name, last.name = "one", "two"

        def driver(at: remote.Agent) -> remote.Driver:
            clock = remote.HostClock(at.clock)
            return remote.Driver(at.name, lambda e, s: remote.RemoteLoad(at, clock, e, s), clock=clock)

        load = remote.SpreadLoad([driver(first), driver(last)], "postgres", spec(counted, 4, COUNT))
        load.connect()
        phase(load)
        start_ns = _core.now_ns() + S // 2
        load.start(start_ns, start_ns, start_ns + 60 * S)
        eventually(lambda: load.progress().calls > 0)
        os.kill(channel.pid, signal.SIGKILL)
        with pytest.raises(HostLost, match="two") as raised:
            phase(load)
        assert raised.value.host == "two"
        load.finish()
        phase(load)
        by_table = frames(load)
        assert by_table["drivers"]["status"].to_list() == ["ok", "lost"]
        assert by_table["sessions"]["session"].to_list() == [0, 1]
        assert by_table["sessions"]["calls_total"].min() > 0  # type: ignore[operator]
        assert by_table["sessions"]["end_reason"].unique().to_list() == ["stopped"]
        eventually(lambda: connection_count(counted) == 0)


def test_sessions_of_a_killed_driver_are_ended_and_no_others(dsn18: str) -> None:
    """Nobody on the driver's host can cancel their statements any more."""
    with agent() as (peer, channel), connect.connect(dsn18) as control:

        def make(engine: str, spec: Mapping[str, Any]) -> Load:
            return remote.RemoteLoad(peer, remote.HostClock(peer.clock), engine, spec)

        given = spec(dsn18, 4, "select pg_sleep(600)")
        given["target"]["application_name"] = connect.APPLICATION
        drivers = [remote.Driver("here", local_load, 1), remote.Driver(peer.name, make, 1)]
        load = remote.SpreadLoad(drivers, "postgres", given)
        load.connect()
        phase(load)
        pids = [pid for _, pid, _ in load.backends()]
        start_ns = _core.now_ns() + S // 2
        load.start(start_ns, start_ns, start_ns + S)
        asleep = "select array_agg(pid order by pid) from pg_stat_activity where wait_event = 'PgSleep'"
        query = f"{asleep} and pid = any(%s)"
        eventually(lambda: control.execute(query.encode(), (pids,)).fetchone() == (sorted(pids),))
        os.kill(channel.pid, signal.SIGKILL)
        eventually(lambda: peer.lost is not None)
        eventually(lambda: not load.wait(0.1) and load.left_by(peer.name))
        left = load.left_by(peer.name)
        assert sorted(left) == sorted(pids[2:]) and not load.left_by("here")
        assert end_left(control, [*left, control.info.backend_pid, 1]) == 2
        eventually(lambda: control.execute(query.encode(), (pids,)).fetchone() == (sorted(pids[:2]),))
        load.abort()


@pytest.mark.parametrize("how", ["closed", "terminated", "silent"])
def test_no_session_stays_when_the_conductor_is_gone(dsn18: str, how: str) -> None:
    """Calls that would take longer than anyone waits are cancelled."""
    words = ("--silence-s", "3") if how == "silent" else ()
    with ExitStack() as stack:
        peer, channel = stack.enter_context(agent(lambda c: c, *words))
        load = remote.RemoteLoad(
            peer, remote.HostClock(peer.clock), "postgres", spec(dsn18, 3, "select pg_sleep(600)")
        )
        load.connect()
        phase(load)
        start_ns = _core.now_ns()
        load.start(start_ns, start_ns, start_ns + 600 * S)
        assert eventually(lambda: connection_count(dsn18) == 3)
        if how == "closed":
            peer.close()
        elif how == "terminated":
            os.kill(channel.pid, signal.SIGTERM)
        else:
            peer._over.set()  # no beat any more
        eventually(lambda: connection_count(dsn18) == 0)
        assert eventually(lambda: channel.status is not None)
        assert channel.status == {"closed": 0, "terminated": 128 + signal.SIGTERM, "silent": 3}[how]
        with pytest.raises(HostLost):
            load.progress()


def test_a_watch_by_an_agent_reads_what_one_here_reads(dsn18: str) -> None:
    with psycopg.connect(dsn18, autocommit=True) as connection, agent(other_clock) as (peer, _):
        pid = connection.info.backend_pid
        watched = {
            "engine": "postgres",
            "activity": {"target": spec(dsn18, 1)["target"], "sql": _activity(dsn18)},
            "sessions": [[0, pid, pid]],
            "os": True,
            "trace": "off",
        }
        far = remote.RemoteWatch(peer, remote.HostClock(peer.clock), watched)
        near = _core.Watch(json.dumps(watched))
        t0_ns = _core.now_ns() + S // 5
        for watch in (far, near):
            watch.start(t0_ns, t0_ns + 2 * S)
        connection.execute("select sum(n) from generate_series(1, 3000000) n")
        while _core.now_ns() < t0_ns + 2 * S + S // 5:
            time.sleep(0.05)
        for watch in (far, near):
            watch.stop()
        over_ns = _core.now_ns()
        far_run, far_reads = _figures(far, pid)
        near_run, _ = _figures(near, pid)
    # It has slept since its statement ended: both have read the same figure last, whenever that was.
    assert near_run > 0
    assert far_run == near_run
    assert t0_ns - 2 * S < far_reads.min() and far_reads.max() < over_ns  # type: ignore[operator]


def _activity(dsn: str) -> str:
    from dbdyno.engines.postgres import observation

    with connect.connect(dsn) as connection:
        return observation.activity_sql(connection)


def _figures(watch: Any, pid: int) -> tuple[int, pl.Series]:
    """Returns CPU of the process as of the last read, and the time of that read."""
    tables = watch.tables()
    assert {"samples", "sampler", "host"} <= set(tables)
    tasks = from_core("tasks", tables["tasks"]).filter(pl.col("pid") == pid).sort("before_ns")
    return tasks["run_ns"][-1], tasks["before_ns"]
