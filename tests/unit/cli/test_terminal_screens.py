"""Screens of a real terminal: the answer on one screen, the table once, and no important column cut."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text
from tests import in_process
from tests.fakery import WITH_ENGINES
from tests.on_terminal import on_terminal, on_terminal_here, screen, unset
from tests.unit import report_results

from dbdyno.cli.live import _status_line
from dbdyno.conduct.measure.progress import Tick
from dbdyno.model.engine.protocols import Progress
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.present.document.document import Cell as Figure
from dbdyno.present.document.document import Column, Paragraph, Row, Table, numeric, word
from dbdyno.present.media.text import _spread_rows, lines

FAKE = ("--engine", "fake", "--call-target", "10ms", "--measure", "2s", "--settle", "0s")
LAW = "fake:cpus=2,cpu=10ms"
COMMANDS = {
    "ladder": ("run", "lio", *FAKE, "--dsn", LAW, "--sessions", "1,2,4", "--repeats", "2"),
    "long ladder": ("run", "lio", *FAKE, "--dsn", LAW, "--sessions", "1:16"),
    "variants": ("run", "recipe.toml", *FAKE, "--dsn", LAW),
    "observation": ("observe", "--engine", "fake", "--dsn", f"{LAW},foreign=3", "--for", "6s", "--quiet"),
}
RECIPE = """workload = "lio"
sessions = "2,8"
repeats = 2
[variants.shared-tables]
[variants.own-tables]
params = { tables = "own" }
[variants.own-tables-of-64-blocks]
params = { tables = "own", blocks = 64 }
"""
COLUMNS = (80, 120, 200)


Screens = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("screens")
    (root / "recipe.toml").write_text(RECIPE)
    return root


@pytest.fixture(scope="module")
def ends(store: Path) -> Screens:
    """Returns the last screen of a kind of run at 80 columns. Each kind is run when first asked for, in a
    store of its own."""

    @cache
    def end(kind: str) -> list[str]:
        lines = on_screen(store, kind, *COMMANDS[kind])
        assert "report.html" in "".join(lines[-3:])  # its path may be longer than a line
        assert not any(" left" in x or "measuring" in x for x in lines)
        return lines

    return end


def on_screen(root: Path, kind: str, *words: str, columns: int = 80) -> list[str]:
    """Returns the lines on the terminal after the program. A ladder starts the program; all else runs in this
    process."""
    command = [str(root / w) if w == "recipe.toml" else w for w in words]
    env = {"DBDYNO_STORE": str(root / kind), "PYTHONPATH": WITH_ENGINES}
    if kind == "ladder":
        code, written = on_terminal(*command, columns=columns, rows=24, seconds=240, env=env)
    else:
        code, written = on_terminal_here(*command, columns=columns, rows=24, env=env)
    lines = screen(written, columns)
    assert code == 0, lines
    return lines


def heads(lines: list[str]) -> list[list[str]]:
    return [x.split() for x in lines if x.split()[:1] == ["sess"]]


@pytest.mark.whole
@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_run_is_shown_on_one_screen(store: Path, ends: Screens, kind: str, columns: int) -> None:
    end = ends(kind)
    lines = end if columns == 80 else on_screen(store, kind, "show", "last", columns=columns)
    assert len(lines) <= 25 and max(map(len, lines)) <= columns, lines
    assert len([x for x in lines if x.startswith(("! ", "- "))]) <= 3
    if kind != "observation":
        assert len(heads(lines)) == 1 and "LIO/s" in heads(lines)[0]
    if kind == "ladder":
        assert "±95%" in heads(lines)[0]
    if kind == "variants":
        assert heads(lines)[0][:4] == ["sess", "variant", "verdict", "ratio"]
        assert {"n", "LIO/s"} <= set(heads(lines)[0])


@pytest.mark.whole
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_comparison_is_shown_on_one_screen_and_keeps_its_verdict(
    store: Path, ends: Screens, columns: int
) -> None:
    assert ends("variants")
    lines = on_screen(store, "variants", "compare", "last", columns=columns)
    assert len(lines) <= 25 and max(map(len, lines)) <= columns
    heads = [x.split() for x in lines if "verdict" in x.split()]
    assert heads and all({"variant", "ratio", "interval", "n"} <= set(h) for h in heads)


@pytest.mark.whole
def test_without_a_terminal_progress_goes_to_standard_error_and_the_table_is_whole(
    store: Path, ends: Screens
) -> None:
    def run_piped(kind: str, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**unset(), "DBDYNO_STORE": str(store / kind), "PYTHONPATH": WITH_ENGINES}
        return in_process.dbdyno(words, env, store)

    done = run_piped("piped", "run", "lio", *FAKE, "--dsn", LAW, "--sessions", "1,2")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert len(heads(done.stdout.splitlines())) == len(heads(done.stderr.splitlines())) == 1
    assert ends("long ladder")
    result = run_piped("long ladder", "show", "last")
    table = result.stdout[result.stdout.index("\nsess ") :].splitlines()
    assert [int(x.split()[0]) for x in table[2:18]] == list(range(1, 17))
    assert {"p50", "mean", "unac%"} <= set(table[1].split())
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120, 200])
def test_place_and_time_left_are_the_last_to_leave_the_line_of_progress(columns: int) -> None:
    cell = Cell(
        id="x",
        workload="lio",
        variant="a-rather-long-variant",
        sessions=128,
        repeat=1,
        params={},
        settle_ns=0,
        measure_ns=10**10,
    )
    plan = report_results.results().plan.model_copy(update={"cells": (cell,) * 12})
    tick = Tick(cell, 3, "measuring", 5.0, Progress(100, 0, 0, 0), {"CPU WAIT": 0.93, "CPU": 0.07}, 754.0)
    line = _line(plan, tick, columns)
    assert len(line) <= columns
    assert line.startswith("[3/12]") and line.endswith("13 min left")
    assert columns < 40 or "128 sessions" in line
    assert columns < 120 or "CPU WAIT 93%" in line


def _line(plan: Plan, tick: Tick, columns: int) -> str:
    line: Text = _status_line(plan, tick, None, columns)
    return line.plain


@pytest.mark.parametrize("most", [2, 5, 12])
def test_of_many_rows_the_first_the_last_and_the_key_ones_stay(most: int) -> None:
    rows = [Row([word(str(n))], key=n in (17, 64)) for n in range(70)]
    numbers = [int(r.cells[0].text) for r in _spread_rows(rows, most)]
    assert numbers == sorted(set(numbers)) and len(numbers) == most
    assert numbers[0] == 0 and numbers[-1] == 69
    assert most < 4 or {17, 64} <= set(numbers)


@pytest.mark.parametrize("name", ["emoji 🎉 table", "表の名前" * 12, "a🎉" * 40, "🎉" * 39], ids=range(4))
@pytest.mark.parametrize("column", [Column("relation", wraps=True), Column("relation", shortens=True)])
def test_names_of_wide_characters_leave_the_figures_in_their_columns(name: str, column: Column) -> None:
    """A wide character takes two columns of a terminal, which cuts a line after its last column."""
    table = Table(
        "", [column, numeric("size")], [Row([Figure(n), Figure("20.9 MiB")]) for n in (name, "plain")]
    )
    for width in (40, 41, 80):
        texts = [line.text for line in lines([table, Paragraph(f"There is {name[:10]} and more")], width)]
        ends = {cell_len(line) for line in texts if line.endswith("20.9 MiB")}
        assert len(ends) == 1
        assert max(map(cell_len, texts)) <= width
        printed = "".join(texts).replace("20.9 MiB", "").replace(" ", "")
        assert column.shortens or name.replace(" ", "") in printed
