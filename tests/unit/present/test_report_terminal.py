"""The terminal's tables: widths, unknown figures, plain text in pipes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit import report_results

from dbdyno import present
from dbdyno.present.document.document import Paragraph, Table
from dbdyno.present.figures.figures import ends, percent
from dbdyno.present.run import rungs

pytestmark = pytest.mark.queries


def text_of(renderable: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_percent_of_nothing_and_of_the_unknown_is_unknown() -> None:
    assert percent(None, 4) == percent(1, None) == percent(1, 0) == "?"
    assert percent(-0.001) == "0"
    assert percent(-0.02, 1) == "-2"


@pytest.mark.whole
@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("world", [report_results.SMALL, report_results.REPEATED, report_results.REMOTE])
def test_no_line_of_the_rung_table_is_wider_than_the_terminal(
    world: report_results.World, width: int
) -> None:
    table, line = present.running_rungs("LIO", width)
    rows = report_results.results(world).tables["rungs"].to_dicts()
    lines = [table.head(), *(table.row(line(r)) for r in rows)]
    assert max(len(line.text) for line in lines) <= width
    assert max(map(len, text_of(present.summary(report_results.results(world)), width).splitlines())) <= width


def heads(width: int) -> list[str]:
    return present.running_rungs("LIO", width)[0].head().text.split()


def test_a_narrow_terminal_leaves_out_percentiles_before_the_account_of_time() -> None:
    assert heads(120) == [
        "sess", "calls/s", "LIO/s", "eff%", "mean", "p50", "p95", "p99", "CPU%", "WAIT%", "sleep%", "clnt%",
        "unac%", "err", "top", "wait",
    ]  # fmt: skip
    assert heads(80) == [
        "sess", "calls/s", "LIO/s", "eff%", "p95", "CPU%", "WAIT%", "sleep%", "clnt%", "unac%", "err",
    ]  # fmt: skip


def test_figures_stand_in_their_row() -> None:
    row = report_results.results().tables["rungs"].to_dicts()[-1]
    columns, line = rungs.running("LIO")
    cells = dict(zip((c.head for c in columns), line(row).cells, strict=True))
    assert (cells["sess"].value, cells["calls/s"].value) == (8, row["calls_per_s"])
    assert cells["CPU%"].text == f"{100 * row['run_aas'] / 8:.0f}"


def test_a_row_that_knows_nothing_yet_is_question_marks_not_zeros() -> None:
    table, line = present.running_rungs("LIO", 120)
    assert table.row(line({"sessions": 4})).text.split() == ["4", *["?"] * 13]


def test_the_largest_wait_without_an_event_is_not_cut() -> None:
    table, line = present.running_rungs("LIO", 120)
    row = report_results.results().tables["rungs"].to_dicts()[-1] | {"top_wait": "no wait event"}
    assert table.row(line(row)).text.endswith("no event")


def test_a_remainder_is_known_only_if_a_part_is() -> None:
    columns, line = rungs.running("LIO")
    at = [c.head for c in columns].index("unac%")
    nothing = {"sessions": 1, "unaccounted_aas": 1.0}
    assert line(nothing).cells[at].text == "?"
    assert line(nothing | {"client_aas": 0.5, "unaccounted_aas": 0.5}).cells[at].text == "50"


def test_a_quiet_run_ends_within_a_screen() -> None:
    results = report_results.results(report_results.World(rungs=(1, 2, 4, 8)))
    quiet = replace(results, findings=tuple(f for f in results.findings if f.severity == "good"))
    assert len(text_of(present.summary(quiet), 80).splitlines()) <= 20  # of 24: then the files, the prompt


def test_unknown_figures_get_a_footnote_with_reason_and_cure() -> None:
    text = " ".join(text_of(present.summary(report_results.results(report_results.REMOTE)), 100).split())
    assert "? CPU%, WAIT%, unac%: os tasks: the server's processes are not visible from here" in text
    assert "run dbdyno there" in text


def test_known_figures_get_no_footnote() -> None:
    assert not [
        t
        for b in rungs.tables(report_results.results())
        if isinstance(b, Paragraph)
        for t in b.text
        if "?" in t
    ]


def test_a_pipe_gets_no_control_codes() -> None:
    assert "\x1b" not in text_of(present.summary(report_results.results(report_results.REPEATED)), 100)


def test_the_interval_is_shown_relative_to_the_rate() -> None:
    row = {"calls_per_s": 50.0, "calls_per_s_low": 49.0, "calls_per_s_high": 51.0}
    assert ends(row) == pytest.approx((0.98, 1.02))
    assert ends({**row, "calls_per_s_low": None}) is None
    table = next(
        b for b in rungs.tables(report_results.results(report_results.REPEATED)) if isinstance(b, Table)
    )
    intervals = next(n for n, c in enumerate(table.columns) if c.head == "±95%")
    assert {r.cells[intervals].text for r in table.rows} == {"2.0 %"}


def test_texts_of_others_are_not_taken_for_markup() -> None:
    results = report_results.hostile()
    finding = results.findings[0].model_copy(update={"text": "[red]x[/red] [/]"})
    screen = text_of(present.details(replace(results, findings=(finding,)), "claims"), 100)
    assert "[red]x[/red] [/]" in screen
