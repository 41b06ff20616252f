"""Order entry: consistent as loaded and after calls. A check that fails makes a measurement invalid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from dbdyno.engines.postgres.checking import Checks
from dbdyno.engines.postgres.script_halves import script_half
from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.engine.checking import Check
from dbdyno.model.schema.tables import empty
from tests.db.conftest import LIGHT, QUICK, Bench

pytestmark = pytest.mark.db
SIZE = {"scale": 1, "warehouses": 2, "mode": "read-write"}
NOTHING = {name: empty(name) for name in ("scripts", "script_errors", "sessions")}
CHANGING = ("register-customer", "update-details", "order-products", "process-orders")


@pytest.fixture
def loaded(bench: Bench, kind_dsn: str) -> Iterator[str]:
    bench.here("clean", "--dsn", kind_dsn)
    prepared = bench.here("workload", "prepare", "order-entry", "--warehouses", "2", "--dsn", kind_dsn)
    assert prepared.returncode == 0, prepared.stderr
    yield kind_dsn
    cleaned = bench.here("clean", "--dsn", kind_dsn)
    assert cleaned.returncode == 0 and "dbdyno.items" in cleaned.stdout, cleaned.stderr
    assert bench.ask("select to_regnamespace('dbdyno')", kind_dsn) == [(None,)]


def measure(bench: Bench, dsn: str, *words: str, warehouses: int = 2) -> dict[str, Any]:
    done = bench.here("run", "order-entry", f"warehouses={warehouses}", *QUICK, *LIGHT, *words, "--dsn", dsn)
    assert done.returncode == 0, done.stderr
    return bench.last()


def run_checks(dsn: str) -> list[Check]:
    server = PostgresServer(dsn)
    try:
        assert isinstance(server.checking, Checks)
        before = server.checking.counts("order-entry") or {}
        return server.checking.checks("order-entry", SIZE, before, NOTHING)
    finally:
        server.close()


def failed_checks(document: dict[str, Any]) -> list[str]:
    return [f["claim"] for f in document["findings"] if f["id"] == "check-failed"]


def test_data_are_consistent_as_loaded_and_after_each_measurement(bench: Bench, loaded: str) -> None:
    checks = run_checks(loaded)
    half = script_half("order-entry")
    assert half is not None and len(checks) == len(half.checks) + len(CHANGING) == 9
    assert all(c.holds for c in checks), [c.words for c in checks]
    document = measure(bench, loaded, "--sessions", "3")
    assert failed_checks(document) == []
    assert [w["status"] for w in document["windows"]] == ["ok"]
    assert [r["errors"] for r in document["rungs"]] == [0]
    (orders,) = bench.ask("select count(*) from dbdyno.orders where order_id > 25000", loaded)
    assert orders[0] > 0
    bench.ask(
        "update dbdyno.items set price = 0 where order_id = (select max(order_id) from dbdyno.orders)", loaded
    )
    assert [c.found for c in run_checks(loaded) if not c.holds] == [1]
    bench.ask("delete from dbdyno.orders where order_id % 2 = 1 and order_id < 5000", loaded)
    (lost,) = [c.found for c in run_checks(loaded) if not c.holds]
    assert 120 < lost < 265  # a tenth of the 1,922 or so that are looked at, five standard deviations
    bench.ask("update dbdyno.inventories set on_hand = on_hand - 1 where product_id = 7", loaded)
    broken = measure(bench, loaded, "--sessions", "1", "--reset", "never")
    assert broken["windows"][0]["status"] == "invalid"
    (claim,) = failed_checks(broken)
    assert "rows of stock that differ: expected 0, found 2" in claim
    read_only = measure(bench, loaded, "--sessions", "1", "--param", "mode=read-only", warehouses=3)
    assert failed_checks(read_only) == []  # tables of another size were loaded anew
    assert bench.ask("select (select count(*) from dbdyno.warehouses), count(*) from dbdyno.log", loaded) == [
        (3, 0)
    ]


def test_tables_of_anybody_else_stay(bench: Bench, kind_dsn: str) -> None:
    bench.here("clean", "--dsn", kind_dsn)
    with psycopg.connect(kind_dsn, autocommit=True) as connection:
        prepared = bench.here("workload", "prepare", "pgbench", "--warehouses", "3", "--dsn", kind_dsn)
        assert prepared.returncode == 2 and "no such option" in prepared.stderr
        assert bench.here("workload", "prepare", "order-entry", "--dsn", kind_dsn).returncode == 0
        connection.execute("drop table dbdyno.orders")
        connection.execute("comment on table dbdyno.customers is null")
        refused = bench.here("run", "order-entry", *QUICK, "--sessions", "1", "--dsn", kind_dsn)
        assert refused.returncode == 2 and "--replace" in refused.stderr, refused.stderr
        connection.execute("drop schema dbdyno cascade")
