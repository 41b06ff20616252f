"""Logical reads are counted exactly, on every version: against EXPLAIN (ANALYZE, BUFFERS)."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing

import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.objects import half_of, statement_of

pytestmark = pytest.mark.db

RANGES, CALLS = 100, 7


def reads_by_explain(dsn: str, name: str, table: str, blocks: int) -> int:
    """Returns shared hits and reads of one call by the executor, a source outside dbdyno's code."""
    call = statement_of(name, half_of(name).call, table, blocks).replace("$1", str(RANGES))
    with psycopg.connect(dsn, autocommit=True) as connection:
        for key, value in half_of(name).session.items():
            connection.execute("select set_config(%s, %s, false)", [key, value])
        connection.execute(call.encode())  # warm: the catalogs are read
        row = connection.execute(b"explain (analyze, buffers, format json) " + call.encode()).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("tables", ["shared", "own"])
def test_every_session_is_counted_to_the_block(any_dsn: str, tables: str) -> None:
    unit = loads.workload("lio")
    params = loads.defaults(unit, tables=tables, blocks=256)
    with _open(any_dsn) as server:
        server.prepare(unit, params, 5)
        result = loads.run(server, unit, params, 5, size=RANGES, calls=CALLS)
        expected = reads_by_explain(
            any_dsn, "lio", "lio_shared" if tables == "shared" else "lio_own_0003", 256
        )
    assert result["sessions"]["calls_total"].to_list() == [CALLS] * 5
    assert result["sessions"]["errors_total"].to_list() == [0] * 5
    assert expected > 64 * RANGES
    assert loads.work(result, "lio") == dict.fromkeys(range(5), CALLS * expected)
    assert loads.work(result, "blocks_read") == dict.fromkeys(range(5), 0)


def test_a_call_reads_64_blocks_a_range_whatever_the_range(any_dsn: str) -> None:
    """Each block has one row, so the heap blocks of a range are its rows. The rest is index."""
    unit = loads.workload("lio")
    params = loads.defaults(unit, blocks=256)
    with _open(any_dsn) as server:
        server.prepare(unit, params, 1)
    with psycopg.connect(any_dsn) as connection:
        row = connection.execute(
            "select count(distinct split_part(ctid::text, ',', 1)), count(*) from dbdyno.lio_shared"
        ).fetchone()
    assert row == (256, 256)


def test_calibration_counts_what_a_call_reads(any_dsn: str) -> None:
    unit = loads.workload("lio")
    params = loads.defaults(unit, blocks=256)
    with _open(any_dsn) as server:
        server.prepare(unit, params, 1)
        calibration = server.calibrate(unit, params, 5_000_000, "test")
        result = loads.run(server, unit, params, 2, size=calibration.size, calls=3)
    assert calibration.work_per_call is not None
    assert calibration.size_unit == "ranges"
    assert calibration.steps
    assert set(loads.work(result, "lio").values()) == {3 * int(calibration.work_per_call)}


def test_cpu_reads_no_blocks(dsn18: str) -> None:
    unit = loads.workload("cpu")
    with _open(dsn18) as server:
        server.prepare(unit, {}, 3)
        assert server.calibrate(unit, {}, 5_000_000, "test").work_per_call is not None
        result = loads.run(server, unit, {}, 3, size=1_500_000, calls=2)
    assert result["sessions"]["calls_total"].to_list() == [2, 2, 2]
    assert loads.work(result, "lio") == {0: 0, 1: 0, 2: 0}


def test_cpu_makes_as_many_iterations_as_its_size(any_dsn: str) -> None:
    unit = loads.workload("cpu")
    with _open(any_dsn) as server:
        server.prepare(unit, {}, 1)
    with psycopg.connect(any_dsn) as connection:
        for size in (0, 1, 999_999, 1_000_000, 2_345_678):
            assert connection.execute("select dbdyno.spin(%s)", [size]).fetchone() == (size,)


def test_sessions_inside_a_transaction_say_so_only_before_18(any_dsn: str) -> None:
    unit = loads.workload("lio")
    params = loads.defaults(unit, blocks=64)
    with _open(any_dsn) as server:
        server.prepare(unit, params, 1)
        detail = {s.name: s for s in server.sources()}["engine counters, per session"]
        result = loads.run(server, unit, params, 1, calls=1)
    assert detail.status == "ok"
    assert ("xact" in detail.provenance) == (server.version < 180000)
    assert result["counters"]["status"].unique().to_list() == ["ok"]


def _open(dsn: str) -> AbstractContextManager[PostgresServer]:
    return closing(PostgresServer(dsn))
