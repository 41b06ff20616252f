"""The title block of pages about a figure of a run: what was measured, where, when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.fakery import climb, recorded
from tests.unit import report_observation, report_results

from dbdyno import conduct, present
from dbdyno.conclude.snapshots.trend import concluded
from dbdyno.model.plan.plan import PlannedScript
from dbdyno.model.plan.script_workload import workload_of
from dbdyno.model.results.analyses import Machine
from dbdyno.model.results.results import Results
from dbdyno.model.results.trend import Figure, Point, Trend
from dbdyno.present.document.document import Table, Verbatim, walk
from dbdyno.present.figures import title_block
from dbdyno.present.run import run_facts
from dbdyno.store import RunStore

FIGURE = Figure("Rate", "rate", True, "1/s")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    store = RunStore(tmp_path_factory.mktemp("store"))
    run = recorded(store, climb("fake:cpu=20ms,wait=IO/Read:10ms", [1, 2]))
    run.finish("complete")
    return conduct.results_of(run)


def test_an_analysis_of_a_run_has_the_facts_of_the_run(results: Results) -> None:
    about = present.scaling(results.scaling, results).about
    assert about == present.run_document(results).about
    assert {"Workload", "Host", "Server", "When", "Repeats"} <= dict(about).keys()


def test_work_is_counted_only_where_throughput_counts_it() -> None:
    script = workload_of([PlannedScript(name="rw.sql", text="select 1;", weight=1)])
    assert "counted" not in title_block.described(script, script=True)
    workload = script.model_copy(update={"work_constant": True})
    assert title_block.described(workload).endswith(" Work is counted in logical reads (LIO).")


def test_an_observation_counts_its_windows_and_names_their_length() -> None:
    assert dict(title_block.of_run(report_observation.results()))["Windows"] == "6 windows of 10 s"


def test_the_size_of_a_call_is_in_the_unit_of_the_figures() -> None:
    tables = [b for b in run_facts.plan(report_results.results()) if isinstance(b, Table)]
    (table,) = (t for t in tables if t.title.startswith("Calibration"))
    size = {r.cells[0].text: r.cells[1].text for r in table.rows}["Size of a call"]
    assert size == f"{report_results.WORK_PER_CALL:,.0f} LIO (2,048 ranges)"


def test_an_analysis_of_a_file_says_what_the_file_lacks(results: Results) -> None:
    about = dict(present.scaling(results.scaling).about)
    assert about["Loads"] == "1, 2" and about["Repeats"].startswith("1")
    ladder = replace(results.scaling[0].ladder, machine=Machine())
    bare = replace(results.scaling[0], ladder=ladder)
    assert "not in the file" in dict(present.scaling([bare]).about)["Host"]


def test_facts_of_two_runs_stand_once_where_they_are_the_same(results: Results) -> None:
    assert title_block.of_both(results, results) == title_block.of_run(results)
    later = results.info.model_copy(update={"started": results.info.started.replace(year=2031)})
    names = [name for name, _ in title_block.of_both(results, replace(results, info=later))]
    assert "When, A" in names and "When, B" in names and "Host" in names and "Host, A" not in names


def test_a_plot_of_one_day_has_times_at_its_ends() -> None:
    at = datetime(2026, 11, 3, 8, tzinfo=UTC)
    for days, ends in ((0, ("2026-11-03 08:00", " 09:30")), (2, ("2026-11-03 ", " 2026-11-05"))):
        last = at + timedelta(days=days, minutes=90)
        points = [Point(f"r{n}", "", t, 1.0, 1) for n, t in enumerate((at, last))]
        shown = present.trend(concluded(Trend(FIGURE, "1/s", "w", "2 CPUs", points)))
        (plot,) = (b.text for b in walk(shown.blocks) if isinstance(b, Verbatim))
        axis = plot.splitlines()[-2]
        assert all(end in axis for end in ends)


def test_a_trend_says_what_its_runs_have_in_common(results: Results) -> None:
    days = [datetime(2026, 11, day, 12, tzinfo=UTC) for day in (1, 3)]
    points = [Point(f"r{d.day}", "", d, 1.0, 1) for d in days]
    (workload,) = results.info.workloads.values()
    common = {"parameters": "rows=5", "target": "socket /x"}
    trend = Trend(FIGURE, "1/s", "w", "2 CPUs", points, workload=workload, common=common)
    about = dict(present.trend(concluded(trend)).about)
    assert workload.title.casefold() in about["Workload"].casefold()
    assert (about["Host"], about["Server"], about["Parameters"]) == ("2 CPUs", "socket /x", "rows=5")
    assert about["When"].index("2026-11-01") < about["When"].index("2026-11-03") and about["Runs"] == "2"


def test_a_trend_of_intervals_names_the_server() -> None:
    point = Point("r", "", datetime(2026, 11, 1, tzinfo=UTC), 1.0, 0)
    trend = Trend(FIGURE, "1/s", "t", "db1:5432", [point], thing="interval")
    about = dict(present.trend(concluded(trend)).about)
    assert about["Server"] == "db1:5432" and about["Intervals"] == "1" and "Workload" not in about
