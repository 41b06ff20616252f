"""Source against source: the same quantity from every data source, verdicts, tolerances."""

import polars as pl
import pytest
from tests.fake_engine import FakeServer
from tests.fakery import (
    LIO,
    S,
    climb,
    climb_one,
    made_cell,
    plan_cell,
    sample_row,
    sampler_row,
    session_row,
    task_row,
)

from dbdyno.account.ledger import cross_check, ledger
from dbdyno.account.window import cut
from dbdyno.model.engine.protocols import Target
from dbdyno.model.results.raw import RawCell

NAIVE = "activity samples: "  # what others take for CPU or DB time: shown because it differs


def _cross_check(*cells: RawCell) -> pl.DataFrame:
    tables = cut(cells)
    return cross_check(tables, ledger(tables))


def _cgroup(usage_ns: int) -> list[dict]:
    head = {"scope": "server", "version": 2, "path": "/db", "key": "usage_ns", "status": "ok"}
    return [
        head | {"before_ns": at, "after_ns": at, "value": v} for at, v in ((10 * S, 0), (20 * S, usage_ns))
    ]


def _host(busy_ns: int, steal_ns: int = 0) -> list[dict]:
    keys = ("user", "nice", "system", "irq", "softirq", "steal")
    return [
        {
            "before_ns": at,
            "after_ns": at,
            "key": f"cpu.{k}_ns",
            "value": {"user": busy, "steal": stolen}.get(k, 0),
            "status": "ok",
        }
        for at, busy, stolen in ((10 * S, 0, 0), (20 * S, busy_ns, steal_ns))
        for k in keys
    ]


def _engine(name: str, growth: float) -> list[dict]:
    head = {"scope": "server", "name": name, "kind": "counter", "unit": "ns", "status": "ok"}
    return [
        head | {"phase": phase, "before_ns": at, "after_ns": at, "value": value}
        for phase, at, value in (("t0", 10 * S, 7.0), ("t1", 20 * S, 7.0 + growth))
    ]


def _task(pid: int, start: tuple[int, int], end: tuple[int, int], role: str, **changes) -> list[dict]:
    """Two reads: (instant, run)."""
    who = {"pid": pid, "tid": pid, "role": role, "session": 0 if role == "session" else None} | changes
    return [task_row(at, run, 0, **who) for at, run in (start, end)]


def test_all_agree_on_the_fake_machine():
    run = climb("fake:cpus=2,cpu=20ms,wait=IO/x:5ms,helper=checkpointer:0.1,driver=1ms,think=1ms", [1, 4])
    result = _cross_check(*run.cells).filter(~pl.col("source").str.starts_with(NAIVE))
    assert "differs" not in set(result["verdict"])
    cpu = result.filter(quantity="cpu_used", sessions=4).drop_nulls("value")
    assert cpu["source"].to_list()[:3] == ["os tasks", "cgroup", "host: whole machine less driver and dbdyno"]
    executions = result.filter(quantity="executions")["relative_difference"].drop_nulls()
    assert executions.to_list() == [0.0, 0.0]
    time = result.filter(quantity="db_time", sessions=1).drop_nulls("value")
    assert time["source"].to_list()[:2] == ["driver", "ledger"]
    assert time["value"][0] == pytest.approx(25 / 27, rel=0.01), "20 ms + 5 ms of 27 with driver and thinking"


def test_a_witness_that_differs_is_named_with_its_tolerance():
    """Tasks used 0.4 cores by the system's figures and 0.8 by the group's: twice as much."""
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 0, user_ns=4 * S)]
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "cgroup": _cgroup(8 * S)})
    row = _cross_check(cell).filter(quantity="cpu_used", source="cgroup").row(0, named=True)
    assert row["value"] == pytest.approx(0.8)
    assert row["relative_difference"] == pytest.approx(1.0)
    assert row["tolerance"] == pytest.approx(0.02 * 0.4)
    assert row["verdict"] == "differs"
    assert row["reason"]


