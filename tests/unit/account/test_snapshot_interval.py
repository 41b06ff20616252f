"""The difference of two snapshots: growth, and which figures are unknown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from tests.unit.snapshot_cases import NOON, START_S, snapshot

from dbdyno.account.snapshots import Interval, Reset, interval, ordered
from dbdyno.model.errors import UsageError

SHOP = {"database_id": 5, "database": "shop"}


def row(growth: Interval, table: str, **wanted: Any) -> dict[str, Any]:
    """The only one."""
    rows = growth.tables[table].filter(*(pl.col(n) == v for n, v in wanted.items())).to_dicts()
    assert len(rows) == 1, rows
    return rows[0]


def table(number: int, **figures: Any) -> dict[str, Any]:
    return {**SHOP, "relation_id": number, "schema": "public", "relation": f"t{number}"} | figures


def statement(number: int | None, **figures: Any) -> dict[str, Any]:
    return {"user": "u", "database": "shop", "query_id": number, "toplevel": True} | figures


def test_counters_grow_and_gauges_have_their_last_value_and_change() -> None:
    a = snapshot(databases=[{**SHOP, "commits": 100, "size_bytes": 50, "deadlocks": None}])
    b = snapshot(60, databases=[{**SHOP, "commits": 160, "size_bytes": 40, "deadlocks": 3}])
    result = interval(a, b)
    assert result.seconds == 60
    shop = row(result, "databases")
    assert (shop["commits"], shop["size_bytes"], shop["size_bytes_growth"]) == (60, 40, -10)
    assert (shop["deadlocks"], shop["status"], shop["seconds"]) == (None, "ok", 60)  # unknown is not zero
    assert (result.restarted, result.resets, result.evictions) == (None, (), None)


def test_commits_are_without_those_of_taking_snapshots() -> None:
    own = {"own_transactions": {"shop": 2}, "own_before": {"shop": 1}}
    a = snapshot(info=own, databases=[{**SHOP, "commits": 100}])
    b = snapshot(60, info=own, databases=[{**SHOP, "commits": 160}])
    assert row(interval(a, b), "databases")["commits"] == 57
    between = [snapshot(at, info=own).info for at in (20, 40)]
    result = interval(a, b, between)
    assert (row(result, "databases")["commits"], result.own_transactions) == (51, 9)
    at = START_S + 30  # those before a reset are no longer counted
    b = snapshot(60, info=own, databases=[{**SHOP, "commits": 30, "reset_s": at, "deadlocks": 0}])
    a = snapshot(info=own, databases=[{**SHOP, "commits": 100, "deadlocks": 1}])
    assert row(interval(a, b, between), "databases")["commits"] == 26


def test_tables_that_were_created_dropped_or_created_again_have_their_status() -> None:
    kept, gone, old = table(1, seq_scans=5), table(2, seq_scans=6), table(3, seq_scans=7)
    remade = table(30, relation="t3", seq_scans=4)
    a = snapshot(databases=[SHOP], relations=[kept, gone, old])
    b = snapshot(9, databases=[SHOP], relations=[kept | {"seq_scans": 8}, remade, table(4, seq_scans=2)])
    result = interval(a, b).tables["relations"].sort("relation_id")
    assert result.select("relation_id", "relation", "seq_scans", "status").rows() == [
        (1, "t1", 3, "ok"), (2, "t2", None, "gone"), (3, "t3", None, "gone"),
        (4, "t4", 2, "new"), (30, "t3", 4, "remade"),
    ]  # fmt: skip


def test_a_dropped_index_makes_no_growth_negative_and_resets_no_table() -> None:
    def index(number: int, scans: int) -> dict[str, Any]:
        return {**SHOP, "index_id": number, "relation_id": 1, "index": f"i{number}", "scans": scans}

    a = snapshot(
        databases=[SHOP],
        indexes=[index(8, 100), index(9, 10)],
        relations=[table(1, seq_scans=5, index_scans=110, toast_blocks_hit=7)],
    )
    b = snapshot(
        9,
        databases=[SHOP],
        indexes=[index(9, 14)],
        relations=[table(1, seq_scans=8, index_scans=14, toast_blocks_hit=2)],
    )
    one = row(interval(a, b), "relations")
    assert (one["seq_scans"], one["index_scans"], one["toast_blocks_hit"]) == (3, 4, 2)
    assert one["status"] == "index dropped"


def test_a_renamed_table_is_the_same_one() -> None:
    a = snapshot(databases=[SHOP], relations=[table(1, seq_scans=5)])
    b = snapshot(9, databases=[SHOP], relations=[table(1, seq_scans=6, relation="other")])
    assert row(interval(a, b), "relations", relation="other")["seq_scans"] == 1


def test_objects_of_a_database_that_one_snapshot_did_not_read_are_not_new() -> None:
    both = [SHOP, {"database_id": 6, "database": "other"}]
    other_relation = {
        "database_id": 6,
        "database": "other",
        "relation_id": 1,
        "relation": "t1",
        "seq_scans": 5,
    }
    a = snapshot(databases=both)
    b = snapshot(9, {}, {"databases": ("shop", "other")}, databases=both, relations=[other_relation])
    assert row(interval(a, b), "relations")["status"] == "unread"
    assert row(interval(a, b), "relations")["seq_scans"] is None
    only_first = snapshot(databases=both[:1])  # the database was created in between, with its tables
    assert row(interval(only_first, b), "relations")["status"] == "new"


def test_a_table_that_could_not_be_read_has_no_new_rows() -> None:
    a = snapshot(info={"missing": {"statements": "not loaded"}})
    assert (
        row(interval(a, snapshot(9, statements=[statement(1, calls=5)])), "statements")["status"] == "unread"
    )


def test_a_database_reset_in_between_counts_since_the_reset() -> None:
    a = snapshot(
        databases=[{**SHOP, "commits": 10, "reset_s": 1.0}],
        relations=[table(1, seq_scans=1)],
        resets=[{"what": "shop", "reset_s": 1.0}],
    )
    at = START_S + 40
    b = snapshot(
        60,
        databases=[{**SHOP, "commits": 30, "reset_s": at}],
        relations=[table(1, seq_scans=7)],
        resets=[{"what": "shop", "reset_s": at}],
    )
    result = interval(a, b)  # no value fell: only the time shows the reset
    for name, figure in (("databases", ("commits", 30)), ("relations", ("seq_scans", 7))):
        one = row(result, name)
        assert (one[figure[0]], one["status"], one["seconds"]) == (figure[1], "reset", 20)
    assert result.resets == (Reset("shop", at, "reset"),)


def test_reset_of_a_single_table_leaves_the_rest_of_its_database() -> None:
    at = START_S + 40
    a = snapshot(
        databases=[{**SHOP, "commits": 10}], relations=[table(1, seq_scans=9), table(2, seq_scans=9)]
    )
    b = snapshot(
        60,
        databases=[{**SHOP, "commits": 30, "reset_s": at}],
        relations=[table(1, seq_scans=7), table(2, seq_scans=9)],
    )
    result = interval(a, b)
    assert row(result, "databases")["commits"] == 20
    rows = result.tables["relations"].sort("relation_id").select("seq_scans", "status").rows()
    assert rows == [(7, "reset"), (0, "ok")]
    assert Reset("shop", at, "objects") in result.resets


def test_a_table_says_itself_when_it_was_reset_even_if_it_has_counted_more_since() -> None:
    a = snapshot(databases=[SHOP], relations=[table(1, seq_scans=5), table(2, seq_scans=5)])
    again = table(1, seq_scans=50, reset_s=START_S + 20)
    long_ago = table(2, seq_scans=7, reset_s=START_S - 900)  # a first snapshot that did not read it
    result = interval(a, snapshot(60, databases=[SHOP], relations=[again, long_ago]))
    first, second = (row(result, "relations", relation_id=n) for n in (1, 2))
    assert (first["seq_scans"], first["status"], first["seconds"]) == (50, "reset", 40)
    assert (second["seq_scans"], second["status"], second["seconds"]) == (2, "ok", 60)
    assert [r for r in result.resets if r.how == "fell"] == []


def test_a_noted_reset_where_no_objects_were_read_may_be_of_single_ones() -> None:
    a = snapshot(databases=[{**SHOP, "commits": 10}])
    b = snapshot(60, databases=[{**SHOP, "commits": 30, "reset_s": START_S + 40}])
    result = interval(a, b)  # at least 20, in both cases
    assert (row(result, "databases")["commits"], result.resets[0].how) == (20, "objects")


def test_counters_lost_in_a_crash_count_since_the_start() -> None:
    a = snapshot(databases=[{**SHOP, "commits": 100}])
    b = snapshot(60, info={"started": NOON + timedelta(seconds=30)}, databases=[{**SHOP, "commits": 12}])
    result = interval(a, b)
    assert result.restarted == NOON + timedelta(seconds=30)
    shop = row(result, "databases")
    assert (shop["commits"], shop["status"], shop["seconds"]) == (12, "reset", 30)
    assert result.resets == (Reset("shop", None, "fell"),)


def test_a_restart_that_kept_the_counters_resets_nothing() -> None:
    a = snapshot(databases=[{**SHOP, "commits": 100}])
    b = snapshot(60, info={"started": NOON + timedelta(seconds=30)}, databases=[{**SHOP, "commits": 130}])
    shop = row(interval(a, b), "databases")
    assert (shop["commits"], shop["status"], shop["seconds"]) == (30, "ok", 60)


@pytest.mark.parametrize("since", [None, START_S + 50])
def test_evicted_statements_are_counted_anew(since: float | None) -> None:
    a = snapshot(
        statements=[statement(1, calls=50), statement(2, calls=5), statement(4, calls=1)],
        resets=[{"what": "statements", "evictions": 3}],
    )
    b = snapshot(
        60,
        statements=[statement(1, calls=9, since_s=since), statement(2, calls=9), statement(3, calls=1)],
        resets=[{"what": "statements", "evictions": 5}],
    )
    result = interval(a, b)
    rows = (
        result.tables["statements"].sort("query_id").select("query_id", "calls", "status", "seconds").rows()
    )
    assert rows == [
        (1, 9, "evicted", 10 if since else 60),
        (2, 4, "ok", 60),
        (3, 1, "new", 60),
        (4, None, "gone", 60),
    ]
    assert result.evictions == 2


def test_a_statement_may_be_counted_anew_beyond_its_old_count() -> None:
    a = snapshot(statements=[statement(1, calls=5, since_s=1.0)], resets=[{"what": "statements"}])
    b = snapshot(
        60, statements=[statement(1, calls=9, since_s=START_S + 20)], resets=[{"what": "statements"}]
    )
    one = row(interval(a, b), "statements")
    assert (one["calls"], one["status"], one["seconds"]) == (9, "reset", 40)


def test_after_a_reset_statements_count_from_zero() -> None:
    at = START_S + 45
    a = snapshot(statements=[statement(1, calls=5)], resets=[{"what": "statements", "reset_s": 1.0}])
    b = snapshot(
        60,
        statements=[statement(1, calls=9), statement(2, calls=3)],
        resets=[{"what": "statements", "reset_s": at}],
    )
    result = interval(a, b)
    rows = result.tables["statements"].sort("query_id").select("calls", "status", "seconds").rows()
    assert rows == [(9, "reset", 15), (3, "reset", 15)]
    assert result.resets == (Reset("statements", at, "reset"),)


def test_hidden_statements_of_a_role_are_one_row() -> None:
    a = snapshot(statements=[statement(None, calls=5), statement(None, calls=6)])
    b = snapshot(
        60, statements=[statement(None, calls=7), statement(None, calls=8), statement(None, calls=1)]
    )
    assert row(interval(a, b), "statements")["calls"] == 5


def test_io_counts_since_its_reset() -> None:
    at = START_S + 10
    key = {"backend_type": "client backend", "object": "relation", "context": "normal"}
    a = snapshot(io=[key | {"reads": 10, "reset_s": 1.0}], resets=[{"what": "I/O", "reset_s": 1.0}])
    b = snapshot(60, io=[key | {"reads": 25, "reset_s": at}], resets=[{"what": "I/O", "reset_s": at}])
    result = interval(a, b)
    assert (row(result, "io")["reads"], row(result, "io")["seconds"]) == (25, 50)
    assert result.resets == (Reset("I/O", at, "reset"),)


def test_changed_settings_are_listed() -> None:
    a = snapshot(
        settings=[{"setting": n, "value": "1", "source": "default"} for n in ("same", "other", "old")]
    )
    b = snapshot(
        60, settings=[{"setting": n, "value": v} for n, v in (("same", "1"), ("other", "2"), ("new", "3"))]
    )
    result = interval(a, b).tables["settings"].sort("setting")
    assert result.select("setting", "value_was", "value", "status").rows() == [
        ("new", None, "3", "new"), ("old", "1", "1", "gone"),
        ("other", "1", "2", "changed"), ("same", "1", "1", "ok"),
    ]  # fmt: skip


def test_snapshots_that_are_no_interval_of_one_server_are_refused() -> None:
    a, b = snapshot(), snapshot(60)
    with pytest.raises(UsageError, match="different servers"):
        interval(a, snapshot(60, info={"server": "two"}))
    with pytest.raises(UsageError, match="same snapshot"):
        interval(a, a)
    with pytest.raises(UsageError, match="order of the server"):
        interval(b, a)
    assert [s.info.taken for s in ordered(b, a)] == [a.info.taken, b.info.taken]


def test_texts_of_both_snapshots_are_kept_once() -> None:
    a, b = snapshot(texts_by_id={1: "SELECT 1", 2: "SELECT 2"}), snapshot(60, {2: "SELECT 2", 3: "SELECT 3"})
    assert sorted(interval(a, b).texts["query_id"]) == [1, 2, 3]
