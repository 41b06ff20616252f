"""Every command that a superuser may call where a plain role planted code in objects with genuine marks.

Each ends before it changes anything, and runs none of that code.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg import sql as pgsql

from tests.conftest import Servers
from tests.db.forging import BRIEF, CALIBRATED, MALLORY, Stages, check_refused, prepare_units

pytestmark = pytest.mark.db
OLDEST = ("trigger on insert", "view of branches", "trigger of a partition's partition")
"""On 14, too."""
UPDATE = ("run", "simple-update", "--reset", "never", *BRIEF)
TPCB = ("run", "tpcb-like", "--reset", "never", *BRIEF)
READ = ("run", "select-only", *BRIEF)
FRESH = ("run", "select-only", "--reset", "each", *BRIEF)
REPLACE = ("workload", "prepare", "pgbench", "--replace")
REPAIRED = ("workload", "prepare", "pgbench")
DROP = ("workload", "drop", "pgbench")
ORDERS = ("run", "order-entry", *BRIEF)
RANDOM = ("run", "random-read", "scale=64", "blocks=8", "update=20", *BRIEF)
WARM = ("run", "select-only", "--expect", "memory", *BRIEF)


class Plant(NamedTuple):
    """Statements of the role, and the commands that would run its code, or remove objects that are not
    dbdyno's."""

    statements: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


def view(of: str, columns: str) -> tuple[str, ...]:
    """Returns statements that put a view in place of a table, with the table's comment."""
    return (
        f"alter table {of} rename to hidden",
        f"alter table {of.rpartition('.')[0] or 'public'}.hidden set schema evil",
        f"create view {of} as select {columns} from evil.hidden",
        "do $$ begin execute "
        f"format('comment on view {of} is %L', obj_description('evil.hidden'::regclass)); end $$",
    )


def fires(table: str, when: str) -> tuple[str, ...]:
    """Returns statements that make a trigger for each row."""
    return (f"create trigger planted {when} on {table} for each row execute function evil.fired()",)


CHILD = (
    "create table child () inherits (pgbench_accounts)",
    "insert into child select * from only pgbench_accounts",
    "delete from only pgbench_accounts",
)
PARTED = (
    "alter table pgbench_accounts rename to whole",
    "create table pgbench_accounts (like whole) partition by range (aid)",
    "create table half (like whole) partition by range (aid)",
    "alter table pgbench_accounts attach partition half default",
    "create table quarter partition of half default",
    "insert into quarter select * from whole",
)
TABLES = {
    "nothing but the owner": Plant((), (FRESH, REPLACE, DROP)),
    "trigger on update": Plant(
        fires("pgbench_accounts", "before update"), (UPDATE, TPCB, ("run", "simple-update", *BRIEF))
    ),
    "trigger on insert": Plant(fires("pgbench_history", "after insert"), (UPDATE, FRESH)),
    "trigger of a child's child": Plant(
        (
            *CHILD,
            "create table deeper () inherits (child)",
            "insert into deeper select * from only child",
            *fires("deeper", "before update"),
        ),
        (UPDATE,),
    ),
    "trigger of a partition's partition": Plant((*PARTED, *fires("quarter", "before update")), (UPDATE,)),
    "key of a partition": Plant(
        tuple(
            s.replace(
                "whole) partition by range (aid)", "whole) partition by range ((evil.number('key', aid)))"
            )
            if "table half" in s
            else s
            for s in PARTED
        ),
        (UPDATE,),
    ),
    "foreign table among the children": Plant(
        (
            "create server beyond foreign data wrapper nothing",
            "create foreign table far () inherits (pgbench_accounts) server beyond",
        ),
        (READ, UPDATE),
    ),
    "trigger of a constraint": Plant(
        (
            "create constraint trigger planted after update on pgbench_branches "
            "deferrable initially deferred for each row execute function evil.fired()",
        ),
        (TPCB,),
    ),
    "condition of a trigger": Plant(
        (
            "create function public.harmless() returns trigger language plpgsql as "
            "$$ begin return new; end $$",
            "create trigger planted before update on pgbench_accounts for each row "
            "when (evil.yes('condition')) execute function public.harmless()",
        ),
        (UPDATE,),
    ),
    "rule": Plant(
        ("create rule planted as on insert to pgbench_history do also select evil.act('rule')",), (UPDATE,)
    ),
    "default": Plant(
        ("alter table pgbench_history alter filler set default evil.words('default')",), (UPDATE,)
    ),
    "check": Plant(("alter table pgbench_accounts add check (evil.yes('check'))",), (UPDATE,)),
    "domain": Plant(
        (
            "create domain public.filling as char(22) check (evil.yes('domain'))",
            "alter table pgbench_history alter filler type public.filling",
        ),
        (UPDATE,),
    ),
    "generated column": Plant(
        (
            "alter table pgbench_accounts add twice int "
            "generated always as (evil.number('generated', abalance)) stored",
        ),
        (UPDATE,),
    ),
    "expression of an index": Plant(
        ("create index planted on pgbench_accounts (evil.number('index', abalance))",), (UPDATE,)
    ),
    "condition of an index": Plant(
        ("create index planted on pgbench_accounts (abalance) where evil.yes('predicate')",), (UPDATE,)
    ),
    "operator of a column's type": Plant(
        (
            "create type evil.amount as (n int)",
            "create function evil.added(evil.amount, int) returns evil.amount language plpgsql as "
            "$$ begin perform evil.act('operator'); return $1; end $$",
            "create operator public.+ (function = evil.added, leftarg = evil.amount, rightarg = int)",
            "alter table pgbench_accounts alter abalance type evil.amount using row(abalance)::evil.amount",
        ),
        (UPDATE,),
    ),
    "view of accounts": Plant(
        view("pgbench_accounts", "aid, bid, evil.number('view', abalance) as abalance, filler"),
        (READ, WARM, REPLACE, DROP),
    ),
    "view of branches": Plant(
        (
            *view("pgbench_branches", "bid, evil.number('view', bbalance) as bbalance, filler"),
            "create rule planted as on update to pgbench_branches do instead select evil.act('rule')",
        ),
        (READ, TPCB),
    ),
}
SCHEMA = {
    "nothing but the owner": Plant(
        (),
        (
            ("run", "lio", "blocks=128", *CALIBRATED),
            ("run", "scan", "scale=64", *BRIEF),
            ("workload", "prepare", "order-entry", "--warehouses", "1"),
            ("workload", "drop", "order-entry"),
            ORDERS,
            ("clean",),
        ),
    ),
    "trigger on update": Plant(fires("dbdyno.random_update_shared", "before update"), (RANDOM,)),
    "function of cpu-query": Plant(
        (
            "create or replace function dbdyno.verified(counted bigint, expected bigint) returns bigint "
            "language plpgsql as $$ begin perform evil.act('verified'); return counted; end $$",
        ),
        (("run", "cpu-query", "rows=10", *BRIEF),),
    ),
    "view of lio": Plant(
        view("dbdyno.lio_shared", "id, evil.words(pad) as pad"),
        (("run", "lio", "blocks=64", *CALIBRATED), ("clean",)),
    ),
}
GRANTED = {
    "trigger": (fires("pgbench_history", "before insert"), UPDATE),
    "trigger on statements": (
        ("create trigger planted before truncate on pgbench_tellers execute function evil.fired()",),
        FRESH,
    ),
    "trigger on one's own rows": (fires("pgbench_branches", "after update"), TPCB),
}
"""Attacks that need no more than the right to create triggers on a superuser's tables."""