@pytest.mark.parametrize(("steal_s", "verdict"), [(0.6, "not comparable"), (0.3, "differs")])
def test_the_trace_counts_what_the_hypervisor_withheld(steal_s: float, verdict: str):
    """On a CPU for 4 s by the kernel's books, for 4.5 s by the trace: 0.05 of a CPU."""
    who = {"pid": 100, "tid": 100, "start_ticks": 5, "role": "session", "session": 0, "status": "ok"}
    traced = [
        who | {"before_ns": at, "after_ns": at, "run_ns": run, "runq_ns": 0, "sleep_ns": asleep}
        for at, run, asleep in ((10 * S, 0, 0), (20 * S, 4_500_000_000, 5_500_000_000))
    ]
    tasks = _task(100, (10 * S, 0), (20 * S, 4 * S), "session", start_ticks=5)
    host = _host(4 * S, round(steal_s * S))
    cell = made_cell({"tasks": tasks, "traced": traced, "sessions": [session_row()], "host": host})
    result = _cross_check(cell).filter(quantity="cpu_sessions", source="scheduler trace").row(0, named=True)
    assert (result["value"], result["verdict"]) == (pytest.approx(0.45), verdict)
    assert (
        result["reason"]
        == f"the scheduler trace counts what the hypervisor withheld, too: {steal_s / 10:.3f} CPUs"
    ) == (verdict == "not comparable")


@pytest.mark.parametrize(("steal_s", "verdict"), [(0.6, "not comparable"), (0.3, "differs"), (0, "differs")])
def test_tasks_may_count_what_the_hypervisor_withheld_and_the_machine_does_not(steal_s: float, verdict: str):
    """Tasks 4 s, the machine 3.5 s of 10 s: 0.05 of a CPU less."""
    tasks = _task(100, (10 * S, 0), (20 * S, 4 * S), "session")
    host = _host(3_500_000_000, round(steal_s * S))
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "host": host})
    row = _cross_check(cell).filter(quantity="cpu_used_machine", source="host").row(0, named=True)
    assert (row["value"], row["verdict"]) == (pytest.approx(0.35), verdict)
    why = f"the CPU time of tasks may include what the hypervisor withheld: {steal_s / 10:.3f} CPUs"
    assert (row["reason"] == why) == (verdict == "not comparable")


def test_the_machine_less_driver_is_set_against_the_servers_tasks():
    """Sessions 4 s, driver 2 s, machine 6.5 s of 10 s: 0.45 against 0.4 cores."""
    tasks = _task(100, (10 * S, 0), (20 * S, 4 * S), "session") + _task(
        50, (10 * S, 0), (20 * S, 2 * S), "driver"
    )
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "host": _host(6_500_000_000)})
    result = _cross_check(cell).filter(quantity="cpu_used").filter(pl.col("source").str.starts_with("host"))
    assert result["value"].to_list() == pytest.approx([0.45])


_INCLUDED, _PARTLY = "os tasks, ended ones included", "os tasks, ended ones as far as read"


