"""Tables that sequential scans do not bring into the cache: tables on both sides of each criterion."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import climb
from tests.unit.snapshot_cases import snapshot

from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.table_scans import not_cached
from dbdyno.conclude.snapshots.snapshots import claims
from dbdyno.model.results.claim import Claim

MIB = 1 << 20
SHOP = {"database_id": 5, "database": "shop"}
CACHE = {"cache_bytes": 128 * MIB, "block_bytes": 8192, "scan_bytes": 32 * MIB}
"""128 MiB of 8 KiB blocks: PostgreSQL scans a table larger than a quarter of them through a ring."""
TABLE = {"relation_id": 1, "schema": "public", "relation": "orders", "kind": "table", "table_bytes": 64 * MIB}
READ = {"seq_scans": 3, "table_blocks_read": 3 * 8192}
"""Three scans, each of all 8,192 blocks."""
GROWING = (*READ, "index_scans", "table_blocks_hit")


def scan_claim(blocks_read: int = 4 * 8192, info: Any = None, *tables: dict[str, Any]) -> Claim | None:
    info = {"cache": CACHE} if info is None else info
    zero = [SHOP | {k: v for k, v in t.items() if k not in GROWING} for t in tables]
    a = snapshot(0, None, info, databases=[SHOP], relations=zero)
    database = SHOP | {"blocks_read": blocks_read}
    b = snapshot(60, None, info, databases=[database], relations=[SHOP | t for t in tables])
    growth = figures(interval(a, b))
    return next((c for c in claims(growth) if c.id == "scan-not-cached"), None)


def test_the_claim_names_the_table_its_share_and_its_size_against_the_cache() -> None:
    claim = scan_claim(4 * 8192, None, TABLE | READ)
    assert claim is not None
    assert claim.case == "exact"
    assert claim.value is not None
    assert claim.value.value == 0.75
    assert (claim.slots["relation"], claim.slots["scans"]) == ("public.orders", 3)
    assert claim.slots["size"] == 64 * MIB and claim.slots["cache"] == 128 * MIB
    assert claim.slots["needed"] == 256 * MIB


@pytest.mark.parametrize(
    ("claimed", "figures"),
    [
        (True, {"table_bytes": 32 * MIB + 8192}),
        (False, {"table_bytes": 32 * MIB}),
        (False, {"table_blocks_read": 8192}),  # once the whole: the first scan has to
        (True, {"table_blocks_read": 8193}),
        (False, {"seq_scans": 0}),
        (True, {"table_blocks_hit": 99 * 3 * 8192}),
        (False, {"table_blocks_hit": 99 * 3 * 8192 + 1}),  # once in the cache, it stays
        (False, {"kind": "system"}),
    ],
)
def test_each_criterion_decides_on_both_sides_of_its_limit(claimed: bool, figures: dict[str, Any]) -> None:
    assert (scan_claim(4 * 8192, None, TABLE | READ | figures) is not None) is claimed


def test_a_small_share_of_all_reads_makes_no_claim() -> None:
    assert scan_claim(30 * 8192, None, TABLE | READ) is not None
    assert scan_claim(31 * 8192, None, TABLE | READ) is None


def test_with_index_scans_the_share_is_an_upper_bound() -> None:
    claim = scan_claim(4 * 8192, None, TABLE | READ | {"index_scans": 1})
    assert claim is not None
    assert (claim.case, claim.slots["share"]) == ("most", 0.75)


def test_others_are_counted_and_the_most_read_is_named() -> None:
    other = TABLE | READ | {"relation_id": 2, "relation": "archive", "table_blocks_read": 9000}
    claim = scan_claim(40_000, None, TABLE | READ, other)
    assert claim is not None
    assert "public.orders" in claim.text and "1 more table larger" in claim.text


def test_a_snapshot_of_an_earlier_version_makes_no_claim() -> None:
    assert scan_claim(4 * 8192, {}, TABLE | READ) is None


def test_a_runs_claim_is_of_the_measurement_with_the_largest_share() -> None:
    run = climb("fake:cpu=50ms", [1, 2])
    shares = (2_000, 6_000)
    row = {
        "relation": "public.t",
        "seq_scans": 9,
        "index_scans": 0,
        "blocks_hit": 0,
        "blocks_read_all": 8_000,
    }
    scanned = [
        row | CACHE | {"cell": c.id, "table_bytes": 5 * MIB, "blocks_read": read}
        for read, c in zip(shares, run.plan.cells, strict=True)
    ]
    windows = [
        {"cell": c.id, "status": "ok", "sessions": c.sessions, "variant": "base"} for c in run.plan.cells
    ]
    tables = {
        "windows": pl.DataFrame(windows).with_columns(rate_per_s=None),
        "large_scans": pl.DataFrame(scanned),
    }
    (claim,) = not_cached(Case(run.plan, run.environment, tables, {}))
    values = [claim.slots[n] for n in ("share", "place", "relation")]
    assert (claim.case, *values) == ("exact", 0.75, "at 2 sessions", "public.t")
    assert claim.cells == (run.plan.cells[0].id, run.plan.cells[1].id)
