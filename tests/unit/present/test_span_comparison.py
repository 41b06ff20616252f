"""Two spans side by side: statements of unknown text are one row, and columns name their side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from tests.unit import report_results

from dbdyno.model.results.span_comparison import SpanComparison
from dbdyno.model.schema import tables
from dbdyno.present.document.document import Section, Table
from dbdyno.present.observation.span_comparison import sections

_NUMBERS = ("time_per_s_a", "time_per_s_b", "change", "calls_per_s_a", "calls_per_s_b")


def statement(query_id: int, a: float | None, b: float, calls: float | None = 1.0) -> dict[str, Any]:
    change = None if a is None else b - a
    figures = dict(zip(_NUMBERS, (a, b, change, calls, calls), strict=True))
    means = {"mean_ns_a": 1e6, "mean_ns_b": 1e6}
    return {"query_id": query_id, "user": "u", "database": "d", **figures, **means, "time": "DB time"}


def compared(*statements: dict[str, Any]) -> Table:
    frame = pl.DataFrame(list(statements), infer_schema_length=None)
    nothing = pl.DataFrame(schema={"a": pl.Float64, "b": pl.Float64, "name": pl.String})
    base = report_results.results()
    texts = tables.rows("statement_texts", [{"query_id": 1, "text": "select 1", "length": 8}])
    results = replace(base, tables={**base.tables, "statement_texts": texts})
    comparison = SpanComparison(nothing, frame, nothing, pl.DataFrame(), (0, 0), False)
    (section,) = (s for s in sections(comparison, results, results) if s.id == "changed-statements")
    assert isinstance(section, Section)
    return next(b for b in section.blocks if isinstance(b, Table))


def test_statements_of_unknown_text_are_one_row_at_the_place_of_their_sum() -> None:
    few = [statement(n, a, b) for n, a, b in ((7, 0.1, 0.5), (1, 0.0, 0.5), (8, 0.0, 0.3))]
    table = compared(*few, statement(9, None, 1), statement(10, None, 2))
    texts = [row.cells[0] for row in table.rows]
    names = ["2 statements of unknown text", "select 1", "2 statements of unknown text"]
    assert [t.text for t in texts] == names
    assert [texts[0].note, texts[2].note] == ["query ids 7, 8", "query ids 9, 10"]
    figures = [[c.text for c in table.rows[n].cells[1:4]] for n in (0, 2)]
    assert figures == [["100 ms", "800 ms", "+700 ms"], ["", "3.00 s", ""]]


def test_one_statement_of_unknown_text_keeps_its_id() -> None:
    table = compared(statement(7, 0.0, 0.4), statement(1, 0.0, 0.5))
    assert {row.cells[0].text for row in table.rows} == {"query id 7", "select 1"}


def test_columns_of_a_side_name_it() -> None:
    columns = compared(statement(1, 0.0, 0.5)).columns
    assert {c.head: c.side for c in columns if c.side} == {
        "A": "a", "B": "b", "calls/s A": "a", "calls/s B": "b", "mean A": "a", "mean B": "b",
    }  # fmt: skip
