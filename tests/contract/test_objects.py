"""Prepare makes dbdyno's schema and clean removes it, and neither touches anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.contract import loads

from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.errors import DbdynoError, NotPrivileged, TargetError, UsageError

pytestmark = pytest.mark.db

_EVERYTHING = """
select n.nspname, c.relname, c.relkind::text, c.oid::int8
from pg_class c join pg_namespace n on n.oid = relnamespace
where nspname !~ '^pg_' and nspname <> 'information_schema'
union all select n.nspname, p.proname, 'f', p.oid::int8
from pg_proc p join pg_namespace n on n.oid = pronamespace
where nspname not in ('pg_catalog', 'information_schema')
union all select nspname, '', 'n', oid::int8 from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
union all select rolname, '', 'r', oid::int8 from pg_roles
union all select datname, '', 'd', oid::int8 from pg_database
"""


@pytest.fixture
def admin(any_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(any_dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists dbdyno cascade")
        yield connection
        connection.execute("drop schema if exists dbdyno cascade")
        connection.execute("drop schema if exists theirs cascade")


def all_objects(connection: psycopg.Connection[Any]) -> set[tuple[Any, ...]]:
    return set(connection.execute(_EVERYTHING.encode()).fetchall())


def test_clean_leaves_the_database_as_it_was(admin: psycopg.Connection[Any], any_dsn: str) -> None:
    admin.execute("create schema theirs")
    admin.execute("create table theirs.lio_shared (id int)")
    before = all_objects(admin)
    lio, cpu = loads.workload("lio"), loads.workload("cpu")
    with closing(PostgresServer(any_dsn)) as server:
        for tables in ("shared", "own"):
            server.prepare(lio, loads.defaults(lio, tables=tables, blocks=64), 3)
        server.prepare(cpu, {}, 3)
        created = {row[:2] for row in all_objects(admin) - before}
        removed = server.clean()
        assert server.clean() == []
    assert all_objects(admin) == before
    assert {schema for schema, _ in created} == {"dbdyno"}
    assert {"table dbdyno.lio_own_0002", "function dbdyno.spin", "schema dbdyno"} <= set(removed)


def test_prepare_again_makes_nothing_new_and_another_size_does(
    admin: psycopg.Connection[Any], any_dsn: str
) -> None:
    unit = loads.workload("lio")
    with closing(PostgresServer(any_dsn)) as server:
        server.prepare(unit, loads.defaults(unit, blocks=64), 2)
        first = all_objects(admin)
        server.prepare(unit, loads.defaults(unit, blocks=64), 2)
        assert all_objects(admin) == first
        server.prepare(unit, loads.defaults(unit, blocks=128), 2)
    assert all_objects(admin) != first
    assert admin.execute("select count(*) from dbdyno.lio_shared").fetchone() == (128,)


def test_an_unfinished_table_is_prepared_anew(admin: psycopg.Connection[Any], any_dsn: str) -> None:
    unit = loads.workload("lio")
    with closing(PostgresServer(any_dsn)) as server:
        server.prepare(unit, loads.defaults(unit, blocks=64), 1)
        admin.execute("comment on table dbdyno.lio_shared is null")
        admin.execute("delete from dbdyno.lio_shared")
        server.prepare(unit, loads.defaults(unit, blocks=64), 1)
    assert admin.execute("select count(*) from dbdyno.lio_shared").fetchone() == (64,)


def test_a_schema_of_our_name_that_is_not_ours_is_left_alone(
    admin: psycopg.Connection[Any], any_dsn: str
) -> None:
    admin.execute("create schema dbdyno")
    admin.execute("create table dbdyno.lio_shared (precious int)")
    before = all_objects(admin)
    with closing(PostgresServer(any_dsn)) as server:
        for act in (lambda: server.prepare(loads.workload("cpu"), {}, 1), server.clean):
            with pytest.raises(TargetError, match="not dbdyno's") as caught:
                act()
            assert "changes and removes only" in str(caught.value)
    assert all_objects(admin) == before


def test_what_somebody_put_into_our_schema_stays(admin: psycopg.Connection[Any], any_dsn: str) -> None:
    with closing(PostgresServer(any_dsn)) as server:
        server.prepare(loads.workload("cpu"), {}, 1)
        admin.execute("create table dbdyno.diary (day date)")
        with pytest.raises(TargetError, match="not dbdyno's"):
            server.clean()
        assert admin.execute("select count(*) from dbdyno.diary").fetchone() == (0,)
        admin.execute("drop table dbdyno.diary")
        assert server.clean() == ["schema dbdyno"]


def test_no_right_to_create_a_schema_says_which_grant(admin: psycopg.Connection[Any], any_dsn: str) -> None:
    admin.execute("drop role if exists poor")
    admin.execute("create role poor login")
    admin.execute('create database "Odd Name"')
    try:
        dsn = psycopg.conninfo.make_conninfo(any_dsn, user="poor", dbname="Odd Name")
        with closing(PostgresServer(dsn)) as server, pytest.raises(NotPrivileged) as caught:
            server.prepare(loads.workload("cpu"), {}, 1)
        assert caught.value.cure is not None
        admin.execute(caught.value.cure[caught.value.cure.index("GRANT") :].encode())  # the cure cures
        with closing(PostgresServer(dsn)) as server:
            server.prepare(loads.workload("cpu"), {}, 1)
            assert server.facts().where.endswith("user poor")
            assert server.counters("t0").height > 10
            server.clean()
    finally:
        admin.execute('drop database "Odd Name"')
        admin.execute("drop role poor")


def test_own_tables_that_cannot_stay_in_the_cache_are_refused(dsn18: str) -> None:
    unit = loads.workload("lio")
    with closing(PostgresServer(dsn18)) as server:
        with pytest.raises(UsageError, match="shared_buffers"):
            server.prepare(unit, loads.defaults(unit, tables="own"), 5000)
        with pytest.raises(UsageError, match="64"):
            server.prepare(unit, loads.defaults(unit, blocks=63), 1)


def test_a_load_of_what_was_not_prepared_is_our_defect(dsn18: str) -> None:
    unit = loads.workload("cpu")
    with closing(PostgresServer(dsn18)) as server, pytest.raises(DbdynoError, match="has not been prepared"):
        loads.run(server, unit, {}, 1)
