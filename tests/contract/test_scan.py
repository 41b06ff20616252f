"""scan on every version: its plan, the blocks that a call reads, and the number of requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.objects import half_of, statement_of
from dbdyno.plan.recipe import typed

pytestmark = pytest.mark.db

UNIT = loads.workload("scan")
SCALE = 2_000


@pytest.fixture
def server(kind_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(kind_dsn)) as server:
        server.clean()
        yield server
        server.clean()


def params(**given: Any) -> dict[str, Any]:
    return dict(typed(UNIT, {"scale": SCALE, **given}))


def nodes(plan: dict[str, Any]) -> Iterator[str]:
    yield plan["Node Type"]
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("aggregate", ["count", "none"])
def test_a_call_scans_the_table_once(server: PostgresServer, kind_dsn: str, aggregate: str) -> None:
    """The executor's account and dbdyno's agree. Without the aggregate no row is sent."""
    chosen = params(aggregate=aggregate)
    server.prepare(UNIT, chosen, 1)
    here = half_of("scan")
    text = statement_of("scan", here.call, here.objects.name, SCALE, chosen)
    with psycopg.connect(kind_dsn, autocommit=True) as connection:
        for key, value in here.session.items():
            connection.execute("select set_config(%s, %s, false)", [key, value])
        connection.execute(b"prepare q(bigint) as " + text.encode())
        rows = connection.execute(f"execute q({SCALE})".encode()).fetchall()
        run = f"explain (analyze, buffers, format json) execute q({SCALE})".encode()
        (explained,) = connection.execute(run).fetchone() or ([{}],)
    plan = explained[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] == SCALE
    kinds = set(nodes(plan))
    assert "Seq Scan" in kinds and not any("Gather" in k for k in kinds)
    assert ("Aggregate" in kinds) == (aggregate == "count")
    assert rows == ([(SCALE,)] if aggregate == "count" else [])
    assert loads.work(loads.run(server, UNIT, chosen, 2, calls=10), "lio") == {0: 10 * SCALE, 1: 10 * SCALE}


def test_requests_are_counted_where_each_session_has_its_own_counters(server: PostgresServer) -> None:
    """Versions from 18 on count them. A table larger than the cache takes at least one request, at most
    one a block."""
    chosen = params(scale=20_000)  # 164 MB, shared_buffers are 128
    server.prepare(UNIT, chosen, 1)
    result = loads.run(server, UNIT, chosen, 1, calls=3)
    if "read_requests" not in result["counters"]["name"]:
        assert server.version < 180000
        return
    blocks, requests = loads.work(result, "blocks_read")[0], loads.work(result, "read_requests")[0]
    assert 0 < requests < blocks  # io_combine_limit is 16 blocks
