"""Which sessions are chosen, which are visible, and by which right, on every version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Thread
from typing import Any, cast

import polars as pl
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.contract.watching import watch_sessions
from tests.waiting import eventually

from dbdyno.engines.postgres import PostgresServer, observation
from dbdyno.model.engine.protocols import Load
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.plan.plan import Observation
from dbdyno.model.schema.tables import schema

pytestmark = pytest.mark.db

HOSTILE = "O'Brien\\ $1 ${control} %s; --"


@pytest.fixture
def server(any_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(any_dsn)) as server:
        yield server


@pytest.fixture
def plain(any_dsn: str) -> Iterator[str]:
    """Yields a DSN of a role that may not see other sessions."""
    with psycopg.connect(any_dsn, autocommit=True) as admin:
        admin.execute("drop role if exists plain_role")
        admin.execute("create role plain_role login")
        yield make_conninfo(any_dsn, user="plain_role")
        admin.execute("drop role plain_role")


def rows(server: PostgresServer, dsn: str, chosen: Observation) -> dict[int, dict[str, Any]]:
    """Returns the result of an observation's activity query by pid, on a connection of its own."""
    query = server.observation_spec(chosen, {})["activity"]["sql"]
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        by_pid = {row["pid"]: row for row in connection.execute(query.encode()).fetchall()}
        assert connection.info.backend_pid not in by_pid
    return by_pid


def chosen_pids(server: PostgresServer, dsn: str, **chosen: Any) -> set[int]:
    return {pid for pid, row in rows(server, dsn, Observation(**chosen)).items() if row["chosen"]}


def test_without_a_filter_all_clients_but_our_own_are_chosen(server: PostgresServer, any_dsn: str) -> None:
    own = _own_pid(server)
    with psycopg.connect(any_dsn) as client:
        eventually(lambda: server.capacity().in_use == 2)  # those of the tests before have gone
        by_pid = rows(server, any_dsn, Observation())
        assert [pid for pid, row in by_pid.items() if row["chosen"]] == [client.info.backend_pid]
    assert own not in by_pid
    assert {row["helper"] for row in by_pid.values() if not row["chosen"]} >= {"checkpointer", "walwriter"}


def test_filters_match_exactly_and_together(server: PostgresServer, any_dsn: str, plain: str) -> None:
    with (
        psycopg.connect(any_dsn, application_name=HOSTILE) as hostile,
        psycopg.connect(any_dsn, application_name="shop") as shop,
        psycopg.connect(any_dsn, application_name="Shop") as other,
        psycopg.connect(make_conninfo(plain, dbname="template1"), application_name="shop") as far,
    ):
        pid = {c: c.info.backend_pid for c in (hostile, shop, other, far)}
        assert chosen_pids(server, any_dsn, application=HOSTILE) == {pid[hostile]}
        assert chosen_pids(server, any_dsn, application="shop") == {pid[shop], pid[far]}
        assert chosen_pids(server, any_dsn, user="plain_role") == {pid[far]}
        assert chosen_pids(server, any_dsn, database="template1") == {pid[far]}
        assert chosen_pids(server, any_dsn, application="shop", database="postgres") == {pid[shop]}
        assert chosen_pids(server, any_dsn, pids=(pid[other], pid[far])) == {pid[other], pid[far]}
        assert chosen_pids(server, any_dsn, pids=(pid[other],), user="plain_role") == set()
        assert chosen_pids(server, any_dsn, application="nobody") == set()


def test_an_application_is_matched_as_the_server_shows_it(server: PostgresServer, any_dsn: str) -> None:
    for name in ("a" * 80, "Zürich", ""):
        with psycopg.connect(any_dsn) as client:
            client.execute("select set_config('application_name', %s, false)", [name])
            client.commit()
            assert client.info.backend_pid in chosen_pids(server, any_dsn, application=name)
    facts = server.backends()
    assert "dbdyno" in facts["application"].to_list()  # looking names up left ours alone


