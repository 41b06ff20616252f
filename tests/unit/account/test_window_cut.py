"""Cuts, by hand-computed examples."""

import polars as pl
import pytest
from tests.fakery import S, climb, made_cell, sampler_row, session_row, task_row

from dbdyno.account.window import cut, cut_levels, cut_sampler, cut_tasks, cut_work, rates, windows


def _only_row(frame: pl.DataFrame) -> dict:
    assert frame.height == 1, frame
    return frame.row(0, named=True)


def test_the_reads_nearest_to_the_window_count_with_their_own_wall_time():
    """Reads at 9.9, 10.001, 15, 19.999 and 21 s; window 10 to 20 s: W = 9.998 s, run 6.00 - 1.05 = 4.95 s."""
    reads = [(9.9, 1.0), (10.001, 1.05), (15, 3.5), (19.999, 6.0), (21, 6.9)]
    tasks = [task_row(round(t * S), round(r * S), 0) for t, r in reads]
    row = _only_row(cut_tasks([made_cell({"tasks": tasks, "sessions": [session_row()]})]))
    assert (row["wall_ns"], row["run_ns"], row["runq_ns"]) == (9_998_000_000, 4_950_000_000, 0)
    assert (row["partial"], row["status"], row["over_ns"]) == (False, "ok", row["wall_ns"])


