"""The tables of an article on load profiles, rebuilt from a load of known counts on four databases of the
same shape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from html import escape
from typing import Any

import polars as pl
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.snapshots import snapshots as concluding
from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.results.interval import ALL
from dbdyno.present.media import html, text
from dbdyno.present.snapshots import snapshots as presenting
from tests.autovacuum import without_autovacuum
from tests.waiting import eventually

pytestmark = pytest.mark.db

NAMES = ("igen", "tpce", 'a "quoted"\nname', "<script>alert(1)</script>")
"""Each does as many rounds as its place says."""
ROWS, CHANGED, LOOKED_UP, SCANS = 500, 40, 30, 3
"""Per round: rows inserted; rows updated, and deleted; rows found by the key; scans of all rows."""
SHAPE = """
create table "order" (id int primary key, state int) with (autovacuum_enabled = off);
create table customer (id int primary key, state int) with (autovacuum_enabled = off)
"""


@pytest.fixture
def four(any_dsn: str) -> Iterator[str]:
    """Yields a server with the four databases, and no vacuum of its own."""
    with without_autovacuum(any_dsn), psycopg.connect(any_dsn, autocommit=True) as admin:
        for name in NAMES:
            admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        yield any_dsn
        for name in NAMES:
            admin.execute(sql.SQL("drop database {}").format(sql.Identifier(name)))


def wait_until_alone(dsn: str, name: str) -> None:
    """Waits until nobody is in that database any more, as a session's last figures appear when it is gone."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        eventually(
            lambda: not admin.execute("select from pg_stat_activity where datname = %s", [name]).fetchall()
        )


def load(dsn: str, name: str, rounds: int) -> int:
    """Executes ``rounds`` rounds and returns the number of transactions."""
    own = make_conninfo(dsn, dbname=name)
    with psycopg.connect(own, autocommit=True, prepare_threshold=None) as c:  # to prepare is one, too
        c.execute("set enable_bitmapscan = off; set enable_indexonlyscan = off")
        for n in range(rounds):
            low = n * ROWS
            c.execute(f'insert into "order" select i, 0 from generate_series({low + 1}, {low + ROWS}) i')
            c.execute("insert into customer values (%s, 0)", [n])
            c.execute(f'update "order" set state = 1 where id > {low} and id <= {low + CHANGED}')
            c.execute(f'delete from "order" where id > {low + CHANGED} and id <= {low + 2 * CHANGED}')
            with c.transaction():
                c.execute("set local enable_seqscan = off")
                for i in range(LOOKED_UP):
                    c.execute(f'select * from "order" where id = {low + 2 * CHANGED + 1 + i}')
            with pytest.raises(psycopg.Error):
                c.execute("select 1 / 0")
            for _ in range(SCANS):
                c.execute("select count(*) from customer where state = 0")
    wait_until_alone(dsn, name)
    return 2 + rounds * (5 + SCANS)  # to connect is a transaction, too


def take_snapshot(dsn: str) -> Snapshot:
    with closing(PostgresServer(dsn)) as server:
        assert server.snapshots is not None
        return server.snapshots.snapshot(None, (), set())


def test_a_load_of_known_counts_has_them_in_the_report(four: str) -> None:
    for name in NAMES:
        with psycopg.connect(make_conninfo(four, dbname=name), autocommit=True) as c:
            c.execute(SHAPE)
        wait_until_alone(four, name)
    first = take_snapshot(four)
    commits = {name: load(four, name, n) for n, name in enumerate(NAMES, start=1)}
    last = take_snapshot(four)
    report = figures(interval(first, last))
    rows = {r["database"]: r for r in report.databases.to_dicts()}
    tables = {(r["database"], r["name"]): r for r in report.relations.to_dicts()}
    for rounds, name in enumerate(NAMES, start=1):
        assert rows[name]["rollbacks"] == rounds
        assert rows[name]["commits"] == commits[name]
        assert rows[name]["rows_inserted"] == rounds * (ROWS + 1)
        assert rows[name]["rows_updated"] == rows[name]["rows_deleted"] == rounds * CHANGED
        orders, customers = tables[name, "public.order"], tables[name, "public.customer"]
        assert (orders["rows_inserted"], orders["rows_updated"]) == (rounds * ROWS, rounds * CHANGED)
        assert orders["index_rows"] >= rounds * LOOKED_UP
        assert customers["seq_scans"] == rounds * SCANS
        assert customers["seq_rows"] == SCANS * sum(range(1, rounds + 1))
        assert customers["status"] == orders["status"] == "ok"
    assert rows[ALL]["rows_inserted"] == sum(r["rows_inserted"] for n, r in rows.items() if n != ALL)
    assert report.interval.resets == ()
    shown = presenting.document(report, concluding.claims(report), concluding.unused(report))
    page = html.page(shown)
    assert "<script>alert(1)</script>" not in page and escape(NAMES[3]) in page
    lines = [line.text for line in text.document(shown, 80)]
    heads = next(line for line in lines if line.startswith("database ") and "tps" in line)
    assert heads.split()[1:] == ["tps", "hit", "%", "LIO/s", "reads/s", "rows/s", "ins/s", "upd/s", "del/s"]
    assert max(map(len, lines)) <= 80
    every: dict[str, Any] = presenting.record(report, concluding.claims(report))
    of_igen = [r for r in every["load_profile"] if r["database"] == "igen"]
    assert of_igen[0]["transactions"] == commits["igen"] + 1
    assert pl.DataFrame(every["most_accessed"]).filter(pl.col("name") == "public.order").height == 4
