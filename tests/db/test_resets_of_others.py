"""Tables that are emptied, loaded again and removed: objects that others made beside them stay whole."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.db.conftest import LIGHT, QUICK, own_schema
from tests.db.test_workload_tables import prepare
from tests.extensions import skip_without
from tests.in_process import dbdyno
from tests.waiting import eventually

pytestmark = pytest.mark.db
CALLS = (*QUICK, *LIGHT, "--no-observe", "--sessions", "1")
ROWS = "insert into {} select n, 1, 0, 'theirs' from generate_series(700000, 700099) n"
CHILD = ("create table kept () inherits (pgbench_accounts)", ROWS.format("kept"))
BEYOND = 50_001
"""The first row of the second of two partitions."""


class Case(NamedTuple):
    """Statements that make objects beside dbdyno's tables; what matters of them is named ``kept``."""

    statements: tuple[str, ...]
    prepared: tuple[str, ...] = ()
    named: str = "kept"  # in the refusal
    reset: bool = False  # the tables may be loaded again all the same
    drop: bool = False  # and removed


CASES = {
    "child": Case(CHILD),
    "child of a child": Case(
        (
            "create table between () inherits (pgbench_tellers)",
            "create table kept () inherits (between)",
            "insert into kept select n, 1, 0 from generate_series(700, 799) n",
        ),
        named="between",
    ),
    "child of the history": Case(
        (
            "create table kept (more text default 'x') inherits (pgbench_history)",
            "insert into kept (tid, bid, aid, delta) select 1, 1, n, 0 from generate_series(1, 100) n",
        )
    ),
    "partition": Case(
        (
            "alter table pgbench_accounts detach partition pgbench_accounts_2",
            "create table kept (like pgbench_accounts including all)",
            ROWS.format("kept"),
            f"alter table pgbench_accounts attach partition kept for values from ({BEYOND}) to (maxvalue)",
        ),
        ("--partitions=2",),
    ),
    "partition of a partition's place": Case(
        (
            "alter table pgbench_accounts detach partition pgbench_accounts_2",
            "create table between (like pgbench_accounts) partition by range (aid)",
            "create table kept partition of between for values from (700000) to (800000)",
            ROWS.format("kept"),
            f"alter table pgbench_accounts attach partition between for values from ({BEYOND}) to (maxvalue)",
        ),
        ("--partitions=2",),
        named="between",
    ),
    "partition with a number": Case(
        (
            "alter table pgbench_accounts detach partition pgbench_accounts_2",
            "create table pgbench_accounts_99 (like pgbench_accounts including all)",
            ROWS.format("pgbench_accounts_99"),
            "alter table pgbench_accounts attach partition pgbench_accounts_99 "
            f"for values from ({BEYOND}) to (maxvalue)",
        ),
        ("--partitions=2",),
        named="pgbench_accounts_99",
    ),
    "right to make triggers": Case(("grant trigger on pgbench_history to public",), named="everybody"),
    "foreign key": Case(
        (
            "create table kept (aid int references pgbench_accounts on delete cascade, note text)",
            "insert into kept select n, 'theirs' from generate_series(1, 100) n",
        )
    ),
    "view": Case(("create view kept as select bid, bbalance from pgbench_branches",), reset=True),
    "materialized view": Case(
        ("create materialized view kept as select bid, count(*) from pgbench_accounts group by 1",),
        reset=True,
    ),
    "publication": Case(("create publication kept for table pgbench_accounts",), drop=True),
    "trigger": Case(
        (
            "create table noted (what text)",
            "create function kept() returns trigger language plpgsql as "
            "$$ begin insert into others.noted values (tg_op); return null; end $$",
            "create trigger kept after truncate on pgbench_history execute function kept()",
        )
    ),
    "trigger on rows": Case(
        (
            "create table noted (what text)",
            "create function kept() returns trigger language plpgsql as "
            "$$ begin insert into others.noted values (tg_op); return null; end $$",
            "create trigger kept after insert on pgbench_branches for each row execute function kept()",
        )
    ),
    "rule": Case(
        (
            "create table noted (what text)",
            "create rule kept as on insert to pgbench_history do also insert into others.noted values (1)",
        )
    ),
}


@pytest.fixture
def own_dsn(kind_dsn: str) -> Iterator[str]:
    with own_schema(kind_dsn, "others") as dsn:
        yield dsn


