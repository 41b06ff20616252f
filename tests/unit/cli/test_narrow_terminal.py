"""Terminals of few columns: columns are dropped whole, and nothing fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from tests.on_terminal import on_terminal
from tests.unit import report_results

from dbdyno import present
from dbdyno.cli.observe_view import _crop
from dbdyno.present.show_options import SHOW_OPTIONS


@pytest.mark.parametrize("width", [13, 20, 40, 60, 79, 80, 100])
def test_the_rung_table_keeps_whole_columns(width: int) -> None:
    table, line = present.running_rungs("LIO", width)
    row = report_results.results().tables["rungs"].to_dicts()[0]
    heads = table.head().text
    assert heads.split()[:2] == ["sess", "calls/s"]
    assert len(heads) <= width
    assert len(table.row(line(row)).text) <= width
    if width >= 40:
        assert {"p95", "WAIT%"} <= set(heads.split())


@pytest.mark.parametrize("width", [1, 5, 40])
def test_a_summary_is_printed_at_any_width(width: int) -> None:
    console = Console(width=width, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(present.summary(report_results.results(report_results.REPEATED)))
    for name in SHOW_OPTIONS:
        console.print(present.details(report_results.results(), name))


def test_a_line_of_the_live_view_ends_at_a_word() -> None:
    line = Text("pid 1234567 user@database 99.95 100.25")
    for width in range(4, len(line)):
        text = _crop(line, width).plain.rstrip()
        assert all(word in line.plain.split() for word in text.split()), (width, text)
    assert _crop(Text("x" * 50), 10).plain == "x" * 10


def test_an_error_is_wrapped_between_words(tmp_path: Path) -> None:
    store = tmp_path / ("a" * 50)
    words = ("show", "nosuch", "--store", str(store))
    narrow, wide = (re.sub("\x1b[^m]*m", "", on_terminal(*words, columns=n)[1]) for n in (60, 400))
    assert narrow.split() == wide.split()
    assert all(len(line) <= 60 or str(store) in line for line in narrow.splitlines())
    assert len(wide.splitlines()) == 2
