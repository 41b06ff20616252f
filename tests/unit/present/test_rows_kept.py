"""Which rows a short terminal keeps: of a ranking the first ones, of a ladder some all along it."""

from __future__ import annotations

import pytest

from dbdyno.present.document.document import Cell, Column, Document, Row, Section, Table
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
