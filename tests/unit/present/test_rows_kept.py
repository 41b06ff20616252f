"""Which rows a short terminal keeps: of a ranking the first ones, of a ladder some all along it."""

from __future__ import annotations

import pytest

from dbdyno.present.document.document import UNKNOWN, Cell, Column, Document, Row, Section, Table, numeric
from dbdyno.present.media import text

ROWS = 60


def rows(*keys: int) -> list[Row]:
    return [Row([Cell(f"n{n}", n)], key=n in keys) for n in range(ROWS)]


def names_kept(table: Table) -> list[str]:
    shown = Document("A run", [Section("Waits", [table])])
    return [line.text for line in text.on_screen(shown, 80) if line.text.startswith("n")]


def test_a_ranking_keeps_its_first_rows_and_its_sum() -> None:
    assert names_kept(Table("", [Column("wait")], rows())) == [f"n{n}" for n in range(12)]
    assert names_kept(Table("", [Column("wait")], rows(ROWS - 1))) == [*(f"n{n}" for n in range(11)), "n59"]


@pytest.mark.parametrize("key", [17, 41])
def test_a_ladder_is_thinned_evenly_and_keeps_the_row_that_counts(key: int) -> None:
    names = names_kept(Table("", [Column("sessions")], rows(key), along_axis=True))
    assert (names[0], names[-1], len(names)) == ("n0", "n59", 12)
    assert f"n{key}" in names


def line_texts(columns: list[Column], cells: list[str], width: int) -> list[str]:
    shown = Table("", columns, [Row([Cell(c) for c in cells])])
    return [line.text for line in text.lines([shown], width)]


@pytest.mark.parametrize("width", range(12, 60))
def test_no_width_cuts_a_figure(width: int) -> None:
    """Figures without a rank, too: the whole column goes, and its heading is named."""
    heads, figures = ["", "per second", "per call", "per run"], ["time", "11.5 k", "42.5 k", "57.1 k"]
    texts = line_texts([Column(""), *map(numeric, heads[1:])], figures, width)
    assert max(map(len, texts[:2])) <= max(width, len("time  per second"))
    kept = [f for f in figures[1:] if f in texts[1]]
    assert kept and kept == figures[1 : 1 + len(kept)]
    left_out = " ".join(texts[2:])
    assert all(h in left_out for h in heads[1 + len(kept) :])


def test_a_column_of_unknown_figures_goes_before_all_others() -> None:
    columns = [Column(""), numeric("calls/s"), numeric("p95", 9), numeric("work/s")]
    assert line_texts(columns, ["name", "250 k", "3 ms", UNKNOWN], 20)[:2] == [
        "      calls/s   p95",
        "name    250 k  3 ms",
    ]
