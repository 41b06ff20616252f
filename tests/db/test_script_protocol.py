"""Scripts with statements that only simple queries can send; COPY; characters that an encoding lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dbdyno.engines.postgres import PostgresServer, needs_simple
from dbdyno.engines.postgres.script_check import check
from dbdyno.model.errors import ScriptError, UsageError
from dbdyno.model.plan.plan import DriverSetup, PlannedScript, Variant
from tests.db.conftest import LIGHT, Bench

pytestmark = pytest.mark.db
BRIEF = (
    "--sessions",
    "1",
    "--measure",
    "1s",
    "--settle",
    "100ms",
    "--no-memory",
    "--no-snapshots",
    *LIGHT,
)


def script(text: str) -> PlannedScript:
    return PlannedScript(name="own.sql", text=text)


def why_simple(server: PostgresServer, text: str, **given: str | int) -> str | None:
    """Returns why a run would use simple queries: by the text, then by the server's answer."""
    seen = needs_simple([script(text)], list(given))
    return seen or server.needs_simple([script(text)], Variant(name="base", params=given))


@pytest.fixture
def server(any_dsn: str) -> Iterator[PostgresServer]:
    with closing(PostgresServer(any_dsn)) as server:
        yield server


SIMPLE = {
    "create table sl_:client_id as select 1 as x;\ndrop table sl_:client_id;": "own.sql:1:17",
    "create role r_:client_id;": "own.sql:1:15",
    "notify chan_:client_id;": "own.sql:1:13",
    "prepare p(int) as select $1;\nexecute p(:client_id);": "own.sql:2:",
    "deallocate :client_id;": "own.sql:1:",
    "\\set p 1\nselect * from part_:p;": "own.sql:2:20",
    "create table part_1 (x int);\n\\set p 1\nselect * from part_:p;": "own.sql:3:20",
    "\\set n 1\nselect relname:n from pg_class;": "own.sql:2:15",
    "\\set wm 64\nset work_mem = :wm;": "own.sql:2:16",
    "\\set n 1\nalter table pg_class set (parallel_workers = :n);": "own.sql:2:",
    "\\set a 1\nselect :a + :a;": "own.sql:2:",
    "insert into :tab values (1);": "own.sql:1:",
    "\\set n 3\nvacuum (parallel :n) pg_am;": "own.sql:2:",
}
PREPARED = (
    "\\set a 1\nselect :a::int + 1;",
    "\\set a 1\nselect relname from pg_class where relpages > :a limit :a;",
    "\\set a 1\nexplain select :a::int;",
    "select (array[1, 2, 3])[1:2];",
    "prepare p as select 1;\nexecute p;",
    "\\set n 1\ncreate temp table made as select :n::int as n;",
)


def test_only_what_the_server_takes_in_no_other_way_is_sent_as_simple_queries(server: PostgresServer) -> None:
    for text, place in SIMPLE.items():
        why = why_simple(server, text, tab="pg_am")
        assert why is not None and why.startswith(place), (text, why)
    assert [why_simple(server, text) for text in PREPARED] == [None] * len(PREPARED)


def test_a_mistake_is_not_blamed_on_the_protocol(server: PostgresServer) -> None:
    wrong = ("\\set a 1\nselec :a;", "\\set a 1\nselect nosuch, :a::int from pg_class;")
    for text in wrong:
        assert why_simple(server, text) is None
        with pytest.raises(ScriptError):
            server.script([script(text)])


def test_with_a_protocol_that_was_asked_for_the_cure_names_the_other(server: PostgresServer) -> None:
    for text in SIMPLE:
        given = Variant(name="base", params={"tab": "pg_am"}, driver=DriverSetup(protocol="extended"))
        with pytest.raises(ScriptError, match="-M simple"):
            server.script([script(text)], given)


def test_in_a_pipeline_the_cure_is_to_leave_it(server: PostgresServer) -> None:
    for text in SIMPLE:
        given = Variant(name="base", params={"tab": "pg_am"}, driver=DriverSetup(protocol="extended"))
        with pytest.raises(ScriptError) as e:
            server.script([script(f"\\startpipeline\n{text}\n\\endpipeline\n")], given)
        assert "take -M simple" not in str(e.value) and "out of the pipeline" in (e.value.cure or "")


