"""Scripts by ``dbdyno run`` on real servers: refusals before a run, real retries, pgbench's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.db.conftest import LIGHT, Bench

pytestmark = pytest.mark.db
BRIEF = ("--sessions", "1", "--measure", "1s", "--settle", "100ms", *LIGHT)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("select 1;\n  \\set a random(1\n", "own.sql:2:", "^"),
        ("\\set a 1\n\\nosuch 1\n", "own.sql:2:", "nosuch"),
        ("\\if 1\nselect 1;\n", "own.sql:", "endif"),
        ("\\set a 1\nselect :a, nosuch from pg_class where relpages = :a;\n", "own.sql:2:12", "nosuch"),
        ("\\set longer 1\nselect :longer::text, nosuch from pg_class;\n", "own.sql:2:23", "nosuch"),
        ("begin;\nselect 1;\n", "own.sql:1:1", "COMMIT"),
        ("\\shell true\n", "own.sql:1:", "--allow-shell"),
        ("copy pg_class to stdout;", "own.sql:1:1", "INSERT ... SELECT"),
    ],
)
def test_mistakes_have_their_place_and_cure(
    bench: Bench, tmp_path: Path, text: str, place: str, message: str
) -> None:
    script = tmp_path / "own.sql"
    script.write_text(text)
    done = bench.here("run", "-f", str(script), "--dsn", bench.dsn, *BRIEF)
    assert done.returncode == 2, done.stderr
    assert place in done.stderr and message in done.stderr and "^" in done.stderr


def test_tables_that_a_script_makes_itself_are_not_asked_for(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "own.sql"
    script.write_text(
        "\\set n random(1, 9)\ncreate temp table made (n int);\ninsert into made values (:n);\n"
        "select n from made;\ndrop table made;\n"
    )
    done = bench.here("run", "-f", str(script), "--dsn", bench.dsn, "--json", *BRIEF)
    assert done.returncode == 0, done.stderr
    (rung,) = json.loads(done.stdout)["rungs"]
    assert rung["calls"] > 0 and rung["errors"] == 0


def test_pgbench_without_its_tables_names_the_cure(bench: Bench) -> None:
    done = bench.here("run", "-b", "tpcb-like", "--dsn", bench.with_words(dbname="template1"), *BRIEF)
    assert done.returncode == 2
    assert "dbdyno workload prepare pgbench" in done.stderr


def test_a_timeout_that_the_connection_asks_for_holds_in_the_sessions(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "own.sql"
    script.write_text("select pg_sleep(1);\n")
    asked = bench.with_words(options="-c statement_timeout=50ms")
    done = bench.here("run", "-f", str(script), "--dsn", asked, "--json", *BRIEF)
    (rung,) = json.loads(done.stdout)["rungs"]
    assert rung["errors"] > 0 and "57014" in done.stdout


DEADLOCK = """\\set a random(1, 2)
begin;
update pairs set n = n + 1 where id = :a;
update pairs set n = n + 1 where id = 3 - :a;
end;
"""
READ_WRITE = """\\set own :rows + :client_id + 1
\\set id random_zipfian(1, :rows, 1.05)
\\set last least(:id + 9, :rows)
\\set other random(1, :rows)
begin;
select c from sbtest where id = :id;
select sum(k) as total from sbtest where id between :id and :last \\gset
\\set low least(:id, :other)
\\set high greatest(:id, :other)
\\if :total > 0 and :id <> :other
update sbtest set k = k + 1 where id = :low;
update sbtest set c = md5(c) where id = :high;
\\endif
delete from sbtest where id = :own;
insert into sbtest values (:own, 1, 'new');
end;
"""


def test_deadlocks_are_tried_again_and_counted(bench: Bench, tmp_path: Path) -> None:
    bench.ask("drop table if exists pairs")
    bench.ask("create table pairs as select id, 0 as n from generate_series(1, 2) id")
    bench.ask("alter system set deadlock_timeout = '10ms'")
    bench.ask("select pg_reload_conf()")
    script = tmp_path / "pairs.sql"
    script.write_text(DEADLOCK)
    words = ("--max-tries", "100", "-c", "4", "-T", "1", "--settle", "100ms", "--json")
    done = bench.here("run", "-f", str(script), "--dsn", bench.dsn, *words)
    bench.ask("alter system reset deadlock_timeout")
    bench.ask("select pg_reload_conf()")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (row,) = [r for r in document["script_rates"] if r["cell"] == "all"]
    assert row["calls"] > 0 and row["retries"] >= row["retried"] > 0
    assert row["errors"] <= 4, "a call that the end of the window cuts off is not tried again"
    commands = [r for r in document["command_rates"] if r["cell"] == "all"]
    assert sum(c["retries"] for c in commands) == row["retries"]
    assert {c["line"] for c in commands if c["retries"]} <= {3, 4}
    claims = {f["id"]: f for f in document["findings"]}
    if row["retried"] / row["calls"] >= 0.01:
        share = row["retried"] / (row["calls"] + row["errors"])
        assert (claims["retried"]["value"], claims["retried"]["unit"]) == (
            pytest.approx(share),
            "of the calls",
        )
        assert "pairs.sql" in claims["retried"]["claim"] and "4 sessions" in claims["retried"]["claim"]


def test_scripts_with_weights_share_the_calls_and_have_rates_of_their_own(
    bench: Bench, tmp_path: Path
) -> None:
    bench.ask("drop table if exists sbtest")
    bench.ask("create table sbtest as select id, 1 as k, md5(id::text) c from generate_series(1, 1000) id")
    bench.ask("alter table sbtest add primary key (id)")
    write, read = tmp_path / "read_write.sql", tmp_path / "read.sql"
    write.write_text(READ_WRITE)
    read.write_text("\\set id random(1, :rows)\nselect c from sbtest where id = :id;\n")
    words = ("-D", "rows=1000", "--max-tries", "9", "-c", "2", "-T", "1", "--settle", "100ms", "-r", *LIGHT)
    done = bench.here("run", "-f", str(write), "-f", f"{read}@9", "--dsn", bench.dsn, *words)
    assert done.returncode == 0, done.stderr
    assert "By script at 2 sessions" in done.stdout and "By statement of read_write.sql" in done.stdout
    shown = json.loads(bench.here("show", "last", "--scripts", "--json").stdout)
    a, b = [r for r in shown["script_rates"] if r["cell"] == "all"]
    assert (a["name"], b["name"], a["weight"], b["weight"]) == ("read_write.sql", "read.sql", 1, 9)
    assert a["errors"] == b["errors"] == 0 and b["calls_share"] > 0.8
    _adds_up([r for r in shown["script_ledger"] if r["cell"] == "all"], {r["name"]: r for r in (a, b)})


def _adds_up(ledger: list[dict[str, Any]], scripts: dict[str, dict[str, Any]]) -> None:
    """Checks that all rows add up to session time, a script's to its calls, and a statement's accounts to
    the client's time."""
    whole = [r for r in ledger if r["account"] == "all"]
    assert sum(r["share"] for r in whole) == pytest.approx(1)
    in_calls = sum(r["in_call_ns"] for r in scripts.values()) / 1e9
    spent = {name: sum(r["seconds"] for r in whole if r["name"] == name) for name in scripts}
    for name, row in scripts.items():
        assert spent[name] / sum(spent.values()) == pytest.approx(row["in_call_ns"] / 1e9 / in_calls)
    for one in (r for r in whole if r["part"] == "statement"):
        parts = [r for r in ledger if (r["name"], r["command"]) == (one["name"], one["command"])]
        by_account = {r["account"]: r for r in parts}
        if by_account["client"]["status"] == "ok":
            served = sum(r["seconds"] for r in parts if r["account"] in ("run", "runq", "sleep", "client"))
            assert served == pytest.approx(one["seconds"])


def test_a_run_whose_every_call_fails_ends_where_no_other_could_succeed(bench: Bench, tmp_path: Path) -> None:
    refused, failing = tmp_path / "refused.sql", tmp_path / "failing.sql"
    refused.write_text("do $$ begin perform nosuch(); end $$")
    failing.write_text("select 1 / (random() < 0)::int")
    brief = ("-c", "1,2", "--measure", "1s", "--dsn", bench.dsn, "--store", str(tmp_path / "store"))
    done = bench.here("run", "-f", str(refused), *brief, "--name", "refused")
    assert done.returncode == 5, done.stderr
    assert "every call ended in an error: function nosuch() does not exist" in done.stderr
    assert "(SQLSTATE 42883)" in done.stderr
    done = bench.here("run", "-f", str(failing), *brief, "--name", "failing")
    assert done.returncode == 5, done.stderr
    listed = json.loads(bench.here("runs", "--json", *brief[-2:]).stdout)
    by_name = {run["name"]: run for run in listed}
    assert by_name["refused"]["status"] == "cut short"
    assert (by_name["failing"]["status"], by_name["failing"]["reason"]) == (
        "complete",
        "every call ended in an error",
    )
