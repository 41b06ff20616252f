"""Rungs and claims, end to end on the fake server: raw tables -> derive -> known figures."""

import math
from datetime import timedelta

import polars as pl
import pytest
from tests.fakery import Climb, climb

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.results import Results
from dbdyno.model.results.session_time import delay, queued
from dbdyno.model.schema.tables import DERIVED, TABLES, rows
from dbdyno.model.units import NS_PER_S
from dbdyno.present.figures import headline

pytestmark = [pytest.mark.whole, pytest.mark.queries]


def _derive(climbed: Climb) -> Results:
    return derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)


def _findings(dsn: str, ladder: list[int], **options) -> dict:
    return {f.id: f for f in _derive(climb(dsn, ladder, **options)).findings}


def _rungs(results: Results) -> list[dict]:
    return results.tables["rungs"].to_dicts()


def test_a_ladder_of_known_law_has_the_figures_of_that_law():
    """2 CPUs, calls of 20 ms of CPU and nothing else: 50 calls/s a CPU, so 50, 100, 100, 100."""
    results = _derive(climb("fake:cpus=2,cpu=20ms", [1, 2, 4, 8]))
    rungs = _rungs(results)
    assert [r["calls_per_s"] for r in rungs] == pytest.approx([50, 100, 100, 100], rel=0.01)
    assert [r["work_per_s"] for r in rungs] == pytest.approx([6600, 13200, 13200, 13200], rel=0.01)
    assert [r["scaling"] for r in rungs] == pytest.approx([1, 1, 0.5, 0.25], rel=0.01)
    assert [r["run_aas"] for r in rungs] == pytest.approx([1, 2, 2, 2], abs=0.001)
    assert [r["runq_aas"] for r in rungs] == pytest.approx([0, 0, 2, 6], abs=0.001)
    assert [r["response_mean_ns"] / 1e6 for r in rungs] == pytest.approx([20, 20, 40, 80], rel=0.03)
    assert [r["cpu_per_call_ns"] / 1e6 for r in rungs] == pytest.approx([20] * 4, rel=0.01)
    assert [r["calls_per_s_low"] for r in rungs] == [None] * 4, "one repeat: no interval"


def test_repeats_give_students_interval():
    """Rates of three worlds: the mean, and the mean times and over exp(4.302653 s / sqrt(3) / mean)."""
    climbed = climb("fake:cpus=2,cpu=20ms,spread=0.9", [3])
    cells = [climb(f"fake:cpus=2,cpu=20ms,spread=0.9,seed={n}", [3], repeats=n).cells[-1] for n in (1, 2, 3)]
    results = derive(climbed.info, climbed.plan, climbed.environment, cells)
    rates = results.tables["rates"].filter(scope="rung", name="calls_per_s")["value"]
    (row,) = _rungs(results)
    assert row["repeats"] == 3
    factor = math.exp(4.302653 * rates.std() / 3**0.5 / rates.mean())
    assert row["calls_per_s"] == pytest.approx(rates.mean())
    assert row["calls_per_s_low"] == pytest.approx(rates.mean() / factor)
    assert row["calls_per_s_high"] == pytest.approx(rates.mean() * factor)
    assert row["calls"] == sum(c.tables["sessions"]["calls"].sum() for c in cells)


def test_every_table_keeps_its_schema():
    results = _derive(climb("fake:cpu=50ms,helper=checkpointer:0.1", [1, 2]))
    for name in DERIVED:
        assert results.tables[name].columns == [c.name for c in TABLES[name]], name
    assert results.tables["sources"].columns == ["name", "provenance", "status", "detail"]
    assert results.tables["histogram"]["count"].sum() == results.tables["rungs"]["calls"].sum()


def test_nothing_measured_gives_empty_tables_and_no_crash():
    climbed = climb("fake:cpu=50ms", [1])
    results = derive(climbed.info, climbed.plan, climbed.environment, [])
    assert all(results.tables[name].is_empty() for name in DERIVED)
    assert [(f.id, f.case) for f in results.findings] == [("nothing-measured", "none")]


