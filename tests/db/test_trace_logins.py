"""``dbdyno trace-logins`` on real servers: the right logins are traced, and nobody is ever kept out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.store.journal import left_over
from tests import in_process
from tests.conftest import Servers
from tests.db.conftest import PROGRAM, eventually

ROLE = "traced"
CATCHES = "select sessions from dbdyno_logins.caught order by sessions"


class Site:
    """A server with a role to be traced, and the program beside it."""

    def __init__(self, dsn: str, home: Path) -> None:
        self.dsn, self.app, self.home = dsn, make_conninfo(dsn, user=ROLE), home
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"HOME": str(home)}
        self.admin = psycopg.connect(dsn, autocommit=True)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self.admin.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def dbdyno(self, *words: str, dsn: str = "") -> subprocess.CompletedProcess[str]:
        return in_process.dbdyno(("trace-logins", *words, "--dsn", dsn or self.dsn), self.env, self.home)

    def install(self, *words: str) -> None:
        done = self.dbdyno("--role", ROLE, "--yes", "--stay", *words)
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def sessions(self, number: int) -> Iterator[list[psycopg.Connection]]:
        """Opens sessions one after the other. They have ended when it returns."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(psycopg.connect(self.app, autocommit=True)) for _ in range(number)]
        eventually(
            lambda: self.ask(
                f"select true where not exists (select from pg_stat_activity where usename = '{ROLE}')"
            )
        )

    def traced(self, session: psycopg.Connection) -> bool:
        row = session.execute("show log_min_duration_statement").fetchone()
        return row == ("0",)


@contextlib.contextmanager
def site_of(dsn: str, home: Path) -> Iterator[Site]:
    site = Site(dsn, home)
    site.ask(f"create role {ROLE} login")
    try:
        yield site
    finally:
        site.dbdyno("--remove")
        site.ask(f"drop owned by {ROLE}; drop role {ROLE}")
        site.admin.close()


@pytest.fixture
def site(dsn18: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))
    with site_of(dsn18, tmp_path) as site:
        yield site


@pytest.mark.parametrize("major", [17, 18])
def test_exactly_the_tenth_twentieth_and_thirtieth_login_are_traced(
    servers: Servers, major: int, tmp_path: Path
) -> None:
    with site_of(servers.dsn(major), tmp_path) as site:
        site.install("--at", "10,20,30")
        with site.sessions(31) as sessions:
            assert [n for n, s in enumerate(sessions, 1) if site.traced(s)] == [10, 20, 30]
            sessions[9].execute("select 'of the tenth'")
            document = json.loads(site.dbdyno("--list", "--json").stdout)
            assert [(c["sessions"], c["role"], c["there"]) for c in document["caught"]] == [
                (n, ROLE, True) for n in (10, 20, 30)
            ]
            tenth = next(c for c in document["caught"] if c["sessions"] == 10)
            assert tenth["pid"] == sessions[9].info.backend_pid
            assert any("select 'of the tenth'" in line for line in tenth["lines"])
        shown = site.dbdyno("--list").stdout
        assert "ended" in shown and f"of role {ROLE}" in shown
        assert "removed login trace" in site.dbdyno("--remove").stdout
        assert site.ask("select from pg_namespace where nspname = 'dbdyno_logins'") == []
        assert site.ask("select from pg_event_trigger") == []


