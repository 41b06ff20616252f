"""A table of twice what sequential scans bring into the cache, and one that fits, on a real server."""

from __future__ import annotations

import json

from tests.db.conftest import Bench

ROW = "insert into public.{0} select repeat('x', 4000) from generate_series(1, {1})"
"""Two rows a block."""


def test_scans_of_the_large_table_are_named_and_those_of_the_small_one_are_not(fresh_bench: Bench) -> None:
    start = ("server", "start", "--setting", "shared_buffers=8MB", "--setting", "autovacuum=off")
    assert fresh_bench.dbdyno(*start).returncode == 0
    for name, rows in (("large", 1024), ("small", 256)):  # 4 MiB and 1 MiB: the limit is 2 MiB
        fresh_bench.ask(f"create table public.{name} (pad text)")
        fresh_bench.ask(f"alter table public.{name} alter pad set storage plain")
        fresh_bench.ask(ROW.format(name, rows))
    fresh_bench.ask("vacuum freeze")
    fresh_bench.here("server", "stop")
    assert fresh_bench.dbdyno(*start).returncode == 0  # nothing is in the cache
    del fresh_bench.dsn
    assert fresh_bench.here("snapshot", "--dsn", fresh_bench.dsn, "--name", "a").returncode == 0
    for _ in range(4):
        for name in ("large", "small"):
            fresh_bench.ask(f"set synchronize_seqscans = off; select count(*) from public.{name}")
    assert fresh_bench.here("snapshot", "--dsn", fresh_bench.dsn, "--name", "b").returncode == 0
    assert "public.large" in fresh_bench.here("report", "a", "b").stdout
    done = fresh_bench.here("report", "a", "b", "--json")
    assert done.returncode == 0, done.stderr
    claims = {c["id"]: c for c in json.loads(done.stdout)["claims"]}
    claim = claims["scan-not-cached"]
    assert "blocks read from outside the cache in this interval were of public.large (4." in claim["claim"]
    assert "Up to" not in claim["claim"]
    assert "larger than 2.00 MiB" in claim["claim"]
    assert 0.5 < claim["value"] <= 1
