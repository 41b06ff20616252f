"""Databases that a plain role owns, with code of its own in them, and proof of whose rights that code got.

The role makes everything with the product itself, so that every mark is genuine, and then changes it. Its
code runs in whatever a trap is set in: it makes its role a superuser where it can, and says so in a file
that only a superuser could have written, which no rollback and no read-only transaction takes back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql as pgsql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dbdyno.engines.postgres import PostgresServer
from tests import in_process
from tests.contract import loads

MALLORY, VICTIM = "mallory", "victim"
BRIEF = (
    "--sessions",
    "1",
    "--measure",
    "1s",
    "--settle",
    "0s",
    "--no-memory",
    "--no-snapshots",
    "--no-observe",
)
CALIBRATED = (*BRIEF, "--call-target", "1ms")
_SAFE = "-csearch_path=pg_catalog"
"""Options of a test's own superuser, which must not fall for the objects that it examines."""
_ROLES = f"""
do $$ begin
    if not exists (select from pg_roles where rolname = '{MALLORY}') then
        create role {MALLORY} login;
        create role {VICTIM} login;
    end if;
end $$"""
_CODE = f"""
create schema evil;
grant usage on schema evil to public;
create table evil.ran (who name, what text);
grant insert on evil.ran to public;
create function evil.act(what text) returns void language plpgsql set search_path = pg_catalog as $$
begin
    if current_user = '{MALLORY}' then
        return;
    end if;
    begin
        insert into evil.ran values (current_user, what);
    exception when others then null;
    end;
    if current_setting('evil.' || translate(md5(what), '0123456789', 'ghijklmnop'), true) is null then
        perform set_config('evil.' || translate(md5(what), '0123456789', 'ghijklmnop'), 'x', false);
        begin
            execute format('copy (select %L) to program %L', what, 'cat >> PLACE/' || current_database());
        exception when others then null;
        end;
    end if;
    begin
        execute 'alter role {MALLORY} superuser';
    exception when others then null;
    end;
end $$;
create function evil.yes(what text) returns bool language plpgsql immutable as
    $$ begin perform evil.act(what); return true; end $$;
create function evil.number(what text, n bigint) returns int language plpgsql immutable as
    $$ begin perform evil.act(what); return n; end $$;
create function evil.words(what text) returns text language plpgsql immutable as
    $$ begin perform evil.act(what); return what; end $$;
create function evil.fired() returns trigger language plpgsql as $$
begin
    perform evil.act('trigger of ' || tg_table_name);
    if tg_op = 'DELETE' then return old; end if;
    return new;
end $$;
"""
_TABLES = """
select format('select count(*), sum(hashtext(t::text)) from only %s t', oid::regclass)
from pg_class where relkind = 'r' and pg_get_userbyid(relowner) = current_user
    and relnamespace not in ('pg_toast'::regnamespace, 'evil'::regnamespace)
order by oid"""
_CATALOGUES = {
    "pg_namespace": "oid >= 16384",
    "pg_proc": "oid >= 16384",
    "pg_operator": "oid >= 16384",
    "pg_type": "oid >= 16384",
    "pg_trigger": "not tgisinternal",
    "pg_rewrite": "oid >= 16384",
    "pg_policy": "true",
    "pg_constraint": "oid >= 16384",
    "pg_attrdef": "true",
    "pg_attribute": "attrelid >= 16384",
    "pg_inherits": "true",
    "pg_description": "objoid >= 16384",
    "pg_event_trigger": "true",
    "pg_publication": "true",
    "pg_publication_rel": "true",
    "pg_statistic_ext": "true",
    "pg_sequence": "true",
}
"""Catalogues whose rows must not change."""
_RELATIONS = (  # without the columns that a vacuum or an analysis changes
    "select row(oid, xmin, relname, relnamespace, reltype, relowner, relam, relfilenode, relkind, relacl, "
    "reloptions)::text from pg_class where oid >= 16384 and relnamespace <> 'pg_toast'::regnamespace"
)


