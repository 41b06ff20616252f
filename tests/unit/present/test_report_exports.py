"""Exports, read back."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.unit import report_results

from dbdyno import present
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.schema.tables import REGISTERED

RAW = {
    "samples": pl.DataFrame(
        {"cell": ["c1", "c1"], "wait_event": ["=HYPERLINK(1)", None], "task_ns": [None, 2**60]}
    )
}


def test_csv_keeps_numbers_and_leaves_unknown_cells_empty(tmp_path: Path) -> None:
    results = report_results.results(report_results.REMOTE)
    written = present.export(results, RAW, "csv", tmp_path / "out")
    assert {p.name for p in written} >= {"rungs.csv", "samples.csv", "findings.csv", "run.json"}
    back = pl.read_csv(tmp_path / "out" / "rungs.csv", schema=results.tables["rungs"].schema)
    assert_frame_equal(back, results.tables["rungs"])
    with (tmp_path / "out" / "rungs.csv").open(newline="") as file:
        assert {r["run_aas"] for r in csv.DictReader(file)} == {""}


def test_csv_disarms_formulas_in_texts(tmp_path: Path) -> None:
    present.export(report_results.hostile(), RAW, "csv", tmp_path)
    with (tmp_path / "samples.csv").open(newline="") as file:
        assert [r["wait_event"] for r in csv.DictReader(file)] == ["'=HYPERLINK(1)", ""]
    with (tmp_path / "findings.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["cure"] == "'@SUM(A1)"


def test_parquet_is_read_back_as_it_was(tmp_path: Path) -> None:
    results = report_results.results(report_results.REMOTE)
    present.export(results, RAW, "parquet", tmp_path)
    for name, table in {**results.tables, **RAW}.items():
        assert_frame_equal(pl.read_parquet(tmp_path / f"{name}.parquet"), table)


def test_json_holds_every_table_with_null_for_unknown(tmp_path: Path) -> None:
    results = report_results.results(report_results.REMOTE)
    (path,) = present.export(results, RAW, "json", tmp_path / "r.json")
    exported = json.loads(path.read_text())
    assert exported["tables"]["rungs"] == results.tables["rungs"].to_dicts()
    assert exported["tables"]["rungs"][0]["run_aas"] is None
    assert exported["tables"]["samples"][1]["task_ns"] == 2**60


def test_without_raw_tables_json_is_the_document_and_folders_hold_derived_tables(tmp_path: Path) -> None:
    results = report_results.results()
    (path,) = present.export(results, None, "json", tmp_path / "r.json")
    assert json.loads(path.read_text()) == present.document(results)
    written = {p.stem for p in present.export(results, None, "csv", tmp_path / "out")}
    assert {"rungs", "findings", "run"} <= written and "samples" not in written
    (path,) = present.export(results, None, "md", tmp_path / "r.md")
    assert path.read_text().startswith("# ") and "| sess" in path.read_text().replace("| sessions", "| sess")


def test_the_document_has_stable_keys_and_survives_json() -> None:
    document = present.document(report_results.results())
    assert set(document) == {
        "format", "run", "title", "doubts", "answer", "summary", "plan", "environment", "rungs", "windows",
        "hosts",
        "data_sources", "sources", "placements",
        "statements", "statement_texts", "statement_ledger", "wait_durations",
        "response_modes", "mode_activities",
        "wait_chains", "script_rates", "command_rates", "script_failures", "script_ledger", "plan_shapes",
        "execution_rates", "execution_failures", "execution_times", "parallelism",
        "growth", "resets", "large_scans", "other_processes", "triggers_fired", "captured",
        "memory", "memory_relations", "memory_processes", "memory_parts",
        "memory_roles", "memory_figures", "system_calls", "system_call_sizes",
        "rates", "ledger", "ledger_sources", "events", "microstates",
        "profile", "costs", "response_quantiles", "laws", "bounds", "device_io", "noise", "noise_plan",
        "noise_budget", "top_events", "observation", "comparison", "scaling", "answers", "findings",
        # former names
        "witnesses", "grown", "resets_done", "large_scans_read",
        "memory_held", "relations_held", "processes_held",
    }  # fmt: skip
    assert document["witnesses"] == document["data_sources"] != []
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert {r["scope"] for r in document["ledger"]} == {"rung", "helper", "memo"}
    assert {r["scope"] for r in document["events"]} == {"rung"}
    assert document["observation"] is None


def test_every_key_of_the_document_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "json.md").read_text("utf-8")
    text = text.partition("`dbdyno compare")[0]
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    former = [older for table in REGISTERED.values() if table.json for older in table.older]
    assert sorted(documented + former) == sorted(present.document(report_results.results()))
    assert all(f"`{name}`" in text for name in former)


def test_nan_and_infinity_are_null_in_json() -> None:
    results = report_results.results(report_results.World(rungs=(1,)))
    spoilt = results.tables["rungs"].with_columns(pl.lit(float("nan")).alias("scaling"))
    results.tables["rungs"] = spoilt  # type: ignore[index]
    assert present.document(results)["rungs"][0]["scaling"] is None


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "json"])
def test_a_place_that_cannot_be_written_is_an_error_with_a_cure(kind: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError) as error:
        present.export(report_results.results(), {}, kind, blocked / "below")
    assert error.value.cure


def test_an_unknown_form_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        present.export(report_results.results(), {}, "xls", tmp_path / "x")
    assert "xlsx" in (error.value.cure or "")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_is_made_but_not_those_above_it(tmp_path: Path, kind: str) -> None:
    results = report_results.results()
    with pytest.raises(UsageError, match="no directory"):
        present.export(results, None, kind, tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()
    assert present.export(results, None, kind, tmp_path / "out")
