"""Snapshots of real servers: a load of known counts has them by table, index and statement."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo

from dbdyno.account.snapshots import interval
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.snapshot import Snapshot, SnapshotInfo
from tests.autovacuum import without_autovacuum
from tests.db.pgbench import program
from tests.extensions import skip_without
from tests.waiting import eventually

pytestmark = pytest.mark.db
MADE = (
    "create table known (id int primary key, pad char(500), n int) "
    "with (fillfactor = 50, autovacuum_enabled = off)",
    "create table quiet (id int primary key, n int) with (autovacuum_enabled = off)",
    "insert into quiet select i, i from generate_series(1, 200) as i",
    "create table long (id int, v text) with (autovacuum_enabled = off)",
    "alter table long alter v set storage external",
    "create table parts (id int) partition by range (id)",
    "create table parts_1 partition of parts for values from (0) to (100) partition by range (id)",
    "create table parts_1_a partition of parts_1 for values from (0) to (50)",
    "vacuum (freeze, analyze) quiet",
)
SEQUENTIAL = "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off"
INDEXED = (
    "set enable_indexscan = on; set enable_seqscan = off; set enable_indexonlyscan = off; "
    "set enable_bitmapscan = off"
)
LOAD = (  # how often, what
    (1, "insert into known select i, 'x', i from generate_series(1, 1000) as i"),
    (1, INDEXED),
    (1, "update known set id = id + 10000 where id between 1 and 100"),  # not HOT: the key changes
    (1, "update known set n = n + 1 where id between 500 and 549"),
    (1, "delete from known where id between 900 and 929"),
    (20, "select n from quiet where id = 77"),
    (1, SEQUENTIAL),
    (5, "select count(*) from quiet where n >= 0"),
    (3, "select sum(n) from known where n >= 0"),
    (2, "insert into long select 1, repeat('x', 100000)"),
    (4, "insert into parts values (7)"),
)
KNOWN = {
    "rows_inserted": 1000,
    "rows_updated": 150,
    "rows_hot_updated": 50,
    "rows_deleted": 30,
    "index_scans": 3,
    "index_rows": 180,
    "seq_scans": 3,
    "seq_rows": 3 * 970,
    "live_rows": 970,
}
STATEMENTS = {  # part of the text: calls, rows
    "insert into known": (1, 1000),
    "set id = id +": (1, 100),
    "set n = n +": (1, 50),
    "delete from known": (1, 30),
    "select n from quiet": (20, 20),
    "select count(*) from quiet": (5, 5),
    "select sum(n) from known": (3, 3),
}


@contextmanager
def database(dsn: str, name: str) -> Iterator[str]:
    """Yields the DSN of a new database, which is dropped at the end."""
    named = pgsql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute(pgsql.SQL("drop database if exists {}").format(named))
        c.execute(pgsql.SQL("create database {}").format(named))
    own_dsn = make_conninfo(dsn, dbname=name)
    try:
        yield own_dsn
    finally:
        with psycopg.connect(dsn, autocommit=True) as c:
            c.execute(pgsql.SQL("drop database {} with (force)").format(named))


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Executes statements in a session of its own, whose counts are reported when it ends; none is
    prepared."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as c:
        for statement in statements:
            cursor = c.execute(statement.encode())
        rows = cursor.fetchall() if cursor.description else []
        process = Path(f"/proc/{c.info.backend_pid}")
    eventually(lambda: not process.exists())
    return rows


def row(snapshot: Snapshot, table: str, **where: Any) -> dict[str, Any]:
    (row,) = snapshot.tables[table].filter(**where).iter_rows(named=True)
    return row


def growth(first: Snapshot, last: Snapshot, table: str, name: str, **where: Any) -> Any:
    before = first.tables[table].filter(**where)
    was = before[name][0] if before.height else 0
    now = row(last, table, **where)[name]
    return None if now is None or was is None else now - was


def commits(first: Snapshot, last: Snapshot, *between: SnapshotInfo) -> int:
    """Returns commits as a report has them, without dbdyno's own."""
    databases = interval(first, last, between).tables["databases"].filter(database="truth")
    return int(databases["commits"][0])


def texts_of(*snapshots: Snapshot) -> dict[int, str]:
    return {i: text for s in snapshots for i, text in s.texts.iter_rows()}


@pytest.fixture
def truth(any_dsn: str) -> Iterator[str]:
    """Yields a database that no autovacuum visits, on a server of each version."""
    skip_without("pg_stat_statements", any_dsn)
    with without_autovacuum(any_dsn), database(any_dsn, "truth") as dsn:
        execute(dsn, *MADE, "create extension pg_stat_statements", "select pg_stat_statements_reset()")
        yield dsn


