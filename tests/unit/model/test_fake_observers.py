"""Tables of the fake observers, against the truth of the world that they read."""

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fake_engine.truth import Truth
from tests.fakery import MS, Climb, S, climb

from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import ServerLost, UsageError
from dbdyno.model.plan.plan import Observation
from dbdyno.model.schema.tables import from_core

MIXED = "fake:cpus=2,call=cpu:3ms+IO/DataFileRead:2ms+cpu:1ms+Lock/tuple:4ms,think=2ms,quota=1.6,spread=0.4"
Frames = dict[str, pl.DataFrame]


@pytest.fixture(scope="module")
def mixed() -> Climb:
    return climb(MIXED, [5], memory_hz=100.0, trace=True, syscalls=True)


def _growth(frame: pl.DataFrame, name: str, t0: int, t1: int) -> int:
    """Between the reads at t0 and t1, whose brackets are 1 us each way; 0 before the first row."""
    at = {t: frame.filter(pl.col("before_ns") == t - 1000)[name] for t in (t0, t1)}
    return int(at[t1].sum()) - int(at[t0].sum())


def _truths(run: Climb) -> dict[int, Truth]:
    meta = run.cells[0].meta
    return run.server.truth(run.cells[0].id, meta.t0_ns, meta.t1_ns)


def test_the_trace_is_the_truth(mixed: Climb):
    meta, tables = mixed.cells[0].meta, mixed.cells[0].tables
    for session, truth in _truths(mixed).items():
        traced = tables["traced"].filter(session=session)
        grown = {n: _growth(traced, n, meta.t0_ns, meta.t1_ns) for n in ("run_ns", "runq_ns", "throttled_ns")}
        assert grown == {"run_ns": truth.run, "runq_ns": truth.runq, "throttled_ns": truth.throttled}
        asleep = _growth(traced, "sleep_ns", meta.t0_ns, meta.t1_ns)
        assert asleep == truth.wall - truth.run - truth.runq
        assert _growth(traced, "blocked_ns", meta.t0_ns, meta.t1_ns) == truth.sleep["IO", "DataFileRead"]


def test_the_waits_are_the_truth_and_sum_up_to_the_trace(mixed: Climb):
    meta, tables = mixed.cells[0].meta, mixed.cells[0].tables
    for session, truth in _truths(mixed).items():
        waits = tables["waits"].filter(session=session)
        for (wait_class, event), ns in truth.sleep.items():
            rows = waits.filter(wait_class=wait_class, wait_event=event)
            assert _growth(rows, "sleep_ns", meta.t0_ns, meta.t1_ns) == ns
            hidden = truth.queued_as.get((wait_class, event), 0)
            assert _growth(rows, "runq_ns", meta.t0_ns, meta.t1_ns) == hidden
        for name in ("sleep_ns", "runq_ns", "throttled_ns"):
            whole = tables["traced"].filter(session=session)
            whole = whole.sort("before_ns").select("before_ns", name).rows()[1:]  # nothing yet at the first
            assert waits.group_by("before_ns").agg(pl.col(name).sum()).sort("before_ns").rows() == whole


def test_switches_are_counted_the_same_by_both_witnesses(mixed: Climb):
    """voluntary of the trace = sum of sleeps over the waits = growth of the tasks' own count."""
    meta, tables = mixed.cells[0].meta, mixed.cells[0].tables
    for session in range(5):
        of_session = {t: tables[t].filter(session=session) for t in ("traced", "waits", "tasks")}
        traced = _growth(of_session["traced"], "voluntary", meta.t0_ns, meta.t1_ns)
        assert traced == _growth(of_session["waits"], "sleeps", meta.t0_ns, meta.t1_ns) > 1000
        assert traced == _growth(of_session["tasks"], "voluntary", meta.t0_ns, meta.t1_ns)
        lost = _growth(of_session["traced"], "involuntary", meta.t0_ns, meta.t1_ns)
        assert lost == _growth(of_session["waits"], "preempted", meta.t0_ns, meta.t1_ns)
    switches = tables["tasks"].filter(role="session", session=0).sort("before_ns")["voluntary"]
    assert switches.is_null().to_list() == [False, False, *[True] * 9, False], "at the window's ends only"