@pytest.mark.parametrize(
    ("chosen", "message", "cure"),
    [
        ({"user": "plain_rol"}, 'role "plain_rol" does not exist', "did you mean plain_role?"),
        ({"database": "postgras"}, 'database "postgras" does not exist', "did you mean postgres?"),
        ({"database": "qqqq"}, 'database "qqqq" does not exist', "there are "),
        ({"user": "x\0y"}, "NUL", "as the server shows it"),
        ({"pids": (0,)}, "0 is no process id", "pg_stat_activity.pid"),
        ({"pids": (2**40,)}, "is no process id", "pg_stat_activity.pid"),
    ],
)
def test_an_impossible_filter_is_refused(dsn18: str, chosen: dict[str, Any], message: str, cure: str) -> None:
    with psycopg.connect(dsn18, autocommit=True) as admin:
        admin.execute("drop role if exists plain_role")
        admin.execute("create role plain_role")
        with closing(PostgresServer(dsn18)) as server, pytest.raises(UsageError) as caught:
            server.observation_spec(Observation(**chosen), {})
        admin.execute("drop role plain_role")
    assert message in caught.value.message
    assert cure in str(caught.value.cure)


def test_a_process_that_is_no_session_is_refused(server: PostgresServer, any_dsn: str) -> None:
    by_pid = rows(server, any_dsn, Observation())
    helper = next(pid for pid, row in by_pid.items() if row["helper"] == "checkpointer")
    with pytest.raises(UsageError, match=f"process {helper} is the server's checkpointer"):
        server.observation_spec(Observation(pids=(helper,)), {})
    own = _own_pid(server)
    with pytest.raises(UsageError, match="dbdyno's own connection"):
        server.observation_spec(Observation(pids=(own,)), {})