def test_cpu_wait_is_claimed_from_the_rung_where_it_begins():
    claims = _findings("fake:cpus=2,cpu=20ms", [1, 2, 3, 4])
    waits = claims["cpu-wait"]
    assert (waits.case, waits.value.value, waits.slots["top"]) == ("onset", 3, "4 sessions")
    assert (waits.slots["share"].startswith("33 %"), waits.slots["top_share"]) == (
        True,
        pytest.approx(0.5, rel=0.02),
    )
    assert (claims["scales-to"].case, claims["scales-to"].value.value) == ("limit", 2)
    assert claims["peak"].slots["calls"] == pytest.approx(100, rel=0.01)


def test_a_ladder_without_a_fault_has_good_claims_and_no_warning():
    claims = _findings("fake:cpus=8,cpu=10ms,wait=IO/x:5ms", [1, 2, 4])
    assert (claims["work-constant"].value.value, claims["work-constant"].slots["sessions"]) == (132, 7)
    assert {"executions-agree", "ledger-closes"} <= set(claims)
    good = {i: claims[i].case for i in ("cpu-wait", "scales-to") if claims[i].severity == "good"}
    assert good == {"cpu-wait": "none", "scales-to": "top"}
    assert not [f for f in claims.values() if f.severity in ("warning", "invalid")]


def test_one_repeat_has_no_interval_and_says_so():
    assert "one-repeat" in _findings("fake:cpu=50ms", [1])
    assert "one-repeat" not in _findings("fake:cpu=50ms", [1], repeats=2)


def test_work_that_is_not_constant_is_a_finding():
    climbed = climb("fake:cpu=50ms", [2])
    counters = climbed.cells[0].tables["counters"]
    spoilt = (pl.col("name") == "lio") & (pl.col("session") == 1) & pl.col("phase").str.starts_with("after")
    climbed.cells[0].tables["counters"] = counters.with_columns(  # type: ignore[index]
        pl.when(spoilt).then(pl.col("value") * 1.1).otherwise("value").alias("value")
    )
    claims = {f.id: f for f in _derive(climbed).findings}
    assert claims["work-not-constant"].severity == "warning"
    assert claims["work-not-constant"].value.low == 132.0
    assert "work-constant" not in claims


def test_executions_that_disagree_are_a_finding():
    climbed = climb("fake:cpu=50ms", [1])
    counters = climbed.cells[0].tables["counters"]
    spoilt = (pl.col("name") == "calls") & pl.col("phase").str.starts_with("after")
    climbed.cells[0].tables["counters"] = counters.with_columns(  # type: ignore[index]
        pl.when(spoilt).then(pl.col("value") + 1).otherwise("value").alias("value")
    )
    claims = {f.id: f for f in _derive(climbed).findings}
    assert claims["executions-disagree"].value.value == pytest.approx(1 / 240)


def test_errors_are_claimed_by_sqlstate_and_leave_the_rates():
    """Every 10th call fails: 24 of 240 since the barrier."""
    claims = _findings("fake:cpu=50ms,error_every=10", [1])
    assert claims["errors-40001"].value.value == 24
    assert "work-constant" not in claims, "what failed calls had done is in the counters"


def test_a_window_without_a_call_is_a_claim():
    claims = _findings("fake:cpu=60s", [1])
    assert claims["no-calls"].value.value == 0
    assert "no-calls" not in _findings("fake:cpu=50ms", [1])


def test_a_lost_session_is_a_claim_and_its_calls_until_then_count():
    results = _derive(climb("fake:cpus=4,cpu=50ms,lose=1@6010ms", [2]))
    claims = {f.id: f for f in results.findings}
    assert claims["sessions-lost"].value.value == 1
    (row,) = _rungs(results)
    assert row["calls"] == 200 + 80
    assert row["calls_per_s"] == pytest.approx(40, rel=0.02), "each over its own time"
    assert row["status"] == "ok"
    wall = results.tables["ledger"].filter(scope="memo", who="rung", account="wall")["aas"].item()
    assert 1.2 < wall <= 1.4, "the lost one is in the ledger as long as it was seen"


def test_a_lost_server_leaves_a_short_cell():
    results = _derive(climb("fake:cpu=50ms,down=6s", [2]))
    claims = {f.id: f for f in results.findings}
    assert claims["cell-short"].severity == "warning"
    assert _rungs(results)[0]["status"] == "short"
    results = _derive(climb("fake:cpu=50ms,down=2500ms", [2]))
    assert {f.id for f in results.findings} >= {"cell-invalid"}
    assert _rungs(results)[0]["status"] == "invalid"


