"""Scripts over the wire, on real servers, against pgbench with the same text."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from dbdyno import _core
from tests.contract.driving import SECOND_NS, start, tables, until_done
from tests.db.pgbench import program

if TYPE_CHECKING:
    import polars as pl

pytestmark = pytest.mark.db
PROTOCOLS = ("prepared", "extended", "simple")


def _target(dsn: str) -> dict[str, Any]:
    words = psycopg.conninfo.conninfo_to_dict(dsn)
    return {
        "host": words["host"],
        "port": int(words.get("port") or 5432),
        "user": words["user"],
        "database": words.get("dbname") or "postgres",
        "password": words.get("password"),
    }


def _load(dsn: str, *texts: str, sessions: int = 1, calls: int | None = 1, **more: Any) -> _core.Load:
    files = [{"name": f"s{i}.sql", "text": text} for i, text in enumerate(texts)]
    group = {k: more.pop(k) for k in ("protocol", "validation", "setup") if k in more}
    spec = {
        "target": _target(dsn),
        "scripts": {"files": files, "seed": 42} | more,
        "sessions": [{"count": sessions} | group],
        "max_calls": calls,
    }
    load = _core.Load("postgres", json.dumps(spec))
    load.connect()
    until_done(load)
    return load


def _run(dsn: str, *texts: str, **more: Any) -> dict[str, pl.DataFrame]:
    load = _load(dsn, *texts, **more)
    start(load, 20)
    return tables(load)


def _errors(result: dict[str, pl.DataFrame]) -> list[tuple[str, str]]:
    return result["errors"].select("sqlstate", "message").rows()


def _ask(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=(15, 18), ids=lambda v: f"pg{v}")
def dsn(servers: Any, request: pytest.FixtureRequest) -> str:
    return str(servers.dsn(request.param))


EVERYTHING = r"""
\set n 3 * :client_id + 4
create temporary table if not exists made (v text);
select :n + 1 as five, 'x' || :n as word \gset p_
\if :p_five > 4
  insert into made values (:p_word::text);
\else
  select 1 / 0;
\endif
\sleep 2 ms
select count(*)::int as many from made \aset
insert into seen values (:p_five, (select max(v) from made), :many, :unset_one is null);
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commands_do_what_pgbench_does(dsn: str, protocol: str, tmp_path: Path) -> None:
    text = EVERYTHING.replace(":unset_one is null", "true").replace(":p_word::text", "'x4'")
    _ask(dsn, "drop table if exists seen; create table seen (five int, v text, many int, unset bool)")
    result = _run(dsn, text, protocol=protocol, calls=3)
    assert _errors(result) == []
    ours = _ask(dsn, "select * from seen order by many")
    _ask(dsn, "truncate seen")
    script = tmp_path / "s.sql"
    script.write_text(text)
    subprocess.run([program(), "-n", "-M", protocol, "-f", str(script), "-t", "3", dsn], check=True)
    assert ours == _ask(dsn, "select * from seen order by many")
    assert len(ours) == 3
    by_line = {row["line"]: row for row in result["script_commands"].rows(named=True)}
    assert by_line[10]["min_ns"] >= 2_000_000
    assert by_line[8]["executions"] == 0
    assert by_line[12]["executions"] == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_deadlocks_are_tried_again_until_they_succeed(dsn: str, protocol: str) -> None:
    _ask(
        dsn,
        "drop table if exists two; create table two as select i as id, 0 as v from generate_series(0, 1) i",
    )
    text = (
        "begin;\nupdate two set v = v + 1 where id = :client_id;\n\\sleep 200 ms\n"  # both are there by then
        "update two set v = v + 1 where id = 1 - :client_id;\ncommit;"
    )
    setup = ["set deadlock_timeout = '10ms'"]
    result = _run(dsn, text, protocol=protocol, sessions=2, calls=3, max_tries=0, setup=setup)
    assert _errors(result) == []
    assert _ask(dsn, "select v from two") == [(6,), (6,)]
    assert result["scripts"]["retries"].sum() > 0
    assert result["script_commands"]["retries"].sum() == result["scripts"]["retries"].sum()
    given_up = _run(dsn, text, protocol=protocol, sessions=2, calls=3, max_tries=1, setup=setup)
    assert {code for code, _ in _errors(given_up)} == {"40P01"}


def test_serialization_failures_are_tried_again_with_the_same_numbers(dsn: str) -> None:
    _ask(
        dsn,
        "drop table if exists one, drawn; create table one as select 0 as v; create table drawn (n bigint)",
    )
    text = (
        "\\set n random(1, 1000000000000)\nbegin isolation level serializable;\nselect v from one;\n"
        "\\sleep 5 ms\nupdate one set v = v + 1;\ninsert into drawn values (:n);\ncommit;"
    )
    result = _run(dsn, text, sessions=4, calls=10, max_tries=0)
    assert _errors(result) == []
    assert _ask(dsn, "select v from one") == [(40,)]
    assert result["scripts"]["retries"].sum() > 0
    first = _ask(dsn, "select n from drawn order by 1")
    _ask(dsn, "truncate drawn")
    _run(dsn, text, sessions=4, calls=10, max_tries=0)
    assert _ask(dsn, "select n from drawn order by 1") == first