def test_a_script_for_simple_queries_runs_and_the_reason_is_shown(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own.sql"
    own.write_text("create role bench_:client_id;\ndrop role bench_:client_id;\nset work_mem = :wm;\n")
    done = bench.here("run", "-f", str(own), "-D", "wm=64", "--dsn", bench.dsn, "--json", *BRIEF)
    assert done.returncode == 0, done.stderr
    (rung,) = json.loads(done.stdout)["rungs"]
    assert rung["calls"] > 0 and rung["errors"] == 0
    own.write_text("\\set p 1\nprepare p(int) as select $1;\nexecute p(:p);\ndeallocate p;\n")
    done = bench.here("run", "-f", str(own), "--dsn", bench.dsn, *BRIEF)
    assert done.returncode == 0 and "takes no parameter for :p" in done.stdout + done.stderr


# -- COPY --------------------------------------------------------------------------------------------------
def test_copy_of_the_server_is_a_call_and_copy_of_the_client_is_none(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own.sql"
    own.write_text(
        "copy pg_am to '/dev/null';\ncopy (select 1) to program 'cat >/dev/null' with (format csv);\n"
    )
    for protocol in ("prepared", "simple"):
        words = ("-M", protocol, "--dsn", bench.dsn, "--json")
        done = bench.here("run", "-f", str(own), *words, *BRIEF)
        assert done.returncode == 0, done.stderr
        (rung,) = json.loads(done.stdout)["rungs"]
        assert rung["calls"] > 0 and rung["errors"] == 0
    with closing(PostgresServer(bench.dsn)) as server:
        for text in ("/* x */ copy pg_am to stdout", "select 1 \\; copy pg_am from stdin"):
            with pytest.raises(ScriptError, match="COPY from or to the client"):
                check(server._connection, [script(text)], DriverSetup(protocol="simple"))


# -- encodings ---------------------------------------------------------------------------------------------
@pytest.fixture
def encoded_dsns(kind_dsn: str) -> Iterator[dict[str, str]]:
    """Yields DSNs of two databases that are not in UTF-8."""
    names = {"LATIN1": "lat1", "SQL_ASCII": "asc8"}
    with psycopg.connect(kind_dsn, autocommit=True) as admin:
        for encoding, name in names.items():
            more = "template template0 lc_collate 'C' lc_ctype 'C'"
            admin.execute(f"create database {name} encoding '{encoding}' {more}".encode())
        yield {encoding: make_conninfo(kind_dsn, dbname=name) for encoding, name in names.items()}
        for name in names.values():
            admin.execute(f"drop database {name} with (force)".encode())


def test_text_that_the_encoding_lacks_is_refused_with_its_place(encoded_dsns: dict[str, str]) -> None:
    with closing(PostgresServer(encoded_dsns["LATIN1"])) as server:
        for protocol in ("prepared", "simple"):
            given = Variant(name="base", driver=DriverSetup(protocol=protocol))  # type: ignore[arg-type]
            with pytest.raises(ScriptError, match=r"own.sql:2:14: .*LATIN1 has no character '€'"):
                server.script([script("select 'ü';\nselect 'é', '€';")], given)
        server.script([script("select 'ü';")])
        with pytest.raises(UsageError, match="'€'"):
            server.script([script("select :x::text")], Variant(name="base", params={"x": "€"}))
        with pytest.raises(UsageError, match="'€'"):
            server.check_driver(DriverSetup(validation="select '€'"))


def test_sql_ascii_takes_the_bytes_as_they_are(
    encoded_dsns: dict[str, str], bench: Bench, tmp_path: Path
) -> None:
    dsn = encoded_dsns["SQL_ASCII"]
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("create table enc (t text)")
    own = tmp_path / "own.sql"
    own.write_text("insert into enc values ('ü€' || :x);\n", encoding="utf-8")
    words = ("--driver", "validation=select 'é'", "-D", "x=ñ", "--dsn", dsn, "--json")
    done = bench.here("run", "-f", str(own), *words, *BRIEF)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rungs"][0]["errors"] == 0
    with psycopg.connect(dsn) as connection:
        (kept,) = connection.execute("select distinct t::bytea from enc").fetchone() or (b"",)
    assert kept == "ü€ñ".encode()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_filters_and_roles_in_any_encoding_are_no_crash(
    encoded_dsns: dict[str, str], bench: Bench, encoding: str
) -> None:
    for words in (
        ("observe", "--for", "1s", "--only-user", "é€"),
        ("observe", "--for", "1s", "--only-application", "caf€"),
        ("trace-logins", "--role", "é€", "--at", "2", "--for", "1s"),
    ):
        done = bench.here(*words, "--dsn", encoded_dsns[encoding])
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 2, 3), done.stderr
        if encoding == "LATIN1":
            assert done.returncode == 2 and "LATIN1 has no character '€'" in done.stderr
