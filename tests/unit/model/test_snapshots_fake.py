"""Snapshots of the fake engine follow its law."""

from __future__ import annotations

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fake_engine.snapshots import PER_CALL, QUERY_ID

from dbdyno.model.engine.protocols import Target
from dbdyno.model.engine.snapshot import TABLES, Snapshot
from dbdyno.model.errors import NoSuchDatabase


def two_snapshots(seconds: float) -> tuple[Snapshot, Snapshot]:
    server = FakeServer(Target(dsn="fake:cpus=4,foreign=4,cpu=5ms,think=5ms"))
    first = server.snapshot(None, None, ())
    server.clock().sleep(seconds)
    return first, server.snapshot("later", (), {QUERY_ID})


def row(snapshot: Snapshot, table: str) -> dict[str, object]:
    return snapshot.tables[table].row(0, named=True)


def test_calls_grow_the_tables_counters_by_the_law() -> None:
    first, last = two_snapshots(2)
    calls = row(last, "databases")["commits"] - row(first, "databases")["commits"]  # type: ignore[operator]
    assert calls == pytest.approx(4 * 2 / 0.01, abs=8)
    for name, per_call in PER_CALL.items():
        assert row(last, "relations")[name] - row(first, "relations")[name] == per_call * calls  # type: ignore[operator]
    assert row(last, "statements")["calls"] - row(first, "statements")["calls"] == calls  # type: ignore[operator]
    assert (last.info.server_time - first.info.server_time).total_seconds() == 2
    assert first.texts["query_id"].to_list() == [QUERY_ID]
    assert last.texts.is_empty()


def test_all_tables_of_the_schema_are_there() -> None:
    snapshot, _ = two_snapshots(1)
    assert set(snapshot.tables) == set(TABLES)
    for name, frame in snapshot.tables.items():
        assert frame.columns == [c.name for c in TABLES[name].columns]
        assert (
            not frame.select(pl.col(c.name).null_count() for c in TABLES[name].columns if not c.null)
            .sum_horizontal()
            .sum()
        )


def test_a_snapshot_of_another_database_is_refused() -> None:
    with pytest.raises(NoSuchDatabase):
        FakeServer(Target(dsn="fake:")).snapshot(None, ["other"], ())
