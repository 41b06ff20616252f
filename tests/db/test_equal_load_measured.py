"""Equal load and hot rows on a real server, against the server's own counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbdyno.engines.postgres.server import PostgresServer
from dbdyno.model.plan.plan import PlannedScript
from tests.db.conftest import LIGHT, QUICK, Bench

pytestmark = pytest.mark.db
RECIPE = """
workload = "order-entry"
sessions = "1"
measure = "1s"
settle = "100ms"
think = "3ms"
memory = false
snapshots = false
order = "ladder"

[variants.small]
params = { mode = "read-only", scale = 1 }

[variants.unbounded-small]
params = { mode = "unbounded", scale = 1 }

[variants.unbounded-large]
params = { mode = "unbounded", scale = 4 }

[variants.large]
params = { mode = "read-only", scale = 4 }
"""
COUNTED = """
select sum(shared_blks_hit + shared_blks_read)::float / sum(calls), sum(rows)::float / sum(calls)
from pg_stat_statements where query like '%between $1 and $1 + $2%' or query like '%o.customer_id between%'"""


@pytest.fixture
def own(bench: Bench) -> Iterator[str]:
    """Yields the DSN of a database for these tests alone."""
    bench.ask("drop database if exists equal_load")
    bench.ask("create database equal_load")
    dsn = bench.with_words(dbname="equal_load")
    bench.ask("create extension if not exists pg_stat_statements", dsn)
    yield dsn
    bench.ask("drop database equal_load with (force)")


def _claims(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{f['subject']}:{f['id']}": f for f in document["findings"]}


def test_a_bounded_range_costs_the_same_at_every_size_and_an_unbounded_one_grows(
    bench: Bench, own: str, tmp_path: Path
) -> None:
    recipe = tmp_path / "sizes.toml"
    recipe.write_text(RECIPE)
    done = bench.here("run", str(recipe), "--dsn", own, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    claims = _claims(document)
    ours, grown = claims["mode=read-only:equal-load"], claims["mode=unbounded:equal-load"]
    assert ours["severity"] == "good" and "25,000 to 100,000 orders" in ours["claim"]
    assert grown["severity"] == "warning" and "browse-orders-unbounded" in grown["claim"]
    assert 3.3 < grown["value"] < 4.4  # four times the orders, and a level of an index
    assert "mode=unbounded:transaction-load-browse-products" in claims
    refused = bench.here("compare", "last")
    if (
        "limited by the client" in refused.stdout
    ):  # on a busy machine, and so left out: the rest is of one size
        return
    assert refused.returncode == 2
    assert "--across-sizes" in refused.stderr or "usable" in refused.stderr


def test_work_of_a_transaction_is_what_the_server_counted(bench: Bench, own: str) -> None:
    bench.ask("select pg_stat_statements_reset()", own)
    words = ("mode=unbounded", "--sessions", "1", *QUICK, *LIGHT, "--dsn", own, "--json")
    done = bench.here("run", "order-entry", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    scripts = {r["name"]: r for r in document["script_rates"] if r["cell"] != "all"}
    script = scripts["browse-orders-unbounded"]
    ((blocks, rows),) = bench.ask(COUNTED, own)
    assert script["lio_per_call"] == pytest.approx(blocks)
    assert script["rows_per_call"] == pytest.approx(rows)


HELD = """create function held() returns trigger language plpgsql
as 'begin perform pg_sleep(0.01); return null; end';
create trigger held after update on pgbench_branches for each row execute function held()"""
"""Sleeps after each change of a branch, so that others wait for it on a busy machine, too."""


@pytest.mark.parametrize(("scale", "sessions"), [(1, 8), (8, 2)])
def test_few_branches_are_warned_of_and_named_as_the_cause(
    bench: Bench, own: str, scale: int, sessions: int
) -> None:
    prepared = bench.here("workload", "prepare", "pgbench", "-s", str(scale), "--dsn", own)
    assert prepared.returncode == 0, prepared.stderr
    few = scale < sessions
    if few:
        bench.ask(HELD, own)
    words = ("--sessions", str(sessions), *QUICK, "--dsn", own)
    done = bench.here("run", "tpcb-like", *words)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "will wait for each other" in line]
    assert len(warned) == few, done.stderr
    document = bench.last()
    hot = [f for f in document["findings"] if f["id"] == "hot-rows"]
    assert len(hot) == few, document["rungs"]
    if hot:
        assert "8 sessions change only 1 branch" in hot[0]["claim"] and hot[0]["value"] > 0.1
        assert "-s 8" in hot[0]["cure"]


EXPLAIN = """explain (costs off) select product_id, name, price from dbdyno.products
where category = 3 and product_id >= 7 order by product_id limit 10"""


def test_shapes_of_plans_are_those_of_explain(kind_dsn: str, bench: Bench) -> None:
    prepared = bench.here("workload", "prepare", "order-entry", "--warehouses", "2", "--dsn", kind_dsn)
    assert prepared.returncode == 0, prepared.stderr
    server = PostgresServer(kind_dsn)
    try:
        assert server.planning is not None
        params = {"scale": 1, "warehouses": 2, "mode": "read-write"}
        shapes = server.planning.shapes("order-entry", params, ())
        own = PlannedScript(
            name="own",
            text="select 1;\n\\set a 1\nselect :a from pg_class where oid = :a;\ncreate temp table t();",
        )
        others = server.planning.shapes("script", {}, (own,))
        assert server.planning.shapes("script", {}, (own,)).equals(others)  # nothing is left behind
    finally:
        server.close()
    assert set(shapes["status"]) == {"ok"} and shapes["shape"].null_count() == 0
    by = {(r["name"], r["line"]): r["shape"] for r in shapes.to_dicts()}
    lines = [line for (line,) in bench.ask(EXPLAIN, kind_dsn)]
    scan = next(word for word in lines[1].split() if word.startswith("products_"))
    assert f"Limit > Index Scan {scan}" in by["browse-products", 5]
    assert by["update-details", 6] == "Update addresses > Index Scan addresses_pkey"
    assert others.select("line", "shape").rows() == [(1, "Result"), (3, others["shape"][1])]
    assert "pg_class_oid_index" in others["shape"][1]
    assert bench.here("clean", "--dsn", kind_dsn).returncode == 0