def test_a_scripted_load_comes_out_exactly(truth: str) -> None:
    with closing(PostgresServer(truth)) as server:
        first = server.snapshots.snapshot(None, None, ())
        execute(truth, *(statement for times, statement in LOAD for _ in range(times)))
        last = server.snapshots.snapshot(None, None, set(first.texts["query_id"]))

    def grown(name: str, relation: str = "known") -> Any:
        return growth(first, last, "relations", name, relation=relation)

    assert {name: grown(name) for name in KNOWN} == KNOWN
    assert (grown("seq_scans", "quiet"), grown("seq_rows", "quiet")) == (5, 1000)
    assert (grown("index_scans", "quiet"), grown("index_rows", "quiet")) == (20, 20)
    check_blocks(first, last)
    check_indexes(first, last)
    check_statements(first, last)
    assert row(last, "relations", relation="long")["toast_bytes"] >= 200_000
    assert grown("toast_blocks_hit", "long") > 0
    part = row(last, "relations", relation="parts_1_a")
    assert (part["kind"], part["root"], part["rows_inserted"]) == ("partition", "public.parts", 4)
    assert set(last.tables["relations"].filter(database="truth", schema="public")["relation"]) == {
        *("known", "quiet", "long", "parts_1_a")
    }
    rows = {
        n: growth(first, last, "databases", n, database="truth") for n in ("rows_updated", "rows_deleted")
    }
    assert rows["rows_updated"] >= 150 and rows["rows_deleted"] >= 30  # in catalogs, too
    assert commits(first, last) == sum(times for times, _ in LOAD) + 1  # and to connect
    assert growth(first, last, "databases", "rollbacks", database="truth") == 0


def check_blocks(first: Snapshot, last: Snapshot) -> None:
    """Checks reads of a table of one page: a block a scan, and an index of one page besides its root's
    address."""
    read = {
        part: sum(
            growth(first, last, "relations", f"{part}_blocks_{how}", relation="quiet")
            for how in ("hit", "read")
        )
        for part in ("table", "index", "toast")
    }
    assert read["table"] == 5 + 20
    assert 20 <= read["index"] <= 22  # and once where the root is
    assert read["toast"] == 0


def check_indexes(first: Snapshot, last: Snapshot) -> None:
    def grown(name: str, index: str) -> Any:
        return growth(first, last, "indexes", name, index=index)

    assert [grown(n, "quiet_pkey") for n in ("scans", "entries_read", "rows_fetched")] == [20, 20, 20]
    assert grown("scans", "known_pkey") == 3
    assert grown("entries_read", "known_pkey") == 180
    index = row(last, "indexes", index="quiet_pkey")
    assert (index["is_primary"], index["is_unique"], index["is_valid"], index["is_constraint"]) == (True,) * 4
    table = row(last, "relations", relation="quiet")
    assert (index["relation_id"], index["size_bytes"]) == (table["relation_id"], table["index_bytes"])
    blocks = sum(grown(f"blocks_{how}", "quiet_pkey") for how in ("hit", "read"))
    assert blocks == sum(
        growth(first, last, "relations", f"index_blocks_{how}", relation="quiet") for how in ("hit", "read")
    )


def check_statements(first: Snapshot, last: Snapshot) -> None:
    texts = texts_of(first, last)
    statements = last.tables["statements"].filter(database="truth")
    for part, expected in STATEMENTS.items():
        (one,) = [r for r in statements.iter_rows(named=True) if part in texts[r["query_id"]]]
        assert (one["calls"], one["rows"]) == expected, part
        assert one["exec_square_s2"] * one["calls"] >= (one["exec_ns"] / 1e9) ** 2 * (1 - 1e-6)
    scans = [r for r in statements.iter_rows(named=True) if "count(*) from quiet" in texts[r["query_id"]]]
    assert scans[0]["shared_blks_hit"] + scans[0]["shared_blks_read"] == 5
    assert not [text for text in texts.values() if "dbdyno" in text]


def test_transactions_of_pgbench_are_the_commits_less_dbdynos_own(truth: str, tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("begin;\nselect n from quiet where id = 5;\nend;\n")
    between = []
    with closing(PostgresServer(truth)) as server:
        first = server.snapshots.snapshot(None, None, ())
        words = (program(), "-n", "-f", str(script), "-c", "3", "-t", "40", truth)
        subprocess.run(words, check=True, capture_output=True)
        theirs = "select 1 from pg_stat_activity where application_name = 'pgbench'"
        eventually(lambda: not execute(make_conninfo(truth, dbname="postgres"), theirs))
        between.append(server.snapshots.snapshot(None, (), ()).info)  # of all databases
    with closing(PostgresServer(truth)) as later:
        last = later.snapshots.snapshot(None, None, ())
    sessions = 3 + 1  # to connect is a transaction, too
    assert commits(first, last, *between) == 3 * 40 + sessions


def test_a_table_created_again_has_another_key(truth: str) -> None:
    with closing(PostgresServer(truth)) as server:
        first = server.snapshots.snapshot(None, None, ())
        execute(truth, "drop table quiet", MADE[1])
        last = server.snapshots.snapshot(None, None, ())
    ids = [row(s, "relations", relation="quiet")["relation_id"] for s in (first, last)]
    assert len(set(ids)) == 2
    assert row(last, "relations", relation="quiet")["rows_inserted"] == 0