@pytest.mark.parametrize(
    ("major", "name"), [*((18, name) for name in TABLES), *((14, name) for name in OLDEST)]
)
def test_tables_with_marks_of_a_plain_role_are_refused_and_left_alone(
    servers: Servers, stages: Stages, name: str, major: int
) -> None:
    with stages.stage(servers.dsn(major), "tables") as stage:
        stage.ask(
            f"create foreign data wrapper nothing; grant usage on foreign data wrapper nothing to {MALLORY}"
        )
        stage.plant(*TABLES[name].statements)
        before = stage.looked_at()
        for words in TABLES[name].commands:
            done = stage.dbdyno(*words)
            assert stage.proof() == [], words
            assert stage.looked_at() == before, words
            check_refused(done)


@pytest.mark.parametrize("name", SCHEMA)
def test_a_schema_with_marks_of_a_plain_role_is_refused_and_left_alone(
    servers: Servers, stages: Stages, name: str
) -> None:
    with stages.stage(servers.dsn(18), "schema") as stage:
        stage.plant(*SCHEMA[name].statements)
        before = stage.looked_at()
        for words in SCHEMA[name].commands:
            done = stage.dbdyno(*words)
            assert stage.proof() == [], words
            assert stage.looked_at() == before, words
            check_refused(done, "dbdyno", MALLORY)


@pytest.mark.parametrize("name", GRANTED)
def test_code_planted_in_tables_of_a_superuser_is_not_run(
    servers: Servers, stages: Stages, name: str
) -> None:
    """The tables are in a schema of the superuser's. The plants need no more than GRANT ALL."""
    statements, words = GRANTED[name]
    with stages.stage(servers.dsn(18), "empty") as stage:
        stage.ask("create schema boss")
        stage.ask("alter database stage set search_path = boss, public")
        assert stage.dbdyno("workload", "prepare", "pgbench").returncode == 0
        stage.ask(f"grant usage on schema boss to {MALLORY}")
        stage.ask(f"grant all on all tables in schema boss to {MALLORY}")
        stage.plant(*statements)
        before = stage.looked_at()
        for each in (words, REPLACE, DROP):
            done = stage.dbdyno(*each)
            assert stage.proof() == [], each
            assert stage.looked_at() == before, each
            check_refused(done, "trigger", MALLORY)


