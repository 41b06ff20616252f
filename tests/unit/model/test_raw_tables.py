"""The raw tables' file as a TOML parser reads it, and the files generated from it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dbdyno.model.schema import raw
from dbdyno.model.schema.column import Column

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "raw_tables.py"))
TEXT = TOOL["SOURCE"].read_text(encoding="utf-8")


def test_lines_are_read_as_toml_is() -> None:
    read = {
        table: {c.name: (c.type, c.null, c.doc) for c in columns} for table, columns in raw.TABLES.items()
    }
    declared = TOOL["tables"](TEXT)
    assert read == declared
    assert {t: [*columns] for t, columns in read.items()} == {
        t: [*columns] for t, columns in declared.items()
    }


def test_the_structs_of_the_core_are_up_to_date() -> None:
    assert TOOL["PATH"].read_text(encoding="utf-8") == TOOL["render"](TEXT), "run: python tools/raw_tables.py"


def test_a_reference_is_the_column_of_a_table_above() -> None:
    text = '[python.a]\nn_ns = { type = "i64", null = true, doc = "x" }\n# y\n\n[core.b]\nn_ns = "a.n_ns"\n'
    assert raw.read(text) == {
        "a": (Column("n_ns", "i64", True, "x"),),
        "b": (Column("n_ns", "i64", True, "x"),),
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[other.b]", "neither a table nor a column"),
        ('m = { type = "int", doc = "x" }', "neither a table nor a column"),
        ('m = { type = "i64", null = false, doc = "x" }', "neither a table nor a column"),
        ('m = { doc = "x", type = "i64" }', "neither a table nor a column"),
        (' m = { type = "i64", doc = "x" }', "neither a table nor a column"),
        ('n = { type = "i64", doc = "x" }', "a second n"),
        ("[python.a]", "a second a"),
        ('m = "a.n"', "no column a.n above that m could be"),
        ('m = "b.m"', "no column b.m above that m could be"),
    ],
)
def test_a_line_of_another_form_is_refused(line: str, why: str) -> None:
    text = f'[core.a]\nn = {{ type = "i64", doc = "x" }}\n{line}\n'
    with pytest.raises(ValueError, match=rf"raw.toml, line 3: {why}"):
        raw.read(text)


def test_columns_are_picked_by_name() -> None:
    assert [c.name for c in raw.columns("traced", "tid", "pid")] == ["tid", "pid"]
    with pytest.raises(KeyError):
        raw.columns("traced", "tdi")