@pytest.mark.parametrize("protocol", ("prepared", "extended"))
def test_a_pipeline_is_executed_whole_or_rolled_back_by_its_error(dsn: str, protocol: str) -> None:
    _ask(dsn, "drop table if exists piped; create table piped (v int)")
    good = "\\startpipeline\n" + "insert into piped values (1);\n" * 5 + "\\endpipeline"
    assert _errors(_run(dsn, good, protocol=protocol, calls=4)) == []
    assert _ask(dsn, "select count(*) from piped") == [(20,)]
    bad = "\\startpipeline\ninsert into piped values (2);\nselect 1 / :client_id;\n\\endpipeline"
    result = _run(dsn, bad, protocol=protocol, calls=2)
    assert [code for code, _ in _errors(result)] == ["22012"]
    assert result["sessions"]["errors_total"].sum() == 2
    assert _ask(dsn, "select count(*) from piped where v = 2") == [(0,)]
    large = "\\startpipeline\n" + f"select repeat('y', 100000), '{'x' * 5000}';\n" * 100 + "\\endpipeline"
    for sessions in (1, 3):
        assert _errors(_run(dsn, large, protocol=protocol, sessions=sessions, calls=2)) == []


MISTAKES = (
    ("\\set x 1 / (:client_id * 0)\nselect 1;", "-----", "zero"),
    ("select 1 as one where false \\gset", "-----", "exactly one row"),
    ("begin;\nselect 1;", "-----", "open transaction"),
    ("select 1 / :client_id;", "22012", "zero"),
    ("\\sleep :word", "-----", "not a number"),
)


@pytest.mark.parametrize(("text", "code", "words"), MISTAKES)
def test_a_failed_call_leaves_a_session_that_goes_on(dsn: str, text: str, code: str, words: str) -> None:
    result = _run(dsn, text, calls=3, variables={"word": "abc"})
    ((reported, message),) = _errors(result)
    assert reported == code
    assert words in message
    assert result["sessions"]["errors_total"].to_list() == [3]
    assert result["sessions"]["end_reason"].to_list() == ["limit"]


def test_with_reconnect_each_call_has_its_own_connection(dsn: str) -> None:
    _ask(dsn, "drop table if exists pids; create table pids (pid int, word text)")
    text = "insert into pids select pg_backend_pid(), current_setting('application_name');"
    for sessions in (1, 3):
        _ask(dsn, "truncate pids")
        setup = ["set application_name = 'set up'"]
        result = _run(dsn, text, sessions=sessions, calls=4, reconnect=True, setup=setup)
        assert _errors(result) == []
        counted = _ask(dsn, "select count(distinct pid), min(word) from pids")
        assert counted == [(4 * sessions, "set up")]
        connections = result["script_connections"]
        assert connections["connections"].sum() == 3 * sessions
        assert connections["connect_ns"].min() > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cut_connection_loses_its_session_alone(dsn: str, protocol: str) -> None:
    load = _load(
        dsn, "select pg_sleep(:client_id * 0.01);\n\\sleep 1 ms", sessions=3, calls=None, protocol=protocol
    )
    pid = load.backends()[1][1]
    t1 = start(load, 1)
    _ask(dsn, f"select pg_terminate_backend({pid})")
    result = tables(load)
    assert t1 - SECOND_NS > 0
    ends = result["sessions"].sort("session")["end_reason"].to_list()
    assert ends == ["deadline", "lost", "deadline"]


def test_the_shell_is_run_where_it_is_allowed(dsn: str) -> None:
    text = "\\setshell x expr 40 + 2\n\\shell test :x = 42\nselect 1 / (:x - 41);"
    assert _errors(_run(dsn, text, allow_shell=True)) == []
    ((code, _),) = _errors(_run(dsn, "\\shell false", allow_shell=True))
    assert code == "-----"
    with pytest.raises(_core.DriverError, match="shell"):
        _load(dsn, text)


def test_a_built_in_script_leaves_the_same_sums_as_its_calls(dsn: str, tmp_path: Path) -> None:
    subprocess.run([program(), "-i", "-q", "-s", "1", dsn], check=True, capture_output=True)
    _, text = _core.builtin_script("tpcb-like")
    result = _run(dsn, text, sessions=4, calls=50, variables={"scale": "1"})
    assert _errors(result) == []
    sums = " union all ".join(
        f"select sum({column})::bigint from pgbench_{table}"
        for table, column in (
            ("accounts", "abalance"),
            ("tellers", "tbalance"),
            ("branches", "bbalance"),
            ("history", "delta"),
        )
    )
    assert len(set(_ask(dsn, sums))) == 1
    assert _ask(dsn, "select count(*) from pgbench_history") == [(200,)]
    script = tmp_path / "t.sql"
    script.write_text(text)
    output = subprocess.run(
        [program(), "-n", "-M", "prepared", "-r", "-f", str(script), "-t", "50", "-c", "4", dsn],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    listed = re.findall(
        r"^\s+\d+\.\d+\s+(?:\d+\s+)*(\S.*)$", output.split("statement latencies")[1], re.MULTILINE
    )
    ours = result["script_commands"]["text"].to_list()
    assert [t.split()[0].rstrip(";") for t in ours] == [t.split()[0].rstrip(";") for t in listed]
    assert result["script_commands"]["executions"].to_list() == [200] * len(listed)
