"""Renders a document as an Excel workbook: the answer, a sheet per section with figures, stored tables.

Numbers are numbers with their unit in the heading, times are in ms; texts stay texts, whatever they begin
with.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten, wrap
from typing import Any, NamedTuple

import polars as pl
import xlsxwriter  # type: ignore[import-untyped]

from dbdyno.model.schema import tables as schemas
from dbdyno.model.text.visible import visible
from dbdyno.model.units import FACTORS_NS, NS_PER_S
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Choice,
    Column,
    Document,
    KeyFigure,
    Paragraph,
    Row,
    Section,
    Statements,
    Table,
    Verbatim,
    walk,
    word,
)
from dbdyno.present.media import xlsx_charts

MAX_ROWS = 1_048_575  # of a sheet, below its header
_LONGEST_TEXT, _LONGEST_NAME = 32_767, 31
_LINE, _WIDEST = 120, 60  # characters
_MOST_SERIES = 255  # of a chart
_READING = "An empty cell is unknown, not 0."
_DURATION = re.compile(rf"([+-]?\d[\d.,]*) ?({'|'.join(FACTORS_NS)})")
_SHARE = re.compile(r"([+-]?\d[\d.,]*)(?: ?%)?")
_SAME = {"s": "seconds", "1/s": "/s"}
"""Other spellings of units in headings."""
_STORED_FORMATS = (
    ("_per_s", "#,##0.00"),
    ("aas", "0.000"),
    ("_cpus", "0.000"),
    ("wall_s", "0.000"),
    ("scaling", "0.0%"),
    ("_starved", "0.0%"),
    ("relative_difference", "+0.0%;-0.0%;0.0%"),
    ("_ms", "#,##0.000"),
)
"""Endings of the names of stored columns, and formats of their numbers."""


def workbook(shown: Document, tables: Mapping[str, pl.DataFrame] | None = None) -> bytes:
    """Returns the bytes of the workbook. ``tables`` have a sheet each at the end, unless they are empty."""
    buffer, tables = io.BytesIO(), {n: t for n, t in (tables or {}).items() if len(t)}
    safe = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(buffer, {"in_memory": True, **safe}) as workbook_file:
        book = _Book(workbook_file, [*tables, xlsx_charts.SHEET])
        own = [b for b in shown.blocks if isinstance(b, Section) and _has_figures(b)]
        own.sort(key=lambda section: section.detail or section.folded)  # sections of a terminal come first
        answer = book.page("answer")
        answer.line(shown.title, "title")
        answer.blocks([*shown.lead, *_figures(shown.figures), *(b for b in shown.blocks if b not in own)])
        answer.blocks(_ending(shown, tables))
        for page, section in [(book.page(s.title), s) for s in own]:
            page.line(section.title, "title")
            page.blocks(section.blocks)
        book.end()
        for name, table in tables.items():
            _stored(workbook_file.add_worksheet(name[:_LONGEST_NAME]), name, table, book)
    return buffer.getvalue()


def _has_figures(section: Section) -> bool:
    """Returns whether a section needs a sheet.

    It does if it has charts that Excel can draw, tables of numbers, or any tables without claims.
    """
    inner = list(walk(section.blocks))
    tables = [b for b in inner if isinstance(b, Table)]
    claims = any(isinstance(b, Statements) for b in inner)
    drawn = any(xlsx_charts.series(b) for b in inner if isinstance(b, Chart))
    return drawn or any(not claims or any(c.number for c in t.columns) for t in tables)


def _figures(figures: Sequence[KeyFigure]) -> list[Block]:
    rows = [Row([word(f.name), f.cell, word(f.note)]) for f in figures]
    return [Table("", (Column(""), Column("", number=True), Column("")), rows)] if rows else []


def _ending(shown: Document, tables: Mapping[str, pl.DataFrame]) -> list[Block]:
    cut = [n for n, t in tables.items() if len(t) > MAX_ROWS]
    notes = [f"Sheet {n} is cut: a sheet holds {MAX_ROWS:,} rows; export to parquet for all." for n in cut]
    return [Section("", [Paragraph(t) for t in (*notes, _READING, shown.footer) if t])]


class _Book:
    """State that the sheets of a workbook share."""

    def __init__(self, workbook: Any, reserved: Iterable[str]) -> None:
        self._workbook = workbook
        self._names = {n[:_LONGEST_NAME].lower() for n in reserved}
        self._formats: dict[str, Any] = {}
        self._pages: list[_Page] = []

    def page(self, title: str) -> _Page:
        self._pages.append(_Page(self._workbook.add_worksheet(self._free(title)), self))
        return self._pages[-1]

    def style(self, name: str) -> Any:
        """Returns the format of this name; other names are formats of numbers."""
        if name not in self._formats:
            self._formats[name] = self._workbook.add_format(_STYLES.get(name, {"num_format": name}))
        return self._formats[name]

    def end(self) -> None:
        """Sets the widths of columns by content, and adds the charts with a sheet for their figures."""
        charts = [(page, *c) for page in self._pages for c in page.charts]
        data = self._workbook.add_worksheet(xlsx_charts.SHEET) if charts else None
        top = 0
        for page, row, chart, drawn in charts:
            excel_chart, top = xlsx_charts.add(self._workbook, data, top, chart, drawn)
            page.sheet.insert_chart(row, 0, excel_chart)
        for page in self._pages:
            for column, width in page.widths.items():
                page.sheet.set_column(column, column, width + 2)

    def _free(self, title: str) -> str:
        """Returns an unused name for a sheet, short and without characters that Excel forbids."""
        words = re.sub(r"[\[\]:*?/\\'\s]+", " ", visible(title)).strip() or "sheet"
        name = shorten(words, _LONGEST_NAME, placeholder="") or words[:_LONGEST_NAME]
        number = 1
        while name.lower() in {*self._names, "history"}:
            number += 1
            name = f"{name[: _LONGEST_NAME - 4].rstrip()} {number}"
        self._names.add(name.lower())
        return name


_STYLES = {
    "title": {"bold": True, "font_size": 14},
    "bold": {"bold": True},
    "head": {"bold": True, "bottom": 1, "bg_color": "#E8EDF2"},
    "number head": {"bold": True, "bottom": 1, "bg_color": "#E8EDF2", "align": "right"},
    "text": {},
}


class _Page:
    """A sheet that is filled from top to bottom."""

    def __init__(self, sheet: Any, book: _Book) -> None:
        self.sheet = sheet
        self.charts: list[tuple[int, Chart, list[xlsx_charts.Drawn]]] = []
        self.widths: dict[int, int] = {}
        self._book = book
        self._row = 0

    def blocks(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            match block:
                case Paragraph():
                    self.line(block.text)
                case Statements():
                    self._statements(block)
                case Verbatim(sketch=False):
                    for text in block.text.splitlines():
                        self._text(self._row, 0, text)
                        self._row += 1
                case Table():
                    self._table(block.shown(sketches=False))
                case Chart():
                    self._chart(block)
                case Choice() if block.options:
                    self.blocks(block.options[0].blocks)
                case Section():
                    self._row += 1
                    self.line(block.title, "bold")
                    self.blocks(block.blocks)
                case _:
                    pass  # drawings: tables hold their figures

    def line(self, text: str, style: str = "text", column: int = 0) -> None:
        """Writes a text as lines, which extend over the cells to the right."""
        for part in [p for line in text.splitlines() for p in wrap(line, _LINE)]:
            self._text(self._row, column, part, style)
            self._row += 1

    def _statements(self, shown: Statements) -> None:
        for item in shown.items:
            self._text(self._row, 0, item.title or item.tone, "bold")
            self.line(item.text + (f" ({item.evidence})" if item.evidence else ""), column=1)
            self.line(item.advice, column=1)

    def _table(self, shown: Table) -> None:
        self._row += 1
        self.line(shown.title, "bold")
        forms = [_form([r.cells[n] for r in shown.rows], c) for n, c in enumerate(shown.columns)]
        for n, (column, form) in enumerate(zip(shown.columns, forms, strict=True)):
            self._text(self._row, n, form.head, "number head" if column.number else "head")
            self._widen(n, form.head)
        for row in shown.rows:
            self._row += 1
            for n, (cell, form) in enumerate(zip(row.cells, forms, strict=True)):
                self._cell(n, cell, form)
        self._row += 2

    def _cell(self, column: int, cell: Cell, form: _Form) -> None:
        if _is_number(cell):
            kind = form.kind or _kind(cell)
            style = form.style if form.kind else _style([cell], kind, with_unit=True)
            self.sheet.write_number(self._row, column, _value_of(cell) * kind.factor, self._book.style(style))
        elif cell.text != UNKNOWN:
            self._text(self._row, column, cell.text)
        self._widen(column, cell.text)

    def _chart(self, chart: Chart) -> None:
        drawn = xlsx_charts.series(chart)
        if 0 < len(drawn) <= _MOST_SERIES:
            self._row += 1
            self.line(chart.caption)
            self.charts.append((self._row, chart, drawn))
            self._row += xlsx_charts.ROWS

    def _text(self, row: int, column: int, text: str, style: str = "text") -> None:
        if text:
            self.sheet.write_string(row, column, visible(text)[:_LONGEST_TEXT], self._book.style(style))

    def _widen(self, column: int, text: str) -> None:
        self.widths[column] = min(_WIDEST, max(self.widths.get(column, 8), len(text)))


class _Kind(NamedTuple):
    """The unit and scale of a number as it is written."""

    unit: str
    factor: float = 1.0
    share: bool = False


class _Form(NamedTuple):
    """Heading, kind and style of a column; kind is None if each number has its own."""

    head: str
    kind: _Kind | None
    style: str


def _form(cells: Sequence[Cell], column: Column) -> _Form:
    name = column.name or column.head
    numbers = [c for c in cells if _is_number(c)]
    kinds = {_kind(c) for c in numbers if c.value} or {_kind(c) for c in numbers}
    if len(kinds) != 1:
        return _Form(name, None if kinds else _Kind(""), "text")
    (kind,) = kinds
    parts = re.split(r"[\s,()]+", name.lower())
    named = not kind.unit or _SAME.get(kind.unit, kind.unit.lower()) in (*parts, name[-2:])
    head = name if named else ", ".join(filter(None, (name, kind.unit)))
    return _Form(head, kind, _style(numbers, kind))


def _is_number(cell: Cell) -> bool:
    return isinstance(cell.value, int | float) and math.isfinite(cell.value)


def _value_of(cell: Cell) -> float:
    return float(cell.value or 0.0)


def _kind(cell: Cell) -> _Kind:
    """Infers the kind of a number from its unit and text: a time in ns or seconds, a share in percent, or
    other."""
    value = _value_of(cell)
    duration, share = _DURATION.fullmatch(cell.text), _SHARE.fullmatch(cell.text)
    if cell.unit == "ns" or (duration and _near(duration, FACTORS_NS[duration[2]], value)):
        return _Kind("ms", 1e-6)
    if duration and _near(duration, FACTORS_NS[duration[2]] / NS_PER_S, value):
        return _Kind("ms", 1e3)
    if not cell.unit and share and _near(share, 0.01, value):
        return _Kind("", share=True)
    return _Kind(cell.unit)


def _near(match: re.Match[str], factor: float, value: float) -> bool:
    """Returns whether the number in a text is ``value`` up to rounding."""
    number = match[1].replace(",", "")
    digits = len(number.partition(".")[2])
    return abs(float(number) * factor - value) <= 0.6 * factor * 10.0**-digits


def _style(cells: Sequence[Cell], kind: _Kind, with_unit: bool = False) -> str:
    """Returns the format of numbers for these cells."""
    if kind.share:
        return "0.0%"
    unit = f' "{visible(kind.unit)}"' if with_unit and kind.unit and '"' not in kind.unit else ""
    values = [abs(_value_of(c)) * kind.factor for c in cells]
    top = max(values, default=0.0)
    if all(v == round(v) for v in values) or top >= 1000:
        return f"#,##0{unit}"
    return f"{'0.0' if top >= 100 else '0.000' if top >= 0.1 else '0.00E+00'}{unit}"


def _stored(sheet: Any, name: str, table: pl.DataFrame, book: _Book) -> None:
    """Writes a stored table: frozen header, filter, widths by content, and comments that document the
    columns."""
    sheet.freeze_panes(1, 0)
    notes = {_heading(c.name): c.doc for c in schemas.TABLES.get(name, ())}
    table = table.with_columns(pl.col(n) / 1e6 for n in _durations(table)).rename(_heading)
    for column, heading in enumerate(table.columns):
        sheet.write_string(0, column, heading, book.style("head"))
        if heading in notes and len(table) and len(table.columns) <= _WIDEST:
            sheet.write_comment(0, column, notes[heading])
        values = table[heading].head(MAX_ROWS).to_list()
        longest = max((len(str(v)) for v in values[:200] if v is not None), default=0)
        style = next((book.style(form) for ending, form in _STORED_FORMATS if heading.endswith(ending)), None)
        sheet.set_column(column, column, min(_WIDEST, max(len(heading), longest) + 2), style)
        for row, value in enumerate(values, start=1):
            xlsx_charts.write(sheet, row, column, value)
    if len(table) and table.columns:
        sheet.autofilter(0, 0, min(len(table), MAX_ROWS), len(table.columns) - 1)


def _durations(table: pl.DataFrame) -> list[str]:
    """Returns the columns in ns, which become ms."""
    return [n for n, kind in table.schema.items() if n.endswith("_ns") and kind.is_numeric()]


def _heading(name: str) -> str:
    return f"{name.removesuffix('_ns')}_ms" if name.endswith("_ns") else name