def test_throttling_is_a_warning_with_its_bracket():
    claims = _findings("fake:cpus=2,cpu=20ms,quota=1.0", [1, 4])
    assert claims["throttled"].severity == "warning"
    assert (claims["throttled"].slots["throttled"], claims["throttled"].slots["periods"]) == (100, 100)
    assert 0 < claims["throttled"].value.low < claims["throttled"].value.high == pytest.approx(3.0, rel=0.02)


def test_steal_is_a_claim():
    claims = _findings("fake:cpus=4,cpu=50ms,steal=0.2", [1])
    assert claims["steal"].value.value == pytest.approx(0.05, rel=0.01)
    assert "steal" not in _findings("fake:cpus=4,cpu=50ms", [1])


def test_a_hidden_run_queue_is_a_claim():
    """Sessions woken on one busy CPU keep their wait's label while they queue."""
    claims = _findings("fake:cpus=1,cpu=10ms,wait=IO/DataFileRead:10ms", [1, 4])
    assert claims["hidden-run-queue"].slots["event"] == "IO/DataFileRead"
    assert claims["hidden-run-queue"].value.low > 0.04


def test_a_sampler_with_gaps_is_a_claim():
    assert _findings("fake:cpu=50ms,gap=4s+3s", [1])["sampler-starved"].value.value == pytest.approx(
        0.3, abs=0.02
    )
    assert "sampler-starved" not in _findings("fake:cpu=50ms", [1])


def test_calls_longer_than_the_window_are_a_note():
    claims = _findings("fake:cpu=4s", [1])
    assert claims["long-calls"].severity == "note"


def test_a_driver_that_takes_much_of_the_machine_is_a_claim():
    """The driver's thread needs 10 ms for each call of 10 ms: half of the time, 0.5 of 2 CPUs."""
    claims = _findings("fake:cpus=2,cpu=10ms,driver=10ms", [1])
    assert claims["driver-share"].value.value == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(
    ("dsn", "ladder", "limited"),
    [
        ("fake:cpus=2,cpu=1ms,driver=5ms", [1, 10, 50], [10, 50]),  # the server is idle most of the time
        ("fake:cpus=2,cpu=300ms,driver=10us", [2, 4, 8], []),  # long calls
        ("fake:cpus=2,cpu=50ms,driver=10us", [2, 8, 32], []),  # the server has the CPUs
    ],
)
def test_rungs_that_the_client_limits_are_named_first_and_left_out_of_conclusions(dsn, ladder, limited):
    results = _derive(climb(dsn, ladder, measure_ns=2 * NS_PER_S))
    assert [r["sessions"] for r in _rungs(results) if r["status"] == "client"] == limited
    assert headline.sentences(results)[0].startswith("Limited by the client at 10 and 50") == bool(limited)
    claims = {f.id: f for f in results.findings}
    assert "client-limited" in claims or not limited
    assert "peak" not in claims or claims["peak"].slots["sessions"] not in limited
    assert len(_rungs(results)) == 3, "shown all the same"


def test_rates_that_the_client_limits_on_every_rung_are_lower_bounds():
    results = _derive(climb("fake:cpus=2,cpu=1ms,driver=5ms", [10, 50], measure_ns=2 * NS_PER_S))
    rungs = _rungs(results)
    assert all(r["status"] == "client" and r["calls_per_s"] and r["scaling"] for r in rungs)
    (claim,) = [f for f in results.findings if f.id == "nothing-measured"]
    assert claim.case == "client" and claim.value.value == max(r["calls_per_s"] for r in rungs)
    assert claim.text in headline.sentences(results)[1]


@pytest.mark.parametrize(
    ("figures", "client", "expected"),
    [
        ({"driver_cpus": 0.2, "driver_runq": 1.6}, 97.0, 0.898),  # at most while its threads are at it
        ({"driver_cpus": 0.2, "driver_runq": 1.6}, 10.0, 0.098),  # the other sessions are at the server
        ({"driver_cpus": 2.0, "driver_runq": 0.0}, 99.0, 0.97),  # the driver never waits for a CPU
        ({"driver_cpus": 0.0, "driver_runq": 0.2}, 90.0, 0.10),  # the network is slow, not the driver
        ({"driver_cpus": 0.4, "driver_runq": 1.6}, float("inf"), 0.996),
        ({"driver_cpus": 0.4, "driver_runq": 1.6}, None, None),
        ({"driver_cpus": None, "driver_runq": None}, 97.0, None),
    ],
)
def test_a_thread_that_is_late_holds_up_all_whose_answers_have_come(figures, client, expected):
    assert delay({"driver_threads": 2.0, **figures}, 100, client) == (
        expected and pytest.approx(expected, abs=1e-3)
    )


