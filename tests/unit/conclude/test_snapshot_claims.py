"""Claims of two snapshots for a database administrator: each criterion on both sides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.snapshot_cases import NOON, START_S, snapshot

from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.snapshots.snapshots import claims
from dbdyno.model.engine.snapshot import TABLES, Snapshot
from dbdyno.model.results.claim import Claim

pytestmark = pytest.mark.queries

SHOP = {"database_id": 5, "database": "shop"}
MIB = 1 << 20


def claims_between(a: Snapshot, b: Snapshot) -> dict[str, Claim]:
    return {c.id: c for c in claims(figures(interval(a, b)))}


def claims_after(seconds: float = 100.0, info: Any = None, **rows: list[dict[str, Any]]) -> dict[str, Claim]:
    """Returns the claims of an interval from counters of 0 to ``rows``."""
    rows = {"databases": [SHOP]} | rows
    zero = {
        name: [{n: v for n, v in row.items() if n in _fixed_columns(name)} for row in table_rows]
        for name, table_rows in rows.items()
    }
    return claims_between(snapshot(**zero), snapshot(seconds, None, info, **rows))


def _fixed_columns(name: str) -> set[str]:
    """Returns the columns that do not grow."""
    table = TABLES[name]
    return {c.name for c in (*table.key, *table.attributes, *table.gauges)}


def table(**figures: Any) -> dict[str, Any]:
    return {**SHOP, "relation_id": 1, "schema": "public", "relation": "orders", "kind": "table"} | figures


def index(**figures: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("is_unique", "is_primary", "is_constraint"), False)
    names = {"relation_id": 1, "index_id": 2, "schema": "public", "relation": "orders", "index": "orders_i"}
    return {**SHOP, **names, **flags, "is_valid": True} | figures


def counter(name: str, value: int) -> dict[str, Any]:
    return {"figure": name, "unit": "count", "value": value}


def test_a_quiet_interval_has_no_claim() -> None:
    assert claims_after(relations=[table(table_bytes=1 << 40)], indexes=[index(size_bytes=1 << 40)]) == {}


def test_restart_reset_and_evictions_come_first() -> None:
    a = snapshot(databases=[{**SHOP, "commits": 9}], resets=[{"what": "statements", "evictions": 1}])
    start = NOON + timedelta(seconds=30)
    b = snapshot(
        60,
        None,
        {"started": start},
        databases=[{**SHOP, "commits": 1, "deadlocks": 0}],
        resets=[{"what": "statements", "evictions": 4}],
    )
    by_id = claims_between(a, b)
    assert [*by_id] == ["snapshot-restart", "snapshot-reset", "snapshot-evictions"]
    restart = by_id["snapshot-restart"]
    assert restart.slots["when"] == "2026-11-23 12:00:30 UTC" and "Counters fell" in restart.text
    assert by_id["snapshot-reset"].slots["what"] == "shop (at an unknown time)"
    assert by_id["snapshot-evictions"].value and by_id["snapshot-evictions"].value.value == 3


def test_resets_are_named_with_their_time() -> None:
    a = snapshot(databases=[SHOP], resets=[{"what": "I/O", "reset_s": 1.0}])
    b = snapshot(60, databases=[SHOP], resets=[{"what": "I/O", "reset_s": START_S + 10}])
    assert claims_between(a, b)["snapshot-reset"].slots["what"] == "I/O (at 2026-11-23 12:00:10 UTC)"


BASE = {"table_bytes": 64 * MIB, "seq_scans": 10, "seq_rows": 100, "index_rows": 900}


@pytest.mark.parametrize(
    ("claimed", "figures"),
    [
        (True, {}), (False, {"seq_scans": 9}), (False, {"table_bytes": 63 * MIB}), (False, {"seq_rows": 99}),
        (False, {"seq_rows": 0, "index_rows": 0}),
        (False, {"kind": "system"}),
    ],
)  # fmt: skip
def test_sequential_scans_of_large_tables_are_claimed_within_their_criterion(
    claimed: bool, figures: dict[str, Any]
) -> None:
    assert ("snapshot-seq-scans" in claims_after(relations=[table(**BASE | figures)])) is claimed


@pytest.mark.parametrize(
    ("claimed", "figures"),
    [
        (True, {}), (False, {"scans": 1}), (False, {"is_primary": True}), (False, {"is_unique": True}),
        (False, {"is_constraint": True}), (False, {"is_constraint": None}),
        (False, {"size_bytes": 8 * MIB - 1}),
    ],
)  # fmt: skip
def test_unused_indexes_are_claimed_within_their_criterion(claimed: bool, figures: dict[str, Any]) -> None:
    rows = {"relations": [table(rows_inserted=1)], "indexes": [index(**{"size_bytes": 8 * MIB} | figures)]}
    assert ("snapshot-unused-indexes" in claims_after(**rows)) is claimed


@pytest.mark.parametrize(
    ("claim", "figures"),
    [
        ("snapshot-deadlocks", {"deadlocks": 1}),
        ("snapshot-checksums", {"checksum_failures": 1}),
        ("snapshot-rollbacks", {"commits": 900, "rollbacks": 100}),
        ("snapshot-temporary", {"temporary_bytes": 100 * MIB, "temporary_files": 3}),
        ("snapshot-cache", {"blocks_read": 10_000, "blocks_hit": 990_000}),
        ("snapshot-wraparound", {"transaction_age": 1 << 29}),
    ],
)
def test_a_databases_claim_begins_at_its_limit(claim: str, figures: dict[str, Any]) -> None:
    assert [*claims_after(databases=[{**SHOP, **figures}])] == [claim]
    assert claims_after(databases=[{**SHOP, **{n: max(0, v - 1) for n, v in figures.items()}}]) == {}


def test_time_of_reads_is_given_where_it_is_known() -> None:
    figures = {"blocks_read": 10_000, "blocks_hit": 1}
    timed = claims_after(databases=[{**SHOP, **figures, "block_read_ns": 10**9}])["snapshot-cache"]
    assert (timed.case, timed.slots["mean"]) == ("timed", 100_000)
    assert (
        claims_after(databases=[{**SHOP, **figures, "block_read_ns": None}])["snapshot-cache"].case
        == "untimed"
    )


def test_wraparound_is_a_warning_from_half_on() -> None:
    ages = {age: claims_after(databases=[{**SHOP, "transaction_age": age}]) for age in (1 << 29, 1 << 30)}
    assert [c["snapshot-wraparound"].severity for c in ages.values()] == ["note", "warning"]


@pytest.mark.parametrize(("timed", "requested", "claimed"), [(1, 2, True), (2, 2, False), (0, 1, False)])
def test_requested_checkpoints_are_claimed_if_more_than_timed_ones(
    timed: int, requested: int, claimed: bool
) -> None:
    rows = [counter("checkpoints_timed", timed), counter("checkpoints_requested", requested)]
    assert ("snapshot-checkpoints" in claims_after(server=rows)) is claimed


def test_failed_archiving_is_claimed() -> None:
    assert [*claims_after(server=[counter("wal_files_failed", 1)])] == ["snapshot-archive"]


DEAD = {"dead_rows": 10_000, "live_rows": 40_000}


@pytest.mark.parametrize(
    ("claimed", "figures"), [(True, {}), (False, {"autovacuums": 1}), (False, {"live_rows": 40_001})]
)
def test_dead_rows_are_claimed_within_their_criterion(claimed: bool, figures: dict[str, Any]) -> None:
    assert ("snapshot-dead-rows" in claims_after(relations=[table(**DEAD | figures)])) is claimed


def test_slots_that_keep_much_wal_are_claimed() -> None:
    slot = {"slot": "s", "retained_bytes": 1 << 30, "active": False, "wal_status": "reserved"}
    assert claims_after(slots=[slot])["snapshot-slot"].case == "kept"
    assert (
        claims_after(slots=[slot | {"retained_bytes": None, "wal_status": "lost"}])["snapshot-slot"].case
        == "lost"
    )
    assert claims_after(slots=[slot | {"retained_bytes": (1 << 30) - 1}]) == {}


def test_invalid_indexes_and_changed_settings_are_claimed() -> None:
    assert [*claims_after(indexes=[index(is_valid=False)])] == ["snapshot-invalid-indexes"]
    a = snapshot(databases=[SHOP], settings=[{"setting": "work_mem", "value": "4MB"}])
    b = snapshot(9, databases=[SHOP], settings=[{"setting": "work_mem", "value": "8MB"}])
    assert claims_between(a, b)["snapshot-settings"].slots == {"n": 1, "settings": "work_mem 4MB to 8MB"}


def test_a_statement_of_a_quarter_of_all_time_is_claimed() -> None:
    def statement(number: int, exec_ns: int) -> dict[str, Any]:
        return {
            "user": "u",
            "database": "shop",
            "query_id": number,
            "toplevel": True,
            "calls": 2,
            "exec_ns": exec_ns,
        }

    second = 10**9
    rows = [statement(n, second) for n in range(4)]
    claim = claims_after(statements=rows)["snapshot-statement"]
    assert claim.value and claim.value.value == 0.25 and claim.slots["mean"] == second / 2
    assert claims_after(statements=[*rows, statement(9, second)]) == {}
    assert claims_after(statements=[statement(n, second - 1) for n in range(4)]) == {}
