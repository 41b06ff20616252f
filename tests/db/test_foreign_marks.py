"""Objects with dbdyno's marks that a plain role made: no other role uses, changes or removes them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Servers
from tests.db.forging import BRIEF, CALIBRATED, MALLORY, VICTIM, Stage, Stages, check_refused, prepare_units

pytestmark = pytest.mark.db
LOGIN_TRIGGERS_SINCE = 170_000
TRACED = ("trace-logins", "--role", MALLORY, "--at", "1", "--yes", "--stay")


@pytest.fixture
def schema(stages: Stages, any_dsn: str) -> Iterator[Stage]:
    with stages.stage(any_dsn, "schema") as stage:
        yield stage


@pytest.fixture
def schema_of_kind(stages: Stages, kind_dsn: str) -> Iterator[Stage]:
    with stages.stage(kind_dsn, "schema") as stage:
        yield stage


@pytest.fixture
def empty_of_kind(stages: Stages, kind_dsn: str) -> Iterator[Stage]:
    with stages.stage(kind_dsn, "empty") as stage:
        yield stage


@pytest.fixture
def tables(stages: Stages, any_dsn: str) -> Iterator[Stage]:
    with stages.stage(any_dsn, "tables") as stage:
        yield stage


@pytest.fixture
def empty(stages: Stages, any_dsn: str) -> Iterator[Stage]:
    with stages.stage(any_dsn, "empty") as stage:
        yield stage


@pytest.fixture(scope="module")
def mark_of_logins(stages: Stages, servers: Servers) -> str:
    """Returns the mark that the product itself writes on the schema of a login trace."""
    with stages.stage(servers.dsn(18), "empty") as stage:
        done = stage.dbdyno(*TRACED)
        assert done.returncode == 0, done.stderr
        ((mark,),) = stage.ask("select obj_description('dbdyno_logins'::regnamespace)")
        assert stage.dbdyno("trace-logins", "--remove").returncode == 0
        return str(mark)


def forge_logins(stage: Stage, mark: str, caught: str) -> None:
    comment = psycopg.sql.SQL("comment on schema dbdyno_logins is {}").format(mark).as_string()
    stage.plant("create schema dbdyno_logins", comment, caught)


VIEW = (
    "create view dbdyno_logins.caught as select now() as at, 1 as pid, now() as started, 1 as sessions, "
    "evil.words('view of logins') as role, 'local'::text as client"
)


@pytest.mark.parametrize("words", [("--list",), ("--remove",), TRACED[1:]], ids=lambda w: w[0])
def test_a_list_of_logins_that_a_plain_role_made_is_not_read(
    servers: Servers, stages: Stages, mark_of_logins: str, words: tuple[str, ...]
) -> None:
    for major in (17, 18):
        if major not in servers.programs:
            continue
        with stages.stage(servers.dsn(major), "empty") as stage:
            forge_logins(stage, mark_of_logins, VIEW)
            before = stage.looked_at()
            check_refused(stage.dbdyno("trace-logins", *words), "dbdyno_logins", MALLORY)
            assert stage.proof() == []
            assert stage.looked_at() == before


def test_clean_drops_no_schema_of_logins_that_a_plain_role_made(empty: Stage, mark_of_logins: str) -> None:
    table = "create table dbdyno_logins.caught (at timestamptz, role text)"
    forge_logins(empty, mark_of_logins, table)
    empty.plant("create view public.report as select * from dbdyno_logins.caught")
    before = empty.looked_at()
    done = empty.dbdyno("clean")
    assert empty.looked_at() == before
    if empty.version >= LOGIN_TRIGGERS_SINCE:
        check_refused(done, "dbdyno_logins", MALLORY)
    else:  # dbdyno makes no such schema there, and looks for none
        assert done.returncode == 0, done.stderr


def test_removal_stops_at_what_others_built_on_a_login_trace(servers: Servers, stages: Stages) -> None:
    """A superuser owns the view, which is no part of dbdyno's."""
    for words in (("clean",), ("trace-logins", "--remove")):
        with stages.stage(servers.dsn(18), "empty") as stage:
            assert stage.dbdyno(*TRACED).returncode == 0
            stage.ask("create view public.report as select * from dbdyno_logins.caught")
            done = stage.dbdyno(*words)
            assert stage.ask("select count(*) from public.report") == [(0,)]
            assert done.returncode not in (0, 1) and "report" in done.stderr, done.stderr
            assert "Traceback" not in done.stderr
            stage.ask("drop view public.report")
            done = stage.dbdyno(*words)
            assert done.returncode == 0, done.stderr
            assert stage.ask("select to_regnamespace('dbdyno_logins')") == [(None,)]
            assert stage.ask("select evtname from pg_event_trigger") == []


