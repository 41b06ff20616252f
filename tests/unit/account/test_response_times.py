"""Response time by second: sums are those of the histogram; known stalls have their share, period, wait."""

from __future__ import annotations

import polars as pl
import pytest
from tests.fakery import MS, Climb, S, climb, made_cell, sample_row, sampler_row, task_row

from dbdyno.account.response_times import DURATIONS, TIMES, response_times
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.claim import Claim
from dbdyno.model.schema.tables import raw, rows
from dbdyno.remote.merging import core, merge

pytestmark = pytest.mark.queries


def second_row(second: int, ns: int, count: int, seconds: int = 1) -> dict[str, int]:
    width = 1 << max(0, ns.bit_length() - 5)
    low = ns // width * width
    return {"second": second, "seconds": seconds, "low_ns": low, "high_ns": low + width - 1, "count": count}


def test_counts_are_those_of_the_measured_calls():
    """Durations differ by many factors and the window is long: bins are merged, no call is lost."""
    calls = [second_row(n, (n % 997 + 1) * 7_919, n % 5 + 1) for n in range(1000)]
    heat = response_times([made_cell({"second_histogram": calls}, t1=1010 * S)])["response_heat"]
    assert heat["count"].sum() == sum(c["count"] for c in calls)
    assert heat.unique(["start_s", "end_s"]).height <= TIMES
    assert heat.unique(["low_ns", "high_ns"]).height <= DURATIONS
    spans = heat.select("start_s", "end_s").unique().sort("start_s")
    assert spans["start_s"][0] == 0 and spans["end_s"][-1] >= 1000
    assert (spans["end_s"][:-1] <= spans["start_s"][1:]).all(), "bins do not overlap"


def test_runs_without_the_counts_have_no_rows():
    assert all(table.is_empty() for table in response_times([made_cell({})]).values())


def test_hosts_with_intervals_of_different_lengths_are_added():
    """Driver 0 has seconds, driver 1 has pairs of them: all become pairs."""
    one = rows(
        raw("second_histogram"), [second_row(2, 1000, 5), second_row(3, 1000, 1), second_row(4, 1000, 2)]
    )
    two = rows(raw("second_histogram"), [second_row(2, 1000, 10, 2)])
    table = merge([(0, {"second_histogram": core(one)}), (4, {"second_histogram": core(two)})])
    merged = {name: column[1].to_list() for name, column in table["second_histogram"].items()}
    assert merged["second"] == [2, 4] and merged["seconds"] == [2, 2] and merged["count"] == [16, 2]