def test_code_planted_in_order_entrys_tables_is_not_run(servers: Servers, stages: Stages) -> None:
    with stages.stage(servers.dsn(18), "empty") as stage:
        prepared = stage.dbdyno("workload", "prepare", "order-entry", "--warehouses", "1")
        assert prepared.returncode == 0, prepared.stderr
        stage.ask(f"grant usage on schema dbdyno to {MALLORY}")
        stage.ask(f"grant all on all tables in schema dbdyno to {MALLORY}")
        stage.plant(*fires("dbdyno.orders", "before insert"))
        before = stage.looked_at()
        again = ("workload", "prepare", "order-entry", "--warehouses", "1", "--replace")
        for words in (ORDERS, (*ORDERS, "--reset", "never"), again, ("workload", "drop", "order-entry")):
            done = stage.dbdyno(*words)
            assert stage.proof() == [], words
            assert stage.looked_at() == before, words
            check_refused(done, MALLORY)
        check_refused(stage.dbdyno("clean"), "orders")
        assert stage.proof() == []
        assert stage.ask("select tgname from pg_trigger where tgname = 'planted'") == [("planted",)]


FORGED = (
    '{"parameters": [1]}',
    '{"parameters": {"scale": "x"}}',
    '{"partitions": 999999999999}',
    '{"scale": -1}',
    "[" * 5_000,
)
"""In place of how the tables were made."""


def test_an_impossible_mark_is_an_error_without_a_traceback(servers: Servers, stages: Stages) -> None:
    with stages.stage(servers.dsn(18), "tables") as stage:
        ((mark,),) = stage.ask("select obj_description('public.pgbench_branches'::regclass)")
        for forged in FORGED:
            text = f"{mark.partition(': ')[0]}: {forged}"
            stage.plant(pgsql.SQL("comment on table pgbench_branches is {}").format(text).as_string())
            for role, words in ((None, FRESH), (MALLORY, FRESH), (MALLORY, REPAIRED)):
                done = stage.dbdyno(*words, role=role)
                assert "Traceback" not in done.stderr and done.returncode in (2, 3), (words, done.stderr)


def test_scripts_of_the_users_own_reset_nothing_of_a_plain_role(
    servers: Servers, stages: Stages, tmp_path: Path
) -> None:
    script = tmp_path / "own.sql"
    script.write_text("select 1 from public.pgbench_accounts limit 1;\n")
    with stages.stage(servers.dsn(18), "tables") as stage:
        stage.plant(
            "create trigger planted before truncate on pgbench_accounts execute function evil.fired()",
            *fires("pgbench_branches", "before insert"),
        )
        before = stage.looked_at()
        done = stage.dbdyno("run", "-f", str(script), "--reset", "each", *BRIEF)
        assert stage.proof() == []
        assert stage.looked_at() == before
        check_refused(done, "pgbench")


def test_a_plain_role_that_was_let_in_is_not_taken_in(servers: Servers, stages: Stages) -> None:
    """Row security is evaluated for everyone except superusers and the owner."""
    with stages.stage(servers.dsn(18), "tables") as stage:
        stage.plant(
            "alter table pgbench_accounts enable row level security",
            "create policy planted on pgbench_accounts using (evil.yes('policy'))",
            "grant all on all tables in schema public to victim",
        )
        before = stage.looked_at()
        for words in (READ, UPDATE):
            done = stage.dbdyno(*words, role="victim")
            assert stage.proof() == [], words
            assert stage.looked_at() == before, words
            check_refused(done, "pgbench_accounts")


def test_tables_without_code_are_read_and_changed_as_ever(servers: Servers, stages: Stages) -> None:
    """Their owner does not matter: a load on the tables of another role is meant."""
    with stages.stage(servers.dsn(18), "tables") as stage:
        stage.plant(*CHILD)
        done = stage.dbdyno("run", "simple-update", *BRIEF)
        assert done.returncode == 0 and "reset never" in done.stdout + done.stderr, done.stderr


def test_a_plain_roles_child_of_a_superusers_table_is_refused(servers: Servers, stages: Stages) -> None:
    """The child's owner may make a trigger while the load runs."""
    with stages.stage(servers.dsn(18), "tables") as stage:
        stage.plant(*CHILD)
        for table in ("accounts", "branches", "tellers", "history"):
            stage.ask(f"alter table public.pgbench_{table} owner to current_user")
        before = stage.looked_at()
        for words in (READ, UPDATE):
            done = stage.dbdyno(*words)
            assert stage.proof() == [], words
            assert stage.looked_at() == before, words
            check_refused(done, "child", MALLORY)


def test_a_superusers_own_triggers_keep_no_run_from_its_calls(servers: Servers, stages: Stages) -> None:
    """A superuser's own trigger can do nothing that the superuser could not do anyway."""
    with stages.stage(servers.dsn(18), "empty") as stage:
        stage.ask("create schema boss")
        stage.ask("alter database stage set search_path = boss, public")
        assert stage.dbdyno("workload", "prepare", "pgbench").returncode == 0
        stage.ask(
            "create function boss.noted() returns trigger language plpgsql as $$ begin return new; end $$"
        )
        stage.ask(
            "create trigger noted before insert on boss.pgbench_history for each row "
            "execute function boss.noted()"
        )
        done = stage.dbdyno(*UPDATE)
        assert done.returncode == 0, done.stderr
        prepare_units(stage.dsn, [("lio", {"blocks": 64})])
        assert stage.dbdyno("clean").returncode == 0
