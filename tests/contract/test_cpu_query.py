"""cpu-query on every version: its count, its single process, and its rounds on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import polars as pl
import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.objects import half_of, statement_of
from dbdyno.model.plan.plan import DriverSetup
from dbdyno.plan.recipe import typed

pytestmark = pytest.mark.db

UNIT = loads.workload("cpu-query")
HALF = half_of("cpu-query")


@pytest.fixture
def server(kind_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(kind_dsn)) as server:
        yield server
        server.clean()


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from steps(part)


def test_the_query_joins_the_stated_rows_in_one_process_and_fails_for_any_other_number(
    server: PostgresServer, kind_dsn: str
) -> None:
    for chosen in ({"rows": 20, "sets": 2}, {"rows": 12, "sets": 3}, {"rows": 11, "sets": 4}):
        params = dict(typed(UNIT, chosen))
        expected = chosen["rows"] ** chosen["sets"]
        assert UNIT.work_of(params) == expected
        server.prepare(UNIT, params, 1)
        text = statement_of("cpu-query", HALF.call, HALF.objects.name, 0, params)
        with psycopg.connect(kind_dsn, autocommit=True) as connection:
            for key, value in HALF.session.items():
                connection.execute("select set_config(%s, %s, false)", [key, value])
            connection.execute(b"prepare q as " + text.encode())
            assert connection.execute(f"execute q({expected})".encode()).fetchall() == [(expected,)]
            with pytest.raises(psycopg.errors.RaiseException, match=f"counted {expected} rows"):
                connection.execute(f"execute q({expected + 1})".encode())
            explained = f"explain (analyze, format json) execute q({expected})".encode()
            (answer,) = connection.execute(explained).fetchone() or ([],)
        plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]
        nodes = list(steps(plan["Plan"]))
        # the executor's own account, a source outside our code
        assert {n["Node Type"] for n in nodes} == {"Aggregate", "Nested Loop", "Function Scan"}
        assert nodes[1]["Actual Rows"] == expected
        assert "JIT" not in plan


def test_no_round_begins_before_the_one_before_has_ended(server: PostgresServer) -> None:
    """Each call also records on which CPU it ran."""
    params = dict(typed(UNIT, {"rows": 50}))
    server.prepare(UNIT, params, 3)
    tables = loads.run(server, UNIT, params, 3, calls=6, driver=DriverSetup(rounds=True))
    calls = tables["calls"].sort("session", "start_ns")
    numbered = calls.with_columns(
        round=pl.col("session").cum_count().over("session"), end=pl.col("start_ns") + pl.col("duration_ns")
    )
    rounds = (
        numbered.group_by("round").agg(pl.len(), pl.col("start_ns").min(), pl.col("end").max()).sort("round")
    )
    assert rounds.height == 6 and (rounds["len"] == 3).all()
    assert (rounds["start_ns"][1:] >= rounds["end"][:-1]).all()
    assert calls["ok"].all() and calls["cpu"].null_count() == 0
    assert (calls["migrations"].drop_nulls() >= 0).all()