def test_activities_by_second_are_those_of_the_samples_and_reads():
    """Ten samples in each of two seconds: in the second one, half of them in a lock; the session ran for
    300 ms of the first second and waited 200 ms for a CPU."""
    times = [10 * S + n * S // 10 + 1 for n in range(20)]
    samples = [sample_row(n, at, "S", "Lock/tuple" if n >= 15 else None) for n, at in enumerate(times)]
    reads = [
        task_row(10 * S, 0, 0),
        task_row(11 * S, 300 * MS, 200 * MS),
        task_row(12 * S, 300 * MS, 200 * MS),
    ]
    cell = made_cell(
        {
            "second_histogram": [second_row(0, MS, 5)],
            "samples": samples,
            "sampler": [sampler_row(n, at) for n, at in enumerate(times)],
            "tasks": reads,
        },
        t1=12 * S,
    )
    activity = response_times([cell])["activity_over_time"]
    lock = activity.filter(name="Lock/tuple")["seconds_per_s"].to_list()
    assert lock == [0.0, pytest.approx(0.5)]
    queue = activity.filter(kind="run queue")["seconds_per_s"].to_list()
    assert queue == [pytest.approx(0.2), pytest.approx(0.0)]


def test_a_mode_of_one_script_is_that_script():
    """Script a takes 1 ms, script b 100 ms: counted, not inferred from time."""
    calls = [second_row(n, ns, 20) for n in range(10) for ns in (MS, 100 * MS)]
    head = {"weight": 1, "errors": 0, "settle_calls": 0, "settle_errors": 0, "retried": 0, "retries": 0}
    scripts = [
        head | {"session": 0, "script": i, "name": name, "calls": 200, "in_call_ns": 1, "sum_sq_ns2": 1.0}
        for i, name in enumerate("ab")
    ]
    histogram = [
        {"script": i, "low_ns": ns, "high_ns": ns, "count": 200} for i, ns in ((0, MS), (1, 100 * MS))
    ]
    raw_tables = {"second_histogram": calls, "scripts": scripts, "script_histogram": histogram}
    tables = response_times([made_cell(raw_tables)])
    assert tables["response_modes"]["calls"].to_list() == [200, 200]
    row = tables["mode_activities"].filter(kind="script").row(0, named=True)
    assert (row["name"], row["goes"], row["share"]) in {("a", True, 1.0), ("b", True, 1.0)}


def test_few_calls_have_a_status_and_no_modes():
    calls = [second_row(n, ns, 2) for n in range(10) for ns in (MS, 100 * MS)]
    modes = response_times([made_cell({"second_histogram": calls})])["response_modes"]
    assert modes["status"].to_list() == ["too few calls"]


def test_calls_of_a_single_second_are_no_mode_to_be_claimed():
    calls = [second_row(n, MS, 1000) for n in range(10)] + [second_row(4, 300 * MS, 200)]
    tables = response_times([made_cell({"second_histogram": calls})])
    assert tables["response_modes"]["status"].to_list() == ["ok", "too few seconds"]
    assert tables["mode_activities"].is_empty()


# -- known laws, from end to end --

STALLS = "fake:cpus=8,cpu=4ms,exponential=on,trace=off,stalls=Lock/relation:300ms/5s"


def _claim(climbed: Climb) -> Claim | None:
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    return next((c for c in results.findings if c.id == "response-modes"), None)


def test_stalls_of_a_known_period_are_claimed_with_share_period_and_wait():
    """40 s with a stall at the end of every 5 s from the barrier on, which is 2 s before t0: eight of them,
    each for the one call of each of 8 sessions. A checkpointer works meanwhile and has nothing to do with
    it."""
    climbed = climb(f"{STALLS},helper=checkpointer:0.2", [8], measure_ns=40 * S)
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    driven = climbed.cells[0].tables["sessions"]["calls"].sum()
    heat, modes = results.tables["response_heat"], results.tables["response_modes"]
    assert heat["count"].sum() == driven == modes["calls"].sum()
    slow = modes.row(1, named=True)
    assert slow["calls"] == 64 and slow["middle_ns"] == pytest.approx(300 * MS, rel=0.06)
    assert slow["every_s"] == 5.0
    goes = results.tables["mode_activities"].filter("goes")
    assert goes["name"].to_list() == ["Lock/relation"]
    claim = _claim(climbed)
    assert claim is not None and claim.case == "goes"
    assert claim.value is not None and claim.value.value == pytest.approx(64 / driven)
    assert claim.slots["every"] == 5.0


@pytest.mark.parametrize(
    "law",
    [
        "cpu=2ms,exponential=on",
        "cpu=2ms",
        "cpu=2ms,wait=IO/x:2ms,spread=0.5",
        "cpu=2ms,exponential=on,checkpoint=5s+3s",
    ],
)
def test_one_hill_is_not_claimed(law: str):
    assert _claim(climb(f"fake:cpus=4,{law}", [4], measure_ns=5 * S)) is None


def test_a_window_too_short_says_so():
    """10 s with two stalls before 12 s: calls of 300 ms in too few seconds; with one each second in many,
    but nothing can be concluded from 10."""
    claim = _claim(climb(STALLS.replace("/5s", "/1s"), [8], measure_ns=10 * S))
    assert claim is not None and claim.case == "few"


def test_rows_of_a_cell_name_their_cell():
    climbed = climb("fake:cpus=4,cpu=2ms", [1, 2], measure_ns=3 * S)
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    cells = results.tables["response_heat"].group_by("cell").agg(pl.col("count").sum())
    driven = {c.id: c.tables["sessions"]["calls"].sum() for c in climbed.cells}
    assert dict(cells.rows()) == driven