@dataclass(frozen=True)
class Stage:
    """A database that ``MALLORY`` owns. ``dsn``: of a superuser; ``place``: the folder of proofs."""

    dsn: str
    place: Path
    home: Path

    @property
    def name(self) -> str:
        return str(conninfo_to_dict(self.dsn)["dbname"])

    @property
    def version(self) -> int:
        with psycopg.connect(self.dsn) as connection:
            return connection.info.server_version

    def as_role(self, role: str) -> str:
        return make_conninfo(self.dsn, user=role)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Executes a statement as superuser with a safe search_path."""
        with psycopg.connect(self.dsn, autocommit=True, options=_SAFE) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def plant(self, *statements: str, role: str = MALLORY) -> None:
        with psycopg.connect(self.as_role(role), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def dbdyno(self, *words: str, role: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the program as ``role``; None means the superuser."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "XDG_"))}
        env |= {"HOME": str(self.home), "DBDYNO_STATE_DIR": str(self.home / "state"), "COLUMNS": "200"}
        env |= {"XDG_DATA_HOME": str(self.home / "data")}
        dsn = self.dsn if role is None else self.as_role(role)
        return in_process.dbdyno((*words, "--dsn", dsn), env, self.home)

    def proof(self) -> list[str]:
        """Returns what code of the role ran with other rights than its own."""
        proofs = [
            f"{who} ran {what}" for who, what in self.ask("select who, what from evil.ran order by 1, 2")
        ]
        with contextlib.suppress(FileNotFoundError):
            proofs += [
                f"superuser wrote {line}" for line in (self.place / self.name).read_text().splitlines()
            ]
        if self.ask(f"select rolsuper from pg_roles where rolname = '{MALLORY}'") == [(True,)]:
            proofs.append(f"{MALLORY} is superuser")
        return sorted(set(proofs))

    def looked_at(self) -> dict[str, list[str]]:
        """Returns every object that is not the server's own, and the rows of the role's tables."""
        queries = {t: f"select t.xmin || ' ' || t::text from {t} t where {w}" for t, w in _CATALOGUES.items()}
        with psycopg.connect(self.dsn, autocommit=True, options=_SAFE) as connection:
            state = {
                name: sorted(str(r[0]) for r in connection.execute(query.encode()).fetchall())
                for name, query in (queries | {"pg_class": _RELATIONS}).items()
            }
        with psycopg.connect(self.as_role(MALLORY), autocommit=True, options=_SAFE) as connection:
            counted = [str(r[0]) for r in connection.execute(_TABLES).fetchall()]
            state["rows"] = [f"{q}: {connection.execute(q.encode()).fetchone()}" for q in counted]
        return state


def check_refused(done: subprocess.CompletedProcess[str], *names: str) -> None:
    """Checks that the program ended with an error of the user's, in words that contain ``names``."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode not in (0, 1), (done.returncode, done.stdout, done.stderr)
    assert "not dbdyno's" in done.stderr, done.stderr
    for name in names:
        assert name in done.stderr, done.stderr


class Stages:
    """Databases of one server after another, cloned from a template that each server gets once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.place = Path(tempfile.mkdtemp(prefix="dyno-", dir="/tmp"))
        self.place.chmod(0o777)  # the server's user writes there
        self._templates: set[tuple[str, str]] = set()

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    @contextlib.contextmanager
    def stage(self, dsn: str, of: str) -> Iterator[Stage]:
        """Yields a clone of template ``of``; see :data:`TEMPLATES`. The role begins as a plain one."""
        template = f"template_{of}"
        with psycopg.connect(dsn, autocommit=True, options=_SAFE) as connection:
            connection.execute(_ROLES)
            connection.execute(f"alter role {MALLORY} nosuperuser".encode())
            if (dsn, of) not in self._templates:
                _create(connection, template)
                self._fill(Stage(make_conninfo(dsn, dbname=template), self.place, self._home), of)
                self._templates.add((dsn, of))
            _create(connection, "stage", template)
            (self.place / "stage").unlink(missing_ok=True)
            try:
                yield Stage(make_conninfo(dsn, dbname="stage"), self.place, self._home)
            finally:
                connection.execute("alter role mallory nosuperuser")
                connection.execute("drop database stage with (force)")

    def _fill(self, stage: Stage, of: str) -> None:
        stage.plant(_CODE.replace("PLACE", str(self.place)))
        TEMPLATES[of](stage)


def _create(connection: psycopg.Connection[Any], name: str, template: str = "template1") -> None:
    words = pgsql.SQL("create database {} template {} owner {}")
    names = (pgsql.Identifier(n) for n in (name, template, MALLORY))
    connection.execute(pgsql.SQL("drop database if exists {} with (force)").format(pgsql.Identifier(name)))
    connection.execute(words.format(*names))


def prepare_units(dsn: str, units: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Prepares objects of workloads in dbdyno's schema as that role."""
    with closing(PostgresServer(dsn)) as server:
        for name, given in units:
            unit = loads.workload(name)
            server.prepare(unit, loads.defaults(unit, **given), 1)


def _nothing(stage: Stage) -> None:
    pass


def _tables(stage: Stage) -> None:
    """Prepares pgbench's tables in public."""
    done = stage.dbdyno("workload", "prepare", "pgbench", role=MALLORY)
    assert done.returncode == 0, done.stderr


UNITS = (
    ("cpu", {}),
    ("cpu-query", {}),
    ("lio", {"blocks": 64}),
    ("random-read", {"scale": 64, "blocks": 8}),
    ("random-read", {"scale": 64, "blocks": 8, "update": 20}),
)


def _schema(stage: Stage) -> None:
    """Prepares everything that workloads keep in dbdyno's schema, except order-entry's tables."""
    prepare_units(stage.as_role(MALLORY), UNITS)


def _orders(stage: Stage) -> None:
    done = stage.dbdyno("workload", "prepare", "order-entry", "--warehouses", "1", role=MALLORY)
    assert done.returncode == 0, done.stderr


TEMPLATES = {"empty": _nothing, "tables": _tables, "schema": _schema, "orders": _orders}
