"""The examples of docs/adding can be copied: their Python runs, and does what the pages say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.fakery import climb

from dbdyno.account import window
from dbdyno.account.window.cells import key
from dbdyno.conclude import checking
from dbdyno.conclude.catalogue import Entry
from dbdyno.conclude.run.case import Case
from dbdyno.model.schema import tables

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "adding"
LAW = "fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms"


def blocks(page: str, language: str) -> str:
    text = (PAGES / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def namespace(page: str) -> dict[str, Any]:
    """What the page's Python defines."""
    names: dict[str, Any] = {"__name__": page}
    exec(compile(blocks(page, "python"), page, "exec"), names)
    return names


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The module of table.md, with its table in the schema."""
    names = namespace("table.md")
    monkeypatch.setitem(tables.TABLES, "evenness", names["EVENNESS"])
    return names


def test_the_table_has_the_rates_of_the_servers_law(registered: dict[str, Any]) -> None:
    """A call takes 4 ms of CPU and waits 5 ms, and each of the two sessions has a CPU."""
    cut = window.cut_rates(climb(LAW, (2,), repeats=2).cells)
    each = registered["evenness"](cut)
    total = registered["evenness_total"]({**cut, "evenness": each})
    assert total.select("cell", "repeat").rows() == [("all", 0)]
    for row in (*each.to_dicts(), *total.to_dicts()):
        assert row["slowest_per_s"] == pytest.approx(1000 / 9, rel=0.01)
        assert row["fastest_per_s"] == pytest.approx(1000 / 9, rel=0.01)


def test_an_unknown_rate_makes_the_ends_unknown(registered: dict[str, Any]) -> None:
    cut = window.cut_rates(climb(LAW, (2,)).cells)
    unknown = pl.when(pl.col("session") == 0).then(None).otherwise("value").alias("value")
    (row,) = registered["evenness"](cut | {"rates": cut["rates"].with_columns(unknown)}).to_dicts()
    assert row["slowest_per_s"] is row["fastest_per_s"] is None


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("fastest", "claims"), [(19.0, 0), (20.0, 1), (None, 0)])
def test_the_check_is_made_of_the_table(
    monkeypatch: pytest.MonkeyPatch, fastest: float | None, claims: int
) -> None:
    ((id, record),) = tomllib.loads(blocks("claim.md", "toml")).items()
    entry = Entry(id, **record)
    monkeypatch.setattr("dbdyno.conclude.catalogue.entries", lambda: {id: entry})
    monkeypatch.setattr(checking, "entries", lambda: {id: entry})
    monkeypatch.setattr("dbdyno.conclude.run.case._OF_CELL", ("rates", "evenness"))
    monkeypatch.setattr(checking, "_REGISTERED", [])
    made = climb(LAW, (2,))
    cut = window.cut_rates(made.cells)
    row = key(made.cells[0]) | {"slowest_per_s": 10.0, "fastest_per_s": fastest, "source": "driver"}
    case = Case(made.plan, made.environment, cut | {"evenness": tables.rows("evenness", [row])}, {})
    assert len([*namespace("claim.md")["unevenly_served"](case)]) == claims
    assert [c.claims for c in checking.checks("database")] == [(id,)]


def test_the_parser_reads_the_counters_of_the_source() -> None:
    source = namespace("source.md")["PAGING"]
    assert source.file.parse("nr_free_pages 5\npgfault 600\npgmajfault 7\n") == {
        "nr_free_pages": 5,
        "pgfault": 600,
        "pgmajfault": 7,
    }
    assert {c.name for c in source.file.counters} == {"pgfault", "pgmajfault"}
