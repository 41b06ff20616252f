"""The trace, the two samplers, sessions that come and go, figures read now and then, bins: by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import MS, S, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno.account.window import (
    cut,
    cut_bins,
    cut_counts,
    cut_sampler,
    cut_samples,
    cut_tasks,
    cut_traced,
    cut_waits,
)
from dbdyno.model.schema.data_sources import SYSTEM_CALLS

ME = {"pid": 100, "tid": 100, "start_ticks": 7, "role": "session", "session": 0}


def _traced_row(at: float, run: float, runq: float, sleep: float, **changes: Any) -> dict[str, Any]:
    t = round(at * S)
    sums = {"run_ns": round(run * S), "runq_ns": round(runq * S), "sleep_ns": round(sleep * S)}
    return ME | {"before_ns": t - 2000, "after_ns": t + 2000, "status": "ok"} | sums | changes


def _wait(
    at: float, label: str | None, sleep: float, runq: float, sleeps: int, **changes: Any
) -> dict[str, Any]:
    t = round(at * S)
    wait_class, _, event = (label or "").partition("/")
    times = {"sleep_ns": round(sleep * S), "runq_ns": round(runq * S), "sleeps": sleeps, "preempted": 0}
    labels = {"wait_class": wait_class or None, "wait_event": event or None}
    return ME | {"before_ns": t, "after_ns": t, "status": "ok"} | labels | times | changes


def _only_row(frame: pl.DataFrame) -> dict[str, Any]:
    assert frame.height == 1, frame
    return frame.row(0, named=True)


READS = [
    _traced_row(9.5, 1, 1, 7.5),
    _traced_row(10, 1.1, 1.2, 7.7),
    _traced_row(15, 2, 2, 11),
    _traced_row(20, 5, 3, 12),
]


def test_the_trace_grows_between_the_reads_nearest_to_the_window():
    row = _only_row(cut_traced([made_cell({"traced": READS, "sessions": [session_row()]})]))
    figures = {
        n: row[n] for n in ("run_ns", "runq_ns", "sleep_ns", "wall_ns", "slack_ns", "partial", "status")
    }
    assert figures == {
        "run_ns": 3_900_000_000,
        "runq_ns": 1_800_000_000,
        "sleep_ns": 4_300_000_000,
        "wall_ns": 10 * S,
        "slack_ns": 4000,
        "partial": False,
        "status": "ok",
    }
    assert row["throttled_ns"] is None, "not to be told is not 0"


@pytest.mark.parametrize(
    ("at", "status"),
    [(9.5, "ok"), (15, "lost"), (20, "lost")],  # before the window, inside, at its end
)
def test_events_missed_inside_the_window_make_the_trace_unusable(at: float, status: str):
    reads = [r | {"status": "lost"} if r["before_ns"] == round(at * S) - 2000 else r for r in READS]
    assert (
        _only_row(cut_traced([made_cell({"traced": reads, "sessions": [session_row()]})]))["status"] == status
    )


@pytest.mark.parametrize("at", [9.5, 15, 20.1])
def test_a_single_read_is_no_difference_and_no_zero(at: float):
    """A program that got no CPU until the window was nearly over read everything once."""
    cell = made_cell({"traced": [_traced_row(at, 1, 1, at - 2)], "sessions": [session_row()]})
    row = _only_row(cut_traced([cell]))
    assert (row["status"], row["run_ns"], row["runq_ns"], row["sleep_ns"]) == ("too short", None, None, None)


def test_a_label_that_comes_later_grows_from_zero_and_one_that_rests_by_none():
    """Read at 10 and 20 s. Lock first slept in at 12 s: 0 before. IO was not written again after 15 s."""
    waits = [
        _wait(10, "Client/ClientRead", 5, 1, 50),
        _wait(10, "IO/DataFileRead", 2, 0.5, 20),
        _wait(15, "IO/DataFileRead", 3, 0.6, 30),
        _wait(15, "Lock/tuple", 0.5, 0, 2),
        _wait(20, "Lock/tuple", 0.75, 0.25, 3),
        _wait(20, "Client/ClientRead", 8, 1.5, 80),
        _wait(20, None, 0, 0.25, 0),
    ]
    reads = [_traced_row(10, 1, 1.5, 7), _traced_row(15, 3, 1.6, 8.5), _traced_row(20, 5.15, 2.6, 11.75)]
    cell = made_cell({"traced": reads, "waits": waits, "sessions": [session_row()]})
    rows = {r["wait_event"]: r for r in cut_waits([cell]).to_dicts()}
    result = {e: (r["sleep_ns"] / S, r["runq_ns"] / S, r["sleeps"]) for e, r in rows.items()}
    assert result == {
        "ClientRead": (3.0, 0.5, 30),
        "DataFileRead": (1.0, 0.1, 10),
        "tuple": (0.75, 0.25, 3),
        None: (0.0, 0.25, 0),
    }
    assert rows["tuple"]["throttled_ns"] is None
    assert rows["tuple"]["session"] == 0


def test_a_label_that_fell_is_unknown_and_calls_that_fell_are_left_out():
    waits = [_wait(10, "Lock/tuple", 5, 0, 9), _wait(20, "Lock/tuple", 4, 0, 3)]
    calls = [
        ME | {"before_ns": t * S, "after_ns": t * S, "name": n, "calls": c, "time_ns": c, "status": "ok"}
        for t, n, c in ((10, "read", 100), (20, "read", 350), (10, "write", 9), (20, "write", 3))
    ]
    cell = made_cell({"traced": READS, "waits": waits, "syscalls": calls, "sessions": [session_row()]})
    row = _only_row(cut_waits([cell]))
    assert (row["sleep_ns"], row["runq_ns"], row["sleeps"], row["status"]) == (None, None, None, "reset")
    assert _only_row(cut_traced([cell]))["status"] == "reset"
    assert cut_counts(SYSTEM_CALLS.counts[0], [cell]).select("name", "calls").rows() == [("read", 250)]


def test_each_sampler_fills_the_window_by_itself():
    rows = [sampler_row(0, 12 * S), sampler_row(1, 18 * S)]
    rows += [sampler_row(n, t * S) | {"via": "memory"} for n, t in enumerate((11, 13, 19))]
    result = cut_sampler([made_cell({"sampler": rows})])
    spans = {via: part.select("low_ns", "high_ns").rows() for (via,), part in result.group_by("via")}
    assert spans == {
        "sql": [(10 * S, 15 * S), (15 * S, 20 * S)],
        "memory": [(10 * S, 12 * S), (12 * S, 16 * S), (16 * S, 20 * S)],
    }
    assert set(result["late_ns"]) == {-1000}


def test_rows_belong_to_the_sample_of_their_own_sampler():
    """Sample 0 of memory was lost; sample 0 of the server's answers was not."""
    sampler = [sampler_row(0, 12 * S), sampler_row(0, 13 * S, "lost") | {"via": "memory"}]
    samples = [sample_row(0, 12 * S, "S"), sample_row(0, 13 * S, "R", via="memory")]
    row = _only_row(cut_samples([made_cell({"sampler": sampler, "samples": samples})]))
    assert (row["via"], row["task_state"], row["skew_ns"]) == ("sql", "S", 500)


