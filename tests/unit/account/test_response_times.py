"""Response time by second: sums are those of the histogram; known stalls have their share, period, wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
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
    lock = activity.filter(name="Lock/tuple")["value"].to_list()
    assert lock == [0.0, pytest.approx(0.5)]
    queue = activity.filter(kind="run queue")["value"].to_list()
    assert queue == [pytest.approx(0.2), pytest.approx(0.0)]


def test_the_second_in_which_a_window_ends_is_not_compared():
    """Calls of 1 ms and of 100 ms end all the time, and a few more after the window of 30 s, where the lock
    is not known any more: they do not go with it."""
    times = [10 * S + n * S // 10 + 1 for n in range(300)]
    samples = [sample_row(n, at, "S", "Lock/tuple") for n, at in enumerate(times) if n % 7]
    calls = [second_row(n, ns, 100 - n % 3) for n in range(30) for ns in (MS, 100 * MS)]
    calls.append(second_row(30, 100 * MS, 1))
    raw_tables = {"second_histogram": calls, "samples": samples}
    raw_tables["sampler"] = [sampler_row(n, at) for n, at in enumerate(times)]
    row = response_times([made_cell(raw_tables, t1=40 * S)])["mode_activities"].row(0, named=True)
    assert row["name"] == "Lock/tuple" and not row["goes"]
    assert row["otherwise"] is None, "calls ended in all seconds of the window"


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
    # 8 stalls of 300 ms, each of all sessions, in 40 s.
    assert claim.value is not None and claim.value.value == pytest.approx(8 * 0.3 / 40, rel=0.06)
    assert claim.slots["every"] == 5.0


def test_stalls_of_few_calls_are_claimed_without_certainty():
    """30 s with six stalls of 300 ms for 4 sessions: 24 calls, 6 % of the time, in six seconds."""
    climbed = climb(STALLS, [4], measure_ns=30 * S)
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    modes = results.tables["response_modes"]
    assert modes["status"].to_list() == ["ok", "uncertain"] and modes["calls"][1] == 24
    assert _claim(climbed) is None
    claim = next(c for c in results.findings if c.id == "slow-calls")
    assert claim.value is not None and claim.value.value == pytest.approx(6 * 0.3 / 30, rel=0.06)
    assert claim.slots["seconds"] == 6 and claim.slots["every"] == 5.0
    assert claim.slots["shortest_ns"] == pytest.approx(300 * MS, rel=0.06) and claim.slots["next"] < 100 * MS
    assert "too few to be sure" in claim.text and "waits for Lock/relation" in claim.text


def test_one_stall_is_claimed_with_its_longest_wait_and_not_as_a_mode():
    """100 calls of 300 ms end in a single second, in which sessions wait for a lock. 15 s are too
    few to conclude that it goes with them."""
    climbed = climb("fake:cpus=4,cpu=2ms,trace=off", [4], measure_ns=15 * S)
    (cell,) = climbed.cells
    calls = [second_row(n, MS, 2000) for n in range(15)] + [second_row(12, 300 * MS, 100)]
    t0 = cell.meta.t0_ns
    times = [t0 + n * S // 10 + 1 for n in range(150)]
    hand = {
        "second_histogram": calls,
        "samples": [sample_row(n, at, "S", "Lock/tuple") for n, at in enumerate(times) if 117 <= n < 130],
        "sampler": [sampler_row(n, at) for n, at in enumerate(times)],
    }
    tables = cell.tables | {name: rows(raw(name), records) for name, records in hand.items()}
    results = derive(climbed.info, climbed.plan, climbed.environment, [replace(cell, tables=tables)])
    assert not any(c.id == "response-modes" for c in results.findings)
    claim = next(c for c in results.findings if c.id == "slow-calls")
    assert (
        claim.case == "wait"
        and "sessions waiting on average in these seconds, 0.029 in others" in claim.text
        and "ended in 1 second." in claim.text
        and "Lock/tuple" in claim.text
    )


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


@pytest.mark.parametrize(("stalls", "claimed"), [((4, 9, 14), True), ((9, 9, 9), False)])
def test_few_calls_far_from_all_others_are_a_plain_fact(stalls: tuple[int, ...], claimed: bool):
    """Six calls of 300 ms among 30,000 of 1 ms; a single stall is none. The longest is as measured, not as
    its bucket ends."""
    climbed = climb("fake:cpus=4,cpu=2ms,trace=off", [4], measure_ns=15 * S)
    (cell,) = climbed.cells
    calls = [second_row(n, MS, 2000) for n in range(15)] + [second_row(n, 310 * MS, 2) for n in stalls]
    sessions = cell.tables["sessions"].with_columns(max_ns=pl.lit(314 * MS, pl.Int64))
    tables = cell.tables | {"second_histogram": rows(raw("second_histogram"), calls), "sessions": sessions}
    results = derive(climbed.info, climbed.plan, climbed.environment, [replace(cell, tables=tables)])
    assert results.tables["response_modes"]["status"].to_list() == ["ok", "far"]
    claims = [c for c in results.findings if c.id == "slow-calls"]
    assert len(claims) == claimed
    for claim in claims:
        assert "to 314 ms" in claim.text and "They ended in 3 seconds." in claim.text
        assert "of another kind" in claim.text and "show RUN" not in claim.advice
        assert climbed.info.id in claim.advice


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


# -- counters of the server and devices by second --


def series_rows(at_ns: int, images: float, position: float, begun: float, start: float) -> list[dict]:
    head = {"before_ns": at_ns, "after_ns": at_ns, "status": "ok"}
    values = {
        "wal_full_page_images": images,
        "wal_position": position,
        "checkpoints_begun": begun,
        "checkpoint_start": start,
    }
    return [head | {"name": name, "value": value} for name, value in values.items()]


def activity(series: list[dict], seconds: int, **more: list[dict]) -> pl.DataFrame:
    """Returns table ``activity_over_time`` of a window with one call a second; it begins at 10 s."""
    calls = [second_row(n, MS, 5) for n in range(seconds)]
    raw_tables = {"second_histogram": calls, "counter_series": series, **more}
    return response_times([made_cell(raw_tables, t1=(10 + seconds) * S)])["activity_over_time"]


def by_second(table: pl.DataFrame, name: str) -> list[float]:
    return table.filter(name=name).sort("start_s")["value"].to_list()


def test_images_and_wal_by_second_are_the_growth_between_reads():
    """Reads at each full second: 300 images and 1 MB in the third one; then the statistics are reset."""
    images, position = [10, 10, 10, 310, 310, 5], [1e6, 1e6, 1e6, 2e6, 2e6, 2e6]
    reads = [series_rows((10 + n) * S, images[n], position[n], 0, 5e5) for n in range(6)]
    table = activity([row for read in reads for row in read], 5)
    assert by_second(table, "full-page images") == [0, 0, pytest.approx(300), 0, 0]
    assert by_second(table, "WAL") == [0, 0, pytest.approx(1e6), 0, 0]
    assert dict(table.select("name", "unit").unique().rows()) == {
        "full-page images": "images/s",
        "WAL": "bytes/s",
    }


def test_a_checkpoint_is_in_progress_from_where_it_began_until_it_is_complete():
    """It began at position 250, after the read of 12 s and before that of 13 s, and was complete between 14 s
    and 15 s; the server has counted it by then. The next began after 17 s and is not complete."""
    position = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]
    start = [0, 0, 0, 0, 0, 250, 250, 250, 250, 250]
    begun = [3, 3, 3, 3, 3, 4, 4, 4, 5, 5]
    reads = [series_rows((10 + n) * S, 0, position[n], begun[n], start[n]) for n in range(10)]
    table = activity([row for read in reads for row in read], 9)
    assert by_second(table, "checkpoint") == [0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_response_times_of_devices_are_those_of_the_requests_in_the_second():
    """100 writes of 1 ms in the first second, 10 of 50 ms in the second one, none in the third."""
    counted = [(0, 0), (100, 100 * MS), (110, 600 * MS), (110, 600 * MS)]
    head = {"device": "sda", "status": "ok"}
    devices = [
        head | {"before_ns": at, "after_ns": at, "writes": writes, "write_ns": ns, "reads": 0, "read_ns": 0}
        for n, (writes, ns) in enumerate(counted)
        for at in [(10 + n) * S]
    ]
    place = {"before_ns": 0, "after_ns": 0, "place": "data", "path": "/d", "device": "sda", "status": "ok"}
    table = activity([], 3, devices=devices, places=[place])
    assert by_second(table, "writes of sda") == [pytest.approx(MS), pytest.approx(50 * MS), 0]
    assert table["unit"].unique().to_list() == ["ns"], "no reads, and flushes are not counted"


def _after_checkpoints(
    at_s: list[int], seconds: int, late_s: int, slow: frozenset[int], t0_s: float = 10
) -> dict[str, list[dict]]:
    """Returns raw tables of a window with checkpoints, whose images come in the two seconds after them and
    are counted ``late_s`` later; calls are slow in the seconds ``slow``."""
    of_second = [0.0] * (seconds + 3)
    for at in at_s:
        of_second[at + late_s] += 4000
        of_second[at + 1 + late_s] += 2000
    images, reads = 0.0, []
    for n in range(seconds + 1):
        done = sum(at + 1 <= n for at in at_s)
        start = 1e6 * at_s[done - 1] + 5e5 if done else 0.0
        reads += series_rows(int((t0_s + n) * S), images, 1e6 * n, done, start)
        images += of_second[n]
    calls = [second_row(n, MS, 2000) for n in range(seconds)]
    calls += [second_row(n, 300 * MS, 20) for n in sorted(slow)]
    return {"second_histogram": calls, "counter_series": reads}


def _goes(tables: dict[str, list[dict]], seconds: int = 60) -> pl.DataFrame:
    return response_times([made_cell(tables, t1=(10 + seconds) * S)])["mode_activities"]


AT_S = [4, 13, 19, 31, 42, 47]
SLOW = frozenset(at + n for at in AT_S for n in (0, 1))


@pytest.mark.parametrize("late_s", [0, 1])
def test_a_slow_mode_after_checkpoints_goes_with_full_page_images(late_s: int):
    """Checkpoints come at irregular times. Images may be counted a second after they were made."""
    goes = _goes(_after_checkpoints(AT_S, 60, late_s, SLOW)).filter(name="full-page images")
    row = goes.row(0, named=True)
    assert row["goes"] and row["unit"] == "images/s" and row["during"] > 1000 > row["otherwise"]


def test_slow_seconds_apart_from_checkpoints_go_with_none_of_their_work():
    """100 windows with checkpoints and slow seconds at random: at most 5 % name anything."""
    random = np.random.default_rng(1)
    named = 0
    for _ in range(100):
        at_s = sorted(random.choice(np.arange(2, 56), 5, replace=False).tolist())
        begins = random.choice(np.arange(58), 5, replace=False)
        slow = frozenset(int(b) + n for b in begins for n in (0, 1))
        named += _goes(_after_checkpoints(at_s, 60, 1, slow))["goes"].any()
    assert named <= 100 * 0.05 + 3 * (100 * 0.05 * 0.95) ** 0.5


def test_the_claim_names_causes_before_what_follows_from_them():
    """Devices write slowly in the same seconds: the checkpoint is named first, then images, then writes."""
    climbed = climb("fake:cpus=4,cpu=2ms,trace=off", [4], measure_ns=60 * S)
    (cell,) = climbed.cells
    t0_s = cell.meta.t0_ns / S
    hand = _after_checkpoints(AT_S, 60, 0, SLOW, t0_s)
    writes, spent, counted = 0, 0, []
    for n in range(61):
        at = cell.meta.t0_ns + n * S
        head = {"before_ns": at, "after_ns": at, "device": "sda", "status": "ok"}
        counted.append(head | {"writes": writes, "write_ns": spent})
        writes, spent = writes + 100, spent + 100 * MS * (40 if n in SLOW else 1)
    place = {"before_ns": 0, "after_ns": 0, "place": "data", "path": "/d", "device": "sda", "status": "ok"}
    hand |= {"devices": counted, "places": [place]}
    tables = cell.tables | {name: rows(raw(name), records) for name, records in hand.items()}
    results = derive(climbed.info, climbed.plan, climbed.environment, [replace(cell, tables=tables)])
    claim = next(c for c in results.findings if c.id == "response-modes")
    assert "go with a checkpoint in progress: 0.500 s/s in seconds in which they ended" in claim.text
    assert "They also go with full-page images, the response time of writes of sda." in claim.text
