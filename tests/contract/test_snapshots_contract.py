"""Every engine that takes snapshots returns the tables of the written schema, and no others."""

from __future__ import annotations

from contextlib import closing

import polars as pl
import psycopg
import pytest
from tests.conftest import VERSIONS, Servers
from tests.fake_engine import FakeServer

from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.engines.postgres.sql import is_own
from dbdyno.model.engine.protocols import Server, Target, needed
from dbdyno.model.engine.snapshot import TABLES, TEXTS, Snapshot, SnapshotTable

_TYPES = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}


def check_table(name: str, table: SnapshotTable, frame: pl.DataFrame) -> None:
    assert dict(frame.schema) == {c.name: _TYPES[c.type] for c in table.columns}, name
    for c in table.columns:
        assert c.null or not frame[c.name].null_count(), f"NULL in {name}.{c.name}"
    assert not frame.select(c.name for c in table.key).is_duplicated().any(), name
    for c in table.counters:
        assert frame[c.name].fill_null(0).min() in (None, 0) or frame[c.name].min() >= 0, f"{name}.{c.name}"  # type: ignore[operator]


def check(snapshot: Snapshot) -> None:
    assert list(snapshot.tables) == list(TABLES)
    for name, table in TABLES.items():
        check_table(name, table, snapshot.tables[name])
    assert dict(snapshot.texts.schema) == {c.name: _TYPES[c.type] for c in TEXTS}
    assert snapshot.texts["query_id"].is_unique().all()
    for place, why in snapshot.info.missing.items():
        table_name, _, column = place.partition(".")
        if not place.startswith("database "):
            known = {c.name for c in TABLES[table_name].columns}
            assert not column or table_name == "server" or column in known, place
        assert why
    assert type(snapshot.info).model_validate_json(snapshot.info.model_dump_json()) == snapshot.info


def check_snapshots(server: Server) -> None:
    with closing(server):
        reader = needed(server.snapshots, "take snapshots")
        first = reader.snapshot("before the release", None, ())
        check(first)
        last = reader.snapshot(None, None, set(first.texts["query_id"]))
    check(last)
    assert (first.info.name, last.info.name) == ("before the release", None)
    assert last.info.server == first.info.server
    assert last.info.server_time >= first.info.server_time


def test_snapshots_of_the_fake_engine_hold_the_contract() -> None:
    check_snapshots(FakeServer(Target(dsn="fake:foreign=2,cpu=5ms")))


@pytest.mark.db
@pytest.mark.parametrize("major", VERSIONS)
def test_snapshots_of_postgresql_hold_the_contract(servers: Servers, major: int) -> None:
    check_snapshots(PostgresServer(servers.dsn(major)))


@pytest.mark.db
def test_dbdynos_own_statements_are_left_out_whatever_texts_a_store_has(servers: Servers) -> None:
    """A store that has taken over another program's snapshots knows the texts of dbdyno's statements, too."""
    dsn = servers.dsn(18)
    for _ in range(2):  # those of the first are counted when the second looks
        with closing(PostgresServer(dsn)) as server:
            needed(server.snapshots, "take snapshots").snapshot(None, None, ())
    with psycopg.connect(dsn) as connection:
        counted = connection.execute("select queryid, query from pg_stat_statements").fetchall()
    own = {i for i, text in counted if is_own(text)}
    with closing(PostgresServer(dsn)) as server:
        last = needed(server.snapshots, "take snapshots").snapshot(None, None, {i for i, _ in counted})
    assert own
    assert not own & set(last.tables["statements"]["query_id"])