def test_figures_read_now_and_then_grow_between_the_reads_that_have_them():
    """Switches are read at the window's ends only; a delay that is read in the middle alone is unknown."""
    ends = {10: (100, 10), 20: (350, 30)}
    tasks = [
        task_row(
            t * S,
            (t - 10) * S // 2,
            0,
            state="R" if t == 10 else "S",
            slices=7 * t,
            blkio_ns=t if 11 < t < 19 else None,
            **dict(zip(("voluntary", "involuntary"), ends.get(t, (None, None)), strict=True)),
        )
        for t in range(10, 21)
    ]
    row = _only_row(cut_tasks([made_cell({"tasks": tasks, "sessions": [session_row()]})]))
    assert (row["voluntary"], row["involuntary"], row["slices"]) == (250, 20, 70)
    assert (row["blkio_ns"], row["children_ns"]) == (None, None)
    assert (row["state_a"], row["state_b"]) == ("R", "S")


def _tables_of_lives(
    *lives: tuple[int, int, float, float], every: float = 0.5
) -> dict[str, list[dict[str, Any]]]:
    """An observation: (session, start_ticks, from, to) of sessions that all had pid 100, and one that stayed.
    Tasks are read each second, all sampled each half."""
    tasks, samples, sampler = [], [], []
    stay = (9, 1, 10.0, 20.0)
    for second in range(10, 21):
        for session, start, low, high in (*lives, stay):
            who = {"session": session, "start_ticks": start, "pid": 100 if session != 9 else 109}
            if low <= second <= high:
                used = round((second - low) * S / 4)
                tasks.append(task_row(second * S, used, used, tid=who["pid"], **who))
    for n in range(20):
        at = round((10.25 + n * every) * S)
        sampler.append(sampler_row(n, at))
        for session, start, low, high in (*lives, stay):
            if low * S <= at <= high * S:
                pid = 100 if session != 9 else 109
                samples.append(sample_row(n, at, "S", "Lock/x", session=session, start_ticks=start, pid=pid))
    return {"tasks": tasks, "samples": samples, "sampler": sampler}


