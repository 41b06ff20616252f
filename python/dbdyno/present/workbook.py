"""The run as an Excel workbook: a summary, charts that Excel draws itself, a sheet per table."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import polars as pl
import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.format import Format  # type: ignore[import-untyped]
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from dbdyno.model import tables as schemas
from dbdyno.model.results import Results
from dbdyno.present import headline, workbook_charts
from dbdyno.present.figures import cpus_text

MAX_ROWS = 1_048_575  # of a sheet, below its header
_INT_EXACT = 2**53  # beyond, a spreadsheet's numbers lose digits
# ending of a column's name -> number format; the unit is in the heading, as in the schema
_FORMATS = (
    ("_per_s", "#,##0.00"), ("_aas", "0.000"), ("aas", "0.000"), ("low", "0.000"), ("high", "0.000"),
    ("scaling", "0.0%"), ("relative_difference", "+0.0%;-0.0%;0.0%"), ("_starved", "0.0%"),
    ("_cpus", "0.000"),
    ("_low", "#,##0.00"), ("_high", "#,##0.00"), ("wall_s", "0.000"), ("_ns", "#,##0"),
)  # fmt: skip


def workbook(results: Results, tables: Mapping[str, pl.DataFrame]) -> bytes:
    """The workbook's bytes. Texts are written as texts, whatever they begin with; NULL is an empty cell."""
    buffer = io.BytesIO()
    options = {
        "in_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
    }
    with xlsxwriter.Workbook(buffer, options) as book:
        formats = _Formats(book)
        sheet = book.add_worksheet("summary")
        cut = [n for n, t in tables.items() if len(t) > MAX_ROWS]
        _summary(sheet, results, formats, cut)
        workbook_charts.add(book, results, formats.bold)
        for name, table in tables.items():
            _sheet(book.add_worksheet(name[:31]), name, table, formats)
    return buffer.getvalue()


class _Formats:
    """The cell formats of one workbook, made once each."""

    def __init__(self, book: xlsxwriter.Workbook) -> None:
        self._book = book
        self._numbers: dict[str, Format] = {}
        self.bold = book.add_format({"bold": True})
        self.title = book.add_format({"bold": True, "font_size": 14})
        self.wrap = book.add_format({"text_wrap": True, "valign": "top"})
        self.head = book.add_format({"bold": True, "bottom": 1, "bg_color": "#E8EDF2"})

    def number(self, column: str) -> Format | None:
        for ending, form in _FORMATS:
            if column == ending or (ending.startswith("_") and column.endswith(ending)):
                if form not in self._numbers:
                    self._numbers[form] = self._book.add_format({"num_format": form})
                return self._numbers[form]
        return None


def _summary(sheet: Worksheet, results: Results, formats: _Formats, cut: list[str]) -> None:
    sheet.set_column(0, 0, 22)
    sheet.set_column(1, 1, 110, formats.wrap)
    row = 0
    sheet.write_string(row, 0, headline.title(results), formats.title)
    for name, value in _summary_rows(results, cut):
        row += 1
        sheet.write_string(row, 0, name, formats.bold)
        sheet.write_string(row, 1, value)


def _summary_rows(results: Results, cut: list[str]) -> list[tuple[str, str]]:
    info, host, server = results.info, results.environment.host, results.environment.server
    rows = [("", s) for s in headline.sentences(results)]
    rows += [("Run", info.id), ("Status", " ".join(t for t in (info.status, info.reason) if t))]
    rows += [("Started", f"{info.started:%Y-%m-%d %H:%M:%S} UTC"), ("Plan digest", results.plan.digest)]
    rows += [("Sheet cut", f"{n}: a sheet holds {MAX_ROWS:,} rows; export to parquet for all") for n in cut]
    rows += [("Findings", "")] if results.findings else []
    for f in results.findings:
        rows.append((f.severity, f.text + (f" What to do: {f.advice}" if f.advice else "")))
    rows += [
        ("Environment", ""),
        ("Server", f"{headline.server_name(server)}: {server.description}"),
        ("Where", server.where),
        ("CPU", f"{host.cpu.model or 'unknown'}, {cpus_text(host.limits.usable_cpus)} usable"),
        ("Kernel", host.kernel),
        ("dbdyno", info.dbdyno),
        (
            "Units",
            "in the column names: _ns nanoseconds, _s seconds, _bytes; an empty cell is unknown, not 0",
        ),
    ]
    return rows + [(f"setting {k}", v) for k, v in sorted(server.settings.items())]


def _sheet(sheet: Worksheet, name: str, table: pl.DataFrame, formats: _Formats) -> None:
    """Header frozen, filter on, widths by content; comments on the headings say what a column is."""
    sheet.freeze_panes(1, 0)
    notes = {c.name: c.doc for c in schemas.TABLES.get(name, ())}
    for column, heading in enumerate(table.columns):
        sheet.write_string(0, column, heading, formats.head)
        if heading in notes and len(table) and len(table.columns) <= 60:
            sheet.write_comment(0, column, notes[heading])
        values = table[heading].head(MAX_ROWS)
        sheet.set_column(column, column, _width(heading, values), formats.number(heading))
        _column(sheet, column, values)
    if len(table) and table.columns:
        sheet.autofilter(0, 0, min(len(table), MAX_ROWS), len(table.columns) - 1)


def _column(sheet: Worksheet, column: int, values: pl.Series) -> None:
    for row, value in enumerate(values.to_list(), start=1):
        _cell(sheet, row, column, value)


def _cell(sheet: Worksheet, row: int, column: int, value: Any) -> None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, int | float) and abs(value) <= _INT_EXACT:
        sheet.write_number(row, column, value)
    else:
        sheet.write_string(row, column, str(value))


def _width(heading: str, values: pl.Series) -> float:
    longest = max((len(str(v)) for v in values.head(200).to_list() if v is not None), default=0)
    return min(60, max(len(heading), min(longest, 60)) + 2)
