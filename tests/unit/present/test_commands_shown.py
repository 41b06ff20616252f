"""Runs of commands as they are shown: tables, charts, what vanishes, exports."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.execution_cells import amdahl, job, run_of_jobs, threads

from dbdyno import present
from dbdyno.conclude.catalogue import claim
from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.plan.plan import Variant
from dbdyno.model.results.results import Results
from dbdyno.present import report
from dbdyno.present.commands import commands
from dbdyno.present.commands.commands_charts import executions, gantt, parallelism, speed_ups
from dbdyno.present.document.document import Block, Chart, Section, Table, walk
from dbdyno.present.figures import headline, profile
from dbdyno.present.figures.selection import pick_of
from dbdyno.present.media import markdown, text
from dbdyno.present.run import charts, rungs


@pytest.fixture(scope="module")
def grid() -> Results:
    return run_of_jobs(threads(1, 2, 4), amdahl(0.13), ladder=(1, 2))


def _all_blocks(results: Results) -> list[Block]:
    return list(walk(report.document(results).blocks))


def test_the_first_line_is_the_answer_and_fits_a_terminal(grid: Results) -> None:
    lines = [line.text for line in text.on_screen(report.brief(grid), 80)]
    assert "At 4 threads one job is" in " ".join(lines[:3])
    assert max(map(len, lines)) <= 80
    assert not any("calls/s" in line for line in lines)


def test_the_grid_has_each_combination(grid: Results) -> None:
    charts = {c.id: c for c in _all_blocks(grid) if isinstance(c, Chart)}
    heat = next(c for id, c in charts.items() if id.endswith("grid-rate"))
    assert heat.marks == 6
    (table,) = [t for t in _all_blocks(grid) if isinstance(t, Table) and "by jobs at once" in t.title]
    assert [len(r.cells) for r in table.rows] == [4, 4]
    (speed,) = speed_ups(grid)
    assert [k.label for k in speed.legend] == ["measured", "perfect", "Amdahl's law"]


def test_executions_and_tasks_are_drawn_over_time(grid: Results) -> None:
    pick = pick_of(grid)
    assert pick is not None
    bars, tasks = gantt(grid, pick), parallelism(grid, pick)
    assert bars is not None and bars.marks == 10  # 2 jobs at once, 5 executions each
    assert tasks is not None
    few = grid.of_cell("parallelism", pick.cell or "")
    assert few["few"].mean() == pytest.approx(0.25, abs=0.02)


def test_every_execution_is_drawn_and_marked_if_it_failed() -> None:
    variants = (Variant(name="a", jobs=(job("a"),)), Variant(name="b", jobs=(job("b"),)))

    def failing(row: dict[str, Any]) -> dict[str, Any]:
        failed = row["session"] == 0 and row["number"] == 2 and row["job"] == "b"
        return row | ({"outcome": "exit", "exit_code": 1} if failed else {})

    seconds = {"a": 0.5, "b": 0.9}
    run = run_of_jobs(variants, lambda v, _n, _job: seconds[v.name], repeats=2, change=failing)
    (drawn,) = executions(run)
    assert isinstance(drawn, Chart)
    points = [p for rows in drawn.spec["datasets"].values() for p in rows if "outcome" in p]
    ran = run.whole("execution_times").filter("measured")
    assert len(points) == len(ran) and [k.label for k in drawn.legend] == ["failed"]
    assert [(p["command"], p["outcome"]) for p in points if p["outcome"] != "ok"] == [("b", "exit")] * 2
    assert max(p["value"] for p in points if p["command"] == "a") == pytest.approx(500, rel=0.1)


def test_a_run_whose_executions_all_failed_starts_with_that_and_doubts_no_figure() -> None:
    results = run_of_jobs(
        (Variant(name="base", jobs=(job("xz"),)),),
        lambda *_: 1.0,
        repeats=1,
        each=10,
        change=lambda row: row | {"outcome": "exit", "exit_code": 1},
    )
    others = claim("foreign-load", {"used": 2.0, "place": "", "measurements": "", "who": ""}, 2.0, case="run")
    assert headline.answer_sentences(results)[0].startswith("All 10 executions of xz failed")
    assert not headline.doubt_sentences(replace(results, findings=(*results.findings, others)))


def test_one_load_has_no_ladder_and_shows_user_and_system_cpu() -> None:
    run = run_of_jobs((Variant(name="a", jobs=(job("a"),)),), amdahl(0.1), repeats=2)
    ids = {b.id for b in report.document(run).blocks if isinstance(b, Section)}
    assert not {"rungs", "charts", "scaling"} & ids and "commands" in ids
    (table,) = [b for b in walk(commands.brief(run)) if isinstance(b, Table)]
    heads = [c.head for c in table.columns]
    (row,) = [r for r in commands.rates(run) if r["job"] is None]
    assert table.rows[0].cells[heads.index("user")].value == row["cpu_user_ns"]
    assert table.rows[0].cells[heads.index("system")].value == row["cpu_system_ns"]


def test_parts_that_mean_nothing_for_commands_are_left_out(grid: Results) -> None:
    titles = [b.title for b in _all_blocks(grid) if isinstance(b, Section) and b.blocks]
    assert not {"Top SQL", "By script", "Wait chains", "Load profile"} & set(titles)
    assert {"Commands", "Executions", "Jobs and threads"} <= set(titles)


def test_the_profile_of_commands_has_no_counters_of_a_server(grid: Results) -> None:
    pick = pick_of(grid)
    assert pick is not None
    with speaking_of(kind_of(grid.plan)):
        (table,) = [b for b in profile.load_profile(grid, pick) if isinstance(b, Table)]
    assert {row.cells[0].text for row in table.rows} == {"CPU", "CPU WAIT", "calls"}


def test_no_word_is_one_of_databases(grid: Results) -> None:
    """``session`` is the number of a slot, as in ``{session}``."""
    page = markdown.page(report.document(grid)).replace("| session | job |", "")
    misfits = re.findall(
        r"\b(?:sessions?|(?<!system )calls?|DB \w+|server|backend|client|SQL|response)\b", page
    )
    assert misfits == []
    claims = " ".join(f"{c.text} {c.advice}" for c in grid.findings)
    assert re.findall(r"\b(?:sessions?|calls?|server|client)\b", claims) == []


def test_shares_of_time_are_of_the_tasks(grid: Results) -> None:
    rung = {"sessions": 1, "run_aas": 3.0, "runq_aas": 1.0, "tasks_aas": 4.0, "status": "ok"}
    columns, line = rungs.running("", results=grid)
    cells = dict(zip([c.head for c in columns], [c.text for c in line(rung).cells], strict=True))
    assert (cells["CPU%"], cells["WAIT%"], cells["CPUs"], cells["tasks"]) == ("75", "25", "3.00", "4.00")
    assert "clnt%" not in cells and cells["jobs"] == "1"


def test_names_of_users_stay() -> None:
    """Nouns stand in slots of our own texts: a job may be called what a slot or a noun is."""
    names = ("calls", "1 session", "DB time", "{~calls}")
    results = run_of_jobs(
        tuple(Variant(name=n, jobs=(job(n),)) for n in names), lambda *_: 1.0, repeats=2, each=3
    )
    page = markdown.page(report.document(results)).replace("\\", "")
    assert all(f"{name} |" in page or f"{name}, " in page for name in names)


def test_failures_and_hostile_names_are_shown_as_text() -> None:
    def bad(row: dict[str, Any]) -> dict[str, Any]:
        return row | (
            {"outcome": "signal", "exit_code": 9, "detail": "\x1b[31m<b>|"} if row["number"] else {}
        )

    results = run_of_jobs(
        (Variant(name="base", jobs=(job("<i>x"),)),), lambda *_: 1.0, repeats=1, each=3, change=bad
    )
    page = present.html(results) if hasattr(present, "html") else ""
    assert "<i>x" not in page
    shown = markdown.page(report.document(results))
    assert "\x1b" not in shown and "signal 9" in shown


def test_exports_hold_every_execution(grid: Results, tmp_path: Path) -> None:
    (path,) = present.export(grid, None, "json", tmp_path / "r.json")
    document = json.loads(path.read_text())
    assert len(document["execution_times"]) == 3 * 3 * (5 + 10)
    assert {"mean_ns", "sd_ns", "min_ns", "median_ns", "max_ns"} <= set(document["execution_rates"][0])
    names = {p.name for p in present.export(grid, None, "csv", tmp_path / "out")}
    assert {"execution_rates.csv", "execution_times.csv"} <= names


def test_work_a_second_is_a_column_where_it_is_no_runs() -> None:
    xz = job("xz").model_copy(update={"work_unit": "files"})
    results = run_of_jobs(
        (Variant(name="base", jobs=(xz,)),), amdahl(0.13), change=lambda row: row | {"work": 40.0}
    )
    (table,) = [b for b in walk(commands.brief(results)) if isinstance(b, Table)]
    at = [c.head for c in table.columns].index("files/s")
    (row,) = table.rows
    assert row.cells[at].value == pytest.approx(20, rel=0.05)  # 40 files in 2 s
    assert "runs/s" not in [c.head for c in table.columns]


def test_executions_shorter_than_the_start_of_a_shell_are_drawn(grid: Results) -> None:
    """The shell's time is taken off: nothing is left of each."""
    none = {n: t.with_columns(low_ns=0, high_ns=0) for n, t in grid.tables.items() if "high_ns" in t.columns}
    assert none
    short = replace(grid, tables={**grid.tables, **none})
    drawn = [c for group in charts.durations(short) for c in group.charts]
    assert {c.marks for c in drawn if c.id.startswith("distribution")} == {1}
