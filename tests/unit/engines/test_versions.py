"""What is known by version of PostgreSQL: one table, and the names of versions that no test can start."""

from __future__ import annotations

from pathlib import Path
from string import Template

import pytest
from tests.unit.engines.test_postgres_conditions import BOSS, known_settings

from dbdyno.engines.postgres import code_areas, sql, statements, versions
from dbdyno.engines.postgres.conditions import _facts, judged
from dbdyno.engines.postgres.counters import all_counters, server_wide
from dbdyno.engines.postgres.snapshots.sources import all_tables, gaps
from dbdyno.engines.postgres.wait_events import advice, families, word_spec
from dbdyno.model.sources.wait_families import LOCK_WAIT_NS

LATER = (*versions.PREPARED, 20, 99)
LARGEST = ("max_connections", "max_worker_processes", "max_wal_senders", "autovacuum_max_workers")


def test_versions_are_tested_or_prepared_or_unknown() -> None:
    assert min(versions.PREPARED) > versions.NEWEST
    tested = range(versions.OLDEST, versions.NEWEST + 1)
    assert set(versions.QUERY_ID_OFFSETS) == set(tested)
    words = Path(versions.__file__).with_name("wait_events")
    assert {p.stem for p in words.glob("[0-9]*.toml")} == {str(v) for v in tested}
    assert [versions.doubt(v) for v in tested] == [None] * len(tested)


@pytest.mark.parametrize("major", LATER)
def test_no_memory_of_a_version_is_read_that_no_test_has_run_on(major: int) -> None:
    assert word_spec(major) is None
    assert "not read from its memory" in (versions.doubt(major) or "")


@pytest.mark.parametrize(
    ("label", "family"),
    [
        ("Buffer/BufferCleanup", "lock"),
        ("Buffer/BufferShared", "latch"),
        ("Buffer/BufferShareExclusive", "latch"),
        ("Buffer/BufferExclusive", "latch"),
        ("LWLock/WaitLSN", "latch"),
        ("IO/CopyFromRead", "io"),
        ("Client/SomethingNew", "client"),
        ("Quantum/Entanglement", "other"),
        ("Quantum", "other"),
    ],
)
def test_wait_events_of_coming_versions_have_the_family_of_their_purpose_or_none(
    label: str, family: str
) -> None:
    assert families().of(label) == family


def test_functions_of_a_version_without_tests_belong_to_their_source_file_alone() -> None:
    known = code_areas()
    assert known.of("heap_getnext") == "access/heap"
    by_source = known.by_source()
    assert by_source.of("heap_getnext") is None
    assert by_source.of("moved", "/build/src/backend/storage/lmgr/lock.c") == "storage/lmgr"


def test_renamed_wait_events_have_the_advice_of_the_earlier_ones() -> None:
    known = advice()
    assert known.of("Buffer/BufferExclusive").advice == known.of("LWLock/BufferContent").advice != ""


@pytest.mark.parametrize("workers", [{"io_workers": "3"}, {"io_min_workers": "2", "io_max_workers": "3"}])
def test_io_workers_count_up_to_their_largest_number(workers: dict[str, str]) -> None:
    settings = {**dict.fromkeys(LARGEST, "10"), **workers}
    few = _facts(known_settings(**dict.fromkeys(LARGEST, "10")), (), ours=False).processes
    more = _facts(known_settings(**settings), (), ours=False).processes
    assert few is not None
    assert more == few + 3


@pytest.mark.parametrize(
    ("major", "state"), [(14, "ok"), (18, "ok"), (19, "worth a look"), (20, "worth a look")]
)
def test_a_check_says_what_is_not_verified(major: int, state: str) -> None:
    known = known_settings()._replace(major=major)
    (check,) = (c for c in judged(known, BOSS) if c.id == "known-version")
    assert check.state == state
    assert check.value == (versions.doubt(major) or str(major))


def test_counters_of_19_are_read_from_19_on_and_alone() -> None:
    later = {c.name: c.sql for c in all_counters() if c.since > versions.NEWEST}
    assert LOCK_WAIT_NS in later
    earlier = {c.sql for c in all_counters() if c.since <= versions.NEWEST}
    assert set(later.values()) & earlier == set()  # a statement that is refused costs no known counter
    assert {c.name for c in server_wide(20)} >= set(later)
    assert {c.name for c in server_wide(18)} & set(later) == set()


def test_snapshots_do_not_list_what_only_coming_versions_count() -> None:
    places = {g.place for g in gaps(18, ())}
    assert "relations.reset_s" not in places
    assert "new figures" not in places
    (first, *_) = gaps(19, ())
    assert first.why.startswith("not verified for PostgreSQL 19")
    unknown = {g.place: g.why for g in gaps(20, ())}
    assert unknown["server.sessions_blocks_written"] == "not looked for in PostgreSQL 20"
    assert not any("does not count it" in why for why in unknown.values())


@pytest.mark.parametrize("column", ["pg_stat_wal.wal_bytes", "pg_stat_all_tables.n_tup_upd"])
def test_a_column_that_a_later_version_lacks_is_null_and_listed(column: str) -> None:
    table = "server" if column.startswith("pg_stat_wal") else "relations"
    text = all_tables()[table].statement(table, 20, [column]) or ""
    assert column not in text
    assert [g for g in gaps(20, [column]) if g.why == f"PostgreSQL 20 has no {column}"]


@pytest.mark.parametrize(("extension", "counted"), [((1, 12), False), ((1, 13), True), ((1, 14), True)])
def test_plans_are_counted_from_the_extension_that_counts_them(
    extension: tuple[int, ...], counted: bool
) -> None:
    names = next(names for since, names in statements.NAMES.items() if extension >= since)
    assert ("generic_plan_calls" in names["generic_plans"]) == counted
    assert "${" not in Template(sql.text("statements")).substitute(schema="s", more="", **names)
