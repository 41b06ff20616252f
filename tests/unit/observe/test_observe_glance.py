"""A glance at the latest seconds: exact sums, spread by samples or taken from the trace. Figures by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fake_engine import wait_families

from dbdyno.model.schema.tables import RAW, empty, raw, rows
from dbdyno.observe.glance import Glance, SessionLine, glance

S = 1_000_000_000


def task(at_s: float, **changes: Any) -> dict[str, Any]:
    blank = {"pid": 100, "tid": 100, "start_ticks": 1, "role": "session", "session": 0, "status": "ok"}
    return {**blank, "before_ns": int(at_s * S), "after_ns": int(at_s * S), **changes}


def sample(number: int, **changes: Any) -> dict[str, Any]:
    at_ns = 10 * S + number * S // 10
    blank: dict[str, Any] = {"pid": 100, "role": "session", "session": 0, "status": "ok", "via": "sql"}
    return {**blank, "sample": number, "sql_before_ns": at_ns, "sql_after_ns": at_ns, **changes}


def glance_at(window_ns: int | None = None, **tables: list[dict[str, Any]]) -> Glance:
    frames = {name: rows(raw(name), tables[name]) if name in tables else empty(raw(name)) for name in RAW}
    return glance(frames, wait_families(), window_ns=window_ns)


ACTIVE = {"state": "active", "task_state": "R"}
READS = {"state": "active", "wait_class": "IO", "wait_event": "DataFileRead"}


def test_exact_sums_are_spread_over_the_labels_that_samples_saw() -> None:
    """1 s in 4 on a CPU, 1 in the run queue, 2 asleep; runnable: 3 of 4 without an event; asleep: all IO."""
    seen = glance_at(
        tasks=[task(10, run_ns=0, runq_ns=0), task(14, run_ns=S, runq_ns=S)],
        samples=[
            *(sample(n, **ACTIVE) for n in range(3)),
            sample(3, **READS, task_state="R"),
            *(sample(n, **READS, task_state="S") for n in range(4, 8)),
        ],
    )
    (line,) = seen.sessions
    assert (line.run, line.runq, line.sleep, line.client) == pytest.approx((0.25, 0.25, 0.5, 0))
    io, none = seen.events
    assert (io.name, none.name) == ("IO/DataFileRead", "no wait event")
    assert (io.sleep, io.runq, io.run) == pytest.approx((0.5, 0.0625, 0.0625))
    assert (none.sleep, none.runq, none.run) == pytest.approx((0, 0.1875, 0.1875))
    assert seen.total("db_time") == pytest.approx(1)
    assert seen.tier == "activity samples"


def test_sums_of_a_window_have_each_sessions_part_of_it() -> None:
    """4 s of 16: 1 s on a CPU, 1 in the run queue, 2 asleep for IO."""
    seen = glance_at(
        window_ns=16 * S,
        tasks=[task(10, run_ns=0, runq_ns=0), task(14, run_ns=S, runq_ns=S)],
        samples=[sample(0, **ACTIVE), sample(1, **READS, task_state="S")],
    )
    totals = [seen.total(part) for part in ("run", "runq", "sleep", "db_time")]
    assert totals == pytest.approx([1 / 16, 1 / 16, 2 / 16, 4 / 16])
    assert sum(e.sleep or 0.0 for e in seen.events) == pytest.approx(2 / 16)


def test_waits_of_the_trace_are_exact_and_a_new_label_began_at_zero() -> None:
    def wait(at_s: float, event: str, sleep: float, runq: float, begun: int = 1) -> dict[str, Any]:
        label = {"wait_class": "LWLock", "wait_event": event, "sleeps": 3 * begun, "preempted": 0}
        label |= {"begun": begun, "unclear": 0}
        return task(at_s, **label, sleep_ns=int(sleep * S), runq_ns=int(runq * S))

    seen = glance_at(
        tasks=[task(10, run_ns=0, runq_ns=0), task(14, run_ns=S, runq_ns=S)],
        samples=[sample(0, **ACTIVE)],
        waits=[wait(10, "A", 1, 0), wait(14, "A", 2, 0.4, 5), wait(14, "B", 0.8, 0.6)],
    )
    assert seen.tier == "scheduler trace"
    assert {e.event: (e.sleep, e.runq) for e in seen.events} == {"A": (0.25, 0.1), "B": (0.2, 0.15)}
    assert {e.event: (e.waits, e.mean_ns) for e in seen.events} == {"A": (1, S / 4), "B": (0.25, 0.8 * S)}


def test_waits_are_unknown_where_a_sleep_may_go_on_with_an_earlier_one() -> None:
    def keys(pid: int) -> dict[str, Any]:
        return {"pid": pid, "tid": pid, "session": pid}

    def wait(at_s: float, pid: int, event: str, begun: int | None, unclear: int | None) -> dict[str, Any]:
        label = {"wait_class": "IO", "wait_event": event, "sleeps": begun or 9, "preempted": 0, **keys(pid)}
        figures = {"begun": begun, "unclear": unclear, "sleep_ns": int(at_s * S / 20), "runq_ns": 0}
        return task(at_s, **label, **figures)

    events = {"known": ((0, 0), (8, 0)), "unclear": ((0, 0), (8, 1)), "once unclear": ((9, 5), (17, 5))}
    events |= {"of an older trace": ((None, None), (None, None))}
    waits = [
        wait(at, 100, event, *ends)
        for event, both in events.items()
        for at, ends in zip((10, 14), both, strict=True)
    ]
    of_another = [wait(10, 200, "known", 0, 0), wait(14, 200, "known", 4, 2)]
    seen = glance_at(
        tasks=[task(at, **keys(pid), run_ns=0, runq_ns=0) for at in (10, 14) for pid in (100, 200)],
        samples=[sample(0, pid=pid, session=pid, **ACTIVE) for pid in (100, 200)],
        waits=[*waits, *of_another],
    )
    one = next(s for s in seen.sessions if s.pid == 100)
    known: dict[str | None, float | None] = {e.event: e.waits for e in one.events}
    assert known == {"known": 2, "unclear": None, "once unclear": 2, "of an older trace": None}
    together = next(e for e in seen.events if e.event == "known")
    assert (together.waits, together.mean_ns) == (None, None), "those of one session are not known"


def test_waits_of_several_statements_add_up() -> None:
    """The trace keeps a sum for each statement: 1 s and 0.4 s of 4 s, and one that began in between."""

    def wait(at_s: float, query_id: int | None, sleep: float) -> dict[str, Any]:
        label = {"wait_class": "Lock", "wait_event": "tuple", "query_id": query_id, "runq_ns": 0}
        return task(at_s, **label, sleep_ns=int(sleep * S), sleeps=1, preempted=0)

    seen = glance_at(
        tasks=[task(10, run_ns=0, runq_ns=0), task(14, run_ns=S, runq_ns=0)],
        samples=[sample(0, **ACTIVE)],
        waits=[wait(10, 7, 5), wait(10, None, 1), wait(14, 7, 6), wait(14, None, 1.4), wait(14, 8, 0.2)],
    )
    assert [(e.name, e.sleep) for e in seen.events] == [("Lock/tuple", pytest.approx(0.4))]


def test_an_idle_session_that_waited_for_a_cpu_is_counted() -> None:
    idle = {"state": "idle", "wait_class": "Client", "wait_event": "ClientRead", "task_state": "S"}
    seen = glance_at(
        tasks=[task(10, run_ns=0, runq_ns=0), task(14, run_ns=S // 10, runq_ns=2 * S)],
        samples=[sample(n, **idle) for n in range(5)],
    )
    (line,) = seen.idle_busy
    assert line.runq == pytest.approx(0.5)
    assert (line.client, line.sleep) == pytest.approx((0.475, 0))


def test_parallel_workers_count_for_their_leader() -> None:
    worker = {"pid": 101, "role": "helper:parallel worker", "session": None}
    seen = glance_at(
        tasks=[
            task(10, run_ns=0, runq_ns=0),
            task(14, run_ns=S, runq_ns=0),
            task(10, **worker, tid=101, run_ns=0, runq_ns=0),
            task(14, **worker, tid=101, run_ns=2 * S, runq_ns=S),
        ],
        samples=[sample(0, **ACTIVE), sample(0, **worker, leader_pid=100)],
    )
    (line,) = seen.sessions
    assert (line.run, line.runq) == pytest.approx((0.75, 0.25))


def test_a_brief_parallel_worker_counts_for_the_time_that_it_lived() -> None:
    """1 s on a CPU in 4 s by the leader, 0.2 s by a worker that lived for 0.4 s: 0.3 CPUs, for the session
    as for the server; half of the ticks are in system mode."""
    worker = {"pid": 101, "tid": 101, "role": "helper:parallel worker", "session": None}
    ticks = {"user_ns": S // 2, "system_ns": S // 2}
    seen = glance_at(
        tasks=[
            task(10, run_ns=0, runq_ns=0, user_ns=0, system_ns=0),
            task(14, run_ns=S, runq_ns=0, **ticks),
            task(11, **worker, run_ns=0, runq_ns=0),
            task(11.4, **worker, run_ns=S // 5, runq_ns=0),
        ],
        samples=[sample(0, **ACTIVE), sample(0, **worker, leader_pid=100)],
    )
    assert seen.sessions[0].run == pytest.approx(0.3)
    assert seen.machine.helpers == pytest.approx({"parallel worker": 0.05})
    assert (seen.server_cpu, seen.machine.server_system) == pytest.approx((0.3, 0.5))


def test_without_the_tasks_only_the_servers_word_is_known() -> None:
    seen = glance_at(samples=[sample(0, state="active"), *(sample(n, **READS) for n in range(1, 4))])
    (line,) = seen.sessions
    assert (line.run, line.runq, line.db_time) == (None, None, None)
    assert line.sleep == pytest.approx(1)
    assert {e.name: e.sleep for e in seen.events} == {"IO/DataFileRead": 0.75, "no wait event": 0.25}


def test_a_session_missing_from_the_servers_latest_answers_has_left() -> None:
    gone = {"pid": 7, "session": 1}
    frames = {name: empty(raw(name)) for name in RAW}
    frames["samples"] = rows("samples", [sample(0, **gone), *(sample(n) for n in range(40))])
    assert [s.pid for s in glance(frames, wait_families()).sessions] == [100]
    assert sorted(s.pid for s in glance(frames, wait_families(), gone_ns=100 * S).sessions) == [7, 100]


def test_sessions_that_rest_are_counted_without_a_line_and_the_sums_stay() -> None:
    idle = {"state": "idle", "wait_class": "Client", "wait_event": "ClientRead", "task_state": "S"}
    other = {"idle": 1, "woken": 2, "ran": 3, "hidden": 4, "queued": 5}
    who = {name: {"pid": n, "tid": n, "session": n} for name, n in other.items()}
    grown = {"ran": {"run_ns": S}, "queued": {"runq_ns": S}}
    frames = {name: empty(raw(name)) for name in RAW}
    frames["tasks"] = rows(
        "tasks",
        [
            task(
                at_s, **who[name] | {"run_ns": 0, "runq_ns": 0} | (grown.get(name, {}) if at_s == 14 else {})
            )
            for name in other
            for at_s in (10, 14)
        ],
    )
    states = {"woken": {"task_state": "R"}, "hidden": {"state": "hidden"}}
    listed = {n: {k: v for k, v in w.items() if k != "tid"} for n, w in who.items()}
    frames["samples"] = rows(
        "samples",
        [sample(n, **idle | listed[name] | states.get(name, {})) for name in other for n in range(3)],
    )
    each = glance(frames, wait_families())
    together = glance(frames, wait_families(), resting=True)
    assert [s.pid for s in each.sessions if s not in together.sessions] == [who["idle"]["pid"]]
    assert (together.resting, together.count) == (1, each.count)
    for part in ("run", "runq", "sleep", "client", "db_time"):
        assert together.total(part) == pytest.approx(each.total(part))
    assert (together.seconds, together.samples) == (each.seconds, each.samples)


def test_a_process_that_derives_beside_the_observation_is_not_at_the_server() -> None:
    """Of 4 s the server's process used 40 ms for dbdyno, and dbdyno's own second process 400 ms."""
    spent = ((100, 0.04), (200, 0.4))
    reads = [
        task(at, pid=pid, tid=pid, role="dbdyno", session=None, run_ns=int(run * S))
        for pid, used in spent
        for at, run in ((10, 5.0), (14, 5.0 + used))
    ]
    frames = {name: rows(raw(name), reads if name == "tasks" else []) for name in RAW}
    found = glance(frames, wait_families(), helpers={200}).machine
    assert (found.at_server, found.helping) == pytest.approx((0.01, 0.1))


def test_nothing_read_is_an_empty_glance() -> None:
    assert glance_at() == Glance(0.0, "activity samples", 0)
    assert isinstance(empty("samples"), pl.DataFrame)


def test_the_sums_of_parts_add_up_to_db_time_beside_a_session_without_cpu_times() -> None:
    whole = SessionLine(1, 0, "hidden", None, None, 0.1, 0.2, 0.3, 0.4, 1.0)
    without_cpu = SessionLine(2, 1, "hidden", None, None, None, None, 0.9, 0.0, 1.0)
    both = Glance(1.0, "", 10, (whole, without_cpu))
    parts = [both.total(part) for part in ("run", "runq", "sleep")]
    assert sum(p or 0.0 for p in parts) == pytest.approx(both.total("db_time"))
    assert Glance(1.0, "", 10, (without_cpu,)).total("sleep") == 0.9