@pytest.mark.parametrize(
    ("born_s", "first", "ended", "cores", "source"),
    [
        # the main process counts 3 s; 2 s of them were read of the child that came and went
        (12, (12 * S, 0), 3, 0.4 + 0.3, _INCLUDED),
        # 40 s of 43 s are from before the window, whenever the child was read first
        (1, (10 * S, 40 * S), 43, 0.4 + 0.3, _INCLUDED),
        (1, (12 * S, 40 * S), 43, 0.4 + 0.3, _INCLUDED),
        # it was read once: what it used since is known all the same
        (1, None, 43, 0.4 + 0.1, _INCLUDED),
        # 43 s in 10 s on 4 CPUs, of a child that was never read
        (1, (12 * S, 0), 46, 0.4 + 0.2, _PARTLY),
    ],
)
def test_processes_that_ended_count_for_what_they_used_in_the_window(
    born_s: int, first: tuple[int, int] | None, ended: int, cores: float, source: str
):
    last = (17 * S, (first[1] if first else 40 * S) + 2 * S)
    child = {"pid": 200, "tid": 200, "start_ticks": born_s * 100, "role": "other", "session": None}
    tasks = [
        *_task(100, (10 * S, 0), (20 * S, 4 * S), "session"),
        *_task(300, (10 * S, 0), (20 * S, 0), "helper:checkpointer"),
        *(task_row(at, run, 0, **child) for at, run in ((first, last) if first else (last,))),
        task_row(10 * S, 0, 0, pid=1, tid=1, role="helper:main", session=None, children_ns=5 * S),
        task_row(20 * S, 0, 0, pid=1, tid=1, role="helper:main", session=None, children_ns=(5 + ended) * S),
    ]
    cpus = [
        {"before_ns": at, "after_ns": at, "key": "cpus", "value": 4, "status": "ok"}
        for at in (10 * S, 20 * S)
    ]
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "host": cpus, "cgroup": _cgroup(7 * S)})
    result = _cross_check(cell).filter(quantity="cpu_used")
    row = result.row(0, named=True)
    assert (row["source"], row["value"]) == (source, pytest.approx(cores, abs=0.001))
    group = result.filter(source="cgroup").row(0, named=True)
    assert group["verdict"] != "differs" or first is None


def test_processes_that_the_server_has_not_named_may_be_older_than_the_window():
    """Without the server's list, 2 s of the children's 3 s may be from before the window."""
    tasks = [
        *_task(100, (10 * S, 0), (20 * S, 4 * S), "session"),
        task_row(10 * S, 0, 0, pid=1, tid=1, role="helper:main", session=None, children_ns=5 * S),
        task_row(20 * S, 0, 0, pid=1, tid=1, role="helper:main", session=None, children_ns=8 * S),
    ]
    result = _cross_check(made_cell({"tasks": tasks, "sessions": [session_row()], "cgroup": _cgroup(6 * S)}))
    rows = result.filter(quantity="cpu_used")
    assert (rows["source"][0], rows["value"][0]) == (_PARTLY, pytest.approx(0.4))
    assert rows.filter(source="cgroup")["verdict"].to_list() == ["not comparable"]


@pytest.mark.parametrize(
    ("growth_s", "verdict"),
    [(9.9, "agrees"), (9.0, "not comparable"), (8.4, "differs")],  # 2 %; 1 s of lag in 10 s
)
def test_db_time_by_the_servers_clock_may_lag(growth_s: float, verdict: str):
    """The driver measured 10 s in calls."""
    cell = made_cell({"sessions": [session_row()], "counters": _engine("db_time_ns", growth_s * S)})
    result = _cross_check(cell).filter(quantity="db_time")
    row = result.filter(source="engine counters").row(0, named=True)
    assert result["source"][0] == "driver"
    assert result["value"][0] == pytest.approx(1.0)
    assert row["tolerance"] == pytest.approx(0.02)
    assert row["verdict"] == verdict


def test_db_time_of_an_observed_load_has_no_witness_in_the_driver():
    """Run 4 s, of ten samples six asleep at the client: DB time by the ledger."""
    samples = [sample_row(n, (10 + n) * S, "S" if n < 6 else "R", "Client/ClientRead") for n in range(10)]
    tables = {
        "tasks": [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 0)],
        "sampler": [sampler_row(n, (10 + n) * S) for n in range(10)],
        "samples": samples,
        "sessions": [session_row(calls=0, first_start_ns=None, last_end_ns=None, in_call_ns=0)],
    }
    result = _cross_check(made_cell(tables, sessions=0)).filter(quantity="db_time")
    assert "driver" not in result["source"].to_list()
    assert result.filter(source="ledger")["value"].to_list() == pytest.approx([0.4], abs=0.001)


