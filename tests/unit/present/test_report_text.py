"""The texts of a made-up run and a made-up observation, as they were last looked at."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from tests.unit import report_observation, report_results

from dbdyno import present

WORLDS: dict[str, Callable[[], Any]] = {
    "run": report_results.results,
    "observation": report_observation.results,
}
TEXTS = ("summary", "claims", "profile", "events", "microstates", "cross_check")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("text", TEXTS)
def test_the_text_is_as_it_was_last_looked_at(world: str, text: str, snapshot: SnapshotAssertion) -> None:
    console = Console(file=io.StringIO(), width=100)
    results = WORLDS[world]()
    console.print(present.summary(results) if text == "summary" else present.details(results, text))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.rstrip() for line in lines] == snapshot


def test_the_cross_check_has_its_figures_beside_long_names_of_sources() -> None:
    results = report_results.results()
    longer = pl.col("source").str.replace("^os tasks", "os tasks, ended ones as far as read, driver included")
    rows = results.tables["data_sources"].with_columns(longer)
    console = Console(file=io.StringIO(), width=80)
    console.print(
        present.details(replace(results, tables={**results.tables, "data_sources": rows}), "cross_check")
    )
    heads = console.file.getvalue().splitlines()[1]  # type: ignore[attr-defined]
    assert {"value", "difference", "verdict"} <= {*heads.split()}
