"""Exports, read back."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import polars as pl
import pytest
import report_results as made
from polars.testing import assert_frame_equal

from dbdyno import present
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.present import workbook

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_DRAWN = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
RAW = {
    "samples": pl.DataFrame(
        {"cell": ["c1", "c1"], "wait_event": ["=HYPERLINK(1)", None], "task_ns": [None, 2**60]}
    )
}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    path = tmp_path_factory.mktemp("xlsx") / "run.xlsx"
    assert present.export(made.hostile(), RAW, "xlsx", path) == [path]
    return zipfile.ZipFile(path)


def names(book: zipfile.ZipFile) -> list[str]:
    return [s.attrib["name"] for s in ET.fromstring(book.read("xl/workbook.xml")).iter(f"{_MAIN}sheet")]


def cells(book: zipfile.ZipFile, sheet: str) -> list[dict[str, str | float]]:
    """Rows of a sheet: column letter -> value."""
    strings = [
        "".join(t.text or "" for t in si.iter(f"{_MAIN}t"))
        for si in ET.fromstring(book.read("xl/sharedStrings.xml")).iter(f"{_MAIN}si")
    ]
    root = ET.fromstring(book.read(f"xl/worksheets/sheet{names(book).index(sheet) + 1}.xml"))
    assert root.find(f".//{_MAIN}f") is None  # no formula anywhere
    rows = []
    for row in root.iter(f"{_MAIN}row"):
        found: dict[str, str | float] = {}
        for c in row.iter(f"{_MAIN}c"):
            value = c.findtext(f"{_MAIN}v")
            if value is not None:
                letter = c.attrib["r"].rstrip("0123456789")
                found[letter] = strings[int(value)] if c.attrib.get("t") == "s" else float(value)
        rows.append(found)
    return rows


def _text(element: ET.Element | None) -> str:
    assert element is not None
    return "".join(t.text or "" for t in element.iter() if t.tag.endswith("}t"))


def _tags(element: ET.Element) -> set[str]:
    return {t.tag.rpartition("}")[2] for t in element.iter()}


def test_the_workbook_has_a_sheet_per_table(book: zipfile.ZipFile) -> None:
    assert names(book) == [
        "summary", "charts", "windows", "rates", "ledger", "events", "microstates", "strips", "profile",
        "top_events", "witnesses", "rungs", "sources", "histogram", "wait_families", "findings", "samples",
    ]  # fmt: skip


def test_the_workbooks_charts_are_native_and_draw_the_rungs(book: zipfile.ZipFile) -> None:
    charts = [ET.fromstring(book.read(n)) for n in sorted(book.namelist()) if n.startswith("xl/charts/chart")]
    titles = [_text(c.find(f"{_DRAWN}chart/{_DRAWN}title")) for c in charts]
    assert titles == ["Throughput", "Response time", "Where session time went", "CPU used, by source"]
    assert charts[2].find(f".//{_DRAWN}grouping").attrib["val"] == "stacked"  # type: ignore[union-attr]
    striped = [_text(s.find(f"{_DRAWN}tx")) for s in charts[2].iter(f"{_DRAWN}ser") if "pattFill" in _tags(s)]
    assert len(striped) == 3  # CPU WAIT under IO, LWLock and Client
    for chart in charts:
        for formula in chart.iter(f"{_DRAWN}f"):
            assert (formula.text or "").startswith("charts!")


def test_numbers_come_back_and_unknown_cells_are_absent(book: zipfile.ZipFile) -> None:
    rungs = made.results().tables["rungs"]
    head, *rows = cells(book, "rungs")
    letters = {name: letter for letter, name in head.items()}
    assert list(head.values()) == rungs.columns
    for row, expected in zip(rows, rungs.to_dicts(), strict=True):
        for name, value in expected.items():
            if value is None:
                assert letters[name] not in row
            else:
                assert row[letters[name]] == (pytest.approx(value) if isinstance(value, float) else value)


def test_texts_that_look_like_formulas_stay_texts(book: zipfile.ZipFile) -> None:
    _, row, second = cells(book, "samples")
    assert row["B"] == "=HYPERLINK(1)"
    assert "B" not in second
    assert second["C"] == str(2**60)  # a number that a spreadsheet would round
    summary = [r.get("B") for r in cells(book, "summary")]
    assert "=cmd()" in summary


def test_the_header_is_frozen(book: zipfile.ZipFile) -> None:
    number = names(book).index("rungs") + 1
    pane = ET.fromstring(book.read(f"xl/worksheets/sheet{number}.xml")).find(f".//{_MAIN}pane")
    assert pane is not None
    assert pane.attrib["state"] == "frozen" and pane.attrib["ySplit"] == "1"


def test_a_sheet_too_small_for_a_table_is_cut_and_the_summary_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workbook, "MAX_ROWS", 3)
    (path,) = present.export(made.results(), {}, "xlsx", tmp_path / "r.xlsx")
    book = zipfile.ZipFile(path)
    assert len(cells(book, "rates")) == 4
    cut = [r["B"] for r in cells(book, "summary") if r.get("A") == "Sheet cut"]
    assert any(str(c).startswith("rates:") for c in cut)


def test_csv_keeps_numbers_and_leaves_unknown_cells_empty(tmp_path: Path) -> None:
    results = made.results(made.REMOTE)
    written = present.export(results, RAW, "csv", tmp_path / "out")
    assert {p.name for p in written} >= {"rungs.csv", "samples.csv", "findings.csv", "run.json"}
    back = pl.read_csv(tmp_path / "out" / "rungs.csv", schema=results.tables["rungs"].schema)
    assert_frame_equal(back, results.tables["rungs"])
    with (tmp_path / "out" / "rungs.csv").open(newline="") as file:
        assert {r["run_aas"] for r in csv.DictReader(file)} == {""}


def test_csv_disarms_formulas_in_texts(tmp_path: Path) -> None:
    present.export(made.hostile(), RAW, "csv", tmp_path)
    with (tmp_path / "samples.csv").open(newline="") as file:
        assert [r["wait_event"] for r in csv.DictReader(file)] == ["'=HYPERLINK(1)", ""]
    with (tmp_path / "findings.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["cure"] == "'@SUM(A1)"


def test_parquet_comes_back_as_it_was(tmp_path: Path) -> None:
    results = made.results(made.REMOTE)
    present.export(results, RAW, "parquet", tmp_path)
    for name, table in {**results.tables, **RAW}.items():
        assert_frame_equal(pl.read_parquet(tmp_path / f"{name}.parquet"), table)


def test_json_holds_every_table_with_null_for_unknown(tmp_path: Path) -> None:
    results = made.results(made.REMOTE)
    (path,) = present.export(results, RAW, "json", tmp_path / "r.json")
    found = json.loads(path.read_text())
    assert found["tables"]["rungs"] == results.tables["rungs"].to_dicts()
    assert found["tables"]["rungs"][0]["run_aas"] is None
    assert found["tables"]["samples"][1]["task_ns"] == 2**60


def test_the_document_has_stable_keys_and_survives_json() -> None:
    found = present.document(made.results())
    assert list(found) == [
        "format", "run", "title", "summary", "plan", "environment", "rungs", "windows", "witnesses",
        "sources", "placements", "rates", "ledger", "ledger_witnesses", "events", "microstates",
        "profile", "top_events", "observation", "comparison", "scaling", "answers", "findings",
    ]  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {r["scope"] for r in found["ledger"]} == {"rung", "helper", "memo"}
    assert {r["scope"] for r in found["events"]} == {"rung"}
    assert found["observation"] is None


def test_every_key_of_the_document_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text("utf-8")
    text = text.partition("`dbdyno compare")[0]
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert documented == list(present.document(made.results()))


def test_what_is_not_a_number_is_unknown_in_json() -> None:
    results = made.results(made.World(rungs=(1,)))
    spoilt = results.tables["rungs"].with_columns(pl.lit(float("nan")).alias("scaling"))
    results.tables["rungs"] = spoilt  # type: ignore[index]
    assert present.document(results)["rungs"][0]["scaling"] is None


@pytest.mark.parametrize("kind", ["csv", "xlsx", "parquet", "json"])
def test_a_place_that_cannot_be_written_is_an_error_with_a_cure(kind: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError) as error:
        present.export(made.results(), {}, kind, blocked / "below")
    assert error.value.cure


def test_an_unknown_form_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        present.export(made.results(), {}, "xls", tmp_path / "x")
    assert "xlsx" in (error.value.cure or "")