def test_one_session_is_held_up_by_the_run_queue_alone():
    figures = {"driver_threads": 1.0, "driver_cpus": 0.1, "driver_runq": 0.2}
    assert delay(figures, 1, 0.1) == 0.0
    assert delay(figures, 1, 0.9) == pytest.approx(0.2)


def test_sources_that_are_missing_stand_in_one_line():
    climbed = climb("fake:cpu=50ms", [1])
    lines = [
        {"name": name, "provenance": "cpu.stat", "status": "not permitted", "detail": "run as root"}
        for name in ("cgroup", "block I/O delay", "sampler priority")
    ]
    climbed.cells[0].tables["sources"] = rows("sources", lines)  # type: ignore[index]
    claim = {f.id: f for f in _derive(climbed).findings}["not-measured"]
    assert claim.slots["names"] == "cgroup; block I/O delay"  # without the priority no figure is missing
    assert claim.value.value == 2
    assert "dbdyno doctor" in claim.text


def test_uneven_sessions_are_a_claim():
    climbed = climb("fake:cpus=4,cpu=20ms,spread=0", [3])
    sessions = climbed.cells[0].tables["sessions"]
    slow = pl.when(pl.col("session") == 2).then(pl.col("calls") // 2).otherwise("calls").alias("calls")
    climbed.cells[0].tables["sessions"] = sessions.with_columns(slow)  # type: ignore[index]
    claims = {f.id: f for f in _derive(climbed).findings}
    assert claims["uneven-sessions"].value.value == pytest.approx(2.0)


def test_findings_come_gravest_first():
    results = _derive(climb("fake:cpus=1,cpu=2ms,driver=2ms,error_every=7", [6]))
    order = [("invalid", "warning", "note", "good").index(f.severity) for f in results.findings]
    assert order == sorted(order)


def test_the_time_of_day_changes_no_table():
    climbed = climb("fake:cpus=2,cpu=50ms,spread=0.3", [3])
    first = _derive(climbed)
    later = climbed.info.model_copy(update={"started": climbed.info.started + timedelta(days=400)})
    second = derive(later, climbed.plan, climbed.environment, climbed.cells)
    assert all(first.tables[n].equals(second.tables[n]) for n in first.tables)


def test_foreign_load_is_a_claim():
    """/proc/stat has 5 s more user time in 10 s at t1: something else keeps half a CPU busy."""
    climbed = climb("fake:cpus=4,cpu=50ms", [1])
    host, t1 = climbed.cells[0].tables["host"], climbed.cells[0].meta.t1_ns
    busier = (pl.col("key") == "cpu.user_ns") & (pl.col("before_ns") > t1 - 1_000_000)
    climbed.cells[0].tables["host"] = host.with_columns(  # type: ignore[index]
        pl.when(busier).then(pl.col("value") + 5_000_000_000).otherwise("value").alias("value")
    )
    claim = {f.id: f for f in _derive(climbed).findings}["foreign-load"]
    assert claim.value.value == pytest.approx(0.5, abs=0.01)


def _of_threads(voluntary: int | None) -> pl.DataFrame:
    rows = [{"voluntary": voluntary, "wall_ns": 2 * 10**9}] * 2
    return pl.DataFrame(rows, schema={"voluntary": pl.Int64, "wall_ns": pl.Int64})


@pytest.mark.parametrize(
    ("sleeps", "answers"),
    [
        (10_000, 1.0),  # each answer wakes a thread: one answer per awake thread
        (1_000, 5.0),  # ten answers come between two sleeps
        (0, float("inf")),  # the thread never sleeps
        (None, None),
    ],
)
def test_without_a_ledger_the_sleeps_of_threads_show_how_many_answers_wait(sleeps, answers):
    """10,000 calls/s; two threads are awake for half of the time."""
    figures = {"driver_threads": 2.0, "driver_cpus": 0.2, "driver_runq": 0.8, "calls_per_s": 10_000.0}
    assert queued(figures, _of_threads(sleeps)) == answers
