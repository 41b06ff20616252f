"""The terminal's tables: widths, unknown figures, plain text in pipes."""

from __future__ import annotations

import io

import pytest
import report_results as made
from rich.console import Console

from dbdyno.present import summary, terminal
from dbdyno.present.figures import half_width, percent, short_ns, short_number


def printed(renderable: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (0, "0"), (6_214_000, "6.21M"), (999_700, "1.00M"), (12_345, "12.3k"), (41.26, "41.3"),
     (0.5, "0.500")],
)  # fmt: skip
def test_short_numbers(value: float | None, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "?"), (0, "0ns"), (312_000, "312us"), (1_234_567, "1.23ms"), (12_300_000_000, "12.3s")],
)
def test_short_durations(value: float | None, text: str) -> None:
    assert short_ns(value) == text


def test_percent_of_nothing_and_of_the_unknown_is_unknown() -> None:
    assert percent(None, 4) == percent(1, None) == percent(1, 0) == "?"
    assert percent(-0.001) == "0"
    assert percent(-0.02, 1) == "-2"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
@pytest.mark.parametrize("world", [made.SMALL, made.REPEATED, made.REMOTE])
def test_no_line_of_the_rung_table_is_wider_than_the_terminal(world: made.World, width: int) -> None:
    chosen = terminal.columns(width, "LIO", repeats=world.repeats > 1, errors=world.errors > 0)
    rows = made.results(world).tables["rungs"].to_dicts()
    lines = [terminal.rung_header(chosen), *(terminal.rung_row(r, chosen) for r in rows)]
    needed = 70  # what may not be left out
    assert max(len(line.plain) for line in lines) <= max(width, needed)


def test_a_hundred_columns_show_what_the_table_promises() -> None:
    heads = [c.head for c in terminal.columns(100, "LIO")]
    assert heads == [
        "sess", "calls/s", "LIO/s", "eff%", "mean", "p50", "p95", "p99", "CPU%", "WAIT%", "sleep%", "clnt%",
        "unac%", "top wait",
    ]  # fmt: skip


def test_a_narrow_terminal_leaves_out_percentiles_before_the_account_of_time() -> None:
    names = {c.name for c in terminal.columns(80, "LIO", errors=True)}
    assert {"calls_per_s", "scaling", "run_aas", "runq_aas", "unaccounted_aas", "errors"} <= names
    assert not {"response_p50_ns", "response_p99_ns"} & names


def test_figures_stand_in_their_row() -> None:
    results = made.results()
    row = results.tables["rungs"].to_dicts()[-1]
    cells = terminal.rung_row(row, terminal.columns(100, "LIO")).plain.split()
    assert cells[0] == "8"
    assert float(cells[1]) == pytest.approx(row["calls_per_s"], rel=0.01)
    assert cells[8] == f"{100 * row['run_aas'] / 8:.0f}"


def test_a_row_that_knows_nothing_yet_is_question_marks_not_zeros() -> None:
    text = terminal.rung_row({"sessions": 4}, terminal.columns(100, "LIO")).plain
    assert text.split() == ["4", *["?"] * 12]


def test_unknown_figures_get_a_footnote_with_reason_and_cure() -> None:
    text = " ".join(printed(summary(made.results(made.REMOTE)), 100).split())
    assert "? CPU%, WAIT%, unac%: os tasks: the server's processes are not seen from here" in text
    assert "run dbdyno there" in text


def test_known_figures_get_none() -> None:
    assert "? " not in printed(terminal.rung_table(made.results()), 100)


def test_a_pipe_gets_no_control_codes() -> None:
    assert "\x1b" not in printed(summary(made.results(made.REPEATED)), 100)


def test_the_interval_is_half_its_width_relative_to_the_rate() -> None:
    row = {"calls_per_s": 50.0, "calls_per_s_low": 49.0, "calls_per_s_high": 51.0}
    assert half_width(row) == pytest.approx(0.02)
    assert half_width({**row, "calls_per_s_low": None}) is None
    assert "±95%" in printed(terminal.rung_table(made.results(made.REPEATED)), 100)


def test_texts_of_others_are_not_taken_for_markup() -> None:
    results = made.hostile()
    finding = results.findings[0].model_copy(update={"text": "[red]x[/red] [/]"})
    assert "[red]x[/red] [/]" in printed(terminal.findings_text([finding]), 100)