def test_reads_a_little_late_and_early_are_good_for_the_shortest_window():
    """Window 10 to 11 s; reads at 10.03 and 10.98 s: W = 0.95 s."""
    at = {"t0": 10 * S, "t1": 11 * S}
    tasks = [task_row(round(t * S), round(r * S), 0) for t, r in [(9.5, 0.1), (10.03, 0.2), (10.98, 0.9)]]
    raw_cell = made_cell({"tasks": tasks, "sessions": [session_row()]}, **at)
    row = _only_row(cut_tasks([raw_cell]))
    assert (row["status"], row["run_ns"], row["wall_ns"]) == ("ok", 7 * S // 10, 95 * S // 100)
    late = [task_row(round(t * S), round(r * S), 0) for t, r in [(10.6, 0.2), (11.0, 0.4)]]
    row = _only_row(cut_tasks([made_cell({"tasks": late, "sessions": [session_row()]}, **at)]))
    assert (row["status"], row["run_ns"]) == ("too short", None)


@pytest.mark.parametrize(("state", "runq_ms"), [("R", 7_996), ("S", 7_980)])
def test_a_wait_that_is_booked_later_counts_up_to_the_read(state, runq_ms):
    """Of 80 ms that were booked within 58 ms of t0, 10 ms on a CPU, 32 ms lie before; at t1 it is 48 ms."""
    reads = [(10.002, 0.5, 0.4), (10.06, 0.51, 0.48), (19.998, 2.4, 8.38), (20.03, 2.41, 8.45)]
    rows = [task_row(round(t * S), round(r * S), round(q * S), state=state) for t, r, q in reads]
    row = _only_row(cut_tasks([made_cell({"tasks": rows, "sessions": [session_row()]})]))
    assert (row["wall_ns"], row["run_ns"]) == (9_996 * S // 1000, 19 * S // 10)
    assert row["runq_ns"] == runq_ms * S // 1000


def test_run_time_that_is_booked_by_the_tick_is_no_wait():
    """A task that only runs: 4 ms are booked 1 ms after t0, and nothing ever in the run queue."""
    reads = [(10.002, 0.5, 0.4), (10.003, 0.504, 0.4), (19.998, 10.496, 0.4), (19.999, 10.5, 0.4)]
    rows = [task_row(round(t * S), round(r * S), round(q * S), state="R") for t, r, q in reads]
    row = _only_row(cut_tasks([made_cell({"tasks": rows, "sessions": [session_row()]})]))
    assert (row["run_ns"], row["runq_ns"]) == (10 * S, 0)


def test_a_pid_used_again_is_another_task():
    """Pid 100 ends at 14 s (start 7); a stranger (start 9) has it from 15 s: two tasks, both partial."""
    old = [task_row(t * S, (t - 10) * S // 2, 0) for t in (10, 12, 14)]
    new = [task_row(t * S, (t - 15) * S, 0, start_ticks=9) for t in (15, 17, 20)]
    others = [task_row(t * S, 0, 0, pid=5, tid=5, role="driver", session=None) for t in (10, 20)]
    result = cut_tasks([made_cell({"tasks": [*old, *new, *others], "sessions": [session_row()]})])
    selected = {r["start_ticks"]: r for r in result.filter(pid=100).to_dicts()}
    assert (selected[7]["role"], selected[7]["run_ns"], selected[7]["wall_ns"], selected[7]["partial"]) == (
        "session",
        2 * S,
        4 * S,
        True,
    )
    assert (selected[9]["role"], selected[9]["session"], selected[9]["run_ns"]) == ("other", None, 5 * S)
    assert selected[7]["over_ns"] == 10 * S, "a partial task's time is divided by the window"


@pytest.mark.parametrize(
    ("born_s", "run_s", "wall_s"),
    [
        (12.0, 8.5, 8.0),  # at 13 s it had run 0.5 s: all since its birth
        (13.5, 8.0, 7.0),  # after its first read: another clock
        (12.8, 8.0, 7.0),  # more time on a CPU than since its birth: another clock
        (9.0, 8.0, 7.0),  # before the window, and found late
    ],
)
def test_what_a_task_used_before_its_first_read_counts_if_it_was_born_in_the_window(born_s, run_s, wall_s):
    """First read at 13 s, 0.5 s of run time by then; last at 20 s, 8.5 s."""
    who = {"pid": 200, "tid": 200, "role": "other", "session": None, "start_ticks": round(born_s * 100)}
    late = [task_row(13 * S, S // 2, 0, **who), task_row(20 * S, 17 * S // 2, 0, **who)]
    own = [task_row(t * S, 0, 0) for t in (10, 20)]
    result = cut_tasks([made_cell({"tasks": [*own, *late], "sessions": [session_row()]})]).filter(pid=200)
    row = result.row(0, named=True)
    assert (row["run_ns"] / S, row["wall_ns"] / S, row["partial"]) == (run_s, wall_s, True)


def test_a_counter_that_goes_down_is_unknown():
    tasks = [task_row(10 * S, 5 * S, 0), task_row(15 * S, 1 * S, 0), task_row(20 * S, 9 * S, 0)]
    row = _only_row(cut_tasks([made_cell({"tasks": tasks, "sessions": [session_row()]})]))
    assert (row["run_ns"], row["runq_ns"], row["status"]) == (None, None, "reset")


def test_windows_under_a_second_have_no_figures_of_foreign_tasks():
    tasks = [task_row(10 * S, 0, 0), task_row(10 * S + S // 2, S // 2, 0)]
    row = _only_row(cut_tasks([made_cell({"tasks": tasks, "sessions": [session_row()]})]))
    assert (row["run_ns"], row["status"]) == (None, "too short")


@pytest.mark.parametrize("status", ["not here", "not permitted", "not supported"])
def test_tasks_that_cannot_be_read_are_unknown_with_a_reason(status: str):
    tasks = [task_row(t * S, None, None, status=status, start_ticks=None) for t in (10, 20)]
    row = _only_row(cut_tasks([made_cell({"tasks": tasks, "sessions": [session_row()]})]))
    assert (row["run_ns"], row["status"], row["wall_ns"]) == (None, status, 10 * S)


def test_samples_stand_for_the_time_to_the_middles():
    """Window 10 to 20 s, samples at 11, 14, 15: [10, 12.5), [12.5, 14.5), [14.5, 20). 9.9 is outside."""
    sampler = [sampler_row(i, t * S // 10) for i, t in enumerate((99, 110, 140, 150))]
    sampler.append(sampler_row(9, 17 * S, "lost"))
    result = cut_sampler([made_cell({"sampler": sampler})])
    assert result.select("low_ns", "high_ns").rows() == [
        (10 * S, 12_500_000_000),
        (12_500_000_000, 14_500_000_000),
        (14_500_000_000, 20 * S),
    ]


def _probes(values: dict[str, float | None], name: str = "lio") -> list[dict]:
    return [
        {"before_ns": 0, "after_ns": 1, "phase": p, "scope": "session", "session": 0, "name": name}
        | {"kind": "counter", "unit": "blocks", "value": v, "status": "ok" if v is not None else "lost"}
        for p, v in values.items()
    ]


@pytest.mark.parametrize(
    ("values", "work", "status"),
    [
        # a probe costs 274; 5 calls of 132: 374 + 274 + 660 = 1308
        ({"before1": 100, "before2": 374, "after1": 1308, "after2": 1582}, 660, "ok"),
        ({"before1": 100, "before2": 374, "after1": 1308, "after2": 1583}, 660, "probe not constant"),
        ({"before1": 100, "before2": 374, "after1": None, "after2": None}, None, "lost"),
        ({"before1": 100, "before2": 374, "after1": 50, "after2": 324}, None, "reset"),
    ],
)
def test_the_work_of_a_session_is_exact(values, work, status: str):
    row = _only_row(cut_work([made_cell({"counters": _probes(values), "sessions": [session_row()]})]))
    assert (row["value"], row["status"]) == (work, status)


def test_levels_grow_between_the_reads_nearest_to_the_window():
    def read(t: float, value: int) -> dict:
        at = {"before_ns": round(t * S), "after_ns": round(t * S), "key": "usage_ns", "value": value}
        return at | {"scope": "server", "version": 2, "path": "/g", "status": "ok"}

    row = _only_row(
        cut_levels([made_cell({"cgroup": [read(9, 0), read(10.1, 50), read(19.9, 650), read(22, 900)]})])
    )
    assert (row["delta"], row["wall_ns"], row["status"]) == (600, 9_800_000_000, "ok")
    row = _only_row(cut_levels([made_cell({"cgroup": [read(10, 50), read(15, 10), read(20, 900)]})]))
    assert (row["delta"], row["status"]) == (None, "reset"), "a fall in between is seen too"


def test_the_rung_is_the_sum_of_each_session_over_its_own_time():
    """10 calls in 10 s and 6 calls in 4 s: 1 + 1.5 = 2.5 calls/s; a session without a call adds nothing."""
    sessions = [
        session_row(0),
        session_row(1, first_start_ns=11 * S, last_end_ns=15 * S, calls=6),
        session_row(2, first_start_ns=None, last_end_ns=None, calls=0, in_call_ns=0),
    ]
    result = rates([made_cell({"sessions": sessions}, sessions=3)]).filter(name="calls_per_s")
    assert result.filter(scope="rung")["value"].to_list() == [2.5]
    by_session = result.filter(scope="session").sort("session")
    assert by_session["value"].to_list() == [1.0, 1.5, None]
    assert by_session["status"].to_list() == ["ok", "ok", "no measured calls"]


def test_round_trips_and_the_drivers_cpu_are_over_all_calls():
    """30 and 12 round trips of 10 and 6 calls, 4 of them failed: 42 / 20. The lost session's are left out.

    1 s of the driver's CPU in 10 s at 2.5 calls/s: 40 ms a call.
    """
    sessions = [
        session_row(0, round_trips=30, calls_total=10, errors_total=4),
        session_row(1, round_trips=12, first_start_ns=11 * S, last_end_ns=15 * S, calls=6, calls_total=6),
        session_row(2, round_trips=99, calls_total=9, end_reason="lost", first_start_ns=None, calls=0),
    ]
    driver = {"pid": 5, "tid": 5, "role": "driver", "session": None}
    tasks = [task_row(t * S, run, 0, **driver) for t, run in ((10, 0), (20, S))]
    result = cut([made_cell({"sessions": sessions, "tasks": tasks}, sessions=3)])["rates"]
    figures = dict(result.filter(scope="rung").select("name", "value").rows())
    assert figures["round_trips_per_call"] == pytest.approx(42 / 20)
    assert figures["client_cpu_per_call_ns"] == pytest.approx(0.1 / 2.5 * S)


def test_round_trips_that_nobody_counted_are_unknown():
    row = _only_row(rates([made_cell({"sessions": [session_row()]})]).filter(name="round_trips_per_call"))
    assert (row["value"], row["status"]) == (None, "not supported")


def test_percentiles_come_from_the_histogram_and_the_mean_from_the_sum():
    """500 calls of 1, 450 of 2, 50 of 3: median 1, 95 % in 2, 99 % in 3."""
    histogram = [{"low_ns": n, "high_ns": n, "count": c} for n, c in ((1, 500), (2, 450), (3, 50))]
    sessions = [session_row(calls=1000, in_call_ns=1550, max_ns=3)]
    result = rates([made_cell({"sessions": sessions, "histogram": histogram})]).filter(scope="rung")
    figures = dict(result.select("name", "value").rows())
    assert [figures[f"response_p{q}_ns"] for q in (50, 95, 99)] == [1, 2, 3]
    assert figures["response_mean_ns"] == 1.55


def test_a_window_under_a_second_is_invalid():
    row = _only_row(windows([made_cell({}, t1=10 * S + S // 2)]))
    assert (row["status"], row["wall_s"]) == ("invalid", 0.5)


def test_cpu_and_work_per_call_are_those_of_the_law():
    """10 ms of CPU and 132 LIO a call."""
    run = climb("fake:cpu=10ms,wait=IO/Read:5ms", [1, 3])
    result = cut(run.cells)["rates"].filter(scope="rung")
    assert result.filter(name="cpu_per_call_ns")["value"].to_list() == pytest.approx(
        [10_000_000] * 2, rel=0.003
    )
    assert result.filter(name="work_per_call")["value"].to_list() == [132.0, 132.0]
    assert set(result.filter(name="work_per_call")["source"]) == {"engine counters"}


def test_helpers_that_were_replaced_are_two_partial_tasks():
    run = climb("fake:helper=checkpointer:0.1,reuse=6s", [1])
    result = cut_tasks(run.cells).filter(role="helper:checkpointer").sort("from_ns")
    assert result["partial"].to_list() == [True, True]
    assert result["start_ticks"].n_unique() == 2
    assert result["pid"].n_unique() == 1
