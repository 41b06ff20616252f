"""The fake server against arithmetic, and against what a real kernel measured."""

import pytest
from tests.fake_engine import FakeServer, parse_law
from tests.fakery import LIO, MS, S, climb, climb_one, plan_cell

from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import UsageError


def _truth(dsn: str, sessions: int):
    run = climb(dsn, [sessions])
    meta = run.cells[0].meta
    truth = run.server.truth(run.cells[0].id, meta.t0_ns, meta.t1_ns)
    return run.cells[0], list(truth.values())


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
def test_a_quota_throttles_as_the_kernel_does(sessions: int, runq_s: float, throttled_s: float):
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
    assert not any(load.progress())


def test_parts_of_a_call_have_their_times():
    """CPU 3 ms, IO 2 ms, CPU 1 ms, lock 4 ms: 100 calls a second; half of the read may be CPU, too."""
    law = "fake:call=cpu:3ms+IO/DataFileRead:2ms+cpu:1ms+Lock/tuple:4ms"
    _, (truth,) = _truth(law, 1)
    assert (truth.run, truth.ran_as) == (4 * S, {})
    assert truth.sleep == {("IO", "DataFileRead"): 2 * S, ("Lock", "tuple"): 4 * S}
    _, (cached,) = _truth(f"{law},io_cpu=0.5", 1)
    assert cached.ran_as == {("IO", "DataFileRead"): 1 * S}
    assert (cached.run, cached.sleep["IO", "DataFileRead"]) == (5 * S, 1 * S)


def test_a_calibrated_call_is_the_same_parts_over_again():
    server = FakeServer(Target(dsn="fake:call=cpu:3ms+IO/DataFileRead:2ms"))
    assert server.calibrate(LIO, {}, 30 * MS, "a test").size == 10


def test_cpu_used_before_the_state_changes_is_idle_time():
    """60 % of the CPU of a call is used while the state is still idle."""
    _, (truth,) = _truth("fake:cpu=10ms,idle_cpu=0.6", 1)
    by_state = {label.state: under.run for label, under in truth.labels.items() if under.run}
    assert by_state == {"idle": 6 * S, "active": 4 * S}


def test_only_the_holder_sleeps_under_the_lock():
    """Only session 0 sleeps under the lock; the others wait for it and pass."""
    _, truth = _truth("fake:cpus=8,cpu=10ms,lock=Lock/advisory:1ms,hold=Timeout/PgSleep:50ms,holders=1", 3)
    held = [t.sleep.get(("Timeout", "PgSleep"), 0) for t in truth]
    assert held[0] > 7 * S
    assert held[1:] == [0, 0]
    assert all(t.sleep[("Lock", "advisory")] > 5 * S for t in truth[1:])


def test_one_flush_serves_all_who_wait_for_it():
    """Flushes of 2 ms: fewer than 500 a second, and more commits than that."""
    cell, truth = _truth("fake:cpus=8,cpu=200us,commit=IO/WalSync:2ms,spread=0.5", 8)
    flushing = sum(t.sleep.get(("IO", "WalSync"), 0) for t in truth)
    assert 8 * S < flushing < 10 * S, "never two at a time"
    assert cell.tables["sessions"]["calls"].sum() > 2 * flushing / (2 * MS)


def test_a_lost_leader_leaves_the_log_to_the_next():
    cell, _ = _truth("fake:cpus=8,cpu=200us,commit=IO/WalSync:20ms,lose=0@4s+1@4010ms", 4)
    sessions = cell.tables["sessions"].sort("session")
    assert sessions["end_reason"].to_list() == ["lost", "lost", "deadline", "deadline"]
    assert sessions["last_end_ns"][3] > cell.meta.t1_ns - 100 * MS


def test_workers_share_the_cpu_of_a_call_and_are_gone_after_it():
    """1 s of CPU by three: a call takes 1/3 s, and the workers do two thirds of 30 s of CPU."""
    run = climb("fake:cpus=4,cpu=1s,workers=2", [1])
    meta = run.cells[0].meta
    alone = run.server.truth(run.cells[0].id, meta.t0_ns, meta.t1_ns)[0]
    folded = run.server.truth(run.cells[0].id, meta.t0_ns, meta.t1_ns, workers=True)[0]
    assert run.cells[0].tables["sessions"]["calls"].item() == pytest.approx(30, abs=1)
    assert (alone.run, folded.run) == pytest.approx((10 * S, 30 * S), rel=0.001)
    assert folded.wall == pytest.approx(30 * S, rel=0.001)


