"""Tables that are derived after each measurement, and those that are derived once."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.fakery import Climb, climb
from tests.unit.shown import as_text

from dbdyno import conduct, present
from dbdyno.account.ladder import just_measured
from dbdyno.conduct.derive.derive import derive, held, part_of
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Conclusions, Results
from dbdyno.model.schema.derived import sessions_in
from dbdyno.model.schema.tables import DERIVED
from dbdyno.store import Run, RunStore, keep_shown, read_shown
from dbdyno.store.listing import list_runs
from dbdyno.store.sql import query

pytestmark = pytest.mark.whole

ACCOUNTS = ("run_aas", "runq_aas", "sleep_aas", "client_aas")


@pytest.fixture(scope="module")
def climbed() -> Climb:
    return climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (2, 4))


@pytest.fixture(scope="module")
def full_results(climbed: Climb) -> Results:
    return derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)


def test_the_rates_of_a_measurement_are_those_of_the_whole(climbed: Climb, full_results: Results) -> None:
    for cell in climbed.cells:
        quick = just_measured(cell, climbed.plan)
        rates = full_results.tables["rates"].filter(
            pl.col("cell") == cell.id, pl.col("name") != "driver_delay"
        )
        own_rates = quick["rates"].filter(pl.col("name") != "driver_delay")
        assert own_rates.sort("scope", "session", "name").equals(rates.sort("scope", "session", "name"))
        assert quick["windows"].equals(full_results.tables["windows"].filter(pl.col("cell") == cell.id))


def test_the_row_of_a_measurement_has_the_sessions_time_within_the_samples_error(
    climbed: Climb, full_results: Results
) -> None:
    rungs = full_results.tables["rungs"]
    for cell in climbed.cells:
        row = just_measured(cell, climbed.plan)["rungs"].row(0, named=True)
        full = rungs.filter(pl.col("sessions") == row["sessions"]).row(0, named=True)
        for name in ACCOUNTS:
            assert row[name] == pytest.approx(full[name], abs=0.05 * row["sessions"]), name
        assert row["calls_per_s"] == full["calls_per_s"]


def test_the_row_of_a_traced_measurement_is_that_of_the_whole() -> None:
    traced = climb("fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms", (4,), trace=True)
    whole = (
        derive(traced.info, traced.plan, traced.environment, traced.cells).tables["rungs"].row(0, named=True)
    )
    row = just_measured(traced.cells[0], traced.plan)["rungs"].row(0, named=True)
    assert {n: row[n] for n in ACCOUNTS} == pytest.approx({n: whole[n] for n in ACCOUNTS}, abs=1e-6)
    assert row["preliminary"] is False


def test_sleep_that_no_sample_saw_is_sleep(climbed: Climb) -> None:
    cell = climbed.cells[0]
    running = cell.tables["samples"].with_columns(
        wait_class=pl.lit(None, pl.String), wait_event=pl.lit(None, pl.String), task_state=pl.lit("R")
    )
    awake = replace(cell, tables={**cell.tables, "samples": running})
    row = just_measured(awake, climbed.plan)["rungs"].row(0, named=True)
    assert row["unaccounted_aas"] == 0
    assert row["sleep_aas"] > 0 and row["preliminary"] is True


def test_no_table_that_single_measurements_make_is_lost_on_the_way_to_the_whole(climbed: Climb) -> None:
    """Only some tables of a stored run are held until the end; others are read from the store."""
    part_tables = part_of(climbed.cells, climbed.plan, climbed.environment).tables
    assert {t for t in part_tables if t in DERIVED and sessions_in(t) != "all"} <= set(held())


def test_conclusions_are_stored_and_read(tmp_path: Path, climbed: Climb) -> None:
    run = store_run(tmp_path, climbed)
    results, _ = conduct.rebuild(run)
    shutil.rmtree(run.path / "cells")  # nothing can be derived anew
    again = conduct.results_of(Run(run.path))
    assert again.answers == results.answers and again.comparison == results.comparison
    assert [s.fits for s in again.scaling] == [s.fits for s in results.scaling]
    assert all(a.curve.equals(b.curve) for a, b in zip(again.scaling, results.scaling, strict=True))
    assert [s.answers for s in again.scaling] == [s.answers for s in results.scaling]


def test_stored_conclusions_are_not_drawn_again(
    tmp_path: Path, climbed: Climb, full_results: Results
) -> None:
    run = store_run(tmp_path, climbed)
    run.write_derived(
        full_results.tables, full_results.findings, Conclusions(answers=(Claim(id="peak", text="as stored"),))
    )
    assert conduct.results_of(run).answers == (Claim(id="peak", text="as stored"),)
    assert not conduct.results_of(run).scaling


def test_a_run_without_conclusions_is_concluded_once(
    tmp_path: Path, climbed: Climb, full_results: Results
) -> None:
    run = store_run(tmp_path, climbed)
    run.write_derived(full_results.tables, full_results.findings)
    assert run.read_conclusions() is None
    results = conduct.results_of(run)
    conclusions = run.read_conclusions()
    assert conclusions is not None and [s.fits for s in conclusions.scaling] == [
        s.fits for s in results.scaling
    ]


def test_a_run_with_the_names_of_older_versions_is_read(
    tmp_path: Path, climbed: Climb, full_results: Results
) -> None:
    run = store_run(tmp_path, climbed)
    run.write_derived(full_results.tables, full_results.findings, Conclusions())
    folder = run.path / "derived"
    former = {"data_sources": "witnesses", "growth": "grown", "memory_relations": "relations_held"}
    for table, older in former.items():
        (folder / f"{table}.parquet").rename(folder / f"{older}.parquet")
    old = pl.col("source").str.replace(", estimated", ", raked", literal=True)
    pl.read_parquet(folder / "ledger.parquet").with_columns(old).write_parquet(folder / "ledger.parquet")
    findings = folder / "findings.json"
    findings.write_text(findings.read_text().replace("data-sources-used", "witnesses-used"))
    files = [p for p in folder.iterdir() if p.name != "manifest.json"]
    manifest = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    results = conduct.results_of(Run(run.path))
    assert results.findings == full_results.findings
    for table in (*former, "ledger"):
        assert results.tables[table].equals(full_results.tables[table]), table
    listed = list_runs(tmp_path)
    for table, older in former.items():
        counts = query(f"select (select count(*) from {table}), (select count(*) from {older})", listed)
        assert [*counts.rows] == [(full_results.tables[table].height,) * 2] and not counts.warnings
    assert [*query("select count(*) from ledger where source like '%raked%'", listed).rows] == [(0,)]


def test_conclusions_by_other_criteria_are_drawn_anew(
    tmp_path: Path, climbed: Climb, full_results: Results
) -> None:
    run = store_run(tmp_path, climbed)
    run.write_derived(full_results.tables, full_results.findings, Conclusions(version=0))
    assert run.read_conclusions() is None
    assert conduct.results_of(run).scaling


def test_the_stored_document_is_shown_and_made_anew_if_damaged(tmp_path: Path, climbed: Climb) -> None:
    run = store_run(tmp_path, climbed)
    first = as_text(conduct.shown(tmp_path, run.id, print))  # nothing is derived yet
    assert read_shown(run.path) is not None
    results, _ = conduct.rebuild(run)
    document = run.path / "document.json"
    assert first == as_text(conduct.shown(tmp_path, "last", print)) == as_text(present.brief(results))
    document.write_bytes(b"damaged")
    assert as_text(conduct.shown(tmp_path, "last", print)) == first
    shutil.rmtree(run.path / "cells")
    for table in (run.path / "derived").glob("*.parquet"):
        table.unlink()
    assert as_text(conduct.shown(tmp_path, "last", print)) == first


def test_a_run_that_goes_on_stores_no_document(tmp_path: Path, climbed: Climb) -> None:
    run = store_run(tmp_path, climbed)
    run.update_info(status="running")
    conduct.shown(tmp_path, run.id, print)
    assert read_shown(run.path) is None


def store_run(root: Path, climbed: Climb) -> Run:
    run = RunStore(root).create(climbed.plan)
    run.write_environment(climbed.environment)
    for cell in climbed.cells:
        run.write_cell(cell)
    run.finish("complete")
    return run


def test_the_stored_document_is_used_until_the_run_changes(
    tmp_path: Path, climbed: Climb, full_results: Results
) -> None:
    run = store_run(tmp_path, climbed)
    assert read_shown(run.path) is None
    keep_shown(run.path, b"nothing is derived")
    run.write_derived(full_results.tables, full_results.findings)
    assert read_shown(run.path) is None
    keep_shown(run.path, b"text\nof lines")
    assert read_shown(run.path) == b"text\nof lines"
    content = (run.path / "document.json").read_bytes()
    (run.path / "document.json").write_bytes(content.replace(b"text", b"Text"))
    assert read_shown(run.path) is None
    (run.path / "document.json").write_bytes(content)
    run.write_derived(full_results.tables, ())
    assert read_shown(run.path) is None
    keep_shown(run.path, b"text")
    run.finish("cut short", "it changed")
    assert read_shown(run.path) is None
