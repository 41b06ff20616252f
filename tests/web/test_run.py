"""A run in the browser: its page, its tables, its claims' explanations; damaged, running and foreign runs."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from starlette.requests import Request
from starlette.responses import Response

from dbdyno import conduct
from dbdyno.model.results.claim import Claim
from dbdyno.present.document.document import links_by_kind
from dbdyno.store import RunStore
from dbdyno.web import evidence, tables
from dbdyno.web.kept import KeptPages
from tests.fakery import climb, recorded
from tests.web.conftest import Lab, Started

SECOND = "20260102-100000-lio-0002"


@pytest.fixture
def runs(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs).enter()


def links(text: str) -> set[str]:
    return {html.unescape(link) for link in re.findall(r'href="(/[^"]*)"', text)}


@pytest.mark.parametrize("word", ["nightly", "last~1", "20260102", "lio-0002"])
def test_a_name_leads_to_the_address_of_the_run_which_stays(runs: Lab, word: str) -> None:
    answer = runs.ask(f"/run/{word}?show=c1&theme=dark")
    assert answer.status == 303 and answer.headers["location"] == f"/run/{SECOND}?show=c1&theme=dark"


def test_a_page_has_the_document_of_the_run_and_leads_to_what_it_rests_on(runs: Lab) -> None:
    page = runs.ask(f"/run/{SECOND}").text
    title = conduct.shown(runs.store, SECOND, str).title
    assert f"<h1>{html.escape(title)}</h1>" in page
    found = links(page)
    assert {
        f"/run/{SECOND}/tables",
        f"/compare?run=20260101-100000-lio-0001&run={SECOND}",
        "/explain/peak",
    } <= found
    assert any(a.startswith(f"/run/{SECOND}/table/") for a in found)


def test_a_page_has_the_details_of_the_load_that_its_address_names(runs: Lab) -> None:
    def details(asked: str) -> tuple[list[str], list[str]]:
        page = runs.ask(f"/run/{SECOND}{asked}").text
        there = dict.fromkeys(re.findall(r'data-pick="([^"]*)"', page))
        return [*there], re.findall(r'<option value="([^"]*)" selected>', page)

    loads = re.findall(r'<option value="([^"]*)"', runs.ask(f"/run/{SECOND}").text)
    assert len(loads) > 1
    assert details("") == details("?show=nothing") == (loads[:1], loads[:1])
    assert details(f"?show={loads[1]}") == ([loads[1]], [loads[1]])
    assert details(f"?show={loads[1]}&save=1") == (loads, [loads[1]])


def test_a_claim_leads_to_the_tables_that_it_names_at_its_measurements() -> None:
    claim = Claim(id="steal", text="", evidence="tables placements, placed: some", cells=("a b", "c"))
    tables_of = {"placements", "placed", "windows", "rungs"}
    explained, *named = evidence.pages_of("R", ["a b", "c", "d"], tables_of)(claim)
    assert explained == ("Explained", "steal", "/explain/steal")
    assert [n.address for n in named] == [
        f"/run/R/table/{t}?cell=a+b&cell=c" for t in ("placements", "placed")
    ]
    (_, of_all) = evidence.pages_of("R", ["a b", "c"], tables_of)(claim.model_copy(update={"evidence": ""}))
    assert of_all == ("Tables", "windows", "/run/R/table/windows")
    shown = links_by_kind([explained, *named, of_all])
    assert shown.text == "Explained: steal. Tables: placements, placed, windows."
    assert [address for _, address in shown.links] == [n.address for n in (explained, *named, of_all)]


def test_every_link_of_a_run_and_its_tables_leads_to_a_page(runs: Lab) -> None:
    page = links(runs.ask(f"/run/{SECOND}").text)
    listed = links(runs.ask(f"/run/{SECOND}/tables").text)
    others = {"/"}  # the list of runs is a view of its own
    failed = {a: s for a in sorted((page | listed) - others) if (s := runs.ask(a).status) != 200}
    assert failed == {}


def test_a_saved_page_has_no_link_into_the_lab(runs: Lab) -> None:
    pages = (
        f"/run/{SECOND}",
        f"/run/{SECOND}/tables",
        f"/run/{SECOND}/table/windows",
        "/explain/peak",
        "/explain/efficiency",
    )
    for path in pages:
        saved = runs.ask(f"{path}?save=1")
        assert saved.status == 200 and "attachment" in saved.headers["content-disposition"]
        assert links(saved.text) == set() and "data-served" not in saved.text.partition("<body")[0], path


def test_a_changed_label_is_seen_at_once_though_pages_are_kept(runs: Lab) -> None:
    assert "Name: nightly" in runs.ask(f"/run/{SECOND}").text
    record = RunStore(runs.store).open(SECOND)
    record.update_info(name="daily")
    assert "Name: daily" in runs.ask(f"/run/{SECOND}").text


def test_kept_pages_are_bounded_and_the_one_used_least_goes_first() -> None:
    kept, made = KeptPages(most_bytes=250), []

    def ask(path: str) -> None:
        scope = {"type": "http", "path": path, "query_string": b"", "headers": [(b"host", b"h")]}

        def make() -> Response:
            made.append(path)
            return Response(b"x" * (300 if path == "/huge" else 100))

        kept.page(Request({**scope, "scheme": "http", "server": ("h", 1)}), "stamp", make)

    for path in ("/a", "/b", "/a", "/huge", "/c", "/a", "/b"):
        ask(path)
    assert made == ["/a", "/b", "/huge", "/c", "/b"]


def test_a_running_run_shows_what_there_is_and_leads_to_its_live_view(
    start_lab: Started, tmp_path: Path
) -> None:
    measured = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    run = recorded(RunStore(tmp_path), measured)  # of this process, which lives
    shutil.move(run.path / "cells" / measured.cells[1].id, tmp_path / "later")
    lab = start_lab(tmp_path).enter()
    page = lab.ask(f"/run/{run.id}").text
    assert "This run is going on" in page and f"/live/{run.id}" in links(page)
    assert f"cell={measured.cells[1].id}" not in page
    assert not (run.path / "derived").exists()
    shutil.move(tmp_path / "later", run.path / "cells" / measured.cells[1].id)
    assert "2 sessions" in lab.ask(f"/run/{run.id}").text


def test_a_run_without_any_measurement_has_a_page(start_lab: Started, tmp_path: Path) -> None:
    measured = climb("fake:cpu=50ms", [1])
    run = recorded(RunStore(tmp_path), measured)
    shutil.rmtree(run.path / "cells" / measured.cells[0].id)
    lab = start_lab(tmp_path).enter()
    assert lab.ask(f"/run/{run.id}").status == 200
    assert "Nothing was measured yet" in lab.ask(f"/run/{run.id}/tables").text


def test_a_damaged_derived_table_is_derived_again_and_a_damaged_raw_one_is_named(runs: Lab) -> None:
    path = runs.store / SECOND
    whole = (path / "derived" / "rungs.parquet").read_bytes()
    (path / "derived" / "rungs.parquet").write_bytes(whole[: len(whole) // 2])
    assert runs.ask(f"/run/{SECOND}").status == 200
    assert (path / "derived" / "rungs.parquet").stat().st_size == len(whole)
    cell = next((path / "cells").iterdir())
    (cell / "samples.parquet").write_bytes(b"PAR1")
    answer = runs.ask(f"/run/{SECOND}/table/samples")
    assert answer.status == 200 and "samples.parquet is damaged and left out" in answer.text
    assert runs.ask(f"/run/{SECOND}/table/sessions").status == 200


def test_a_run_of_a_newer_dbdyno_and_a_broken_one_say_so(runs: Lab) -> None:
    document = json.loads((runs.store / SECOND / "run.json").read_text())
    (runs.store / SECOND / "run.json").write_text(json.dumps(document | {"schema_version": 99}))
    for path in (f"/run/{SECOND}", f"/run/{SECOND}/tables", f"/run/{SECOND}/table/rungs"):
        answer = runs.ask(path)
        assert answer.status == 409 and "newer dbdyno" in answer.text, path
    (runs.store / SECOND / "run.json").write_text("{")
    answer = runs.ask(f"/run/{SECOND}")
    assert answer.status == 409 and "is damaged" in answer.text and "Traceback" not in answer.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_store_that_cannot_be_written_shows_a_run_without_derived_tables(runs: Lab) -> None:
    path = runs.store / SECOND
    shutil.rmtree(path / "derived")
    shutil.rmtree(path / "parts", ignore_errors=True)
    path.chmod(0o500)
    try:
        assert runs.ask(f"/run/{SECOND}").status == 200
    finally:
        path.chmod(0o700)


def test_a_hostile_name_is_text(runs: Lab) -> None:
    RunStore(runs.store).open(SECOND).update_info(name="<script>alert(1)</script>", note='"><img src=x>')
    page = runs.ask(f"/run/{SECOND}").text
    shown = page.partition("<main")[0] + page.partition("<main")[2].partition("</main>")[0]
    assert "&lt;script&gt;alert(1)" in shown and "<script>alert" not in shown and "<img" not in shown
    for word in ("lio", "p95", "db time"):  # without headings
        assert runs.ask(f"/explain/{quote(word)}").status == 200
    answer = runs.ask(f"/explain/{quote('<b>x</b>')}")
    assert answer.status == 400 and "<b>" not in answer.text
    for path in ("../../etc", "..%2f..%2fetc%2fpasswd", "%00"):
        assert runs.ask(f"/run/{path}").status in (404, 400), path
        assert runs.ask(f"/run/{SECOND}/table/{path}").status in (404, 400), path


# -- tables


def test_rows_come_by_the_page_and_by_the_measurement(runs: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_ROWS", 7)
    path = runs.store / SECOND / "cells"
    cells = sorted(p.name for p in path.iterdir())
    each = {c: pl.read_parquet(path / c / "samples.parquet").height for c in cells}
    every = sum(each.values())
    last = -(-every // 7)
    page = runs.ask(f"/run/{SECOND}/table/samples?page={last}").text
    assert f"of {every:,} of this raw table." in page and "Next rows" not in page and "Previous rows" in page
    assert page.count("<tr>") - 1 >= every - 7 * (last - 1)
    of_one = runs.ask(f"/run/{SECOND}/table/samples?cell={cells[1]}&page=2")
    assert f"Rows 8 to 14 of {each[cells[1]]:,} of this raw table, only of {cells[1]}." in of_one.text
    assert runs.ask(f"/run/{SECOND}/table/samples?page={last + 1}").text.count("No rows") == 1
    for wrong in ("page=0", "page=x", "page=-1", "cell=nothing"):
        assert runs.ask(f"/run/{SECOND}/table/samples?{wrong}").status == 400


def test_a_table_without_measurements_is_restricted_to_their_loads(runs: Lab) -> None:
    cell = next(c for c in (p.name for p in (runs.store / SECOND / "cells").iterdir()) if "-s2-" in c)
    page = runs.ask(f"/run/{SECOND}/table/rungs?cell={cell}").text
    assert "Rows 1 to 1 of 1" in page


def test_a_csv_has_all_rows_and_no_formula(runs: Lab) -> None:
    record = RunStore(runs.store).open(SECOND)
    cell = sorted(p.name for p in (record.path / "cells").iterdir())[0]
    read = record.read_cell(cell)
    forged = read.tables["samples"].with_columns(wait_class=pl.lit("=cmd|' /C calc'!A1"))
    shutil.rmtree(record.path / "cells" / cell)
    record.write_cell(type(read)(read.meta, {**read.tables, "samples": forged}))
    answer = runs.ask(f"/run/{SECOND}/table/samples.csv")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/csv")
    assert f"{SECOND}-samples.csv" in answer.headers["content-disposition"]
    lines = answer.text.splitlines()
    heights = [pl.read_parquet(p).height for p in (record.path / "cells").glob("*/samples.parquet")]
    assert len(lines) == 1 + sum(heights) and lines[0].startswith("cell,")
    assert "'=cmd" in answer.text and ",=cmd" not in answer.text
    one = runs.ask(f"/run/{SECOND}/table/samples.csv?cell={cell}").text.splitlines()
    assert len(one) == 1 + forged.height


def test_an_unknown_table_is_named_with_the_nearest(runs: Lab) -> None:
    answer = runs.ask(f"/run/{SECOND}/table/rung")
    assert answer.status == 400 and "rungs" in answer.text