def test_without_rights_sessions_of_others_are_chosen_and_marked_as_hidden(any_dsn: str, plain: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as admin, closing(PostgresServer(plain)) as server:
        admin.execute("select 1")
        pid = admin.info.backend_pid
        for granted in (False, True, False):  # rights may come and go in the middle
            if granted:
                admin.execute("grant pg_monitor to plain_role")
            by_pid = rows(server, plain, Observation())
            helpers = {row["helper"] for row in by_pid.values()}
            listed = server.backends().filter(pl.col("pid") == pid).to_dicts()[0]
            sources = {s.name: s for s in server.sources()}
            assert by_pid[pid]["chosen"]
            assert by_pid[pid]["helper"] is None
            assert listed["application"] is None
            assert (listed["user"], listed["database"]) == (admin.info.user, admin.info.dbname)
            if granted:
                assert by_pid[pid]["wait_event"] == "ClientRead"
                assert {"checkpointer", "walwriter"} <= helpers
                assert (listed["status"], listed["kind"], listed["client"]) == (
                    "ok",
                    "client backend",
                    "local",
                )
                assert "sessions of other users" not in sources
                admin.execute("revoke pg_monitor from plain_role")
            else:
                assert by_pid[pid]["wait_event"] is None
                assert helpers == {None, "unknown"}
                assert (listed["status"], listed["kind"]) == ("not permitted", None)
                hidden = sources["sessions of other users"]
                assert hidden.status == "not permitted"
                assert "GRANT pg_monitor TO plain_role" in hidden.detail


def test_without_rights_helpers_are_known_by_their_titles(any_dsn: str, plain: str) -> None:
    with psycopg.connect(any_dsn) as admin, closing(PostgresServer(plain)) as server:
        named = dict(admin.execute("select pid, backend_type from pg_stat_activity").fetchall())
        samples, _ = watch_sessions(server)
    roles = dict(samples.select("pid", "role").unique().iter_rows())
    passing = ("client backend", "autovacuum worker", "parallel worker")
    helpers = {pid: kind for pid, kind in named.items() if kind not in passing}
    assert {"checkpointer", "walwriter", "background writer"} <= set(helpers.values())
    assert {pid: roles[pid] for pid in helpers} == {pid: f"helper:{kind}" for pid, kind in helpers.items()}


def test_backends_name_everybody(server: PostgresServer, any_dsn: str) -> None:
    with psycopg.connect(any_dsn, application_name="teller", autocommit=True) as client:
        start_ns = client.execute(
            "select (extract(epoch from backend_start) * 1e9)::bigint from pg_stat_activity "
            "where pid = pg_backend_pid()"
        ).fetchone()
        backends = server.backends()
        assert backends.schema == schema("backends")
        row = backends.filter(pl.col("application") == "teller").to_dicts()[0]
        assert row["pid"] == client.info.backend_pid
        assert (row["backend_start_ns"],) == start_ns
    assert {"checkpointer", "client backend"} <= set(backends["kind"])


def test_parallel_workers_have_their_leader_and_are_not_chosen(server: PostgresServer, any_dsn: str) -> None:
    name = "debug_parallel_query" if server.version >= 160000 else "force_parallel_mode"
    with psycopg.connect(any_dsn, autocommit=True, options=f"-c {name}=on") as leader:
        query = server.observation_spec(Observation(), {})["activity"]["sql"]
        activity = _while_parallel(leader, any_dsn, query)
        workers = [row for row in activity if row["leader_pid"] == leader.info.backend_pid]
    assert [(row["helper"], row["chosen"]) for row in workers] == [("parallel worker", False)]


def _while_parallel(leader: psycopg.Connection[Any], dsn: str, query: str) -> list[dict[str, Any]]:
    """Returns the activity query's result while a parallel worker of ``leader`` sleeps."""

    def sleep() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            leader.execute("select pg_sleep(600)")

    thread = Thread(target=sleep)
    thread.start()
    with psycopg.connect(dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as asking:

        def together() -> list[dict[str, Any]]:
            activity = asking.execute(query.encode()).fetchall()
            return activity if any(row["leader_pid"] for row in activity) else []

        activity: list[dict[str, Any]] = eventually(together)
        asking.execute("select pg_cancel_backend(%s)", [leader.info.backend_pid])
    thread.join()
    return activity


def test_the_watch_adopts_who_is_chosen(server: PostgresServer, any_dsn: str) -> None:
    own = _own_pid(server)
    with (
        psycopg.connect(any_dsn, application_name="till") as shop,
        psycopg.connect(any_dsn, application_name="other") as other,
    ):
        samples, _ = watch_sessions(server, Observation(application="till"))
        roles = dict(samples.select("pid", "role").unique().iter_rows())
        assert roles[shop.info.backend_pid] == "session"
        assert roles[other.info.backend_pid] == "other"
    assert roles.get(own) in (None, "dbdyno")


def test_known_sessions_keep_their_numbers(server: PostgresServer) -> None:
    spec = server.observation_spec(Observation(), {(4711, 4711): 3, (4712, 4712): 5})
    assert spec["sessions"] == [[3, 4711, 4711], [5, 4712, 4712]]
    assert spec["adopt"] is True


def _own_pid(server: PostgresServer) -> int:
    """Returns the process of the control connection, a task of dbdyno's."""
    tasks = server.watch_spec(cast(Load, _NoLoad()))["tasks"]
    (own,) = [task["pid"] for task in tasks if task["role"] == "dbdyno"]
    return int(own)


class _NoLoad:
    """A load without sessions, as far as watch_spec asks for one."""

    def backends(self) -> list[tuple[int, int]]:
        return []


def test_a_server_that_is_lost_while_sessions_are_chosen_is_an_error_of_the_target(any_dsn: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as admin, closing(PostgresServer(any_dsn)) as server:
        admin.execute("select pg_terminate_backend(%s)", [_own_pid(server)])
        with pytest.raises(TargetError, match="choosing sessions"):
            server.observation_spec(Observation(), {})


def test_a_server_that_is_lost_once_they_are_chosen_is_one_too(
    any_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = observation.activity_sql

    def lost(connection: psycopg.Connection[Any], what: Observation) -> str:
        query = chosen(connection, what)
        admin.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
        return query

    with psycopg.connect(any_dsn, autocommit=True) as admin, closing(PostgresServer(any_dsn)) as server:
        monkeypatch.setattr(observation, "activity_sql", lost)
        with pytest.raises(TargetError, match="choosing sessions"):
            server.observation_spec(Observation(), {})