@pytest.mark.parametrize(
    ("to_s", "growth_s", "verdict"),
    [
        (20, 3.97, "agrees"),
        (20, 0.01, "not comparable"),  # it reports when it ends
        (20, 40.0, "not comparable"),  # it ended its long transaction
        (15, 40.0, "not comparable"),  # it ended
        (15, 0.01, "differs"),  # it ended, so it has reported
    ],
)
def test_what_observed_sessions_have_not_reported_yet_is_not_comparable(
    to_s: int, growth_s: float, verdict: str
):
    """A session from before the window ran 4 s in it; one of the server was connected all the time."""
    ended = [session_row(calls=0, first_start_ns=None, last_end_ns=None, in_call_ns=0)]
    at = range(10, to_s)
    tables = {
        "tasks": [
            *_task(100, (10 * S, 0), (to_s * S, 4 * S), "session"),
            *_task(300, (10 * S, 0), (20 * S, 0), "helper:checkpointer"),
        ],
        "sampler": [sampler_row(n, t * S) for n, t in enumerate(range(10, 20))],
        "samples": [
            sample_row(n, t * S, "S" if n < 6 else "R", "Client/ClientRead") for n, t in enumerate(at)
        ],
        "sessions": ended,
        "counters": _engine("db_time_ns", growth_s * S),
    }
    result = _cross_check(made_cell(tables, sessions=0)).filter(quantity="db_time")
    row = result.filter(source="engine counters").row(0, named=True)
    assert row["verdict"] == verdict
    assert "when it ends" in row["reason"]


