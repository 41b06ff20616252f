"""Prepared tables: pgbench's equal those of ``pgbench -i``, and the checksum equals the server's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dbdyno import _core
from dbdyno.engines.postgres import connect
from dbdyno.engines.postgres.loader import Description
from tests.db.conftest import own_schema
from tests.db.pgbench import program
from tests.in_process import dbdyno

TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "fill factor, foreign keys, range": (
        "--fillfactor=90",
        "--foreign-keys",
        "--partitions=3",
        "--partition-method=range",
    ),
    "unlogged, hash": ("--unlogged", "--partitions=2", "--partition-method=hash"),
}
SHAPE = """
select c.relname, c.relkind, c.relpersistence, c.reloptions::text, pg_get_expr(c.relpartbound, c.oid),
    pg_get_partkeydef(c.oid), (select string_agg(format('%s %s %s', a.attname,
        format_type(a.atttypid, a.atttypmod), a.attnotnull), ', ' order by a.attnum)
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0),
    (select string_agg(format('%s %s', k.conname, pg_get_constraintdef(k.oid)), ', ' order by k.conname)
        from pg_constraint k where k.conrelid = c.oid)
from pg_class c where c.relnamespace = current_schema()::regnamespace order by 1"""


@pytest.fixture
def schema(kind_dsn: str) -> Iterator[str]:
    """Yields the DSN of a server with a search_path of one schema of this test's own."""
    with own_schema(kind_dsn, "made") as dsn:
        yield dsn


def prepare(dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    return dbdyno(("workload", "prepare", "pgbench", "--dsn", dsn, *words), {}, Path("/"))


def looked_at(dsn: str) -> tuple[list[Any], dict[str, Any]]:
    """Returns the definition of the tables, and their numbers of rows with a sum of hashes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        sums = "select count(*), sum(hashtextextended(t::text, 0)) from {} t"
        rows = {t: connection.execute(sums.format(t).encode()).fetchone() for t in TABLES}
        return connection.execute(SHAPE).fetchall(), rows


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_prepared_tables_are_those_of_pgbench(schema: str, options: tuple[str, ...]) -> None:
    if "--unlogged" in options:
        with psycopg.connect(schema) as connection:
            if connection.info.server_version >= 180000:
                pytest.skip("pgbench 15 cannot make unlogged partitioned tables there")
    initialise = [program(), "--initialize", "--quiet", "--scale=1", *options, schema]
    subprocess.run(initialise, check=True, capture_output=True)
    expected = looked_at(schema)
    refused = prepare(schema, *options)
    assert refused.returncode == 2 and "--replace" in refused.stderr
    done = prepare(schema, *options, "--replace", "--json")
    assert done.returncode == 0, done.stderr
    assert looked_at(schema) == expected
    assert json.loads(done.stdout)["rows"] == 100_011
    again = prepare(schema, *options)
    assert again.returncode == 0 and "there already" in again.stdout
    work = [program(), "--no-vacuum", "--transactions=5", schema]
    assert (
        b"transactions actually processed: 5" in subprocess.run(work, check=True, capture_output=True).stdout
    )


def test_tables_of_others_stay_and_an_error_leaves_nothing(schema: str) -> None:
    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute("create table pgbench_history (mine int)")
        drop = dbdyno(("workload", "drop", "pgbench", "--dsn", schema), {}, Path("/"))
        assert drop.returncode == 2 and "not made by" in drop.stderr
        connection.execute("create view mine as select * from pgbench_history")
        assert prepare(schema, "--replace").returncode != 0  # it is not dropped under the view
        connection.execute("drop table pgbench_history cascade")
        failed = prepare(schema, "--tablespace", "nowhere")
        assert failed.returncode != 0 and "nowhere" in failed.stderr
        assert connection.execute("select to_regclass('pgbench_history')").fetchone() == (None,)


def test_ctrl_c_removes_what_was_prepared(schema: str) -> None:
    words = ["workload", "prepare", "pgbench", "-s", "300", "--dsn", schema]
    argv = [str(Path(sys.executable).parent / "dbdyno"), *words]
    with (
        subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process,
        psycopg.connect(schema, autocommit=True) as connection,
    ):
        # to ask for the table's size would wait for its lock, until all is loaded
        some = "select coalesce(sum(tuples_processed), 0) > 0 from pg_stat_progress_copy"
        while process.poll() is None and connection.execute(some).fetchone() == (False,):
            time.sleep(0.02)
        process.send_signal(2)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 130 and "removed: pgbench_accounts" in messages
        assert connection.execute("select to_regclass('pgbench_accounts')").fetchone() == (None,)


COLUMNS = [
    {"name": "id", "type": "bigint", "kind": "serial"},
    {"name": "parent_id", "type": "integer", "kind": "expression", "of": ":parent"},
    {"name": "price", "type": "numeric", "scale": 2, "kind": "uniform", "low": -50, "high": 123456},
    {"name": "ratio", "type": "numeric", "scale": 7, "nulls": 0.2,
     "kind": "zipf", "low": -2, "high": 9, "exponent": 1.5},
    {"name": "kind", "type": "smallint", "nulls": 0.5, "kind": "uniform", "low": -3, "high": 3},
    {"name": "sold", "type": "boolean", "kind": "uniform", "low": 0, "high": 1},
    {"name": "day", "type": "date", "kind": "range", "first": "1999-02-27", "last": "2031-01-01"},
    {"name": "at", "type": "timestamp", "kind": "range", "first": "1999-01-01", "last": "2001-01-01"},
    {"name": "state", "type": "text", "kind": "choice", "values": ["new", "dönr"], "weights": [9, 1]},
    {"name": "note", "type": "text", "nulls": 0.1, "kind": "words", "words": ["red", "fox"], "count": [0, 9]},
    {"name": "code", "type": "text", "kind": "characters", "length": [0, 40]},
    {"name": "mail", "type": "text", "kind": "template", "text": "u{:id}@x"},
]  # fmt: skip
DDL = (
    "create table made.items (id bigint, parent_id int, price numeric(12, 2), ratio numeric, kind smallint, "
    "sold boolean, day date, at timestamp, state text, note varchar(80), code text, mail text)"
)


def test_rows_and_checksum_are_the_servers_for_any_number_of_connections(schema: str) -> None:
    parent = {"name": "parents", "ddl": "", "rows": "5 * :scale", "columns": COLUMNS[:1]}
    items = {"name": "items", "ddl": "", "parent": "parents", "columns": COLUMNS}
    tables = [parent, items | {"per_parent": "random(0, 4)"}]
    table = Description.model_validate({"version": 1, "tables": tables}).tables[1]
    with connect.connect(schema) as connection:
        connection.execute(DDL.encode())
        seen = set()
        for workers, rows in ((1, 101_000), (3, 101_000)):
            connection.execute("truncate made.items")
            steps = [{"name": "load", "tables": [table.core("made.items", (1, rows), {})]}]
            target = connect.driver_target(connection)
            spec = {"target": target, "workers": workers, "seed": 5, "steps": steps}
            loader = _core.Loader("postgres", json.dumps(spec))
            while not loader.wait(1):
                pass
            count, _, checksum = dict(loader.sums())["items"]
            assert connection.execute(table.checksum_sql("made.items").encode()).fetchone() == (
                count,
                checksum,
            )
            seen.add((count, checksum))
        assert len(seen) == 1
