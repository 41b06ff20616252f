"""Runs of commands set against each other, and along their numbers of threads."""

from __future__ import annotations

import re

import pytest
from tests.unit.execution_cells import amdahl, run_of_jobs, threads

from dbdyno import present
from dbdyno.conclude.compare import compare_runs
from dbdyno.conclude.scaled import scalings_of
from dbdyno.model.plan.kinds import COMMANDS
from dbdyno.model.plan.parallel_axes import counts_of
from dbdyno.model.results.results import Results
from dbdyno.present.media import text

pytestmark = pytest.mark.queries

DATABASES = re.compile(r"\b(?:sessions?|(?<!system )calls?|server|client|response)\b")


@pytest.fixture(scope="module")
def run() -> Results:
    return run_of_jobs(threads(1, 2, 4), amdahl(0.13), ladder=(1, 2))


@pytest.fixture(scope="module")
def slower_run(run: Results) -> Results:
    """The same jobs with a part serial twice as large."""
    slower = run_of_jobs(threads(1, 2, 4), amdahl(0.26), ladder=(1, 2))
    info = slower.info.model_copy(update={"id": f"{run.info.id}-b"})
    return Results(info, slower.plan, slower.environment, slower.tables, slower.findings)


def test_two_runs_are_compared_in_words_of_commands(run: Results, slower_run: Results) -> None:
    compared = compare_runs(run, slower_run)
    assert compared.run_kind == COMMANDS
    assert present.comparison_document(compared)["commands"]
    shown = "\n".join(line.text for line in text.on_screen(present.comparison(compared), 100))
    assert "executions per second" in shown
    assert DATABASES.findall(shown) == []
    words = " ".join([*(t.title for t in compared.metrics), *compared.summary, *compared.notes])
    assert DATABASES.findall(words) == []


def test_jobs_differ_by_their_command_and_not_by_its_measured_start(
    run: Results, slower_run: Results
) -> None:
    first = slower_run.plan.variants[0]
    (job,) = first.jobs
    changed = job.model_copy(update={"shown": "spin 2", "argv": ("spin", "2"), "shell_ns": 5})
    variants = (first.model_copy(update={"jobs": (changed,)}), *slower_run.plan.variants[1:])
    plan = slower_run.plan.model_copy(update={"variants": variants})
    moved = Results(slower_run.info, plan, slower_run.environment, slower_run.tables, slower_run.findings)
    differences = [d for d in compare_runs(run, moved).differences if d.what.startswith(first.name)]
    assert [(d.what, d.variant) for d in differences] == [(f"{first.name}: command", "spin 2")]


def test_threads_are_an_axis_of_the_analysis(run: Results) -> None:
    by_threads, *by_jobs = scalings_of(run)
    assert by_threads.ladder.load_unit == "threads"
    assert by_threads.ladder.points["load"].unique().sort().to_list() == [1, 2, 4]
    (share,) = [f for f in run.findings if f.id == "speed-up"]
    assert by_threads.answers[0] == share
    assert [s.ladder.variant for s in by_jobs] == [v.name for v in run.plan.variants]
    assert not any(a.id == "speed-up" for s in by_jobs for a in s.answers)
    words = " ".join(f"{a.text} {a.evidence}" for s in (by_threads, *by_jobs) for a in s.answers)
    assert DATABASES.findall(words) == []


@pytest.mark.parametrize(
    ("name", "unit"),
    [("threads", "threads"), ("t", "threads"), ("parallel", "threads"), ("worker", "workers"),
     ("make_jobs", "jobs"), ("cpus", "cpus"), ("process", "processes")],
)  # fmt: skip
def test_an_axis_has_the_unit_of_its_parameter(name: str, unit: str) -> None:
    assert counts_of(name) == unit