def test_system_calls_last_from_entry_to_the_next_cpu(mixed: Climb):
    """pread64: each read's 2 ms asleep (spread evenly by 40 %) and the run queue after it."""
    meta, tables = mixed.cells[0].meta, mixed.cells[0].tables
    (truth, *_), syscalls = _truths(mixed).values(), tables["syscalls"].filter(session=0)
    reads = syscalls.filter(name="pread64")
    inside = _growth(reads, "time_ns", meta.t0_ns, meta.t1_ns)
    expected = truth.sleep["IO", "DataFileRead"] + truth.queued_as["IO", "DataFileRead"]
    assert inside == pytest.approx(expected, rel=0.01)
    calls = tables["sessions"].filter(session=0)["calls"].item()
    assert _growth(reads, "calls", meta.t0_ns, meta.t1_ns) == pytest.approx(calls, abs=2)
    assert set(syscalls["name"]) == {"pread64", "epoll_wait"}


def test_two_samplers_number_their_samples_apart(mixed: Climb):
    tables = mixed.cells[0].tables
    by_via = dict(tables["sampler"].group_by("via").len().rows())
    assert by_via == {"sql": 101, "memory": 1001}
    for via in by_via:
        numbers = tables["sampler"].filter(via=via)["sample"]
        assert numbers.to_list() == list(range(len(numbers)))
    word = tables["samples"].filter(via="memory")
    assert word.select("state", "query_id", "leader_pid").null_count().row(0) == (word.height,) * 3
    assert tables["samples"]["start_ticks"].null_count() == 0


def test_block_io_of_an_io_worker_is_not_the_sessions():
    """The session waits for the completion: interruptible, no block I/O delay; the worker bears both."""
    law = "fake:cpus=4,call=cpu:2ms+IO/DataFileRead:3ms,io_workers=2"
    run = climb(law, [2], memory_hz=100.0, trace=True)
    meta, tables = run.cells[0].meta, run.cells[0].tables
    for role, delayed in (("session", False), ("helper:io worker", True)):
        for table, name in (("tasks", "blkio_ns"), ("traced", "blocked_ns")):
            of_role = tables[table].filter(role=role)
            assert (_growth(of_role, name, meta.t0_ns, meta.t1_ns) > 0) is delayed
        states = set(tables["samples"].filter(role=role)["task_state"])
        assert ("D" in states) is delayed


def test_refused_witnesses_have_a_status_and_no_rows():
    run = climb("fake:cpu=50ms,trace=off,word=off", [1], memory_hz=100.0, trace=True)
    tables = run.cells[0].tables
    statuses = {row["name"]: row["status"] for row in tables["sources"].to_dicts()}
    assert (statuses["wait event word"], statuses["scheduler trace"]) == ("not permitted", "not permitted")
    assert tables["traced"].is_empty()
    assert set(tables["sampler"]["via"]) == {"sql"}


def test_a_starved_sampler_is_late():
    tables = climb("fake:cpu=50ms,late=50ms", [1]).cells[0].tables
    late = tables["sampler"].select((pl.col("start_ns") - pl.col("due_ns")).mean() / MS).item()
    assert late == pytest.approx(50, rel=0.2)


def test_the_servers_counters_are_the_truth():
    """Time active, idle in transaction and connected, calls and their reads, of all sessions."""
    law = "fake:cpus=2,call=cpu:5ms+IO/DataFileRead:3ms+Client/ClientRead:1ms,think=4ms,foreign=1"
    run = climb(law, [3])
    (cell,) = run.cells
    span = (cell.meta.t0_ns, cell.meta.t1_ns)
    counters = cell.tables["counters"].filter(scope="server", kind="counter")
    value = {(n, p): v for n, p, v in counters.select("name", "phase", "value").rows()}
    grown = {n: value[n, "t1"] - value[n, "t0"] for n, _ in value}
    clients = [
        truth for role, truth in run.server.truth_of_roles(*span).items() if role in ("session", "other")
    ]
    for state, name in (("active", "db_time_ns"), ("idle in transaction", "idle_in_transaction_ns")):
        true_ns = sum(sum(u[:3]) for t in clients for label, u in t.labels.items() if label.state == state)
        assert grown[name] == true_ns > 0
    assert grown["session_time_ns"] == sum(t.wall for t in clients) == 40 * S
    assert grown["transactions_committed"] == grown["executions"] == grown["physical_reads"]
    assert grown["logical_reads"] == 132 * grown["executions"] > 132 * 1000


def test_after_a_reset_counters_begin_at_its_instant():
    counters = climb("fake:cpu=10ms,reset=5s", [1]).cells[0].tables["counters"]
    since = counters.filter(name="statistics_reset_s").sort("phase")["value"]
    assert since[1] - since[0] > 5
    commits = counters.filter(name="transactions_committed").sort("phase")["value"]
    assert commits[1] == pytest.approx(700, abs=2), "of the 1,200 calls those after the reset"


