"""Top SQL of real servers: counts of a known script and of pgbench, hostile texts, resets, rights."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from dbdyno.engines.postgres.connect import connect
from dbdyno.engines.postgres.statements import Statements
from dbdyno.model.schema.data_sources.statements import active
from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import LIGHT, QUICK, Bench, eventually
from tests.db.pgbench import program
from tests.extensions import skip_without

pytestmark = pytest.mark.db
PAGES = 10
MADE = f"""drop table if exists known, added;
create table known (id int, pad char(7000)) with (fillfactor = 100);
alter table known alter pad set storage plain;
create table added (id int);
insert into known select n, '' from generate_series(1, {PAGES}) as n;"""
SCAN = "select count(*) from known /* 'single', \"double\" & <b>bold</b>\n--> */ where id >= 0"
INSERT = "insert into added select n from generate_series(1, 3) as n"
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def at(any_dsn: str, tmp_path: Path) -> Bench:
    """Returns a bench with a server of each version that counts statements."""
    bench = Bench(tmp_path / "home", tmp_path / "s")
    bench.__dict__["dsn"] = any_dsn
    skip_without("pg_stat_statements", any_dsn)
    bench.ask("create extension if not exists pg_stat_statements")
    for statement in MADE.split(";\n"):
        bench.ask(statement)
    bench.ask("vacuum (freeze, analyze) known")
    return bench


def export(bench: Bench, tmp_path: Path) -> dict[str, pl.DataFrame]:
    done = bench.here("export", "last", "--full", "--to", "parquet", "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    names = ("statements", "statement_texts", "sessions", "windows")
    return {n: pl.read_parquet(tmp_path / "out" / f"{n}.parquet") for n in names}


def statements_with(tables: dict[str, pl.DataFrame], part: str) -> pl.DataFrame:
    texts = tables["statement_texts"].filter(pl.col("text").str.contains(part, literal=True))
    return tables["statements"].join(texts, on="query_id", how="semi")


def test_a_known_script_comes_out_exactly(at: Bench, tmp_path: Path) -> None:
    script = tmp_path / "known.sql"
    script.write_text(f"{SCAN};\n{INSERT};\n")
    words = ("--sessions", "1,3", *QUICK, *LIGHT)
    done = at.here("run", "--script", str(script), "--dsn", at.dsn, *words)
    assert done.returncode == 0, done.stderr
    tables = export(at, tmp_path)
    driven = dict(tables["sessions"].group_by("cell").agg(pl.col("calls_total").sum()).iter_rows())
    assert len(driven) == 2
    for cell, calls in driven.items():
        sessions = tables["windows"].filter(cell=cell)["sessions"][0]
        scan, insert = (
            statements_with(tables, part).filter(cell=cell).row(0, named=True)
            for part in ("from known", "into added")
        )
        assert (scan["calls"], scan["rows"]) == (calls, calls)
        assert (insert["calls"], insert["rows"]) == (calls, 3 * calls)
        blocks = scan["shared_blks_hit"] + scan["shared_blks_read"]
        assert PAGES * calls <= blocks <= PAGES * calls + 100 * sessions  # and the catalogue, once a session
        assert insert["wal_bytes"] > 3 * 50 * calls
        assert {scan["status"], insert["status"]} == {"ok"}
        statements = tables["statements"].filter(cell=cell)
        counted = statements.filter(pl.col("calls") > 0)
        texts = tables["statement_texts"].filter(pl.col("query_id").is_in(counted["query_id"].implode()))
        assert counted["calls"].sum() == 2 * calls, texts["text"].to_list()  # nothing of dbdyno's own
        assert statements["share"].sum() == pytest.approx(1)
        assert scan["db_time_s"] is None or scan["db_time_s"] > 0


@pytest.mark.parametrize("any_dsn", [14, 18], indirect=True, ids=lambda v: f"pg{v}")
def test_an_observed_load_comes_out_exactly(at: Bench) -> None:
    """Each of its transactions is among the statements, and no statement of dbdyno's own."""
    initialised = subprocess.run([program(), "-i", "-q", at.dsn], capture_output=True, check=False)
    assert initialised.returncode == 0, initialised.stderr
    reads = (
        "select coalesce(sum(calls), 0) from pg_stat_statements where query like '%i.dealloc as evictions%'"
    )
    before = at.ask(reads)
    # windows as long as a busy machine may need: where the end of one comes late, the next begins after a gap
    window = ("--for", "5min", "--window", "2min")
    # without snapshots, which read statements before the first window
    with at.background("observe", "--dsn", at.dsn, *window, "--no-snapshots", "--json") as watching:
        eventually(lambda: at.ask(reads) != before)  # the first read, with which the window begins
        time.sleep(1.5)  # a window cut below 1 s is not kept
        words = (program(), "-n", "-N", "-c", "2", "-t", "200", at.dsn)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        watching.send_signal(signal.SIGINT)
        out, errors = watching.communicate(timeout=120)
    assert out, errors
    document = json.loads(out)
    texts = {t["query_id"]: t["text"] for t in document["statement_texts"]}
    rows = [r for r in document["statements"] if r["cell"] == "all"]
    for start in ("UPDATE pgbench_accounts", "SELECT abalance", "INSERT INTO pgbench_history"):
        (row,) = [r for r in rows if texts.get(r["query_id"], "").startswith(start)]
        assert (row["calls"], row["rows"], row["status"]) == (400, 400, "ok")
        windows = [r for r in document["statements"] if r["query_id"] == row["query_id"]]
        assert sum(r["calls"] for r in windows if r["cell"] != "all") == 400
    every = (texts.get(r["query_id"], "") for r in rows)
    seen = " ".join(
        text for text in every if not text.startswith("select coalesce(sum(calls)")
    )  # ours, above
    assert "pg_stat_get_activity" not in seen
    assert "pg_stat_statements" not in seen
    assert "UPDATE" in at.here("show", "last", "--statements").stdout