def test_a_session_that_came_and_went_does_not_blot_out_the_others():
    tasks = [
        *_task(100, (10 * S, 0), (20 * S, 4 * S), "session"),
        *_task(101, (12 * S, 0), (12 * S + S // 2, S // 10), "session", session=1),
    ]
    cell = made_cell({"tasks": tasks, "sessions": [session_row(0), session_row(1)]}, sessions=2)
    result = _cross_check(cell)
    assert result.filter(quantity="cpu_sessions")["value"][0] == pytest.approx(0.4)
    server = result.filter(quantity="cpu_used", source="os tasks").row(0, named=True)
    assert (server["value"], server["status"]) == (None, "1 came and went"), "the main process was not read"


def test_an_unknown_figure_has_its_status():
    result = _cross_check(made_cell({"sessions": [session_row()]}))
    unknown = result.filter(pl.col("value").is_null())
    assert set(unknown["verdict"]) == {"unknown"}
    assert "ok" not in set(unknown["status"])
    assert set(result.filter(quantity="cpu_used")["verdict"]) == {"unknown"}


@pytest.mark.parametrize(("size", "verdict"), [(50, "agrees"), (49, "differs")])
def test_executions_are_derived_from_the_work_they_did(size: int, verdict: str):
    """Without a counter of calls: the server's LIO over those of one call at calibration."""
    server = FakeServer(Target(dsn="fake:cpus=2,cpu=1ms"))
    calibration = server.calibrate(LIO, {}, 50_000_000, "a test")
    cell = climb_one(server, plan_cell(2), calibration)
    own = cell.tables["counters"].filter(pl.col("name") != "calls")
    stated = calibration.model_copy(update={"work_per_call": size * 132.0})
    meta = cell.meta.model_copy(update={"calibration": stated})
    tables = cut([RawCell(meta, {**cell.tables, "counters": own})])
    result = cross_check(tables, ledger(tables))
    row = result.filter(quantity="executions", source="engine counters, by work").row(0, named=True)
    assert row["verdict"] == verdict
    assert result.filter(quantity="work_per_call", source="calibration")["verdict"].to_list() == [verdict]


def _counters(reads: float, statements: float) -> list[dict]:
    """The server's counters before the barrier and once all have left; the window's own are late."""
    head = {"scope": "server", "kind": "counter", "unit": "blocks", "status": "ok"}
    ends = {"start": (5, 0.0), "t0": (10, 0.1), "t1": (20, 0.5), "end": (25, 1.0)}
    return [
        head | {"phase": phase, "name": name, "before_ns": at * S, "after_ns": at * S, "value": share * whole}
        for phase, (at, share) in ends.items()
        for name, whole in (
            ("logical_reads", reads),
            ("transactions_committed", 150.0 + statements),
            ("own_transactions", statements),
        )
    ]


def _probes(per_call: float, calls: int) -> list[dict]:
    head = {
        "scope": "session",
        "session": 0,
        "name": "lio",
        "kind": "counter",
        "unit": "blocks",
        "status": "ok",
    }
    values = {"before1": 0.0, "before2": 0.0, "after1": per_call * calls, "after2": per_call * calls}
    return [head | {"before_ns": 5 * S, "after_ns": 5 * S, "phase": p, "value": v} for p, v in values.items()]


@pytest.mark.parametrize(
    ("deviation", "verdict"), [(1.0, "agrees"), (1.004, "agrees"), (1.03, "differs"), (0.97, "differs")]
)
def test_counts_are_compared_over_all_calls_to_half_a_percent(deviation: float, verdict: str):
    """150 calls from the barrier on, 100 of them in the window of 10 s; each reads 1,000 blocks."""
    counters = [*_counters(150 * 1000 * deviation, 40.0), *_probes(1000.0, 150)]
    sessions = [session_row(calls=100, calls_total=150, first_start_ns=10 * S, last_end_ns=20 * S)]
    cell = made_cell({"sessions": sessions, "counters": counters})
    result = _cross_check(cell).filter(quantity="logical_reads")
    assert result["value"][0] == pytest.approx(10_000)
    row = result.filter(source="engine counters").row(0, named=True)
    assert row["value"] == pytest.approx(10_000 * deviation)
    assert row["tolerance"] == pytest.approx(50)
    assert row["verdict"] == verdict
    levels = cut([cell])["cut_levels"].filter(key="transactions_committed").row(0, named=True)
    assert levels["delta"] == pytest.approx(100), "without dbdyno's own 40"


def test_counters_that_were_read_once_give_no_figure():
    """Cut short at once: the read at the start is the one at the end, too."""
    once = [c | {"before_ns": 10 * S, "after_ns": 10 * S} for c in _counters(150_000.0, 40.0)]
    counters = [*once, *_probes(1000.0, 150)]
    sessions = [session_row(calls=100, calls_total=150, first_start_ns=10 * S, last_end_ns=20 * S)]
    result = _cross_check(made_cell({"sessions": sessions, "counters": counters}))
    row = result.filter(quantity="logical_reads", source="engine counters").row(0, named=True)
    assert (row["value"], row["verdict"]) == (None, "unknown")


@pytest.mark.parametrize(
    ("single", "commits"), [(True, (None, "each session is one transaction")), (False, (100.0, "ok"))]
)
def test_calls_before_the_barrier_are_taken_off(single: bool, commits: tuple[float | None, str]):
    """150 calls from the barrier on and 50 before it, reported after it: 100 of 200 are the window's,
    and of 150 s of calls and 50 s before them 100 s."""
    counters = [r for r in _counters(0, 40.0) if not single or r["name"] != "own_transactions"]
    ends = {"connect": (1, 0.0), "start": (5, 0.0), "t0": (10, 0.0), "t1": (20, 0.0), "end": (25, 1.0)}
    for name, whole in (("logical_reads", 200_000.0), ("db_time_ns", 190.0 * S), ("own_executions", 0.0)):
        counters = [r for r in counters if r["name"] != name]
        counters += [
            {
                "scope": "server",
                "kind": "counter",
                "unit": "",
                "status": "ok",
                "phase": phase,
                "name": name,
                "before_ns": at * S,
                "after_ns": at * S,
                "value": share * whole,
            }
            for phase, (at, share) in ends.items()
        ]
    counters.append(counters[-1] | {"name": "warm_calls", "value": 50.0})
    session = {"calls": 100, "calls_total": 150, "in_call_ns": 100 * S, "prepare_ns": 50 * S}
    last = {"at_ns": 25 * S, "calls": 150, "errors": 0, "live": 0, "in_call_ns": 150 * S}
    raw_cell = made_cell({"sessions": [session_row(**session)], "counters": counters, "progress": [last]})
    levels = {r["key"]: r for r in cut([raw_cell])["cut_levels"].filter(scope="server").to_dicts()}
    assert levels["logical_reads"]["delta"] == pytest.approx(100_000)
    assert levels["logical_reads"]["warm_up"] == pytest.approx(0.25)
    assert levels["db_time_ns"]["delta"] == pytest.approx(95 * S)
    row = levels["transactions_committed"]
    assert (row["delta"], row["status"]) == (pytest.approx(commits[0]), commits[1])


@pytest.mark.parametrize(
    ("deviation", "verdict"), [(1.015, "agrees"), (1.04, "differs"), (0.96, "differs"), (0.985, "agrees")]
)
def test_cpu_time_is_compared_to_two_percent(deviation: float, verdict: str):
    tasks = [task_row(10 * S, 0, 0), task_row(20 * S, 8 * S, 0, user_ns=8 * S)]
    usage = round(8 * S * deviation)
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "cgroup": _cgroup(usage)})
    row = _cross_check(cell).filter(quantity="cpu_used", source="cgroup").row(0, named=True)
    assert row["verdict"] == verdict


