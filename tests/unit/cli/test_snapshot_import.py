"""Exports of pg_profile become snapshots: increments of samples add up to counters."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.cli.app import app
from dbdyno.engines import imported
from dbdyno.model.errors import UsageError
from dbdyno.store import SnapshotStore

SERVER: dict[str, Any] = {"server_id": 1}
NAMED = {**SERVER, "datid": 5, "schemaname": "public"}


def rows() -> dict[str, list[dict[str, Any]]]:
    """Returns three samples ten minutes apart of a table, its index and a statement with a password."""
    tables: dict[str, list[dict[str, Any]]] = {
        "servers": [{**SERVER, "server_name": "local", "connstr": "dbname=shop password=hidden"}],
        "samples": [
            {**SERVER, "sample_id": n, "sample_time": f"2026-11-23T12:{10 * n}:00+00:00"} for n in (1, 2, 3)
        ],
        "sample_settings": [
            {**SERVER, "name": "system_identifier", "reset_val": "7123"},
            {**SERVER, "name": "server_version", "reset_val": "16.4 (Debian)"},
            {**SERVER, "name": "server_version_num", "reset_val": "160004"},
        ],
        "roles_list": [{**SERVER, "userid": 10, "username": "app"}],
        "tables_list": [
            {**NAMED, "relid": 9, "relkind": "r", "relname": 'or"d,ers\n'},
            {**NAMED, "relid": 8, "relkind": "t", "relname": "pg_toast_9"},
        ],
        "indexes_list": [{**NAMED, "indexrelid": 11, "relid": 9,
                          "indexrelname": "orders_pkey"}],
        "stmt_list": [{**SERVER, "queryid_md5": "m", "query": "ALTER ROLE a PASSWORD 'geheim'"}],
        "sample_stat_database": [], "sample_stat_tables": [], "sample_stat_indexes": [],
        "sample_statements": [],
    }  # fmt: skip
    for n in (1, 2, 3):
        at = {**SERVER, "sample_id": n, "datid": 5}
        tables["sample_stat_database"].append(
            {**at, "datname": "shop", "xact_commit": 600, "blk_read_time": 1.5}
        )
        tables["sample_stat_tables"].append({**at, "relid": 8, "n_tup_ins": 5})
        tables["sample_stat_indexes"].append({**at, "indexrelid": 11, "idx_scan": 7, "relsize": 8192 * n})
        if n != 2:  # it was not among the largest
            tables["sample_stat_tables"].append({**at, "relid": 9, "n_tup_ins": 300, "relsize": 8192})
            called = {"queryid": 77, "queryid_md5": "m", "toplevel": None}
            tables["sample_statements"].append(
                {**at, **called, "userid": 10, "calls": 4, "total_exec_time": 2.0}
            )
    return tables


def export(text: bool = False, tables: Mapping[str, Sequence[Any]] | None = None) -> str:
    tables = rows() if tables is None else tables
    lines: list[tuple[int, Any]] = [(0, {"extension": "pg_profile", "version": "4.4", "tab_list_section": 1})]
    lines.append((1, [{"section_id": n, "relname": name} for n, name in enumerate(tables, 2)]))
    lines += [(n, row) for n, table_rows in enumerate(tables.values(), 2) for row in table_rows]
    if text:
        return "".join(f"{n}\t{json.dumps(data).replace(chr(92), chr(92) * 2)}\n" for n, data in lines)
    out = io.StringIO()
    csv.writer(out).writerows((n, json.dumps(data)) for n, data in lines)
    return out.getvalue()


@pytest.mark.parametrize("text", [False, True])
def test_growth_between_two_samples_is_the_sum_of_their_increments(text: bool) -> None:
    first, second, third = imported("", "pg_profile", export(text))
    assert (first.info.server, first.info.version, first.info.version_num) == ("7123", "16.4", 160004)
    growth = figures(interval(first, third))
    assert growth.interval.seconds == 1200
    database = growth.databases.to_dicts()[0]
    assert (database["database"], database["commits"], database["block_read_ns"]) == ("shop", 1200, 3_000_000)
    (table,) = growth.relations.to_dicts()
    assert (table["name"], table["rows_inserted"]) == ('public.or"d,ers\n', 300)
    (statement,) = growth.statements.to_dicts()
    assert (statement["user"], statement["calls"], statement["exec_ns"]) == ("app", 4, 2_000_000)
    index = growth.interval.tables["indexes"].to_dicts()[0]
    assert (index["scans"], index["size_bytes"], index["size_bytes_growth"]) == (14, 24576, 16384)
    assert figures(interval(first, second)).statements.is_empty()
    assert "io" in third.info.missing


@pytest.mark.parametrize("end", ["", "\n", " ;"])
def test_statements_of_dbdyno_itself_are_left_out(end: str) -> None:
    tables = rows()
    tables["stmt_list"].append({**SERVER, "queryid_md5": "d", "query": f"select 1\n/* dbdyno */{end}"})
    theirs = tables["sample_statements"][-1]
    tables["sample_statements"].append(
        {**theirs, "queryid": 78, "queryid_md5": "d", "total_exec_time": 900.0}
    )
    last = imported("", "pg_profile", export(tables=tables))[-1]
    assert last.tables["statements"]["query_id"].to_list() == [77]
    assert last.texts["query_id"].to_list() == [77]


def test_passwords_of_an_export_are_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text(export())
    words = ["import", "pg_profile", str(file), "--store", str(tmp_path)]
    first = CliRunner().invoke(app, words, catch_exceptions=False)
    assert len(first.stdout.splitlines()) == 3
    store = SnapshotStore(tmp_path)
    texts = str([(i, store.read(i).texts.to_dicts()) for i in store.list()])
    assert "geheim" not in texts
    assert "hidden" not in texts
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert len(store.list()) == 3


def test_a_text_that_is_no_export_is_refused() -> None:
    for content in ("", "a,b\n", "0,{}\n", '0\t{"extension": "other"}\n1\t[]\n', "\x00"):
        with pytest.raises(UsageError, match="no export of pg_profile"):
            imported("", "pg_profile", content)
    for kind in ("pgstatspack", "statspack"):
        with pytest.raises(UsageError):
            imported("", kind, "")


@pytest.mark.parametrize(
    "other", [None, "x", [], {}, 10**30, 10**400, -1, 1.5, True, float("nan")], ids=lambda v: str(v)[:9]
)
def test_a_forged_export_is_read_or_refused(other: Any) -> None:
    """Each value of the first row of each table is replaced in turn, and the whole row."""
    for table, table_rows in rows().items():
        for key in (*table_rows[0], None):
            changed = [other if key is None else {**table_rows[0], key: other}, *table_rows[1:]]
            try:
                snapshots = imported("", "pg_profile", export(tables={**rows(), table: changed}))
            except UsageError as e:
                assert "export" in e.message and e.cure
            else:
                assert all(s.info.engine == "postgres" for s in snapshots)


def test_an_export_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(UsageError, match="no export of pg_profile"):
        imported("", "pg_profile", f"0\t{'[' * 100_000}\n")
