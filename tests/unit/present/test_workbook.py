"""Documents as workbooks, read back."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.present.test_documents import DOCUMENT, documents
from tests.unit.present.test_report_exports import RAW

from dbdyno import present
from dbdyno.present.document.document import (
    Cell,
    Column,
    Document,
    KeyFigure,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    word,
)
from dbdyno.present.media import xlsx, xlsx_charts

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_DRAWN = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    path = tmp_path_factory.mktemp("xlsx") / "run.xlsx"
    assert present.export(report_results.hostile(), RAW, "xlsx", path) == [path]
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
        values: dict[str, str | float] = {}
        for c in row.iter(f"{_MAIN}c"):
            value = c.findtext(f"{_MAIN}v")
            if value is not None:
                letter = c.attrib["r"].rstrip("0123456789")
                values[letter] = strings[int(value)] if c.attrib.get("t") == "s" else float(value)
        rows.append(values)
    return rows


def _text(element: ET.Element | None) -> str:
    assert element is not None
    return "".join(t.text or "" for t in element.iter() if t.tag.endswith("}t"))


def workbook_of(shown: Document) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(xlsx.workbook(shown)))


def one_column(*column: Cell) -> tuple[str, list[str | float | None]]:
    """Heading and values of a table of one column."""
    table = Table("t", [Column("head", number=True), Column("name")], [Row([c, word("x")]) for c in column])
    rows = cells(workbook_of(Document("d", [Section("s", [table])])), "s")[2:]
    return str(rows[0]["A"]), [r.get("A") for r in rows[1:]]


def test_the_answer_comes_first_then_a_sheet_for_each_section_with_figures() -> None:
    book = workbook_of(DOCUMENT)
    assert names(book) == ["answer", "figures"]
    values = [v for r in cells(book, "answer") for v in r.values()]
    assert values[:2] == ["a title", "the answer"]
    assert {"peak", 12.0, "11 .. 13", "it is so (seen)", "folded away", "made by hand"} <= set(values)
    head, first, second = cells(book, "figures")[2:5]
    assert list(head.values()) == ["who", "rate, 1/s", "p", "verdict"]
    assert first == {"A": "a", "B": 1.5, "D": "better"}  # unknown values are empty
    assert second["C"] == 0.04


@pytest.mark.parametrize(
    ("column", "head", "values"),
    [
        ([known(2_500_000.0, str, "ns"), known(None, str, "ns")], "head, ms", [2.5, None]),
        ([Cell("2.50 ms", 2_500_000), Cell("0 ns", 0)], "head, ms", [2.5, 0.0]),
        ([Cell("+1.6 us", 1.6e-6, "s"), Cell("2.00 s", 2.0, "s")], "head, ms", [0.0016, 2000.0]),
        ([Cell("12.3", 12.345, "s")], "head, s", [12.345]),
        ([Cell("12 %", 0.1234), Cell("101", 1.01)], "head", [0.1234, 1.01]),
        ([Cell("12.3", 12.3, "head")], "head", [12.3]),
        ([Cell("5 MB", 5e6, "bytes"), Cell("2.00 ms", 2e6)], "head", [5e6, 2.0]),
        ([Cell("=1+1", "=1+1"), Cell("-", None)], "head", ["=1+1", "-"]),
        ([Cell("big", float("inf")), Cell("?", None)], "head", ["big", None]),
    ],
)
def test_figures_are_numbers_in_one_unit(
    column: list[Cell], head: str, values: list[str | float | None]
) -> None:
    shown_head, shown = one_column(*column, Cell("end", None))
    assert shown_head == head
    assert shown[:-1] == [pytest.approx(v) if isinstance(v, float) else v for v in values]


def test_texts_stay_texts_wherever_they_stand() -> None:
    evil = '=HYPERLINK("http://x")'
    table = Table(evil, [Column(evil)], [Row([word(evil)]), Row([Cell(evil, 1.0, evil)])])
    claims = Statements([Statement(evil, evil, evil)])
    blocks = [Section(evil, [table, claims, Paragraph(evil)]), Section("history", [table])]
    shown = Document(evil, blocks, [Paragraph(evil)], [KeyFigure(evil, word(evil), evil)], evil)
    book = workbook_of(shown)
    for name in names(book):
        cells(book, name)  # no formula anywhere
    assert not any("hyperlink" in n.lower() or "external" in n.lower() for n in book.namelist())


def test_sheets_have_names_that_excel_takes() -> None:
    table = Table("", [Column("a", number=True)], [Row([Cell("1", 1)])])
    titles = ["A: [b]/c?*\\", "a b c", "x" * 40, "X" * 33, "", "History", "chart data", "'quoted'"]
    sheets = names(workbook_of(Document("d", [Section(t, [table]) for t in titles])))
    assert len({n.lower() for n in sheets}) == len(titles) + 1
    assert all(0 < len(n) <= 31 and not set(n) & set("[]:*?/\\'") for n in sheets)
    assert not {"history", "chart data"} & {n.lower() for n in sheets}


@pytest.mark.parametrize("kind", ["regression", "machines", "comparison", "scaling"])
def test_documents_of_every_kind_can_be_opened(kind: str) -> None:
    book = workbook_of(documents()[kind])
    assert names(book)[0] == "answer" and all(cells(book, n) for n in names(book))


def test_charts_are_excels_own_and_draw_what_is_on_their_sheet() -> None:
    results = report_results.results()
    drawn = report_results.charts_of(results)
    book = workbook_of(Document("d", [Section("charts", drawn)]))
    charts = [ET.fromstring(book.read(n)) for n in sorted(book.namelist()) if n.startswith("xl/charts/chart")]
    by_title = {_text(c.find(f"{_DRAWN}chart/{_DRAWN}title")): c for c in charts}
    assert {"Response time of a call", "Where session time went", "CPU used, by source"} <= set(by_title)
    named = {c.id: [s.name for s in xlsx_charts.series(c)] for c in drawn}
    assert named["throughput"] == ["base: perfect scaling from 1 session", "base"]
    assert named["response"] == ["mean", "median", "95 %", "99 %"]
    stack = by_title["Where session time went"]
    assert stack.find(f".//{_DRAWN}grouping").attrib["val"] == "stacked"  # type: ignore[union-attr]
    striped = [
        s for s in stack.iter(f"{_DRAWN}ser") if "pattFill" in {t.tag.rpartition("}")[2] for t in s.iter()}
    ]
    assert not striped  # CPU WAIT is one series; its division by wait is a switch of the page
    for chart in charts:
        for formula in chart.iter(f"{_DRAWN}f"):
            assert (formula.text or "").startswith("'chart data'!")
    rates = results.tables["rungs"].sort("sessions")["work_per_s"].to_list()
    top = next(n for n, r in enumerate(cells(book, "chart data")) if r.get("D") == "base")
    assert [r["D"] for r in cells(book, "chart data")[top + 1 : top + 1 + len(rates)]] == pytest.approx(rates)


def test_a_runs_workbook_has_answer_rungs_and_figures_first_and_every_table_last(
    book: zipfile.ZipFile,
) -> None:
    sheets = names(book)
    stored = [
        "windows", "rates", "ledger", "events", "microstates", "strips", "over_time", "profile",
        "top_events", "data_sources", "rungs", "sources", "histogram", "wait_families", "findings", "samples",
    ]  # fmt: skip
    assert sheets[0] == "answer" and sheets[-len(stored) :] == stored
    head, first = cells(book, sheets[1])[1:3]
    heads = dict(zip(head.values(), head, strict=True))
    row = report_results.results().tables["rungs"].sort("sessions").row(0, named=True)
    assert first[heads["sessions"]] == row["sessions"]
    assert first[heads["calls/s"]] == pytest.approx(row["calls_per_s"])
    assert first[heads["p95, ms"]] == pytest.approx(row["response_p95_ns"] / 1e6)


def test_a_report_is_a_workbook_where_its_file_is_named_so(tmp_path: Path) -> None:
    written = present.write(present.run_document(report_results.results()), tmp_path / "r.xlsx")
    sheets = names(zipfile.ZipFile(written))
    assert sheets[0] == "answer" and sheets[-1] == "chart data" and "rates" not in sheets


def test_numbers_come_back_and_unknown_cells_are_absent(book: zipfile.ZipFile) -> None:
    rungs = report_results.results().tables["rungs"]
    head, *rows = cells(book, "rungs")
    letters = {name: letter for letter, name in head.items()}
    assert list(head.values()) == [re.sub("_ns$", "_ms", name) for name in rungs.columns]
    rungs = rungs.with_columns(pl.col("^.*_ns$") / 1e6).rename(lambda name: re.sub("_ns$", "_ms", name))
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
    assert second["C"] == pytest.approx(2**60 / 1e6)  # ns become ms
    assert "=cmd()" in [v for r in cells(book, "Environment") for v in r.values()]


def test_sheets_begin_with_the_answer_and_none_is_empty(book: zipfile.ZipFile) -> None:
    sheets = names(book)
    assert sheets[:2] == ["answer", "Throughput by number of"]
    assert "calls" not in sheets and {"rungs", "samples"} <= set(sheets)
    assert sheets.index("rungs") < sheets.index("samples")
    assert all(len(cells(book, name)) > 1 for name in sheets)


def test_the_header_is_frozen(book: zipfile.ZipFile) -> None:
    number = names(book).index("rungs") + 1
    pane = ET.fromstring(book.read(f"xl/worksheets/sheet{number}.xml")).find(f".//{_MAIN}pane")
    assert pane is not None
    assert pane.attrib["state"] == "frozen" and pane.attrib["ySplit"] == "1"


def test_a_sheet_too_small_for_a_table_is_cut_and_the_answer_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(xlsx, "MAX_ROWS", 3)
    (path,) = present.export(report_results.results(), {}, "xlsx", tmp_path / "r.xlsx")
    book = zipfile.ZipFile(path)
    assert len(cells(book, "rates")) == 4
    lines = [str(r.get("A")) for r in cells(book, "answer")]
    assert any(t.startswith("Sheet rates is cut") for t in lines)