def test_a_group_of_others_and_the_machine_are_not_comparable_where_they_used_more():
    tasks = _task(100, (10 * S, 0), (20 * S, 4 * S), "session")
    cell = made_cell({"tasks": tasks, "sessions": [session_row()], "host": _host(15 * S)})
    row = _cross_check(cell).filter(quantity="cpu_used_machine", source="host").row(0, named=True)
    assert (row["verdict"], bool(row["reason"])) == ("not comparable", True)


@pytest.mark.parametrize("driven", [True, False])
def test_time_at_the_client_is_no_db_time_of_the_trace(driven: bool):
    """Run 3 s, run queue 1 s, 2 s of a lock and 4 s for the client, of 10 s: 0.6, whoever drives."""
    who = {"pid": 100, "tid": 100, "start_ticks": 5, "role": "session", "session": 0, "status": "ok"}
    traced, waits = [], []
    for at, part in ((10 * S, 0), (20 * S, 1)):
        read = who | {"before_ns": at, "after_ns": at}
        traced.append(read | {"run_ns": 3 * S * part, "runq_ns": S * part, "sleep_ns": 6 * S * part})
        waits += [
            read
            | {
                "wait_class": wait,
                "wait_event": event,
                "sleeps": part,
                "sleep_ns": slept * S * part,
                "runq_ns": queued * S * part,
                "preempted": 0,
            }
            for wait, event, slept, queued in (
                ("Lock", "transactionid", 2, 1),
                ("Client", "ClientRead", 4, 0),
            )
        ]
    tasks = _task(100, (10 * S, 0), (20 * S, 3 * S), "session", start_ticks=5)
    session = (
        session_row(in_call_ns=6 * S)
        if driven
        else session_row(calls=0, first_start_ns=None, last_end_ns=None)
    )
    tables = {"tasks": tasks, "traced": traced, "waits": waits, "sessions": [session]}
    result = _cross_check(made_cell(tables, sessions=int(driven))).filter(quantity="db_time")
    row = result.filter(source="scheduler trace").row(0, named=True)
    assert row["value"] == pytest.approx(0.6)
    assert row["verdict"] == ("agrees" if result["source"][0] != "scheduler trace" else "reference")
