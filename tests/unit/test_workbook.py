"""Documents as workbooks, read back."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
import zipfile

import pytest
import report_results as made
from tests.unit.test_documents import DOCUMENT, documents
from tests.unit.test_report_exports import _DRAWN, _text, cells, names

from dbdyno.present import charts
from dbdyno.present.document import (
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


def opened(shown: Document) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(xlsx.workbook(shown)))


def one_column(*column: Cell) -> tuple[str, list[str | float | None]]:
    """Heading and values of a table of one column."""
    table = Table("t", [Column("head", number=True), Column("name")], [Row([c, word("x")]) for c in column])
    rows = cells(opened(Document("d", [Section("s", [table])])), "s")[2:]
    return str(rows[0]["A"]), [r.get("A") for r in rows[1:]]


def test_the_answer_comes_first_then_a_sheet_for_each_section_with_figures() -> None:
    book = opened(DOCUMENT)
    assert names(book) == ["answer", "figures"]
    told = [v for r in cells(book, "answer") for v in r.values()]
    assert told[:2] == ["a title", "the answer"]
    assert {"peak", 12.0, "11 .. 13", "it is so (seen)", "folded away", "made by hand"} <= set(told)
    head, first, second = cells(book, "figures")[2:5]
    assert list(head.values()) == ["who", "rate, 1/s", "p", "verdict"]
    assert first == {"A": "a", "B": 1.5, "D": "better"}  # what is unknown is empty
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
def test_numbers_are_numbers_in_one_unit(
    column: list[Cell], head: str, values: list[str | float | None]
) -> None:
    found_head, found = one_column(*column, Cell("end", None))
    assert found_head == head
    assert found[:-1] == [pytest.approx(v) if isinstance(v, float) else v for v in values]


def test_texts_stay_texts_wherever_they_stand() -> None:
    evil = '=HYPERLINK("http://x")'
    table = Table(evil, [Column(evil)], [Row([word(evil)]), Row([Cell(evil, 1.0, evil)])])
    claims = Statements([Statement(evil, evil, evil)])
    blocks = [Section(evil, [table, claims, Paragraph(evil)]), Section("history", [table])]
    shown = Document(evil, blocks, [Paragraph(evil)], [KeyFigure(evil, word(evil), evil)], evil)
    book = opened(shown)
    for name in names(book):
        cells(book, name)  # no formula anywhere
    assert not any("hyperlink" in n.lower() or "external" in n.lower() for n in book.namelist())


def test_sheets_have_names_that_excel_takes() -> None:
    table = Table("", [Column("a")], [Row([Cell("1", 1)])])
    titles = ["A: [b]/c?*\\", "a b c", "x" * 40, "X" * 33, "", "History", "chart data", "'quoted'"]
    found = names(opened(Document("d", [Section(t, [table]) for t in titles])))
    assert len({n.lower() for n in found}) == len(titles) + 1
    assert all(0 < len(n) <= 31 and not set(n) & set("[]:*?/\\'") for n in found)
    assert not {"history", "chart data"} & {n.lower() for n in found}


@pytest.mark.parametrize("kind", ["regression", "machines", "comparison", "scaling"])
def test_documents_of_every_kind_can_be_opened(kind: str) -> None:
    book = opened(documents()[kind])
    assert names(book)[0] == "answer" and all(cells(book, n) for n in names(book))


def test_charts_are_excels_own_and_draw_what_is_on_their_sheet() -> None:
    results = made.results()
    drawn = [c for g in (*charts.groups(results), *charts.ledgers(results)) for c in g.charts]
    book = opened(Document("d", [Section("charts", drawn)]))
    found = [ET.fromstring(book.read(n)) for n in sorted(book.namelist()) if n.startswith("xl/charts/chart")]
    by_title = {_text(c.find(f"{_DRAWN}chart/{_DRAWN}title")): c for c in found}
    assert {"Response time of a call", "Where session time went", "CPU used, by source"} <= set(by_title)
    named = {c.id: [s.name for s in xlsx_charts.series(c)] for c in drawn}
    assert named["throughput"] == ["base: perfect scaling", "base"]
    assert named["response"] == ["mean", "median", "95 %", "99 %"]
    stack = by_title["Where session time went"]
    assert stack.find(f".//{_DRAWN}grouping").attrib["val"] == "stacked"  # type: ignore[union-attr]
    striped = [
        s for s in stack.iter(f"{_DRAWN}ser") if "pattFill" in {t.tag.rpartition("}")[2] for t in s.iter()}
    ]
    assert len(striped) == 3  # CPU WAIT under IO, LWLock and Client
    for chart in found:
        for formula in chart.iter(f"{_DRAWN}f"):
            assert (formula.text or "").startswith("'chart data'!")
    rates = results.tables["rungs"].sort("sessions")["work_per_s"].to_list()
    top = next(n for n, r in enumerate(cells(book, "chart data")) if r.get("D") == "base")
    assert [r["D"] for r in cells(book, "chart data")[top + 1 : top + 1 + len(rates)]] == pytest.approx(rates)
