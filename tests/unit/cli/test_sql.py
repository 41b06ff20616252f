"""``dbdyno sql`` over real stores: the rows that it reads and leaves out, and that it reaches nothing
else."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner
from tests.fakery import Climb, climb, recorded
from tests.on_terminal import on_terminal

from dbdyno.cli.app import app
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.errors import DbdynoError, NoSuchRun, UsageError
from dbdyno.model.schema.snapshot_tables import TABLES
from dbdyno.model.schema.tables import DERIVED, RAW, REGISTERED
from dbdyno.store import RunStore
from dbdyno.store.listing import list_runs
from dbdyno.store.sql import Answer, query
from dbdyno.store.view_files import views
from dbdyno.store.views import fill


@pytest.fixture(scope="module")
def climbed() -> Climb:
    return climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory, climbed: Climb) -> Path:
    """A store of two complete runs."""
    store = RunStore(tmp_path_factory.mktemp("whole"))
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    for _ in range(2):
        run = recorded(store, climbed)
        run.write_derived(results.tables, results.findings)
        run.finish("complete")
    return store.root


@pytest.fixture
def store(two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the two runs, which the command uses."""
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(two_runs, tmp_path / "store"))


def ask(sql: str, root: Path) -> list[tuple[Any, ...]]:
    answer = query(sql, list_runs(root))
    assert list(answer.warnings) == []
    return list(answer.rows)


def rows_and_warnings(sql: str, root: Path) -> tuple[list[tuple[Any, ...]], list[str]]:
    answer = query(sql, list_runs(root))
    return list(answer.rows), list(answer.warnings)


class Done(NamedTuple):
    exit_code: int
    output: str
    errors: str


def dbdyno(*words: str, stdin: str | None = None) -> Done:
    """Runs the command and returns its exit code and texts; raises any error that is not dbdyno's."""
    try:
        done = CliRunner().invoke(
            app, ["sql", *words], input=stdin, catch_exceptions=False, standalone_mode=False
        )
        return Done(done.exit_code, done.stdout, done.stderr)
    except DbdynoError as error:
        return Done(error.exit_code, "", str(error))