def test_io_workers_do_the_reads_of_the_sessions():
    """3 ms a read, 30 % of it CPU: the session waits for the completion, an I/O worker reads."""
    run = climb("fake:cpus=4,call=cpu:2ms+IO/DataFileRead:3ms,io_workers=2,io_cpu=0.3", [1])
    (cell,) = run.cells
    span = (cell.meta.t0_ns, cell.meta.t1_ns)
    session = run.server.truth(cell.id, *span)[0]
    helper = run.server.truth_of_roles(*span)["helper:io worker"]
    calls = cell.tables["sessions"]["calls"].item()
    assert session.run == pytest.approx(calls * 2 * MS, abs=5 * MS)
    assert session.sleep == {("IO", "AioIoCompletion"): pytest.approx(calls * 3 * MS, rel=0.01)}
    assert helper.ran_as[("IO", "DataFileRead")] == pytest.approx(calls * 0.9 * MS, abs=5 * MS)
    assert helper.sleep[("IO", "DataFileRead")] == pytest.approx(calls * 2.1 * MS, abs=5 * MS)


def test_stolen_time_is_no_time_of_the_task_and_is_counted_by_the_host():
    """A quarter of the time on a CPU is stolen: 7.5 s of run in 10 s, 2.5 s of steal."""
    cell, (truth,) = _truth("fake:cpus=2,cpu=10ms,stolen=0.25", 1)
    assert (truth.run, truth.runq, truth.stolen) == pytest.approx((7.5 * S, 0, 2.5 * S), rel=0.001)
    steal = cell.tables["host"].filter(key="cpu.steal_ns").sort("before_ns")["value"]
    assert steal[-1] - steal[1] == pytest.approx(2.5 * S, abs=20 * MS)


def test_sessions_can_be_unequal_and_calls_grow_longer():
    cell, _ = _truth("fake:cpus=8,cpu=10ms,unequal=1", 3)
    assert cell.tables["sessions"]["calls"].to_list() == pytest.approx([1000, 667, 500], abs=2)
    drifting = climb("fake:cpus=8,cpu=10ms,drift=0.5", [1], log_calls=True).cells[0]
    lengths = drifting.tables["calls"].filter("measured")["duration_ns"]
    assert (lengths[0], lengths[-1]) == pytest.approx((10 * MS, 15 * MS), rel=0.01)


def test_visitors_come_and_go_and_their_pids_come_again():
    """Three sessions of somebody else, 2 s each and 0.5 s away: in 10 s 12 of them, on three pids."""
    run = climb("fake:cpus=4,cpu=10ms,think=5ms,foreign=3,stay=2s+500ms,pids=reused", [1])
    others = run.cells[0].tables["tasks"].filter(role="other", status="ok")
    assert others["pid"].n_unique() == 3
    assert others.select("pid", "start_ticks").n_unique() == pytest.approx(14, abs=2)
    fresh = climb("fake:cpus=4,cpu=10ms,think=5ms,foreign=3,stay=2s+500ms", [1])
    assert fresh.cells[0].tables["tasks"].filter(role="other")["pid"].n_unique() > 10


def test_a_vacuum_and_a_checkpoint_come_inside_the_window():
    run = climb("fake:cpus=4,cpu=10ms,vacuum=4s+3s,checkpoint=5s+4s", [1])
    tables = run.cells[0].tables
    seen = tables["samples"].filter(role="helper:autovacuum worker")
    assert 20 < seen.height < 35
    counted = tables["counters"].filter(name="checkpoints_timed").sort("phase")["value"].to_list()
    assert counted == [0.0, 1.0]
    used = run.server.truth_of_roles(run.cells[0].meta.t0_ns, run.cells[0].meta.t1_ns)
    assert 0.3 * S < used["helper:checkpointer"].run < 0.5 * S


@pytest.mark.parametrize(
    ("dsn", "cure"),
    [
        ("fake:cpu5=1", "did you mean 'cpu"),
        ("fake:wait=5ms", "as in fake:"),
        ("fake:cpu=x", "as in fake:"),
        ("fake:call=cpu:1ms,cpu=2ms", "leave out cpu="),
        ("fake:hold=Timeout/PgSleep:1ms", "as in fake:"),
        ("fake:trace=maybe", "as in fake:"),
    ],
)
def test_a_wrong_law_is_refused_with_the_cure(dsn: str, cure: str):
    with pytest.raises(UsageError) as caught:
        parse_law(dsn)
    assert cure in (caught.value.cure or "")
