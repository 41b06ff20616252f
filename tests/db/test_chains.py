"""Wait chains on real servers: a scripted holder and waiters, the queue for a table, few rights."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.db.conftest import Bench, eventually

pytestmark = pytest.mark.db
ROW = "update chained set v = v + 1 where id = 1"


@pytest.fixture
def at(any_dsn: str, tmp_path: Path) -> Bench:
    return with_a_table(any_dsn, tmp_path)


@pytest.fixture
def at_each_kind(kind_dsn: str, tmp_path: Path) -> Bench:
    """A bench for one old server and one new one. The first test asks all versions."""
    return with_a_table(kind_dsn, tmp_path)


def with_a_table(dsn: str, tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "home", tmp_path / "s")
    bench.__dict__["dsn"] = dsn
    bench.ask("drop table if exists chained; create table chained (id int primary key, v int)")
    bench.ask("insert into chained values (1, 0), (2, 0)")
    bench.ask("do $$ begin create role chained login; exception when duplicate_object then null; end $$")
    bench.ask("grant all on chained to chained")
    return bench


@contextmanager
def keep_waiting(dsn: str, *statements: str) -> Iterator[None]:
    """Runs each statement in a session of its own that waits for a lock, one after the other."""
    with ExitStack() as stack:
        threads = []
        for statement in statements:
            session = stack.enter_context(psycopg.connect(dsn, autocommit=True, application_name="waiter"))
            threads.append(threading.Thread(target=_run, args=(session, statement), daemon=True))
            threads[-1].start()
            pid = session.info.backend_pid
            with psycopg.connect(dsn, autocommit=True) as other:
                eventually(lambda p=pid, o=other: _waits(o, p))  # type: ignore[misc]
            stack.callback(session.cancel)
        yield


def _waits(other: psycopg.Connection, pid: int) -> bool:
    query = "select from pg_locks where pid = %s and not granted"
    return other.execute(query, [pid]).fetchone() is not None


def _run(session: psycopg.Connection, statement: str) -> None:
    try:
        session.execute(statement.encode())
    except psycopg.Error:
        return  # cancelled at the end


def observe(bench: Bench, dsn: str, *words: str) -> dict[str, Any]:
    chosen = ("--only-application", "waiter", "--window", "1s", "--for", "2s")
    done = bench.here("observe", "--dsn", dsn, *chosen, *words)
    assert done.returncode == 0, done.stderr
    return bench.last()


def rows(document: dict[str, Any], by: str) -> list[dict[str, Any]]:
    chains = [r for r in document["wait_chains"] if r["by"] == by]
    names = {r["cell"] for r in chains}
    return [r for r in chains if r["cell"] == ("all" if "all" in names else r["cell"])]


@pytest.mark.parametrize("any_dsn", [14, 16, 18], indirect=True, ids=lambda v: f"pg{v}")
def test_the_holder_its_statement_and_the_locked_table_are_named(at: Bench) -> None:
    with psycopg.connect(at.dsn, application_name="shop") as holder:
        holder.execute(ROW)
        with keep_waiting(at.dsn, ROW, ROW, ROW):
            document = observe(at, at.dsn)
    assert [r["name"] for r in rows(document, "doing")] == ["client (idle in transaction)"]
    chains = {r["name"] for r in rows(document, "chain")}
    assert "Lock/transactionid -> client (idle in transaction)" in chains
    assert "Lock/tuple -> Lock/transactionid -> client (idle in transaction)" in chains
    (root,) = rows(document, "statement")
    assert root["name"].startswith("shop (")
    assert {r["name"] for r in rows(document, "object")} == {"chained (transactionid)", "chained (tuple)"}
    shown = at.here("show", "last", "--chains").stdout
    assert "client (idle in transaction)" in shown and "chained (tuple)" in shown
    assert any(f["id"] == "wait-chains" for f in document["findings"])


def test_a_queue_for_a_table_is_followed_to_who_holds_it(at_each_kind: Bench) -> None:
    """A reader waits for a waiter only. The root of that one is the reader's root, too."""
    lock = "do $$ begin lock table chained in access exclusive mode; end $$"
    with psycopg.connect(at_each_kind.dsn, application_name="shop") as holder:
        holder.execute("select * from chained")
        with keep_waiting(at_each_kind.dsn, lock, "select * from chained"):
            document = observe(at_each_kind, at_each_kind.dsn)
    assert {r["name"] for r in rows(document, "chain")} == {
        "Lock/relation -> client (idle in transaction)",
        "Lock/relation -> Lock/relation -> client (idle in transaction)",
    }
    assert [r["name"] for r in rows(document, "object")] == ["chained (relation)"]


def test_what_a_role_may_not_see_is_reported_with_the_cure(at_each_kind: Bench) -> None:
    dsn = make_conninfo(at_each_kind.dsn, user="chained")
    with psycopg.connect(at_each_kind.dsn, application_name="shop") as holder:
        holder.execute(ROW)
        with keep_waiting(dsn, ROW):
            document = observe(at_each_kind, dsn)
    (source,) = {json.dumps(s) for s in document["sources"] if s["name"] == "lock waits"}
    assert "not permitted" in source and "GRANT pg_monitor TO chained" in source
    assert [r["name"] for r in rows(document, "doing")] == ["hidden from this role"]
    assert "GRANT pg_monitor TO chained" in at_each_kind.here("show", "last", "--chains").stdout


def test_a_call_that_waits_for_nobody_has_no_chains(at_each_kind: Bench) -> None:
    with psycopg.connect(at_each_kind.dsn, autocommit=True, application_name="waiter") as session:
        session.execute("select 1")
        document = observe(at_each_kind, at_each_kind.dsn)
    assert document["wait_chains"] == []