def edit(run: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Changes a file and its checksum, as an older or another program might have written it."""
    path = run / name
    path.write_bytes(change(path.read_bytes()))
    manifest = path.with_name("manifest.json")
    digests = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(digests | {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}))


def change_frame(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        out = io.BytesIO()
        change(pl.read_parquet(io.BytesIO(content))).write_parquet(out)
        return out.getvalue()

    return changed


# -- what it reads ----------------------------------------------------------------------------------


@pytest.mark.whole
def test_every_table_of_every_run_is_a_view_that_begins_with_the_run(store: Path, climbed: Climb) -> None:
    ids = [run.id for run in list_runs(store)]
    for name, view in views().items():
        answer = query(f"from {name}", list_runs(store))
        assert list(answer.names) == [c.name for c in view.columns]
        assert len(set(answer.names)) == len(answer.names)
        first = ["snapshot_id", "taken"] if name.startswith("snapshot") else ["run_id", "started", "title"]
        assert answer.names[: len(first)] == first
        assert list(answer.warnings) == []
        assert {row[0] for row in answer.rows} <= set(ids)
    rungs = ask("select run_id, sessions from rungs order by run_id, sessions", store)
    assert rungs == [(run, n) for run in sorted(ids) for n in (1, 2)]
    counted = ask(
        "select cell, sum(calls) from sessions where run_id = (select max(run_id) from runs) group by cell",
        store,
    )
    assert sorted(counted) == [(c.id, c.tables["sessions"]["calls"].sum()) for c in climbed.cells]


def test_a_table_has_the_rows_and_the_figures_that_were_stored(store: Path) -> None:
    run = RunStore(store).open("last")
    tables, findings = run.read_derived() or ({}, ())
    (cell, *_) = run.cells()
    raw = run.read_cell(cell).tables
    counts = [f"select '{t}', count(*) from {t} where run_id = '{run.id}'" for t in DERIVED]
    views_of_raw = {f"raw_{t}" if t in DERIVED else t: t for t in RAW}
    assert {"raw_growth", "raw_memory", "samples"} <= views_of_raw.keys()
    counts += [
        f"select '{t}', count(*) from {view} where run_id = '{run.id}' and cell = '{cell}'"
        for view, t in views_of_raw.items()
    ]
    heights = [(t, tables[t].height) for t in DERIVED] + [(t, raw[t].height) for t in RAW]
    assert sorted(ask(" union all ".join(counts), store)) == sorted(heights)
    aas = ask(f"select sum(aas) from ledger where run_id = '{run.id}' and account = 'sleep'", store)
    assert aas[0][0] == pytest.approx(tables["ledger"].filter(pl.col("account") == "sleep")["aas"].sum())
    claims = ask(f"select id, value, cells from claims where run_id = '{run.id}'", store)
    assert claims == [(f.id, f.value and f.value.value, list(f.cells)) for f in findings]


def test_all_views_have_the_same_run_start_and_title(store: Path) -> None:
    answers = {
        tuple(ask(f"select distinct run_id, started, title from {t} order by run_id", store))
        for t in ("runs", "claims", "rungs", "sessions")
    }
    (rows,) = answers
    assert [(row[0][:15], row[2]) for row in rows] == [(f"{row[1]:%Y%m%d-%H%M%S}", "lio") for row in rows]
    assert isinstance(rows[0][1], datetime)


def test_the_view_of_runs_says_what_was_measured(store: Path, climbed: Climb) -> None:
    rows = ask("select distinct status, workload, engine, server, cpus, digest from runs", store)
    server, limits = climbed.environment.server, climbed.environment.host.limits
    assert rows == [("complete", "lio", "fake", server.version, limits.usable_cpus, climbed.plan.digest)]


def test_views_join_on_the_run(store: Path) -> None:
    joined = ask(
        "select count(*) from rungs r join windows w using (run_id, workload, variant, sessions)"
        " join runs using (run_id)",
        store,
    )
    assert joined == [(4,)]


def test_a_query_reads_only_the_tables_that_it_names(store: Path) -> None:
    for path in store.rglob("*.parquet"):
        if path.name != "rungs.parquet":
            path.write_bytes(b"not read")
    with_columns_of_that_name = "select sessions, errors from rungs where run_id in (select run_id from runs)"
    assert len(ask(with_columns_of_that_name, store)) == 4
    assert len(ask("select * from query('from rungs')", store)) == 4


def test_a_condition_on_the_run_opens_the_files_of_that_run_only(store: Path) -> None:
    import duckdb

    connection = duckdb.connect()
    fill(connection, list_runs(store), {"sessions"}, (), ExitStack(), views())
    last = list_runs(store)[-1].id
    plan = connection.execute(f"explain analyze from sessions where run_id = '{last}'").fetchall()[0][1]
    assert "Total Files Read: 2" in plan


def test_a_store_of_an_odd_name_can_be_queried(two_runs: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(two_runs, tmp_path / "it's [a] *?"))
    assert len(ask("from rungs", odd)) == 4
    assert len(ask("select distinct run_id, cell from samples", odd)) == 4


def test_a_link_to_a_run_has_the_name_of_the_link(store: Path, tmp_path: Path) -> None:
    run = list_runs(store)[-1]
    run.path.rename(tmp_path / "elsewhere")
    run.path.symlink_to(tmp_path / "elsewhere")
    assert ask(f"select count(*) from rungs where run_id = '{run.id}'", store) == [(2,)]


# -- older and damaged runs -------------------------------------------------------------------------


def test_columns_that_an_older_run_lacks_are_null(store: Path) -> None:
    old, new = list_runs(store)
    edit(old.path, "derived/rungs.parquet", change_frame(lambda t: t.drop("top_wait", "calls")))
    rows, warnings = rows_and_warnings(
        "select run_id, calls, sessions from rungs order by run_id, sessions", store
    )
    assert {(row[0], row[1] is None) for row in rows} == {(old.id, True), (new.id, False)}
    assert (
        [w for w in warnings if "calls, top_wait" in w and old.id in w and "rebuild" in w] == warnings != []
    )


def test_a_table_that_an_older_run_lacks_is_left_out_with_a_warning(store: Path) -> None:
    old, new = list_runs(store)
    manifest = old.path / "derived" / "manifest.json"
    digests = json.loads(manifest.read_text())
    del digests["strips.parquet"]
    manifest.write_text(json.dumps(digests))
    rows, warnings = rows_and_warnings("select distinct run_id from strips", store)
    assert rows == [(new.id,)]
    assert len(warnings) == 1 and "strips" in warnings[0] and old.id in warnings[0]


def test_older_types_of_a_column_are_converted(store: Path) -> None:
    old, _ = list_runs(store)
    edit(
        old.path,
        "derived/rungs.parquet",
        change_frame(
            lambda t: t.with_columns(pl.col("calls").cast(pl.Int32), pl.col("calls_per_s").cast(pl.Float32))
        ),
    )
    assert len(ask("select calls, calls_per_s from rungs", store)) == 4


def test_a_run_that_has_only_raw_tables_yet_is_no_cause_for_a_warning(store: Path) -> None:
    last = list_runs(store)[-1]
    shutil.rmtree(last.path / "derived")
    assert len(ask("from rungs", store)) == 2
    assert len(ask("from claims where false", store)) == 0
    assert ask(f"select count(*) from sessions where run_id = '{last.id}'", store) == [(3,)]


@pytest.mark.parametrize("file", ["derived/rungs.parquet", "derived/manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone", "fifo", "link"])
def test_a_damaged_table_is_left_out_with_a_warning(store: Path, file: str, damage: str) -> None:
    bad, good = list_runs(store)
    harm(bad.path / file, damage)
    rows, warnings = rows_and_warnings("select distinct run_id from rungs", store)
    assert rows == [(good.id,)]
    assert len(warnings) == 1 and bad.id in warnings[0] and "damaged" in warnings[0]


@pytest.mark.parametrize("file", ["sessions.parquet", "cell.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone"])
def test_a_damaged_cell_is_left_out_with_a_warning(
    store: Path, climbed: Climb, file: str, damage: str
) -> None:
    bad, good = list_runs(store)
    harm(bad.path / "cells" / climbed.cells[0].id / file, damage)
    rows, warnings = rows_and_warnings("select distinct run_id, cell from sessions", store)
    assert set(rows) == {
        (good.id, climbed.cells[0].id),
        (good.id, climbed.cells[1].id),
        (bad.id, climbed.cells[1].id),
    }
    assert len(warnings) == 1 and bad.id in warnings[0]


def harm(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        path.write_bytes(content)
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage == "link":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "forge",
    [
        lambda _: b"PAR1 but no more PAR1",
        change_frame(lambda t: t.with_columns(pl.lit("many").alias("calls"))),
        change_frame(lambda t: t.with_columns(pl.lit("/etc/passwd").alias("filename"))),
        change_frame(lambda t: t.with_columns(pl.struct("calls", "errors").alias("calls"))),
    ],
)
def test_a_forged_table_is_left_out_with_a_warning(store: Path, forge: Callable[[bytes], bytes]) -> None:
    bad, good = list_runs(store)
    edit(bad.path, "derived/rungs.parquet", forge)
    rows, warnings = rows_and_warnings("select distinct run_id from rungs where calls >= 0", store)
    assert rows == [(good.id,)]
    assert len(warnings) == 1 and bad.id in warnings[0] and "left out" in warnings[0]


def test_columns_that_nobody_declared_are_not_shown(store: Path) -> None:
    edit(
        list_runs(store)[0].path,
        "derived/rungs.parquet",
        change_frame(lambda t: t.with_columns(pl.lit(1).alias("more"))),
    )
    assert "more" not in query("from rungs", list_runs(store)).names


def test_numbers_that_are_no_figures_are_unknown(store: Path) -> None:
    run = list_runs(store)[0]
    values = pl.Series([float("nan"), 1e300])
    edit(
        run.path, "derived/rungs.parquet", change_frame(lambda t: t.with_columns(values.alias("calls_per_s")))
    )
    assert ask(f"select distinct calls_per_s from rungs where run_id = '{run.id}'", store) == [(None,)]


@pytest.mark.parametrize(
    "content",
    [
        '{"a": 1}',
        "[1, 2, null]",
        "[" * 100_000,
        '[{"id": 5, "value": "x", "cells": 3}]',
        '[{"value": 1e400}]',
        "",
    ],
)
def test_forged_claims_are_unknown_or_left_out(store: Path, content: str) -> None:
    bad, good = list_runs(store)
    edit(bad.path, "derived/findings.json", lambda _: content.encode())
    rows, _ = rows_and_warnings(
        "select run_id, id, value, cells from claims where id = 'peak' or id is null", store
    )
    assert {row[1:] for row in rows if row[0] == bad.id} <= {(None, None, None)}
    assert any(row[0] == good.id for row in rows)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"experiment": 3}', '{"experiment": {"workload": 5}, "digest": []}', "nonsense"]
)
def test_forged_plans_are_unknown(store: Path, content: str) -> None:
    bad, _ = list_runs(store)
    (bad.path / "plan.json").write_text(content)
    rows, _ = rows_and_warnings(f"select workload, digest from runs where run_id = '{bad.id}'", store)
    assert rows == [(None, None)]


def test_a_broken_run_is_left_out_with_a_warning(store: Path) -> None:
    bad, good = list_runs(store)
    (bad.path / "run.json").write_text('{"schema_version": 1, "id": 3')
    done = dbdyno("--csv", "select run_id from runs")
    assert done.output == f"run_id\n{good.id}\n"
    assert bad.id in done.errors


# -- what it does not -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "copy runs to 'out.csv'", "create table x (a int)", "attach 'x.db'", "install httpfs", "load httpfs",
        "set threads = 1", "pragma version", "call pragma_version()", "drop view rungs", "delete from runs",
        "export database 'out'", "explain analyze copy runs to 'out.csv'", "checkpoint", "begin", "vacuum",
        "insert into runs values ('a')", "pivot rungs on sessions using sum(calls)",
        "copy (pivot rungs on sessions using sum(calls)) to 'out.csv'", "select 1; drop view rungs", "", ";",
    ],
)  # fmt: skip
def test_statements_other_than_one_query_are_refused(store: Path, sql: str) -> None:
    before = sorted(store.parent.rglob("*"))
    with pytest.raises(UsageError):
        query(sql, list_runs(store))
    assert sorted(store.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "source",
    [
        "read_text('{secret}')", "read_blob('{secret}')", "read_csv('{secret}')", "'{secret}'", "glob('/*')",
        "read_parquet('{table}')", "parquet_schema('{table}')", "parquet_metadata('{table}')",
        "read_json('/proc/self/environ')", "sniff_csv('{secret}')", "read_text('https://127.0.0.1/')",
        "'http://127.0.0.1/x.parquet'", "duckdb_secrets()", "query('from read_text(''{secret}'')')",
    ],
)  # fmt: skip
def test_no_other_file_and_no_network_is_reached(store: Path, tmp_path: Path, source: str) -> None:
    secret, table = tmp_path / "secret.csv", tmp_path / "other.parquet"
    secret.write_text("precious")
    shutil.copy(next(store.rglob("rungs.parquet")), table)
    with pytest.raises(UsageError):
        list(query(f"select * from {source.format(secret=secret, table=table)}", list_runs(store)).rows)


def test_settings_and_variables_of_the_program_are_out_of_reach(store: Path) -> None:
    secret = pl.DataFrame({"precious": [1]})
    for sql in ("from secret", "from enable_logging(storage = 'file', storage_path = 'log')"):
        with pytest.raises(UsageError):
            query(sql, list_runs(store))
    assert secret.height == 1


def test_the_files_of_the_store_cannot_be_written(store: Path) -> None:
    """Writing fails even past the check of statements."""
    import duckdb

    connection = duckdb.connect()
    fill(connection, list_runs(store), {"rungs"}, (), ExitStack(), views())
    path = next(store.rglob("rungs.parquet"))
    for sql in ("set enable_external_access = true", f"copy runs to '{path}x'", f"attach '{path}x'"):
        with pytest.raises(duckdb.Error):
            connection.execute(sql)


# -- errors -----------------------------------------------------------------------------------------


def message(sql: str, root: Path) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        list(query(sql, list_runs(root)).rows)
    return caught.value.message, caught.value.cure or ""


def test_an_unknown_table_names_the_nearest(store: Path) -> None:
    text, cure = message("select * from rnugs", store)
    assert "'rnugs'" in text and "'rungs'" in cure and "--tables" in cure


def test_an_unknown_column_names_the_nearest(store: Path) -> None:
    text, cure = message("select calls_per_sec from rungs", store)
    assert "calls_per_s" in text and "--tables rungs" in cure


def test_a_syntax_error_has_its_position(store: Path) -> None:
    text, _ = message("select 1\nfrom rungs\n  wehre x = 1 +", store)
    assert "line 3, column" in text
    text, _ = message("select '" + "x" * 500 + "' frm frm rungs", store)
    assert "(line 1, column 5" in text and len(text) < 1_000


def test_an_error_in_a_row_is_refused_with_its_value(store: Path) -> None:
    text, _ = message("select ('x' || sessions)::int from rungs", store)
    assert "x1" in text or "x2" in text


def test_an_empty_store_is_refused_with_the_command_that_fills_it(tmp_path: Path) -> None:
    done = dbdyno("from runs", "--store", str(tmp_path / "none"))
    assert done.exit_code == NoSuchRun.exit_code and "dbdyno run" in done.errors


# -- the command ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("store")
def test_the_query_may_be_in_a_file_or_on_standard_input(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- how many\nselect count(*) as n from runs\n")
    for words, stdin in ((("q.sql",), None), (("-",), "select count(*) as n from runs")):
        assert dbdyno("--csv", *words, stdin=stdin).output == "n\n2\n"
    for words in (("nofile.sql",), (), ("select", "1"), ("--csv", "--json", "from runs")):
        assert dbdyno(*words).exit_code == UsageError.exit_code


def test_only_runs_that_are_named_are_read(store: Path) -> None:
    first, last = (run.id for run in list_runs(store))
    assert dbdyno("--csv", "--run", "last", "select distinct run_id from rungs").output == f"run_id\n{last}\n"
    both = dbdyno(
        "--csv", "--run", "last", "--run", first, "--run", last, "select run_id from runs order by run_id"
    )
    assert both.output == f"run_id\n{first}\n{last}\n"
    assert dbdyno("--run", "nope", "from runs").exit_code == NoSuchRun.exit_code


_VALUES = """select 'a,"b' as text, null as unknown, 'nan'::double as nan, 1.5::decimal(5, 2) as money,
 [1, null] as list, {'k': timestamp '2026-01-02 03:04:05'} as struct, true as yes,
 170141183460469231731687303715884105727 as huge, '=1+1' as formula, 1 as dup, 2 as dup,
 interval 90 seconds as gap, 'x'::blob as bytes, date '2026-01-02' as day"""


@pytest.mark.usefixtures("store")
def test_json_has_an_object_for_each_row() -> None:
    (row,) = json.loads(dbdyno("--json", _VALUES).output)
    assert row == {
        "text": 'a,"b', "unknown": None, "nan": None, "money": 1.5, "list": [1, None],
        "struct": {"k": "2026-01-02 03:04:05"}, "yes": True, "huge": 2**127 - 1, "formula": "=1+1",
        "dup": 1, "dup_1": 2, "gap": 90.0, "bytes": "b'x'", "day": "2026-01-02",
    }  # fmt: skip
    assert json.loads(dbdyno("--json", "from runs where false").output) == []


@pytest.mark.usefixtures("store")
def test_csv_reads_back_as_the_values_of_the_query() -> None:
    heads, row = csv.reader(io.StringIO(dbdyno("--csv", _VALUES).output))
    values = dict(zip(heads, row, strict=True))
    assert (values["text"], values["unknown"], values["nan"], values["money"]) == ('a,"b', "", "", "1.5")
    assert (values["yes"], values["formula"], values["dup_1"]) == ("true", "'=1+1", "2")
    rows = list(csv.reader(io.StringIO(dbdyno("--csv", "select i from range(5000) t(i)").output)))
    assert rows == [["i"], *([str(i)] for i in range(5000))]


@pytest.mark.usefixtures("store")
def test_a_table_is_aligned_and_says_where_it_ends() -> None:
    heads, *rows = dbdyno(
        "select 'a' as name, 1234567.8 as n union all select null, 2 order by 2"
    ).output.splitlines()
    assert (heads, rows) == ("name        n", ["NULL        2", "a     1234568"])
    lines = dbdyno("select i from range(1001) t(i)").output.splitlines()
    assert len(lines) == 1_002 and "1,000" in lines[-1]
    assert dbdyno("from runs where false").output.splitlines()[-1] == "no rows"


@pytest.mark.usefixtures("store")
def test_control_characters_do_not_break_lines() -> None:
    assert len(dbdyno("select 'a' || chr(10) || chr(27) || '[2J' as x").output.splitlines()) == 2


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_that_is_too_narrow_shows_records(store: Path, columns: int) -> None:
    code, screen = on_terminal(
        "sql",
        "from rungs order by run_id, sessions",
        columns=columns,
        rows=24,
        env={"DBDYNO_STORE": str(store)},
    )
    lines = screen.replace("\r", "").splitlines()
    assert code == 0 and max(map(len, lines)) <= columns
    names = [c.name for c in views()["rungs"].columns]
    assert [line.split()[0] for line in lines if not line.startswith((" ", "--"))] == names * 4
    code, screen = on_terminal(
        "sql", "select 1 as a, 2 as b", columns=columns, env={"DBDYNO_STORE": str(store)}
    )
    assert (code, screen.replace("\r", "").splitlines()) == (0, ["a  b", "1  2"])


_SNAPSHOTS = {"snapshots", *(f"snapshot_{t}" for t in TABLES)}


def test_tables_are_listed_with_types_and_units() -> None:
    listed = json.loads(dbdyno("--tables", "--json").output)
    raw = {f"raw_{t}" if t in DERIVED else t for t in RAW}
    older = {name for t in DERIVED for name in REGISTERED[t].older}
    assert list(listed) == list(views())
    assert {*DERIVED, *raw, *older, "runs", "claims", *_SNAPSHOTS} == set(listed)
    units = {(t, c["name"]): (c["type"], c["unit"]) for t, columns in listed.items() for c in columns}
    assert units["rungs", "calls_per_s_high"] == ("DOUBLE", "1/s")
    assert units["rungs", "response_p95_ns"] == ("DOUBLE", "ns")
    assert (
        units["ledger", "aas"] == units["ledger", "high"] == units["events", "runq_low"] == ("DOUBLE", "s/s")
    )
    assert units["top_events", "seconds"] == units["windows", "wall_s"] == ("DOUBLE", "s")
    assert units["rates", "value"] == ("DOUBLE", "unit")
    assert units["runs", "started"] == ("TIMESTAMP", "")
    text = dbdyno("--tables", "rungs").output
    assert "response_p95_ns" in text and "sampler" not in text
    assert "'rungs'" in dbdyno("--tables", "rnugs").errors


def test_rows_of_an_answer_are_computed_as_they_are_read(store: Path) -> None:
    answer: Answer = query("select a.i from range(100000000) a(i), range(100000) b", list_runs(store))
    assert next(answer.rows) == (0,)


def test_a_missing_extra_is_named_before_missing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise UsageError("needs the extra sql")

    monkeypatch.setattr("dbdyno.store.sql.check_extra", missing)
    result = CliRunner().invoke(app, ["sql", "from runs", "--store", str(tmp_path / "none")])
    assert "needs the extra sql" in str(result.exception)