def test_sessions_of_an_observation_that_come_and_go_with_the_same_pid():
    """Pid 100: one until 13.1 s, another from 15 s until 18.1 s. Each has its own bracket."""
    tables = _tables_of_lives((0, 7, 10.0, 13.1), (1, 8, 15.0, 18.1))
    result = cut([made_cell(tables)])
    rows = {r["session"]: r for r in result["cut_tasks"].to_dicts()}
    brackets = {s: (r["from_ns"] / S, r["to_ns"] / S, r["partial"], r["run_ns"]) for s, r in rows.items()}
    assert brackets == {
        0: (10, 13, True, 3 * S // 4),
        1: (15, 18, True, 3 * S // 4),
        9: (10, 20, False, 10 * S // 4),
    }
    assert {r["over_ns"] for r in rows.values()} == {10 * S}
    assert result["rates"].is_empty(), "nobody drove them"


def test_a_session_too_brief_for_two_reads_has_the_time_of_its_samples():
    """From 15.1 to 15.9 s: seen at 15.25 and 15.75 s, never read; from 16.9 to 17.9: read once."""
    tables = _tables_of_lives((0, 7, 15.1, 15.9), (1, 8, 16.9, 17.9))
    rows = {r["session"]: r for r in cut_tasks([made_cell(tables)]).to_dicts()}
    assert (rows[0]["from_ns"], rows[0]["to_ns"], rows[0]["status"]) == (15 * S, 16 * S, "vanished")
    assert (rows[1]["from_ns"], rows[1]["to_ns"]) == (17 * S, 18 * S)
    assert [rows[s]["run_ns"] for s in (0, 1)] == [None, None]
    assert [rows[s]["partial"] for s in (0, 1)] == [True, True]


def test_a_window_that_was_read_late_is_as_long_as_what_was_read_of_it():
    main = {"pid": 1, "tid": 1, "start_ticks": 1, "role": "helper:main", "session": None}
    whole = [_traced_row(12, 1, 1, 2, **main), _traced_row(20, 2, 2, 8, **main)]
    brief = [_traced_row(15, 0.5, 0.1, 0.2, pid=5, tid=5, start_ticks=1400, role="other", session=None)]
    cell = made_cell({"traced": whole + brief})
    rows = {r["role"]: r for r in cut_traced([cell]).iter_rows(named=True)}
    assert rows["other"]["wall_ns"] == pytest.approx(0.8 * S, abs=MS)
    assert rows["other"]["over_ns"] == pytest.approx(8 * S, abs=MS)
    assert rows["helper:main"]["over_ns"] == rows["helper:main"]["wall_ns"] == 8 * S


def test_lives_that_ended_before_a_late_read_lie_where_they_began():
    """From 14 to 14.8 s, read 0.5 s after the end of the window."""
    reads = [*READS[:3], _traced_row(20.5, 5, 3, 12)]
    brief = [_traced_row(20.5, 0.5, 0.1, 0.2, pid=5, tid=5, start_ticks=1400, role="other", session=None)]
    cell = made_cell({"traced": reads + brief, "sessions": [session_row()]})
    rows = {r["role"]: r for r in cut_traced([cell]).iter_rows(named=True)}
    assert (rows["other"]["run_ns"], rows["other"]["status"]) == (S // 2, "ok")


def test_workers_are_folded_by_what_the_server_lists_and_a_pid_used_again_is_not_one():
    worker = {"pid": 200, "tid": 200, "role": "helper:parallel worker", "session": None}
    tasks = [
        *(task_row(t * S, 0, 0) for t in (10, 20)),
        *(task_row(t * S, (t - 10) * S, 0, **worker, start_ticks=5) for t in (10, 12, 14)),
        *(task_row(t * S, 0, 0, **worker | {"role": "other"}, start_ticks=6) for t in (15, 18, 20)),
    ]
    seen = sample_row(
        0, 12 * S, "R", pid=200, role=worker["role"], session=None, leader_pid=100, start_ticks=5
    )
    cell = made_cell(
        {"tasks": tasks, "samples": [seen], "sampler": [sampler_row(0, 12 * S)], "sessions": [session_row()]}
    )
    rows = {(r["pid"], r["start_ticks"]): r for r in cut_tasks([cell]).to_dicts()}
    assert (rows[200, 5]["session"], rows[200, 5]["worker"], rows[200, 5]["role"]) == (0, True, "session")
    assert (rows[200, 6]["session"], rows[200, 6]["worker"], rows[200, 6]["role"]) == (None, False, "other")
    listed = {"at_ns": 12 * S, "pid": 200, "leader_pid": 100, "kind": "parallel worker", "status": "ok"}
    only = made_cell({"tasks": tasks[:5], "backends": [listed], "sessions": [session_row()]})
    assert cut_tasks([only]).filter(pid=200)["worker"].to_list() == [True]


def test_workers_that_no_sample_met_are_known_by_their_statement():
    """Sessions 0 and 1 execute statement 5. Processes 300 to 302 do so, too, and never wait for a client;
    303 has a client, and 304 executes another statement."""
    sessions = [session_row(), session_row(session=1, backend_pid=101)]
    second = ME | {"pid": 101, "tid": 101, "session": 1}
    traced = [*READS, *({**r, **second} for r in READS)]
    waits = [_wait(15, None, 0, 0, 1, **who, query_id=5, query_status="ok") for who in (ME, second)]
    for pid in range(300, 305):
        who = {"pid": pid, "tid": pid, "start_ticks": 1400 + pid - 300, "role": "other", "session": None}
        traced.append(_traced_row(15, 0.5, 0.1, 0.2, **who))
        waits.append(_wait(15, None, 0, 0, 1, **who, query_id=6 if pid == 304 else 5, query_status="ok"))
        if pid == 303:
            waits.append(_wait(15, "Client/ClientRead", 0.1, 0, 1, **who, query_id=5, query_status="ok"))
    cell = made_cell({"traced": traced, "waits": waits, "sessions": sessions})
    rows = {r["pid"]: (r["session"], r["worker"], r["role"]) for r in cut_traced([cell]).to_dicts()}
    assert {pid: rows[pid] for pid in range(300, 305)} == {
        300: (0, True, "session"),
        301: (1, True, "session"),
        302: (0, True, "session"),
        303: (None, False, "other"),
        304: (None, False, "other"),
    }


def test_bins_spread_what_two_reads_saw():
    """Reads at 10, 12.5 and 20 s: 2 s of 2.5 on a CPU, then nothing: 0.8, 0.8, 0.4, 0, ... in bins of 1 s."""
    tasks = [task_row(10 * S, 0, 0), task_row(12_500 * MS, 2 * S, 0), task_row(20 * S, 2 * S, 0)]
    result = cut_bins([made_cell({"tasks": tasks, "sessions": [session_row()]})])
    assert (result["run_ns"] / S).to_list() == pytest.approx([0.8, 0.8, 0.4] + [0.0] * 7)
    assert set(result["known_ns"]) == {S}
    assert (result["end_ns"] - result["start_ns"]).to_list() == [S] * 10


def test_long_windows_have_sixty_bins_and_what_was_not_read_is_not_known():
    tasks = [task_row(t * S, t * S // 2, 0) for t in (10, 310)]
    result = cut_bins([made_cell({"tasks": tasks, "sessions": [session_row()]}, t1=610 * S)])
    assert result.height == 60
    known = result.filter(pl.col("known_ns") > 0)
    assert (known.height, known["run_ns"].sum()) == (30, 150 * S)
    assert result.filter(pl.col("known_ns") == 0)["run_ns"].null_count() == 30
