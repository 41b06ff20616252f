"""Own SQL scripts: errors have line and column, and valid scripts run."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.errors import ScriptError

pytestmark = pytest.mark.db

WRONG = [
    ("select 1;\nselect count(*) fro pg_class;", "s.sql:2:21:"),
    ("select\n  nosuchcolumn\nfrom pg_class", "s.sql:2:3:"),
    ("-- ä; ö\nselect 'ü', nosuch;", "s.sql:2:13:"),
    ("select 1;\n\\set x 1 +\nselect :x;", "s.sql:2:"),
    ("\\sett x 1\nselect :x", "s.sql:1:1:"),
    ("select 'open", "s.sql:1:8:"),
    ("", "the script is empty"),
    ("-- nothing", "the script is empty"),
    ("copy pg_class to stdout", "s.sql:1:1:"),
    ("select $1::int", "s.sql:1:1:"),
    ("begin;\nselect 1;", "s.sql:1:1:"),
    ("\t\tselect from from", "s.sql:1:15:"),
]


@pytest.mark.parametrize(("text", "place"), WRONG)
def test_a_wrong_script_says_where(dsn18: str, text: str, place: str) -> None:
    with closing(PostgresServer(dsn18)) as server, pytest.raises(ScriptError) as caught:
        loads.script(server, text, "some/where/s.sql")
    assert place in caught.value.message
    assert caught.value.cure


def test_the_line_is_shown_with_a_caret_under_the_place(any_dsn: str) -> None:
    with closing(PostgresServer(any_dsn)) as server, pytest.raises(ScriptError) as caught:
        loads.script(server, "select 1;\n  select 1 frm pg_class;\n", "s.sql")
    first, line, caret = caught.value.message.split("\n")
    assert "syntax error" in first
    # `frm` is taken for a column's name: PostgreSQL points at what follows
    assert line.index("pg_class") == caret.index("^")


@pytest.mark.parametrize("statement", ["select * from t", "insert into t values (:n::int)", "delete from t"])
def test_a_right_that_the_role_lacks_is_found_before_the_load(any_dsn: str, statement: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists locked cascade; drop role if exists reader")
        connection.execute(
            "create schema locked; create table locked.t (n int); insert into locked.t values (1)"
        )
        connection.execute("create role reader login; grant usage on schema locked to reader")
        dsn = psycopg.conninfo.make_conninfo(any_dsn, user="reader")
        script = "\\set n 1\n" + statement.replace(" t", " locked.t")
        with closing(PostgresServer(dsn)) as server, pytest.raises(ScriptError) as caught:
            loads.script(server, script, "s.sql")
        assert "s.sql:2:1: permission denied for table t" in caught.value.message
        assert "grant" in (caught.value.cure or "")
        connection.execute("grant all on locked.t to reader")
        with closing(PostgresServer(dsn)) as server:
            loads.script(server, script, "s.sql")
        assert connection.execute("select count(*) from locked.t").fetchone() == (1,)
        connection.execute("drop schema locked cascade; drop role reader")


def test_a_transaction_of_several_statements_is_one_call(any_dsn: str) -> None:
    with psycopg.connect(any_dsn, autocommit=True) as connection:
        connection.execute("drop table if exists public.account")
        connection.execute("create table public.account (id int, balance int)")
        connection.execute("insert into public.account values (1, 0)")
        with closing(PostgresServer(any_dsn)) as server:
            unit = loads.script(
                server,
                "BEGIN;\nupdate public.account set balance = balance + 1 where id = 1;\n"
                "select ';' /* ; */;\nEND;",
                "pay.sql",
            )
            server.prepare(unit, {}, 4)
            result = loads.run(server, unit, {}, 4, calls=25)
        row = connection.execute("select balance from public.account").fetchone()
        connection.execute("drop table public.account")
    assert unit.name == "pay"
    assert result["sessions"]["calls_total"].sum() == 100
    assert row == (100,)


def test_a_script_is_counted_per_session_on_18_and_says_why_not_before(any_dsn: str) -> None:
    with closing(PostgresServer(any_dsn)) as server:
        unit = loads.script(server, "select count(*) from pg_class where oid = 1259", "probe.sql")
        server.prepare(unit, {}, 2)
        result = loads.run(server, unit, {}, 2, calls=40)
        source = {s.name: s for s in server.sources()}["engine counters, per session"]
        new = server.version >= 180000
    if new:
        counted = loads.work(result, "lio").values()
        assert max(counted) - min(counted) <= 20  # a session may have to look up its catalog entries anew
        assert min(loads.work(result, "lio").values()) >= 40 * 2
        assert source.status == "ok"
    else:
        assert result["counters"].is_empty()
        assert source.status == "not supported"
        assert "PostgreSQL 18" in source.detail


def test_failing_calls_are_errors_with_their_sqlstate(dsn18: str) -> None:
    with closing(PostgresServer(dsn18)) as server:
        unit = loads.script(server, "select 1 / (random() < 0)::int", "zero.sql")
        server.prepare(unit, {}, 2)
        result = loads.run(server, unit, {}, 2, calls=None, measure_ns=200_000_000)
    assert result["sessions"]["calls_total"].to_list() == [0, 0]
    assert result["errors"]["sqlstate"].unique().to_list() == ["22012"]
