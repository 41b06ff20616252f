"""Judgements on settings and build of PostgreSQL, given invented settings."""

from __future__ import annotations

from typing import Any

import pytest

from dbdyno.engines.postgres.conditions import (
    DATA_FILES,
    Setting,
    _Cures,
    _facts,
    _Known,
    judged,
    registry,
)
from dbdyno.model.engine.condition import Condition, ServerConditions

BOSS = _Cures(superuser=True, role='"The Boss"', database="app", embedded=False)


def known_settings(
    short_jit: tuple[int, int] | None = (0, 5), flags: str | None = "-O2", ids: bool = True, **values: Any
) -> _Known:
    given = {n.replace("__", "."): v if isinstance(v, tuple) else (v,) for n, v in values.items()}
    settings = {n: Setting(*v) if len(v) > 1 else Setting(v[0], None, "default") for n, v in given.items()}
    return _Known(settings, ids, short_jit, flags)


def condition_of(id: str, cures: _Cures = BOSS, **values: Any) -> Condition:
    return {c.id: c for c in judged(known_settings(**values), cures)}[id]


@pytest.mark.parametrize(
    ("id", "values", "state"),
    [
        ("assertions", {"debug_assertions": "on"}, "bad"),
        ("assertions", {"debug_assertions": "off"}, "ok"),
        ("optimised-build", {"flags": "-Wall -O2 -g -O0"}, "bad"),
        ("optimised-build", {"flags": "-Wall"}, "unknown"),
        ("optimised-build", {"flags": None}, "unknown"),
        ("jit", {"jit": "off"}, "ok"),
        ("jit", {"jit": "on", "short_jit": (3, 40)}, "worth a look"),
        ("jit", {"jit": "on", "short_jit": (0, 40)}, "ok"),
        ("jit", {"jit": "on", "short_jit": None}, "unknown"),
        ("statement-ids", {"compute_query_id": "auto", "ids": True}, "ok"),
        ("statement-ids", {"compute_query_id": "auto", "ids": False}, "worth a look"),
        ("statement-tracking", {}, "not supported"),
        ("statement-tracking", {"pg_stat_statements__track": "none"}, "worth a look"),
        ("statement-log", {"log_statement": "ddl", "log_min_duration_statement": "250"}, "ok"),
        ("statement-log", {"log_duration": "on"}, "worth a look"),
        ("auto-explain", {}, "ok"),
        ("pending-restart", {"shared_buffers": ("16384", "8kB", "default", True)}, "worth a look"),
        ("synchronous-commit", {"synchronous_commit": "remote_apply"}, "ok"),
        ("data-checksums", {"data_checksums": "off"}, "ok"),
    ],
)
def test_a_condition_has_the_state_of_its_values(id: str, values: dict[str, Any], state: str) -> None:
    assert condition_of(id, **values).state == state


def explain(**more: str) -> Condition:
    values = {"log_min_duration": "100", "log_analyze": "on", "log_timing": "on", "sample_rate": "1"} | more
    return condition_of("auto-explain", BOSS, **{f"auto_explain__{n}": v for n, v in values.items()})


def test_auto_explain_costs_by_its_timing() -> None:
    assert explain().state == "worth a look"
    assert explain().steps[0].command == "ALTER SYSTEM SET auto_explain.log_timing = off;"
    for harmless in ({"log_timing": "off"}, {"log_min_duration": "-1"}, {"sample_rate": "0"}):
        assert explain(**harmless).state == "ok", harmless
    assert explain(log_timing="off", log_min_duration="0").state == "worth a look"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("configuration file", "ALTER SYSTEM SET fsync = on;"),
        ("user", 'ALTER ROLE "The Boss" RESET fsync;'),
        ("database", "ALTER DATABASE app RESET fsync;"),
        ("database user", 'ALTER ROLE "The Boss" IN DATABASE app RESET fsync;'),
        ("command line", "take fsync off the server's command line"),
    ],
)
def test_the_cure_goes_where_the_setting_was_set(source: str, command: str) -> None:
    assert condition_of("fsync", fsync=("off", None, source)).steps[0].command == command


def test_a_cure_that_the_role_may_not_apply_is_only_shown() -> None:
    assert [s.how for s in condition_of("fsync", fsync="off").steps] == ["sql", "sql"]
    few = condition_of("fsync", BOSS._replace(superuser=False), fsync="off")
    assert [s.how for s in few.steps] == ["hand", "hand"]
    embedded = condition_of("fsync", BOSS._replace(embedded=True), fsync="off")
    assert embedded.cure == "run without the setting fsync, or with fsync = on"


def facts(**values: Any) -> ServerConditions:
    return _facts(known_settings(**values), (), ours=False)


def test_the_machines_checks_get_their_figures_from_settings() -> None:
    parallel = {
        "dynamic_shared_memory_type": "posix",
        "work_mem": ("4096", "kB", "default"),
        "hash_mem_multiplier": "2",
        "max_parallel_workers_per_gather": "2",
        "max_parallel_workers": "8",
    }
    assert facts(**parallel).shm_mount_bytes == 4096 * 1024 * 2 * 3
    assert facts(**{**parallel, "dynamic_shared_memory_type": "mmap"}).shm_mount_bytes == 0
    assert facts(shared_buffers=("16384", "8kB", "default")).shared_bytes == 128 << 20
    both = facts(shared_buffers=("16384", "8kB", "default"), shared_memory_size=("143", "MB", "default"))
    assert both.shared_bytes == 143 << 20
    assert facts(max_connections="100", max_worker_processes="8", autovacuum_max_workers="3").processes == 119
    assert [facts(debug_io_direct=v).direct_io for v in ("", "data", "wal", "data, wal")] == [
        False,
        True,
        False,
        True,
    ]
    assert facts().direct_io is None
    got = [facts(huge_pages="try", huge_pages_status=v).huge_pages_got for v in ("on", "off", "unknown")]
    assert got == [True, False, None]


@pytest.mark.parametrize(
    "path",
    [
        "/data/base/5/16384",
        "/data/base/5/16384.1",
        "/data/base/5/16384_fsm",
        "/data/base/5/t3_16390",
        "/data/global/1262",
        "/mnt/space/PG_18_202506291/5/16400_vm.2",
    ],
)
def test_a_path_of_a_relation_is_recognised(path: str) -> None:
    assert DATA_FILES.search(path)


@pytest.mark.parametrize(
    "path",
    [
        "/data/base/pgsql_tmp/pgsql_tmp12.0",
        "/data/global/pg_control",
        "/data/pg_wal/000000010000000000000001",
    ],
)
def test_any_other_path_is_no_relation(path: str) -> None:
    assert not DATA_FILES.search(path)


def test_each_setting_that_is_judged_by_its_values_lists_good_ones() -> None:
    for id, entry in registry().items():
        assert not (entry.rule.keys() & {"bad", "look"}) or "good" in entry.rule or entry.cure, id