def ask(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
        return rows


_WHOLE = """
select c.relname, c.relkind::text, c.relfilenode, a.attname, a.atthasdef, pg_get_expr(d.adbin, d.adrelid),
    (select string_agg(pg_get_constraintdef(k.oid), ';' order by k.oid)
        from pg_constraint k where conrelid = c.oid),
    (select string_agg(indexrelid::text, ';' order by indexrelid) from pg_index where indrelid = c.oid)
from pg_class c join pg_attribute a on a.attrelid = c.oid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relnamespace = 'others'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and attnum > 0
order by 1, 4"""


def state_of(dsn: str) -> dict[str, Any]:
    """Returns tables and views with their rows, each in order, and the definitions on them."""
    tables = (
        "select relname from pg_class where relnamespace = 'others'::regnamespace and relkind in ('r', 'm')"
    )
    state: dict[str, Any] = {"definitions": ask(dsn, _WHOLE)}
    for (name,) in ask(dsn, tables):
        state[name] = ask(dsn, f"select count(*), sum(hashtext(t::text)) from only {name} t")
    state["publications"] = ask(dsn, "select prrelid::regclass::text from pg_publication_rel")
    return state


def call(dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    return dbdyno((*words, "--dsn", dsn), {"HOME": "/nonexistent"}, Path("/"))


def check_refused(done: subprocess.CompletedProcess[str], name: str = "kept") -> None:
    assert done.returncode not in (0, 1), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    assert name in done.stderr, done.stderr


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the folder in which runs are stored."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", CASES)
def test_what_others_made_beside_the_tables_stays_whole(own_dsn: str, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert prepare(own_dsn, *case.prepared).returncode == 0
    ask(own_dsn, *case.statements)
    before = state_of(own_dsn)
    words = ("run", "select-only", *CALLS, "--reset", "each", "--dsn", own_dsn)
    done = dbdyno(words, {"HOME": str(tmp_path)}, tmp_path)
    if case.reset:
        assert done.returncode == 0, done.stderr
        after = state_of(own_dsn)
        kept = [row for row in before["definitions"] if row[0] == "kept"]
        assert [row for row in after["definitions"] if row[0] == "kept"] == kept
        assert after.get("kept") == before.get("kept")
    else:
        assert state_of(own_dsn) == before
        check_refused(done, case.named)
    before = state_of(own_dsn)
    for removing in (("workload", "prepare", "pgbench", "--replace"), ("workload", "drop", "pgbench")):
        done = call(own_dsn, *removing)
        if case.drop:
            assert done.returncode == 0, done.stderr
            continue
        assert state_of(own_dsn) == before
        check_refused(done, case.named)


@pytest.mark.parametrize(
    "words",
    [("workload", "drop", "pgbench"), ("workload", "prepare", "pgbench", "--replace")],
    ids=lambda w: w[1],
)
def test_a_partition_that_is_being_attached_does_not_go_with_its_table(
    own_dsn: str, words: tuple[str, ...]
) -> None:
    """The attachment is committed while the removal waits for its lock, so an earlier look does not see
    it."""
    assert prepare(own_dsn, "--partitions=2").returncode == 0
    detach, create, rows, attach = CASES["partition"].statements
    ask(own_dsn, detach, create, rows)
    with psycopg.connect(own_dsn) as other:
        other.execute(attach.encode())
        committed = threading.Thread(target=_commit_when_waited_for, args=(own_dsn, other))
        committed.start()
        done = call(own_dsn, *words)
        committed.join()
    check_refused(done)
    assert ask(own_dsn, "select count(*) from pgbench_accounts") != [(0,)]
    assert ask(own_dsn, "select count(*) > 0 from kept") == [(True,)]


def _commit_when_waited_for(dsn: str, other: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        eventually(lambda: ask(dsn, "select pid from pg_locks where not granted"))
    finally:
        other.commit()


def test_by_default_a_table_that_inherits_is_left_alone_and_reported(own_dsn: str, tmp_path: Path) -> None:
    assert prepare(own_dsn).returncode == 0
    ask(own_dsn, *CHILD, "insert into pgbench_history (delta) values (424242)")
    rows = "select count(*), sum(hashtext(t::text)) from only kept t"
    before = ask(own_dsn, rows)
    done = dbdyno(("run", "simple-update", *CALLS, "--dsn", own_dsn), {"HOME": str(tmp_path)}, tmp_path)
    assert ask(own_dsn, rows) == before
    assert ask(own_dsn, "select count(*) from pgbench_history where delta = 424242") == [(1,)]
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "reset never" in output and "kept" in output, output


def test_statements_that_mean_one_table_say_only(own_dsn: str, tmp_path: Path) -> None:
    """The server counted the statements. Children made while a reset is under way are safe, too."""
    counted = "public.pg_stat_statements"
    skip_without("pg_stat_statements", own_dsn)
    assert prepare(own_dsn).returncode == 0
    ask(own_dsn, f"select {counted}_reset()")
    words = ("run", "select-only", *CALLS, "--reset", "each", "--dsn", own_dsn)
    done = dbdyno(words, {"HOME": str(tmp_path)}, tmp_path)
    assert done.returncode == 0, done.stderr
    statements = [
        str(q).lower()
        for (q,) in ask(own_dsn, f"select query from {counted} where query ~* '^(truncate|lock|alter) '")
        if "pgbench_" in str(q)
    ]
    assert any(q.startswith("truncate") for q in statements), statements
    tables = re.compile(r'"others"[.]"?pgbench_')  # not the names of constraints
    assert [
        q for q in statements if len(tables.findall(q)) > q.count("only ") and "alter index" not in q
    ] == []
    assert all(tables.search(q) for q in statements)
