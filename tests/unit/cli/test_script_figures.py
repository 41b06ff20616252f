"""Tables of scripts: sums, shares and quantiles against figures worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from click.testing import CliRunner
from tests.unit import report_results

from dbdyno.account.scripts import scripts, scripts_total
from dbdyno.cli.app import app
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.scripts import retried
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import Tables, known_quantile, known_quantiles_ns, rows
from dbdyno.present.document.document import Paragraph, Section, Table
from dbdyno.present.figures import selection
from dbdyno.present.report import document
from dbdyno.present.run.scripts import brief, by_command, by_script

HEAD = {"workload": "w", "variant": "base", "sessions": 2}
KINDS = {"S1": "serialization", "D1": "deadlock"}


def _cell(number: int, calls: int) -> RawCell:
    """Script 0 has calls of 2 us on two sessions, script 1 has calls of 8 us on one, deadlocks and another
    error."""
    zero = {"settle_calls": 0, "settle_errors": 0, "sum_sq_ns2": 0.0, "min_ns": 2_000}

    def row(session: int, script: int, n: int, each_ns: int, errors: int = 0) -> dict[str, Any]:
        return zero | {
            "session": session,
            "script": script,
            "name": f"{'ab'[script]}.sql",
            "weight": 1,
            "calls": n,
            "errors": errors,
            "retried": errors,
            "retries": 2 * errors,
            "in_call_ns": n * each_ns,
            "max_ns": each_ns,
        }

    bucket: list[dict[str, Any]] = [
        {"script": s, "low_ns": d, "high_ns": d, "count": n}
        for s, d, n in ((0, 2_000, 2 * calls), (1, 8_000, 5))
    ]
    command = {
        "script": 0,
        "executions": 2 * calls,
        "failures": 1,
        "retries": 2,
        "sum_sq_ns2": None,
        "min_ns": None,
    }
    commands = [
        command | {"command": 0, "line": 1, "text": "\\set a 1", "total_ns": None, "max_ns": None},
        command | {"command": 1, "line": 2, "text": "select :a", "total_ns": 3_000 * calls, "max_ns": 3_000},
        command | {"command": 2, "line": 3, "text": "select 1", "total_ns": 1_000 * calls, "max_ns": 1_000},
    ]
    errors: list[dict[str, Any]] = [
        {"script": 1, "sqlstate": code, "count": n, "message": "m"} for code, n in (("D1", 2), ("X", 1))
    ]
    tables = {
        "scripts": rows(
            "scripts", [row(0, 0, calls, 2_000), row(1, 0, calls, 2_000), row(1, 1, 5, 8_000, 3)]
        ),
        "script_histogram": rows("script_histogram", bucket),
        "script_commands": rows("script_commands", commands),
        "script_errors": rows("script_errors", errors),
    }
    cell = SimpleNamespace(id=f"c{number}", repeat=number, **HEAD)
    return cast(RawCell, SimpleNamespace(id=cell.id, tables=tables, meta=SimpleNamespace(cell=cell)))


def _rates(*figures: tuple[str, float]) -> pl.DataFrame:
    same = {
        "scope": "rung",
        "session": None,
        "name": "calls_per_s",
        "unit": "1/s",
        "status": "ok",
        "source": "d",
    }
    return rows(
        "rates", [HEAD | same | {"cell": c, "repeat": n, "value": v} for n, (c, v) in enumerate(figures, 1)]
    )


def _script_tables() -> Tables:
    cells, rates = [_cell(1, 10), _cell(2, 30)], _rates(("c1", 250.0), ("c2", 650.0))
    window = {"t0_ns": 0, "t1_ns": 1, "wall_s": 1.0, "status": "ok", "reason": None}
    windows = rows("windows", [HEAD | window | {"cell": c.id, "repeat": n} for n, c in enumerate(cells, 1)])
    return {**scripts(cells, rates, lambda: KINDS), "rates": rates, "windows": windows}


def test_shares_and_rates_of_a_cell_add_up() -> None:
    a, b = _script_tables()["script_rates"].filter(pl.col("cell") == "c1").to_dicts()
    assert (a["calls"], b["calls"], b["errors"], b["retries"]) == (20, 5, 3, 6)
    assert (a["calls_share"], b["calls_share"], a["calls_per_s"], b["calls_per_s"]) == (0.8, 0.2, 200.0, 50.0)
    assert (a["time_share"], b["time_share"], a["mean_ns"], b["p50_ns"]) == (0.5, 0.5, 2_000.0, 8_000)


def test_a_quantile_needs_ten_calls_above_it() -> None:
    """p95 is known from 200 calls on, p99 from 1,000; the median always."""
    known = []
    for calls in (8, 199, 200, 999, 1_000):
        buckets = pl.DataFrame({"low_ns": [1, 5], "high_ns": [2, 6], "count": [calls - 1, 1]})
        known.append([v is not None for v in known_quantiles_ns(buckets, (0.5, 0.95, 0.99))])
        grouped = buckets.select(known_quantile(0.99).alias("p99"), known_quantile(0.5).alias("p50")).row(0)
        assert [v is not None for v in grouped] == [known[-1][2], True]
    few, tail, all_known = [True, False, False], [True, True, False], [True, True, True]
    assert known == [few, few, tail, tail, all_known]
    (row, _) = _script_tables()["script_rates"].filter(pl.col("cell") == "c1").to_dicts()
    assert (row["p95_ns"], row["p99_ns"]) == (None, None)


def test_commands_without_a_time_have_none() -> None:
    set_, first, second = _script_tables()["command_rates"].filter(pl.col("cell") == "c1").to_dicts()
    assert set_["mean_ns"] is None and set_["time_share"] is None and set_["executions"] == 20
    assert (first["mean_ns"], first["time_share"], second["time_share"]) == (1_500.0, 0.75, 0.25)


def test_failures_are_counted_by_kind_and_code() -> None:
    failures = _script_tables()["script_failures"].filter(pl.col("cell") == "c1")
    assert failures.select("name", "kind", "code", "count").rows() == [
        ("b.sql", "deadlock", "D1", 2),
        ("b.sql", "other", "X", 1),
    ]


def test_cells_of_a_load_are_added_up_to_one_line() -> None:
    total = scripts_total(_script_tables())
    a, b = total["script_rates"].to_dicts()
    assert (a["cell"], a["calls"], b["calls"]) == ("all", 80, 10)
    assert a["calls_share"] == pytest.approx(8 / 9)
    assert a["calls_per_s"] + b["calls_per_s"] == pytest.approx(450.0)
    assert total["command_rates"]["total_ns"].to_list() == [None, 120_000, 40_000]


def test_calls_of_no_script_have_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["run", "--engine", "fake", "step", "-c", "1", "-T", "1", "--json"])
    if done.exit_code == 0:
        assert json.loads(done.stdout)["script_rates"] == []


@pytest.mark.parametrize(("retried_calls", "claims"), [(2, 1), (0, 0)])
def test_calls_tried_again_are_a_claim_from_one_percent_on(retried_calls: int, claims: int) -> None:
    tables = {**_script_tables(), "x": pl.DataFrame()}
    more = pl.lit(retried_calls, pl.Int64).alias("retried")
    total = scripts_total(tables)
    rates = total["script_rates"].filter(pl.col("script") == 0).with_columns(more, retries=3)
    case = cast(
        Case, SimpleNamespace(tables={**total, "script_rates": rates}, plan=SimpleNamespace(variants=()))
    )
    retries = list(retried(case))
    assert len(retries) == claims
    if retries:  # 2 of 80 calls, 3 tries more; each of the script's commands made 4 begin again
        said = retries[0].slots
        assert (said["share"], said["tries"], said["place"]) == (0.025, 1.5, "at 2 sessions")
        assert (said["script"], said["line"], said["command"]) == ("a.sql", 1, "\\set a 1")


def test_scripts_and_their_statements_are_sections_of_terminal_and_page() -> None:
    results = report_results.results()
    pick = selection.pick_of(results, None)
    assert pick is not None
    keys = dict(zip(("workload", "variant", "sessions"), pick.rung, strict=True)) | {"cell": pick.cell}
    values = {k: pl.lit(v) for k, v in keys.items()}
    script_tables = {
        name: frame.with_columns(**values) for name, frame in scripts_total(_script_tables()).items()
    }
    with_scripts = replace(results, tables={**results.tables, **script_tables})
    blocks = [*by_script(with_scripts, pick), *by_command(with_scripts, pick)]
    titles = [b.title for b in blocks if isinstance(b, Table)]
    assert titles == [f"By script {pick.at}", f"By statement of a.sql {pick.at}"]
    notes = " ".join(b.text for b in blocks if isinstance(b, Paragraph))
    assert "b.sql: 4 calls failed, warm-up included (deadlock, D1: m)" in notes
    assert "is part of the next one" in notes
    titles_of_page = [s.title for s in document(with_scripts).blocks if isinstance(s, Section)]
    assert [t for t in titles_of_page if t.startswith("By ")] == ["By script", "By statement of the script"]
    without = [s.title for s in document(results).blocks if isinstance(s, Section)]
    assert [t for t in titles_of_page if t not in without] == ["By script", "By statement of the script"]
    assert brief(with_scripts) and not brief(results)
