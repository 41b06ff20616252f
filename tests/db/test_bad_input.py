"""Typical mistakes give one clear message with the cure and the right exit code, and lose nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dbdyno.engines.postgres.objects import MARK
from tests.conftest import KINDS, Servers
from tests.contract.plain_server import plain_server
from tests.db.conftest import SHORT, Bench

pytestmark = pytest.mark.db


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("rnu", "lio"), 2, "did you mean 'run'"),
        (("run", "lio", "--sesions", "1"), 2, "--sessions"),
        (("run", "lia"), 2, "did you mean 'lio'"),
        (("run", "lio", "--param", "tabels=own"), 2, "did you mean 'tables'"),
        (("run", "lio", "--param", "tables=mine"), 2, "shared, own"),
        (("run", "lio", "--measure", "1ms"), 2, "at least 1s"),
        (("run", "lio", "--sessions", "9:1"), 2, "larger"),
        (("run",), 2, "nothing to run"),
        (("run", "--script", "nosuch.sql"), 2, "cannot read the script"),
        (("run", "lio", "--script", "nosuch.sql"), 2, "both a workload and scripts"),
        (("run", "--recipe", "demmo", "--dry-run"), 2, "did you mean 'demo'"),
        (("show", "20200101-000000-none-0000"), 4, "no run"),
        (("run", "lio", "--dsn", "host=127.0.0.1 port=1 user=nobody", "--sessions", "1"), 3, "refused"),
        (("run", "lio", "--dsn", "host=127.0.0.1 prot=1", "--sessions", "1"), 2, "the DSN is not valid"),
        (("run", "lio", "--pg-bin", "/nonexistent", "--sessions", "1"), 2, "/nonexistent"),
    ],
)
def test_wrong_arguments_are_errors_and_leave_no_run(
    bench: Bench, words: tuple[str, ...], code: int, message: str
) -> None:
    done = bench.here(*words)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert bench.runs() == []


def test_too_few_connections_are_an_error_before_anything_starts(bench: Bench) -> None:
    done = bench.here("run", "lio", "--dsn", bench.dsn, "--sessions", "1,500")
    assert done.returncode == 3
    assert "max_connections = 30" in done.stderr
    assert "free" in done.stderr
    assert bench.runs() == []


def test_a_missing_database_is_an_error_that_names_it(bench: Bench) -> None:
    done = bench.here("run", "lio", "--dsn", bench.with_words(dbname="nosuch"), "--sessions", "1")
    assert done.returncode == 3
    assert "nosuch" in done.stderr


def test_a_missing_privilege_is_an_error_with_the_grant(bench: Bench) -> None:
    bench.ask(
        "do $$ begin create role weak login; exception when duplicate_object then null; end $$; select 1"
    )
    done = bench.here("run", "lio", "--dsn", bench.with_words(user="weak"), "--sessions", "1", *SHORT)
    assert done.returncode == 3, done.stderr
    assert "GRANT" in done.stderr.upper()  # to make the schema, or, where it is there already, in it
    assert "GRANT" in done.stderr.upper()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1;\nselect count(*) form pg_class;", "2:"),
        ("\\set a 1 +\nselect :a;", "own.sql:1:"),
        ("select * from nosuchtable", "nosuchtable"),
        ("-- nothing\n", "has no statement"),
        ("select 'open", "1:"),
    ],
)
def test_script_errors_show_the_position(bench: Bench, tmp_path: Path, text: str, message: str) -> None:
    script = tmp_path / "own.sql"
    script.write_text(text)
    done = bench.here("run", "--script", str(script), "--dsn", bench.dsn, "--sessions", "1", *SHORT)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


def test_an_unknown_key_of_a_recipe_is_an_error_with_the_nearest_key(bench: Bench, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('workload = "lio"\nmesure = "5s"\n')
    done = bench.here("run", "--recipe", str(recipe))
    assert done.returncode == 2
    assert "did you mean 'measure'" in done.stderr


def test_a_store_of_a_newer_schema_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    run = tmp_path / "20991231-000000-lio-ffff"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema_version": 99, "dbdyno": "9.9.9"}))
    done = bench.here("show", "last", "--store", str(tmp_path))
    assert done.returncode == 4
    assert "9.9.9" in done.stderr
    assert "upgrade" in done.stderr
    listed = bench.here("runs", "--store", str(tmp_path))
    assert listed.returncode == 0
    assert run.name in listed.stdout


def test_a_password_never_shows(bench: Bench) -> None:
    secret = "hunter2hunter2"
    done = bench.here("run", "lio", "--dsn", f"postgresql://u:{secret}@127.0.0.1:1/db", "--sessions", "1")
    assert done.returncode == 3
    assert secret not in done.stdout + done.stderr


def test_rights_are_asked_for_and_leave_no_error_in_the_log(servers: Servers, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "home", tmp_path / "s")
    for version in KINDS:
        with plain_server(servers.bin_dir(version), hba=["local all all trust"]) as plain:
            plain.ask("create role weak login")
            weak = ("--dsn", plain.dsn.replace("user=boss", "user=weak"))
            for words in (
                ("run", "lio", "--sessions", "1", *SHORT, *weak),
                ("run", "cpu", "--sessions", "1", "--setting", "work_mem=9MB", *SHORT, *weak),
                ("observe", "--for", "1s", *weak),
            ):
                done = bench.here(*words)
                assert done.returncode == (0 if words[0] == "observe" else 3), done.stderr
            plain.ask(f"create schema dbdyno; comment on schema dbdyno is '{MARK}'")
            done = bench.here("run", "lio", "--sessions", "1", *SHORT, *weak)
            assert (done.returncode, "GRANT ALL ON SCHEMA dbdyno TO weak" in done.stderr) == (3, True), (
                done.stderr
            )
            assert "ERROR" not in plain.log(), plain.log()