def test_progress_has_a_row_a_second():
    cell = climb("fake:cpus=2,cpu=10ms,error_every=10", [2]).cells[0]
    progress = cell.tables["progress"]
    assert progress["at_ns"].diff().drop_nulls().to_list()[:-1] == [S] * (progress.height - 2)
    last = progress.row(-1, named=True)
    sums = cell.tables["sessions"].select("calls_total", "errors_total").sum().row(0)
    assert (last["calls"], last["errors"]) == sums
    assert last["live"] == 0


# -- somebody else's load -------------------------------------------------------------------------

WEB = "fake:cpus=4,cpu=5ms,think=5ms,foreign=4"


def _window(
    server: FakeServer, chosen: Observation, known: dict[tuple[int, int], int], trace: str = "auto"
) -> Frames:
    watch = server.watch({**server.observation_spec(chosen, known), "trace": trace})
    assert watch is not None
    t0 = server.clock().now_ns() + S // 2
    watch.start(t0, t0 + 5 * S)
    while server.clock().now_ns() < t0 + 5 * S:
        server.clock().sleep(0.1)
    watch.stop()
    return {name: from_core(name, table) for name, table in watch.tables().items()}


def test_an_observation_adopts_the_chosen_and_leaves_the_others():
    server = FakeServer(Target(dsn=WEB))
    listed = server.backends().filter(kind="client backend")
    assert listed["application"].to_list() == ["web", "batch", "web", "batch"]
    samples = _window(server, Observation(application="web"), {})["samples"]
    assert samples.filter(role="session").select("session", "pid").unique().sort("pid").rows() == [
        (0, 20_000),
        (1, 20_002),
    ]
    assert set(samples.filter(role="other")["pid"]) == {20_001, 20_003}
    nobody = _window(server, Observation(user="nobody"), {})["samples"]
    assert nobody.filter(role="session").is_empty()
    with pytest.raises(UsageError):
        server.observation_spec(Observation(pids=(0,)), {})


def test_known_sessions_keep_their_numbers_and_newcomers_get_the_next():
    server = FakeServer(Target(dsn=f"{WEB},stay=3s+100ms,pids=reused"))
    samples = _window(server, Observation(), {(20_000, 20_000): 7})["samples"]
    sessions = samples.drop_nulls("session").select("session", "pid", "start_ticks").unique()
    assert sessions["session"].n_unique() == sessions.select("pid", "start_ticks").n_unique() > 4
    assert sessions["session"].min() >= 7
    assert sessions.group_by("pid").len()["len"].max() > 1, "a pid that came again is another session"


def test_lately_read_rows_are_a_part_of_all():
    server = FakeServer(Target(dsn=WEB))
    watch = server.watch(server.observation_spec(Observation(), {}))
    assert watch is not None
    t0 = server.clock().now_ns() + S
    watch.start(t0, t0 + 10 * S)
    assert watch.tables() == {}, "nothing is read before its time"
    server.clock().sleep(4.0)
    now = server.clock().now_ns()
    recent = {name: from_core(name, table) for name, table in watch.recent(now - S).items()}
    assert 9 <= recent["sampler"].filter(via="sql").height <= 11
    assert recent["tasks"]["before_ns"].min() > now - S - MS
    whole = from_core("samples", watch.tables()["samples"])
    assert whole["task_ns"].max() <= now


def test_a_server_that_goes_away_comes_back():
    server = FakeServer(Target(dsn=f"{WEB},down=2s+3s"))
    watch = server.watch(server.observation_spec(Observation(), {}))
    assert watch is not None
    t0 = server.clock().now_ns() + S
    watch.start(t0, t0 + 10 * S)
    server.clock().sleep(4.0)
    assert watch.trouble() is not None
    with pytest.raises(ServerLost):
        server.backends()
    server.clock().sleep(3.0)
    server.reconnect()
    assert server.backends().filter(kind="client backend").height == 4


def test_the_truth_of_an_observation_goes_by_pid_and_start():
    server = FakeServer(Target(dsn=f"{WEB},stay=2s+1s,pids=reused"))
    tables = _window(server, Observation(), {})
    t0 = int(tables["tasks"]["before_ns"].max()) + 1000 - 5 * S
    truth = server.truth_of_tasks(t0, t0 + 5 * S)
    for pid, ticks, run in tables["traced"].group_by("pid", "start_ticks").agg(pl.col("run_ns").max()).rows():
        assert run == pytest.approx(truth[pid, ticks].run, abs=10 * MS)