def test_a_function_of_a_plain_role_is_not_called(schema: Stage) -> None:
    schema.plant(
        "create or replace function dbdyno.spin(iterations bigint) returns bigint language plpgsql volatile "
        "as $$ begin perform evil.act('spin'); return iterations; end $$"
    )
    before = schema.looked_at()
    done = schema.dbdyno("run", "cpu", *CALIBRATED)
    assert schema.proof() == []
    assert schema.looked_at() == before
    check_refused(done, "dbdyno", MALLORY)


def test_tables_of_a_plain_role_are_neither_emptied_nor_loaded(tables: Stage) -> None:
    tables.plant(
        "create trigger emptied before truncate on pgbench_history execute function evil.fired()",
        "create trigger loaded before insert on pgbench_history for each row execute function evil.fired()",
    )
    before = tables.looked_at()
    done = tables.dbdyno("run", "select-only", "--reset", "each", *BRIEF)
    assert tables.proof() == []
    assert tables.looked_at() == before
    check_refused(done, "pgbench_", MALLORY)


def test_clean_drops_no_schema_of_a_plain_role(schema: Stage) -> None:
    """It drops no object either that views of others depend on."""
    schema.plant("create view public.report as select count(*) from dbdyno.lio_shared")
    before = schema.looked_at()
    done = schema.dbdyno("clean")
    assert schema.looked_at() == before
    check_refused(done, "dbdyno", MALLORY)


def test_a_plain_role_is_not_taken_in_by_another(schema_of_kind: Stage) -> None:
    schema_of_kind.plant(
        "create or replace function dbdyno.spin(iterations bigint) returns bigint language plpgsql volatile "
        "as $$ begin perform evil.act('spin'); return iterations; end $$",
        f"grant all on schema dbdyno to {VICTIM}",
    )
    before = schema_of_kind.looked_at()
    done = schema_of_kind.dbdyno("run", "cpu", *CALIBRATED, role=VICTIM)
    assert schema_of_kind.proof() == []
    assert schema_of_kind.looked_at() == before
    check_refused(done, "dbdyno", MALLORY)


def test_a_role_that_the_database_sets_makes_nothing_ones_own(schema_of_kind: Stage) -> None:
    """Sessions then begin with that role, and its code can go back to the one that logged in."""
    schema_of_kind.ask(f"grant pg_monitor to {MALLORY}")  # else the run ends before it comes to that
    schema_of_kind.plant(
        "create or replace function dbdyno.spin(iterations bigint) returns bigint language plpgsql volatile "
        "as $$ begin set role none; perform evil.act('spin'); return iterations; end $$",
        f"alter database {schema_of_kind.name} set role = {MALLORY}",
    )
    try:
        done = schema_of_kind.dbdyno("run", "cpu", *CALIBRATED)
    finally:
        schema_of_kind.ask(f"set role none; revoke pg_monitor from {MALLORY}")
    assert schema_of_kind.proof() == []
    check_refused(done, "dbdyno", MALLORY)


def test_what_a_role_made_itself_is_its_own(schema_of_kind: Stage) -> None:
    """This is the other side: nothing rightful is refused."""
    done = schema_of_kind.dbdyno("run", "cpu", *CALIBRATED, role=MALLORY)
    assert done.returncode == 0, done.stderr
    done = schema_of_kind.dbdyno("clean", role=MALLORY)
    assert done.returncode == 0 and "removed schema dbdyno" in done.stdout, done.stderr
    assert schema_of_kind.ask("select to_regnamespace('dbdyno') is null") == [(True,)]


def test_what_a_superuser_made_is_used_by_a_plain_role(empty_of_kind: Stage) -> None:
    prepare_units(empty_of_kind.dsn, [("cpu", {})])
    empty_of_kind.ask(f"grant usage on schema dbdyno to {MALLORY}")
    done = empty_of_kind.dbdyno("run", "cpu", *CALIBRATED, role=MALLORY)
    assert done.returncode == 0, done.stderr


def test_a_function_planted_in_a_superusers_schema_is_not_called(empty_of_kind: Stage) -> None:
    """The role was granted the right to make objects of its own there."""
    prepare_units(empty_of_kind.dsn, [("cpu", {})])
    (stamp,) = empty_of_kind.ask("select obj_description('dbdyno.spin'::regproc)")[0]
    empty_of_kind.ask("drop function dbdyno.spin(bigint)")
    empty_of_kind.ask(f"grant all on schema dbdyno to {MALLORY}")
    comment = psycopg.sql.SQL("comment on function dbdyno.spin(bigint) is {}").format(stamp).as_string()
    empty_of_kind.plant(
        "create function dbdyno.spin(iterations bigint) returns bigint language plpgsql volatile "
        "as $$ begin perform evil.act('spin'); return iterations; end $$",
        comment,
    )
    before = empty_of_kind.looked_at()
    for words in (("run", "cpu", *CALIBRATED), ("clean",)):
        done = empty_of_kind.dbdyno(*words)
        assert empty_of_kind.proof() == []
        assert empty_of_kind.looked_at() == before
        check_refused(done, "spin", MALLORY)
