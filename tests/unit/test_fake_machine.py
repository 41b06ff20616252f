"""The fake server against arithmetic, and against what a real kernel measured."""

import pytest
from tests.fakery import MS, S, climb, climb_one, plan_cell

from dbdyno.engines.fake import FakeServer, parse_law
from dbdyno.model.errors import UsageError
from dbdyno.model.protocols import Target


def _truth(dsn: str, sessions: int):
    made = climb(dsn, [sessions])
    meta = made.cells[0].meta
    truth = made.server.truth(made.cells[0].id, meta.t0_ns, meta.t1_ns)
    return made.cells[0], list(truth.values())


def test_without_contention_a_cycle_takes_the_sum_of_its_parts():
    """cpu 10 ms + wait 5 ms + think 5 ms: 50 calls a second, half on the CPU, a quarter each waiting."""
    cell, (truth,) = _truth("fake:cpu=10ms,wait=IO/DataFileRead:5ms,think=5ms", 1)
    assert cell.tables["sessions"]["calls"].to_list() == [500]
    assert (truth.run, truth.runq, truth.client) == (5 * S, 0, 2.5 * S)
    assert truth.sleep == {("IO", "DataFileRead"): 2.5 * S}


def test_four_sessions_on_two_cpus_queue_for_half_their_time():
    cell, truth = _truth("fake:cpus=2,cpu=20ms", 4)
    assert sum(t.run for t in truth) == 20 * S
    assert sum(t.runq for t in truth) == 20 * S
    assert all(t.run == pytest.approx(5 * S, rel=0.01) for t in truth), "round robin is fair"
    assert cell.tables["sessions"]["calls"].sum() == pytest.approx(2 * 10 * S / (20 * MS), abs=4)


def test_a_lock_lets_through_one_call_at_a_time():
    """10 ms of each call under one lock: 100 calls a second, however many sessions and CPUs."""
    cell, truth = _truth("fake:cpus=8,cpu=1ms,lock=LWLock/WALWrite:10ms", 4)
    assert cell.tables["sessions"]["calls"].sum() == pytest.approx(1000, abs=4)
    assert sum(t.sleep[("LWLock", "WALWrite")] for t in truth) == pytest.approx(29 * S, rel=0.01)


@pytest.mark.parametrize(
    ("sessions", "runq_s", "throttled_s"),
    [
        (1, 2.501, 2.500),  # one spinner, quota 50 %: run 2498 ms, run_delay 2501, throttled_time 2500 of 5 s
        (
            3,
            12.513,
            7.080,
        ),  # three: sum of run_delay 12513 ms, throttled_time 7080 (it counts per-CPU queues)
    ],
)
def test_a_quota_does_what_the_kernel_does(sessions: int, runq_s: float, throttled_s: float):
    """Measured on Linux 6.18, 2 CPUs, quota 50 %, 5 s (see the parameters)."""
    server = FakeServer(Target(dsn="fake:cpus=2,cpu=1s,quota=0.5"))
    cell = climb_one(server, plan_cell(sessions, measure_ns=5 * S))
    truth = server.truth(cell.id, cell.meta.t0_ns, cell.meta.t1_ns).values()
    assert sum(t.run for t in truth) / S == pytest.approx(2.498, rel=0.01)
    assert sum(t.runq for t in truth) / S == pytest.approx(runq_s, rel=0.01)
    group = cell.tables["cgroup"].filter(key="throttled_ns").sort("before_ns")["value"]
    first = cell.tables["cgroup"].filter(key="throttled_ns", before_ns=cell.meta.t0_ns - 1000)["value"][0]
    assert (group[-1] - first) / S == pytest.approx(throttled_s, rel=0.07)


def test_every_ns_of_a_task_is_accounted_for():
    _, truth = _truth(
        "fake:cpus=2,cpu=7ms,wait=IO/Read:3ms,lock=Lock/x:2ms,think=1ms,quota=1.3,spread=0.5", 5
    )
    for t in truth:
        assert t.run + t.runq + t.client + sum(t.sleep.values()) == t.wall == 10 * S


def test_the_same_seed_gives_the_same_world():
    first, second = (climb("fake:cpus=2,spread=0.5,cpu=9ms", [3]).cells[0] for _ in range(2))
    for name, table in first.tables.items():
        assert table.equals(second.tables[name]), name


def test_a_woken_task_keeps_the_label_of_its_wait_until_it_gets_a_cpu():
    _, truth = _truth("fake:cpus=1,cpu=10ms,wait=IO/DataFileRead:10ms", 3)
    assert sum(t.queued_as.get(("IO", "DataFileRead"), 0) for t in truth) > S


def test_a_lost_session_ends_and_the_others_go_on():
    cell, _ = _truth("fake:cpu=50ms,lose=1@5s", 3)
    reasons = cell.tables["sessions"].sort("session")["end_reason"].to_list()
    assert reasons == ["deadline", "lost", "deadline"]
    assert cell.tables["errors"].select("session", "sqlstate", "count").rows() == [(1, "08006", 1)]
    assert cell.tables["tasks"].filter(session=1)["status"].to_list()[-1] == "vanished"


def test_a_lost_server_ends_the_window():
    cell, _ = _truth("fake:cpu=50ms,down=5s", 2)
    assert cell.meta.status == "short"
    assert cell.meta.t1_ns - cell.meta.start_ns == 5 * S
    assert set(cell.tables["sessions"]["end_reason"]) == {"lost"}


def test_a_call_limit_ends_sessions():
    server = FakeServer(Target(dsn="fake:cpu=10ms"))
    cell = climb_one(server, plan_cell(2), max_calls=30)
    assert cell.tables["sessions"]["calls_total"].to_list() == [30, 30]
    assert set(cell.tables["sessions"]["end_reason"]) == {"limit"}


def test_stop_before_the_barrier_makes_no_call():
    server = FakeServer(Target(dsn=None))
    load = server.load(climb("fake:", [1]).cells[0].meta.workload, plan_cell(1), None, False, None)
    load.connect()
    load.start(load.now_ns() + 1000, load.now_ns() + S, load.now_ns() + 2 * S)
    load.stop()
    assert load.wait(1)
    assert load.progress() == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("dsn", "cure"),
    [("fake:cpu5=1", "did you mean 'cpu"), ("fake:wait=5ms", "as in fake:"), ("fake:cpu=x", "as in fake:")],
)
def test_a_wrong_law_is_refused_with_the_cure(dsn: str, cure: str):
    with pytest.raises(UsageError) as caught:
        parse_law(dsn)
    assert cure in (caught.value.cure or "")
