"""``dbdyno run --suite micro`` on a real server: a matrix of two variants; each benchmark is a run."""

from __future__ import annotations

import json

import pytest

from tests.db.conftest import SHORT, Bench

pytestmark = pytest.mark.db


def test_three_benchmarks_by_two_variants(bench: Bench) -> None:
    recipe = bench.home / "two.toml"
    recipe.write_text("[variants.plain]\n[variants.logged]\nsettings = { log_statement = 'all' }\n")
    only = ("--only", "insert,point-select,hot-row", "--repeats", "2")
    done = bench.here("run", "--suite", "micro", *only, *SHORT, "--recipe", str(recipe), "--json")
    assert done.returncode == 0, done.stderr
    matrix = json.loads(done.stdout)
    assert matrix["variants"] == ["plain", "logged"] and matrix["planned"] == 3
    by_name = {r["benchmark"]: r for r in matrix["rows"]}
    assert {n: r["sessions"] for n, r in by_name.items()} == {"point-select": 1, "insert": 1, "hot-row": 4}
    assert matrix["family"] == sum(len(row["contrasts"]) for row in by_name.values())
    for row in by_name.values():
        if row["contrasts"]:  # else the client was the limit, on a busy machine
            assert all(mean > 0 for mean in row["means"].values()) and {*row["means"]} == {"plain", "logged"}
            assert row["contrasts"][0]["effect"]["n_variant"] in (1, 2)
        else:
            assert row["reason"]
    first = bench.runs()[0]
    assert first["benchmark"] == "point-select" and first["group"] == matrix["id"]
    assert "suite:micro" in first["tags"]
    assert bench.here("show", matrix["id"], "--json").stdout == done.stdout
    assert bench.here("clean", "--dsn", bench.dsn).returncode == 0
    assert bench.ask("select to_regnamespace('dbdyno')") == [(None,)]