@contextmanager
def open_reader(dsn: str) -> Iterator[Any]:
    with connect(dsn) as control:
        reader = Statements()
        yield lambda phase: reader.read(control, phase, lambda: 0)


@pytest.mark.parametrize("any_dsn", [15, 17], indirect=True, ids=lambda v: f"pg{v}")
def test_hostile_texts_are_escaped_and_whole(at: Bench, tmp_path: Path) -> None:
    script = tmp_path / "hostile.sql"
    long = " + ".join(["id"] * 2000)
    script.write_text(f"select 'it''s' /* {MARKUP}\n'\" */ from known;\nselect {long} from known;\n")
    done = at.here("run", "--script", str(script), "--dsn", at.dsn, "--sessions", "1", *QUICK, *LIGHT)
    assert done.returncode == 0, done.stderr
    tables = export(at, tmp_path)
    assert statements_with(tables, MARKUP).height
    assert (tables["statement_texts"]["text"].str.len_chars() == tables["statement_texts"]["length"]).all()
    assert tables["statement_texts"]["length"].max() > 10_000
    page = Path(at.here("report", "last").stdout.strip()).read_text()
    assert MARKUP not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("version", [14, 18])
def test_a_text_that_the_server_cannot_convert_is_reported_with_the_cure(
    servers: Servers, tmp_path: Path, version: int
) -> None:
    """In a database without an encoding any bytes are a statement. One such text hides all others."""
    bench = Bench(tmp_path / "home", tmp_path / "s")
    with counting_server(servers, version, 1000) as plain:
        plain.ask("create database bytes template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
        with psycopg.connect(plain.dsn, dbname="bytes", client_encoding="SQL_ASCII", autocommit=True) as raw:
            raw.pgconn.exec_(b'select 1 as "caf\xe9"')
        done = bench.here("run", "random-read", "--dsn", plain.dsn, "--sessions", "1", *QUICK, *LIGHT)
        assert done.returncode == 0, done.stderr
        assert "condition-statement-texts" in {c["id"] for c in bench.last()["findings"]}
        shown = bench.here("show", "last", "--statements").stdout
        assert "text unknown" in shown and "dbdyno doctor" in shown
        texts = {}
        for _ in range(2):
            checks = json.loads(bench.here("doctor", "--json", "--dsn", plain.dsn).stdout)["checks"]
            (texts,) = [c for c in checks if c["id"] == "statement-texts"]
            for command in texts["commands"]:
                plain.ask(command["command"])
        assert texts["state"] == "ok"
        assert "ERROR" in plain.log()  # each try is one: it is made once a run


def test_resets_are_lower_bounds(at: Bench) -> None:
    """The reset is of all statements, or of one. Counts since then are kept, and no figure is a difference
    across it."""
    with open_reader(at.dsn) as read, psycopg.connect(at.dsn, autocommit=True) as user:
        for _ in range(5):
            user.execute("select count(*) from known")
        first = read("t0")
        user.execute("select pg_stat_statements_reset()")
        for _ in range(7):
            user.execute("select count(*) from known")
        both = active(first, read("t1"))
    assert both.filter(phase="t1")["reset_s"].unique().len() == 1
    assert both.filter(phase="t0")["reset_s"][0] != both.filter(phase="t1")["reset_s"][0]
    assert both.filter(phase="t1", calls=7).height >= 1


@pytest.mark.parametrize("any_dsn", [14, 18], indirect=True, ids=lambda v: f"pg{v}")
def test_statements_of_others_are_hidden_from_a_role_without_the_right(at: Bench) -> None:
    at.ask("do $$ begin create role dim login; exception when duplicate_object then null; end $$")
    with (
        psycopg.connect(at.dsn, autocommit=True) as user,
        open_reader(psycopg.conninfo.make_conninfo(at.dsn, user="dim")) as read,
    ):
        first = read("t0")
        for _ in range(4):
            user.execute("select count(*) from known")
        hidden = active(first, read("t1")).filter(pl.col("query_id").is_null())
    assert hidden.filter(phase="t1")["user"].unique().to_list() != ["dim"]
    grown = [hidden.filter(phase=p)["calls"].sum() for p in ("t0", "t1")]
    assert grown[1] - grown[0] == 4


@contextmanager
def counting_server(servers: Servers, version: int, most: int) -> Iterator[PlainServer]:
    """Yields a server that keeps so many statements, and a role that sees only its own."""
    preload = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": str(most)}
    hba = ["local all all trust"]
    with plain_server(servers.bin_dir(version), preload, hba=hba) as plain:
        plain.ask("create extension pg_stat_statements")
        plain.ask("create role dim login")
        yield plain


@pytest.mark.parametrize("version", [14, 18])
def test_statements_that_the_server_drops_are_reported(
    servers: Servers, tmp_path: Path, version: int
) -> None:
    kinds = ("1", "'x'")
    lists = (", ".join(kinds[n >> bit & 1] for bit in range(8)) for n in range(150))
    script = tmp_path / "many.sql"
    script.write_text("".join(f"select {some};\n" for some in lists))
    bench = Bench(tmp_path / "home", tmp_path / "s")
    with counting_server(servers, version, 100) as plain:
        words = ("--sessions", "1", *QUICK)
        done = bench.here("run", "--script", str(script), "--dsn", plain.dsn, *words)
        assert done.returncode == 0, done.stderr
    rows = bench.last()["statements"]
    figures = [v for r in rows for n, v in r.items() if n != "query_id" and isinstance(v, int | float)]
    assert min(figures) >= 0
    assert all(r["evictions"] > 0 for r in rows)
    assert any(r["status"].startswith("lower bound") for r in rows)
    assert "lower bounds" in bench.here("show", "last", "--statements").stdout


@pytest.mark.parametrize("version", [14, 18])
def test_what_a_role_may_not_read_is_reported_and_leaves_no_error_in_the_log(
    servers: Servers, tmp_path: Path, version: int
) -> None:
    bench = Bench(tmp_path / "home", tmp_path / "s")
    with counting_server(servers, version, 1000) as plain:

        def observed() -> str:
            dsn = plain.dsn.replace("user=boss", "user=dim")
            done = bench.here("observe", "--dsn", dsn, "--for", "1s", "--window", "1s")
            assert done.returncode == 0, done.stderr
            assert "ERROR" not in plain.log(), plain.log()
            return bench.here("show", "last", "--statements").stdout

        load = (program(), "-n", "-c", "1", "-T", "300", "-f", "-", plain.dsn)
        with subprocess.Popen(load, stdin=subprocess.PIPE, stdout=-3, stderr=-3, text=True) as sessions:
            assert sessions.stdin is not None
            sessions.stdin.write("select count(*) from pg_class;\n\\sleep 5 ms\n")
            sessions.stdin.close()
            shown = " ".join(observed().split())
            assert "statements of boss, hidden from this role" in shown
            assert "GRANT pg_monitor TO dim" in shown
            plain.ask("revoke execute on function pg_stat_statements, pg_stat_statements_info from public")
            assert "No Top SQL" in observed()
            sources = {r["name"]: r["status"] for r in bench.last()["sources"]}
            assert sources["statement counters"] == "not permitted"
            sessions.terminate()
        plain.ask("alter system set shared_preload_libraries = 'plpgsql'")
        plain.stop("fast")
        plain.start()
        assert "No Top SQL" in observed()
        (claim,) = [f for f in bench.last()["findings"] if f["id"] == "not-measured"]
        assert "statement counters" in claim["claim"]
