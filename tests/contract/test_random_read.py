"""random-read on every version: its tables, its plan, what a call reads, changes and writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import polars as pl
import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.objects import half_of, statement_of
from dbdyno.model.errors import UsageError
from dbdyno.plan.recipe import typed

pytestmark = pytest.mark.db

UNIT = loads.workload("random-read")
SCALE = 1000
LEVELS = 2  # of an index of 1000 keys: a root and leaves


@pytest.fixture
def server(kind_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(kind_dsn)) as server:
        server.clean()
        yield server
        server.clean()


def params(**given: Any) -> dict[str, Any]:
    return dict(typed(UNIT, {"scale": SCALE, **given}))


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def account_of_explain(dsn: str, chosen: dict[str, Any], times: int = 20) -> list[dict[str, Any]]:
    """Returns the executor's account of some calls, a source outside dbdyno's code."""
    here = half_of("random-read").with_params(chosen)
    text = statement_of("random-read", here.call, here.objects.name, chosen["scale"], chosen)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for key, value in here.session.items():
            connection.execute("select set_config(%s, %s, false)", [key, value])
        connection.execute(b"prepare q as " + text.encode())
        run = f"explain (analyze, buffers, wal, format json) execute q({chosen['blocks']})".encode()
        rows = [connection.execute(run).fetchone() for _ in range(times + 3)]
    return [row[0][0]["Plan"] for row in rows[3:] if row is not None]


def reads(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


# -- tables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [0, 20])
@pytest.mark.parametrize("tables", ["shared", "own"])
def test_tables_have_one_row_a_block(server: PostgresServer, kind_dsn: str, tables: str, update: int) -> None:
    server.prepare(UNIT, params(tables=tables, update=update), 3)
    stem = "random_update" if update else "random_read"
    names = [f"{stem}_shared"] if tables == "shared" else [f"{stem}_own_{n:04}" for n in range(3)]
    query = "select relname from pg_class where relnamespace = 'dbdyno'::regnamespace and relkind = 'r'"
    assert ask(kind_dsn, f"{query} order by 1") == [(name,) for name in names]
    for name in names:
        counts = f"select count(*), count(distinct split_part(ctid::text, ',', 1)) from dbdyno.{name}"
        assert ask(kind_dsn, counts) == [(SCALE, SCALE)]
        pages = f"select relpages, reltuples::int from pg_class where oid = 'dbdyno.{name}'::regclass"
        assert ask(kind_dsn, pages) == [(SCALE, SCALE)]
    assert f"table dbdyno.{names[-1]}" in server.clean()


def test_a_table_may_be_larger_than_the_cache(server: PostgresServer) -> None:
    """shared_buffers has 128 MB and 20,000 blocks are 164 MB, so reads are physical."""
    chosen = params(scale=20_000)
    server.prepare(UNIT, chosen, 1)
    result = loads.run(server, UNIT, chosen, 1, calls=100)
    work = loads.work(result, "lio")[0]
    assert work == 100 * chosen["blocks"] * (LEVELS + 1)
    assert 0 < loads.work(result, "blocks_read")[0] < work


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"update": 101}, "more than 100"),
        ({"update": -1}, "less than 0"),
        ({"blocks": 0}, "less than 1"),
        ({"blocks": 100_001}, "more than 100,000"),
        ({"scale": 63}, "less than 64"),
        ({"update": "some"}, "not of type int"),
        ({"tables": "ours"}, "none of"),
    ],
)
def test_parameters_beyond_their_bounds_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        typed(UNIT, wrong)
    assert caught.value.cure


def test_more_blocks_a_call_than_the_table_has_are_refused(server: PostgresServer) -> None:
    with pytest.raises(UsageError, match="only 64 blocks") as caught:
        server.prepare(UNIT, params(scale=64, blocks=65), 1)
    assert caught.value.cure == "scale=65 or more"


# -- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 7, 64, SCALE])
def test_a_reading_call_visits_its_blocks_and_writes_nothing(
    server: PostgresServer, kind_dsn: str, blocks: int
) -> None:
    """Each block costs its heap page and the levels of the index above it."""
    chosen = params(blocks=blocks)
    server.prepare(UNIT, chosen, 1)
    for plan in account_of_explain(kind_dsn, chosen):
        assert reads(plan) == blocks * (LEVELS + 1)
        assert (plan["Shared Dirtied Blocks"], plan["WAL Records"], plan["WAL Bytes"]) == (0, 0, 0)


@pytest.mark.parametrize("tables", ["shared", "own"])
def test_every_session_is_counted_to_the_block(server: PostgresServer, tables: str) -> None:
    chosen = params(tables=tables)
    server.prepare(UNIT, chosen, 4)
    result = loads.run(server, UNIT, chosen, 4, calls=50)
    assert result["sessions"]["errors_total"].to_list() == [0] * 4
    assert loads.work(result, "lio") == dict.fromkeys(range(4), 50 * 64 * (LEVELS + 1))
    if server.version >= 180000:
        assert loads.work(result, "wal_bytes") == dict.fromkeys(range(4), 0)


def test_all_rows_are_visited_alike(server: PostgresServer, kind_dsn: str) -> None:
    """A changing load of all its rows counts its visits itself: 64 of 1000 a call, each in its own part.

    A row of a part of 15 or 16 is visited once in so many calls; of 2000 calls that is 125 to 133 times, give
    or take 11: no row is visited half or twice as often (5 standard deviations and more).
    """
    chosen = params(update=100)
    server.prepare(UNIT, chosen, 2)
    loads.run(server, UNIT, chosen, 2, calls=999, measure_ns=120_000_000_000)  # and one each that warms
    row = ask(kind_dsn, "select sum(visits)::int, min(visits), max(visits) from dbdyno.random_update_shared")[
        0
    ]
    assert row[0] == 2000 * 64
    assert row[1] > 66 and row[2] < 266


# -- changing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "update", "changed"), [(64, 25, 16), (64, 100, 64), (10, 20, 2), (50, 2, 1)]
)
def test_as_many_rows_are_changed_as_were_asked_for(
    server: PostgresServer, kind_dsn: str, blocks: int, update: int, changed: int
) -> None:
    chosen = params(blocks=blocks, update=update)
    server.prepare(UNIT, chosen, 1)
    loads.run(server, UNIT, chosen, 1, calls=99)
    assert ask(kind_dsn, "select sum(visits)::int from dbdyno.random_update_shared") == [(100 * changed,)]


def test_a_part_of_a_row_is_rounded_up_or_down_at_random(server: PostgresServer, kind_dsn: str) -> None:
    """20 % of 64 rows are 12.8: 12 or 13 a call. Of 2000 calls 25,600, give or take 18; here 106."""
    chosen = params(update=20)
    server.prepare(UNIT, chosen, 4)
    loads.run(server, UNIT, chosen, 4, calls=499)
    (total,) = ask(kind_dsn, "select sum(visits)::int from dbdyno.random_update_shared")[0]
    assert abs(total - 25_600) < 106


def test_a_change_stays_in_its_block_and_its_work_is_constant(server: PostgresServer, kind_dsn: str) -> None:
    """A changed row costs two more reads and makes WAL; next to none leaves its block."""
    chosen = params(update=25)
    expected = 64 * (LEVELS + 1) + 2 * 16
    server.prepare(UNIT, chosen, 3)
    for plan in account_of_explain(kind_dsn, chosen):
        assert reads(plan) == expected
        assert plan["WAL Records"] >= 16 and plan["WAL Bytes"] > 16 * 30
    loads.run(server, UNIT, chosen, 1, calls=400)
    blocks = "select pg_relation_size('dbdyno.random_update_shared') / current_setting('block_size')::int"
    assert ask(kind_dsn, blocks)[0][0] <= 1.01 * SCALE
    result = loads.run(server, UNIT, chosen, 3, calls=100)
    if server.version >= 180000:
        for session, work in loads.work(result, "lio").items():
            assert work == pytest.approx(100 * expected, rel=UNIT.work_tolerance), session
            assert loads.work(result, "wal_bytes")[session] > 100 * 16 * 30


@pytest.mark.parametrize("tables", ["shared", "own"])
def test_sessions_that_change_the_same_rows_never_deadlock(
    server: PostgresServer, kind_dsn: str, tables: str
) -> None:
    """64 of 64 rows a call: every call meets every other."""
    chosen = params(scale=64, update=100, tables=tables)
    server.prepare(UNIT, chosen, 4)
    result = loads.run(server, UNIT, chosen, 4, calls=100)
    assert result["errors"].is_empty()
    assert result["sessions"]["calls_total"].to_list() == [100] * 4
    visits = 101 * (4 if tables == "shared" else 1)
    name = "random_update_" + ("shared" if tables == "shared" else "own_0003")
    assert ask(kind_dsn, f"select min(visits), max(visits) from dbdyno.{name}") == [(visits, visits)]


def test_before_18_only_what_reads_runs_in_one_transaction(server: PostgresServer) -> None:
    for update, counted in ((0, True), (20, server.version >= 180000)):
        chosen = params(update=update)
        server.prepare(UNIT, chosen, 1)
        counters: pl.DataFrame = loads.run(server, UNIT, chosen, 1, calls=2)["counters"]
        assert (counters.height > 0) == counted


@pytest.mark.parametrize("protocol", ["extended", "simple"])
def test_in_every_protocol_the_work_is_the_same(server: PostgresServer, kind_dsn: str, protocol: str) -> None:
    for update, changed in ((0, 0), (25, 16)):
        chosen = params(update=update)
        server.prepare(UNIT, chosen, 2)
        driver = loads.DriverSetup(protocol=protocol, validation="SELECT 1")
        result = loads.run(server, UNIT, chosen, 2, calls=49, driver=driver)
        assert result["errors"].is_empty()
        if not changed:
            assert loads.work(result, "lio") == dict.fromkeys(range(2), 49 * 64 * (LEVELS + 1))
        else:
            query = "select sum(visits)::int from dbdyno.random_update_shared"
            assert ask(kind_dsn, query) == [(100 * changed,)]
