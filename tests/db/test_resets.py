"""Data that are brought back before measurements: they are as prepared, and nothing of the user's is
touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.conduct.measure.tables import bring_back
from dbdyno.drive import Interrupt
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.errors import DbdynoError, Interrupted, TargetError
from dbdyno.model.plan.resetting import Cache
from tests.db.conftest import LIGHT, QUICK, SHORT, Bench, own_schema
from tests.db.test_workload_tables import looked_at, prepare, schema  # noqa: F401

pytestmark = pytest.mark.db
OPTIONS = ("--fillfactor=90", "--foreign-keys", "--partitions=2")
CHANGE = (
    "update pgbench_accounts set abalance = 7 where aid % 3 = 0",
    "delete from pgbench_tellers where tid > 5",
    "insert into pgbench_history (tid, bid, aid, delta) select 1, 1, n, 5 from generate_series(1, 999) n",
)


def reset(
    dsn: str,
    cache: Cache = "warm",
    interrupt: Interrupt | None = None,
    tick: Callable[..., Any] = lambda *_: None,
) -> None:
    server = PostgresServer(dsn)
    try:
        bring_back(server, "pgbench", cache, interrupt or Interrupt(), tick, print)
    finally:
        server.close()


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def test_tables_are_as_they_were_prepared(schema: str) -> None:  # noqa: F811
    assert prepare(schema, *OPTIONS).returncode == 0
    fresh = looked_at(schema)
    size = "select sum(pg_relation_size(oid)) from pg_class where relnamespace = 'made'::regnamespace"
    bytes_fresh = ask(schema, size)
    with psycopg.connect(schema, autocommit=True) as connection:
        for statement in (
            "create index mine on pgbench_accounts (bid)",
            "grant select on pgbench_tellers to public",
        ):
            connection.execute(statement.encode())
        for statement in CHANGE:
            connection.execute(statement.encode())
    assert looked_at(schema)[1] != fresh[1]
    reset(schema)
    assert [r for r in looked_at(schema)[0] if "mine" not in r[0] and "bid_idx" not in r[0]] == fresh[0]
    assert looked_at(schema)[1] == fresh[1]
    counted = "select sum(n_live_tup), sum(n_dead_tup) from pg_stat_user_tables where schemaname = 'made'"
    assert ask(schema, counted) == [(100_011, 0)]
    kept = (
        "select to_regclass('mine') is not null, has_table_privilege('public', 'pgbench_tellers', 'select')"
    )
    assert ask(schema, kept.replace("'public'", "'pg_monitor'")) == [(True, True)]
    assert ask(schema, f"{size} and relname <> 'mine' and relname not like '%_bid_idx'") == bytes_fresh
    again = prepare(schema, *OPTIONS)
    assert again.returncode == 0 and "there already" in again.stdout


def test_the_holder_of_the_tables_is_named_and_nothing_is_lost(
    schema: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dbdyno.engines.postgres.resetting._LOCK_WAIT_S", 1)
    assert prepare(schema).returncode == 0
    with psycopg.connect(schema, application_name="nightly report") as other:
        other.execute("select count(*) from pgbench_tellers")
        with pytest.raises(
            TargetError, match=r"nightly report, user \w+, idle in transaction.*pgbench_tellers"
        ):
            reset(schema)
        assert other.execute("select count(*) from pgbench_accounts").fetchone() == (100_000,)


def test_broken_off_tables_are_loaded_again(schema: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert prepare(schema, "--fillfactor=80").returncode == 0
    interrupt = Interrupt()
    interrupt.count = 1
    with pytest.raises(Interrupted):
        reset(schema, interrupt=interrupt)
    assert "the next run that uses them loads them again" in capsys.readouterr().out
    assert prepare(schema, "--fillfactor=80", "-s", "5").returncode == 0
    killed = (
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where query like '%pgbench%' and state = 'active' and pid <> pg_backend_pid()"
    )
    with pytest.raises(DbdynoError, match=r"bringing back the data of pgbench: .*administrator command"):
        reset(schema, tick=lambda *_: ask(schema, killed))
    server = PostgresServer(schema)
    try:
        (data_set,) = server.resetting.data_sets("select-only", {}, ["select abalance from pgbench_accounts"])
    finally:
        server.close()
    assert (data_set.unfinished, data_set.refused, data_set.written) == (True, "", False)
    reset(schema, "as-loaded")
    assert ask(schema, "select count(*) from pgbench_accounts") == [(500_000,)]
    options = "select reloptions::text from pg_class where oid = 'pgbench_tellers'::regclass"
    assert ask(schema, options) == [("{fillfactor=80}",)]


@pytest.fixture
def own_dsn(dsn18: str) -> Iterator[str]:
    with own_schema(dsn18, "resets") as dsn:
        yield dsn


def measure(bench: Bench, dsn: str, *words: str) -> dict[str, Any]:
    done = bench.here("run", *words, *SHORT, *LIGHT, "--no-memory", "--no-observe", "--dsn", dsn, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def begun(document: dict[str, Any], column: str) -> list[dict[str, int]]:
    """Returns for each measurement a column of each table that was changed."""
    cells: dict[str, dict[str, int]] = {}
    for row in document["growth"]:
        cells.setdefault(row["cell"], {})[row["relation"]] = row[column]
    return [cells[c] for c in sorted(cells)]


def test_measurements_begin_with_the_same_data_and_record_what_they_left(bench: Bench, own_dsn: str) -> None:
    assert prepare(own_dsn).returncode == 0
    document = measure(bench, own_dsn, "tpcb-like", "--sessions", "1,2")
    assert [r["how"] for r in document["resets"]] == ["loaded"] * 2
    for column in ("live_rows_start", "dead_rows_start", "table_bytes_start", "index_bytes_start"):
        first, second = begun(document, column)
        assert first == second and len(first) == 4, column
    history = begun(document, "rows_inserted")
    assert all(h["resets.pgbench_history"] > 0 for h in history)
    (count,) = ask(own_dsn, "select count(*) from pgbench_history")
    assert count == (history[1]["resets.pgbench_history"],)
    read = measure(bench, own_dsn, "select-only", "--sessions", "1,2", "--reset", "each")
    assert [r["how"] for r in read["resets"]] == ["loaded", "unchanged"]
    kept = measure(bench, own_dsn, "simple-update", "--sessions", "1,2", "--reset", "never")
    assert kept["resets"] == []
    first, second = begun(kept, "live_rows_start")
    assert second["resets.pgbench_history"] > first["resets.pgbench_history"] == 0


def test_tables_of_others_are_left_alone(bench: Bench, own_dsn: str, tmp_path: Path) -> None:
    script = tmp_path / "mine.sql"
    script.write_text("update mine set n = n + 1;\n")
    asked_for = (*QUICK, *LIGHT, "--no-observe", "--sessions", "1", "--dsn", own_dsn)
    with psycopg.connect(own_dsn, autocommit=True) as connection:
        connection.execute("create table mine as select 1 as n")
        done = bench.here("run", "-f", str(script), "--reset", "each", *asked_for)
        assert done.returncode == 2 and "no tables that dbdyno" in done.stderr
        done = bench.here("run", "-f", str(script), *asked_for)
        assert done.returncode == 0 and "reset never" in done.stdout + done.stderr
        assert prepare(own_dsn).returncode == 0
        connection.execute("comment on table pgbench_branches is null")
        connection.execute("insert into pgbench_history (delta) values (424242)")
        done = bench.here("run", "-N", *asked_for)
        assert done.returncode == 0 and "not made by dbdyno" in done.stdout + done.stderr
        assert connection.execute("select count(*) from pgbench_history where delta = 424242").fetchone() == (
            1,
        )


def test_a_role_that_is_not_the_owner_resets_nothing(bench: Bench, own_dsn: str) -> None:
    assert prepare(own_dsn).returncode == 0
    with psycopg.connect(own_dsn, autocommit=True) as connection:
        connection.execute("drop role if exists guest")
        connection.execute("create role guest login")
        connection.execute("grant usage on schema resets to guest")
        connection.execute("grant all on all tables in schema resets to guest")
        try:
            guest = make_conninfo(own_dsn, user="guest")
            short = (*QUICK, *LIGHT, "--no-observe", "--sessions", "1", "--dsn", guest)
            refused = bench.here("run", "-N", "--reset", "each", *short)
            assert refused.returncode == 2 and "belong to" in refused.stderr, refused.stderr
            done = bench.here("run", "-N", *short)
            assert done.returncode == 0 and "belong to" in done.stdout + done.stderr, done.stderr
        finally:
            connection.execute("drop owned by guest")
            connection.execute("drop role guest")