def test_logins_at_the_same_time_are_counted_once_each(site: Site) -> None:
    site.install("--at", "3,5")
    for _ in range(5):
        site.ask("truncate dbdyno_logins.caught")
        barrier, connections = threading.Barrier(8), list[psycopg.Connection]()

        def log_in(
            barrier: threading.Barrier = barrier, connections: list[psycopg.Connection] = connections
        ) -> None:
            barrier.wait()
            connections.append(psycopg.connect(site.app))

        threads = [threading.Thread(target=log_in) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert site.ask(CATCHES) == [(3,), (5,)]
        for session in connections:
            session.close()
        with site.sessions(0):
            pass


def test_many_logins_while_it_is_installed_and_removed(site: Site) -> None:
    """Eight clients log in 400 times and more. Each gets in, also while the trigger comes and goes."""
    stop, failed, done = threading.Event(), list[str](), list[int]()

    def log_in() -> None:
        n = 0
        while n < 50 or not stop.is_set():
            try:
                with psycopg.connect(site.app) as session:
                    session.execute("select 1")
                n += 1
            except psycopg.Error as e:
                failed.append(str(e))
        done.append(n)

    threads = [threading.Thread(target=log_in) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        site.install("--at", "4,5", "--most", "5")
        time.sleep(0.3)
        assert site.dbdyno("--remove").returncode == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum(done) >= 400


FAULTS = {
    "setting": "perform set_config('no_such_setting', '1', false);",
    "raises": "raise exception 'broken';",
    "assert": "assert false;",
    "memory": "perform repeat('x', 2000000000);",
    "no table": "drop table dbdyno_logins.caught;",
    "privilege": "raise insufficient_privilege;",
    "disk full": "raise disk_full;",
    "cancelled": "perform pg_cancel_backend(pg_backend_pid()); perform pg_sleep(1);",
    "locked": "lock table dbdyno_logins.caught in access exclusive mode;",
}


def test_no_fault_refuses_a_login(site: Site) -> None:
    site.install("--at", "1")
    with psycopg.connect(site.dsn) as holder:
        holder.execute("lock table dbdyno_logins.caught in access exclusive mode")
        with site.sessions(1) as (session,):
            assert site.traced(session)  # it is not listed, that is all
    body = (
        "create or replace function dbdyno_logins.trace() returns void language plpgsql as $$begin {} end$$"
    )
    for name, action in FAULTS.items():
        site.ask(body.format(action))
        with site.sessions(1) as (session,):
            assert session.execute("select 1").fetchone() == (1,), name
    site.ask("drop function dbdyno_logins.trace")
    with site.sessions(1):
        pass
    site.ask("drop schema dbdyno_logins cascade")
    with site.sessions(1):
        pass


def test_a_table_that_is_gone_and_a_read_only_role_are_traced_all_the_same(site: Site) -> None:
    site.install("--at", "1")
    site.ask(f"alter role {ROLE} set default_transaction_read_only = on")
    site.ask(f"alter role {ROLE} set search_path = nowhere")
    with site.sessions(1) as (session,):
        assert site.traced(session)
    site.ask("drop table dbdyno_logins.caught")
    with site.sessions(1) as (session,):
        assert site.traced(session)


def test_a_login_that_stays_in_the_trigger_is_let_through(site: Site) -> None:
    words = (PROGRAM, "trace-logins", "--role", ROLE, "--at", "1", "--yes", "--dsn", site.dsn)
    watching = subprocess.Popen(
        words, env=site.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: site.ask("select true from pg_event_trigger"))
        site.ask(
            "create or replace function dbdyno_logins.trace() returns void language plpgsql "
            "as $$begin perform pg_sleep(600); end$$"
        )
        with site.sessions(1) as (session,):
            assert session.execute("select 1").fetchone() == (1,)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=120)
    assert site.ask("select from pg_event_trigger") == []


def test_a_standby_lets_everybody_in_after_the_removal(site: Site) -> None:
    """A standby refuses all logins while the database is marked as having login triggers and has none."""
    marked = "select dathasloginevt from pg_database where datname = current_database()"
    site.install("--at", "1")
    assert site.ask(marked) == [(True,)]
    assert "removed login trace" in site.dbdyno("--remove").stdout
    assert site.ask(marked) == [(False,)]
    site.ask("create function other() returns event_trigger language plpgsql as 'begin end'")
    site.ask("create event trigger other on login execute function other()")
    site.install("--at", "1")
    site.dbdyno("--remove")
    assert site.ask(marked) == [(True,)]
    site.ask("drop event trigger other; drop function other")


def test_the_kill_switch_stops_tracing_and_refuses_installation(site: Site) -> None:
    site.install("--at", "1")
    site.ask("alter system set dbdyno.trace_logins = off")
    site.ask("select pg_reload_conf()")
    try:
        eventually(
            lambda: psycopg.connect(site.dsn).execute("show dbdyno.trace_logins").fetchone() == ("off",)
        )
        with site.sessions(1) as (session,):
            assert not site.traced(session)
        site.dbdyno("--remove")
        refused = site.dbdyno("--role", ROLE, "--at", "1", "--yes", "--stay")
        assert "dbdyno.trace_logins is off: nothing would be traced" in refused.stderr
    finally:
        site.ask("alter system reset dbdyno.trace_logins")
        site.ask("select pg_reload_conf()")
    site.install("--at", "1")
    site.ask(f"alter role {ROLE} set dbdyno.trace_logins = off")
    with site.sessions(1) as (session,):
        assert not site.traced(session)


def test_nothing_is_traced_of_other_roles_or_beyond_the_number_asked_for(site: Site) -> None:
    site.install("--at", "1", "--most", "2", "--setting", "work_mem=77MB")
    with psycopg.connect(site.dsn) as other:
        assert other.execute("show log_min_duration_statement").fetchone() == ("-1",)
    seen = []
    for _ in range(3):
        with site.sessions(1) as (session,):
            seen.append(session.execute("show work_mem").fetchone() == ("77MB",))
    assert seen == [True, True, False]


def test_plans_are_logged_without_a_restart(site: Site) -> None:
    site.install("--at", "1", "--plans")
    with site.sessions(1) as (session,):
        session.execute("select count(*) from pg_class")
    (caught,) = json.loads(site.dbdyno("--list", "--json").stdout)["caught"]
    assert any("Query Text: select count(*) from pg_class" in line for line in caught["lines"])
    assert any("Buffers: shared hit" in line for line in caught["lines"])


def test_clean_removes_what_a_killed_login_trace_left_and_no_others(site: Site) -> None:
    words = (PROGRAM, "trace-logins", "--role", ROLE, "--at", "1", "--yes", "--dsn", site.dsn)
    running = subprocess.Popen(words, env=site.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: site.ask("select true from pg_event_trigger"))
    eventually(
        lambda: site.ask(
            "select true from pg_locks where locktype = 'advisory' and objid = 1684170861 and objsubid = 1"
        )
    )
    clean = ("clean", "--dsn", site.dsn)
    assert "is under way" in in_process.dbdyno(clean, site.env, site.home).stdout
    assert site.ask("select true from pg_event_trigger") == [(True,)]
    running.kill()
    running.wait()
    (undo,) = left_over().dead[0].undos
    assert undo.kind == "login trace"
    eventually(
        lambda: (
            not site.ask(
                "select from pg_locks where locktype = 'advisory' and objid = 1684170861 and objsubid = 1"
            )
        )
    )
    assert "removed the login trace" in in_process.dbdyno(clean, site.env, site.home).stdout
    assert site.ask("select from pg_event_trigger") == []
    assert left_over().dead == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--role", ROLE), "--role and --at are needed"),
        (("--role", ROLE, "--at", "ten"), "numbers of sessions"),
        (("--role", ROLE, "--at", "0"), "the first session"),
        (("--role", "nobody there", "--at", "1"), "there is no role 'nobody there'"),
        (("--role", "pg_monitor", "--at", "1"), "may not log in"),
        (("--role", ROLE, "--at", "1", "--setting", "no_such=1"), "unknown server setting 'no_such'"),
        (("--role", ROLE, "--at", "1", "--setting", "work_mem=much"), "refuses a setting"),
        (("--role", ROLE, "--at", "1"), "--yes installs it"),
        (("--list", "--remove"), "exclude each other"),
    ],
)
def test_wrong_arguments_are_refused_and_install_nothing(
    site: Site, words: tuple[str, ...], says: str
) -> None:
    done = site.dbdyno(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert site.ask("select from pg_event_trigger") == []


def test_a_login_trace_is_installed_by_superusers_alone_and_once(site: Site) -> None:
    refused = site.dbdyno("--role", ROLE, "--at", "1", "--yes", dsn=site.app)
    assert refused.returncode == 3
    assert f"needs a superuser; {ROLE} is none" in refused.stderr
    site.install("--at", "1")
    again = site.dbdyno("--role", ROLE, "--at", "2", "--yes", "--stay")
    assert again.returncode == 3
    assert "there is a login trace already: role traced at 1 session," in again.stderr
    denied = site.dbdyno("--remove", dsn=site.app)
    assert "only a superuser can remove a login trace" in denied.stderr


def test_before_17_the_role_s_settings_change_for_the_next_login(servers: Servers, tmp_path: Path) -> None:
    with site_of(servers.dsn(16), tmp_path) as site:
        site.ask(f"alter role {ROLE} in database postgres set log_min_duration_statement = 12345")
        entries = f"select setconfig from pg_db_role_setting where setrole = '{ROLE}'::regrole"
        before = site.ask(entries)
        assert "PostgreSQL 17" in site.dbdyno("--role", ROLE, "--at", "3", "--yes", "--stay").stderr
        words = (PROGRAM, "trace-logins", "--role", ROLE, "--at", "3", "--yes", "--json", "--dsn", site.dsn)
        running = subprocess.Popen(
            words, env=site.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert running.stderr is not None
        assert any("Waiting" in line for line in running.stderr)
        seen = []
        with contextlib.ExitStack() as stack:
            for n in range(1, 5):
                session = stack.enter_context(psycopg.connect(site.app, autocommit=True))
                seen.append(site.traced(session))
                if n == 2:
                    eventually(lambda: site.ask(entries) != before)
                if n == 3:
                    eventually(lambda: site.ask(entries) == before)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=120)
        assert seen == [False, False, True, False], err
        assert [c["sessions"] for c in json.loads(out)["caught"]] == [3]
        assert site.ask(entries) == before


@pytest.mark.parametrize(
    ("meanwhile", "says"),
    [
        ("drop role leaves", "role leaves was dropped, and its settings with it"),
        ("alter role leaves rename to renamed", "settings of role leaves are as they were"),
    ],
)
def test_a_role_that_changed_before_clean_leaves_nothing_to_put_back(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, says: str
) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", str(tmp_path / "state"))
    with site_of(servers.dsn(15), tmp_path) as site:
        site.ask("create role leaves login")
        entries = "select setconfig from pg_db_role_setting"
        before = site.ask(entries)
        words = (PROGRAM, "trace-logins", "--role", "leaves", "--at", "1", "--yes", "--dsn", site.dsn)
        running = subprocess.Popen(words, env=site.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: site.ask(entries) != before)
        running.kill()
        running.wait()
        site.ask(meanwhile)
        done = in_process.dbdyno(("clean", "--dsn", site.dsn), site.env, site.home)
        assert (done.returncode, says in done.stdout) == (0, True), done.stdout + done.stderr
        assert site.ask(entries) == before
        assert left_over().dead == []
        site.ask("drop role if exists leaves, renamed")
