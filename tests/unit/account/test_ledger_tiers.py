"""Ledger, events, microstates and strips by each tier, by hand-computed examples."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.fakery import S, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno.account.ledger import accounts
from dbdyno.account.wait_durations import wait_durations, wait_histogram
from dbdyno.account.window import cut
from dbdyno.model.results.ledger_rows import BY_LABEL, queue_labels
from dbdyno.model.results.raw import RawCell

pytestmark = pytest.mark.queries

Rows = list[dict[str, Any]]
ME = {"pid": 100, "tid": 100, "start_ticks": 7, "role": "session", "session": 0}


def _tables(*cells: RawCell) -> dict[str, pl.DataFrame]:
    return accounts(cut(cells))


def _accounts(ledger: pl.DataFrame, scope: str = "rung", **who: Any) -> dict[tuple[str, str | None], Any]:
    rows = ledger.filter(~BY_LABEL, scope=scope, **who)
    return _by_name(rows)


def _by_name(rows: pl.DataFrame) -> dict[tuple[str, str | None], Any]:
    return {(a, d): v for a, d, v in rows.select("account", "detail", "aas").rows()}


def _memos(ledger: pl.DataFrame, prefix: str) -> dict[tuple[str, str | None], Any]:
    result = _accounts(ledger, "memo", who="rung")
    return {k: v for k, v in result.items() if k[0].startswith(prefix)}


def _reads(run: float, runq: float, **changes: Any) -> Rows:
    """Session 0 over the window of 10 s."""
    return [task_row(10 * S, 0, 0, **changes), task_row(20 * S, round(run * S), round(runq * S), **changes)]


def _samples(states: list[tuple[str, str | None]], via: str = "sql", **changes: Any) -> dict[str, Rows]:
    """Samples that share the window evenly."""
    step = 10 * S // len(states)
    at = [10 * S + i * step + step // 2 for i in range(len(states))]
    return {
        "sampler": [sampler_row(i, t) | {"via": via} for i, t in enumerate(at)],
        "samples": [
            sample_row(i, t, state, wait, via=via, **changes)
            for i, (t, (state, wait)) in enumerate(zip(at, states, strict=True))
        ],
    }


def _cell(*parts: dict[str, Rows], sessions: int = 1, **tables: Rows) -> RawCell:
    whole: dict[str, Rows] = {"sessions": [session_row(n) for n in range(sessions)], **tables}
    for part in parts:
        for name, rows in part.items():
            whole[name] = whole.get(name, []) + rows
    return made_cell(whole, sessions=sessions)


def _trace(run: float, runq: float, sleep: float, throttled: float | None = None, **who: Any) -> Rows:
    sums = {"run_ns": run, "runq_ns": runq, "sleep_ns": sleep, "throttled_ns": throttled}
    ends = [(10, 0.0), (20, 1.0)]
    return [
        ME
        | {"before_ns": t * S - 5_000_000, "after_ns": t * S + 5_000_000, "status": "ok"}
        | {n: None if v is None else round(v * part * S) for n, v in sums.items()}
        | who
        for t, part in ends
    ]


def _wait(
    label: str | None, sleep: float, runq: float, sleeps: int = 0, ticks: int | None = None, **who: Any
) -> dict[str, Any]:
    wait_class, _, event = (label or "").partition("/")
    times = {"sleep_ns": round(sleep * S), "runq_ns": round(runq * S), "sleeps": sleeps, "preempted": 0}
    times |= {"begun": sleeps // 10, "unclear": 0}
    times |= {"run_samples": ticks}
    labels = {"wait_class": wait_class or None, "wait_event": event or None}
    return ME | {"before_ns": 20 * S, "after_ns": 20 * S, "status": "ok"} | labels | times | who


TRACED = {
    "traced": _trace(2.0, 3.0, 4.9, 1.5),
    "waits": [
        _wait("Lock/tuple", 1.5, 2.0, 30),
        _wait("Client/ClientRead", 3.4, 0.9, 20),
        _wait(None, 0, 0.1),
    ],
}


def test_accounts_of_the_exact_tier_are_those_worked_out_by_hand():
    """Run 2, run queue 3, asleep 1.5 in Lock and 3.4 at the client: 0.1 of 10 s is left. The OS tasks, which
    say otherwise, give way."""
    tables = _tables(_cell(TRACED, tasks=_reads(2.2, 2.7)))
    rung = _accounts(tables["ledger"])
    assert {k: v for k, v in rung.items() if not k[0].startswith("run.")} == pytest.approx(
        {
            ("run", None): 0.2,
            ("runq", None): 0.3,
            ("runq.throttled", None): 0.15,
            ("sleep", "Lock/tuple"): 0.15,
            ("client", None): 0.34,
            ("unaccounted", None): 0.01,
            ("block_io", None): None,
        },
        abs=1e-12,
    )
    rows = tables["ledger"].filter(scope="rung", account="sleep")
    assert rows.select("source", "status").row(0) == ("scheduler trace", "ok")
    assert rows.select("low", "high").row(0) == pytest.approx((0.149, 0.151)), "the reads' brackets: 10 ms"
    assert _memos(tables["ledger"], "label.run") == pytest.approx({("label.run", None): 0.2})
    assert _by_name(queue_labels(tables["ledger"])) == pytest.approx(
        {
            ("runq", "Lock/tuple"): 0.2,
            ("runq", "Client/ClientRead"): 0.09,
            ("runq", "no wait event"): 0.01,
        }
    )


def test_cpu_time_of_the_trace_holds_what_a_slice_may_differ_by():
    """10,000 slices of up to 8 us in another book: 0.08 of 10 s."""
    reads = [row | {"slices": 10_000 * (row["before_ns"] > 15 * S)} for row in _reads(2.05, 2.95)]
    rows = _tables(_cell(TRACED, tasks=reads))["ledger"].filter(scope="rung", account="run")
    ((value, low, high),) = rows.select("aas", "low", "high").iter_rows()
    assert value == pytest.approx(0.2)
    assert low < 0.195 < 0.205 < high
    assert high - low < 0.03


def test_a_trace_that_may_not_read_labels_leaves_the_waits_to_the_samples():
    """Run 2 and run queue 3 of 10 s are the trace's; of the samples asleep one in five is in Lock."""
    waits = [_wait(None, 4.9, 3.0, 50, status="not permitted")]
    states = [*[("S", "Lock/tuple")] * 10, *[("S", "Client/ClientRead")] * 40, *[("R", None)] * 50]
    tables = _tables(_cell(TRACED | {"waits": waits}, _samples(states), tasks=_reads(2.2, 2.7)))
    rung = _accounts(tables["ledger"])
    assert (rung["run", None], rung["runq", None]) == pytest.approx((0.2, 0.3), abs=1e-12)
    assert (rung["sleep", "Lock/tuple"], rung["client", None]) == pytest.approx((0.1, 0.4), abs=0.01)
    assert ("sleep", "no wait event") not in rung
    source = {r["account"]: r["source"] for r in tables["ledger"].filter(scope="rung").to_dicts()}
    assert (source["run"], source["client"]) == ("scheduler trace", "activity samples, estimated")


def test_without_labels_and_without_samples_no_wait_is_known():
    waits = [_wait(None, 4.9, 3.0, 50, status="not supported")]
    tables = _tables(_cell(TRACED | {"waits": waits}, tasks=_reads(2.2, 2.7)))
    rung = _accounts(tables["ledger"])
    assert rung["run", None] == pytest.approx(0.2)
    assert (rung["sleep", None], rung["client", None]) == (None, None)


def test_events_of_the_trace_have_counts_and_cpu_as_ticks_divide_it():
    """2 s on a CPU of 10; 100 of 400 ticks met it under Lock/tuple, 300 under none, none at the client."""
    waits = [
        _wait("Lock/tuple", 1.5, 2.0, 30, ticks=100),
        _wait("Client/ClientRead", 3.4, 0.9, 20, ticks=0),
        _wait(None, 0, 0.1, ticks=300),
    ]
    events = _tables(_cell(TRACED | {"waits": waits}, tasks=_reads(2.2, 2.7)))["events"].filter(scope="rung")
    run = {r["wait_event"]: (r["run_low"], r["run"], r["run_high"]) for r in events.to_dicts()}
    wilson = (0.2101, 0.2947)  # of 100 in 400, z = 1.96
    assert run["tuple"] == pytest.approx((0.2 * wilson[0], 0.05, 0.2 * wilson[1]), abs=2e-4)
    assert run[None][1] == pytest.approx(0.15)
    assert run["ClientRead"][:2] == (0.0, 0.0)
    assert 0 < run["ClientRead"][2] < 0.003


def test_a_wait_may_have_several_sleeps():
    """30 sleeps in 10 s are 3 waits; where one of them is unclear, their number is not known."""
    lock, client = _wait("Lock/tuple", 1.5, 2.0, 30), _wait("Client/ClientRead", 3.4, 0.9, 20)
    waits = [lock, client | {"unclear": 1}, _wait(None, 0, 0.1)]
    tables = _tables(_cell(TRACED | {"waits": waits}, tasks=_reads(2.2, 2.7)))
    events = tables["events"].filter(scope="rung", status="ok")
    counts = {r["wait_event"]: (r["waits_per_s"], r["sleeps_per_s"]) for r in events.to_dicts()}
    assert counts["tuple"] == pytest.approx((0.3, 3.0))
    assert counts["ClientRead"] == (None, pytest.approx(2.0))
    none = {"run_ns": 0, "came_ns": 0, "left_ns": 0, "query_status": "off"}
    known = [w | none | {"run_ns": 0 if w["wait_class"] else 2 * S} for w in waits]
    cut_tables = cut([_cell(TRACED | {"waits": known}, tasks=_reads(2.2, 2.7))])
    lasted = wait_durations(cut_tables | {"wait_histogram": wait_histogram(cut_tables)})
    asleep = lasted.filter(part="sleep", query_status="all")
    by_event = {r["wait_event"]: (r["waits"], r["begun"]) for r in asleep.to_dicts()}
    assert by_event["tuple"] == pytest.approx((3.0, 30.0)), "a rate times seconds is the same count"
    assert by_event["ClientRead"] == (None, pytest.approx(20.0))


def test_events_of_a_trace_without_a_clock_have_counts_and_no_cpu():
    events = _tables(_cell(TRACED, tasks=_reads(2.2, 2.7)))["events"].filter(scope="rung")
    figures = {
        (r["wait_event"], r["status"]): (r["sleep"], r["runq"], r["sleeps_per_s"], r["run"])
        for r in events.to_dicts()
    }
    assert figures == {
        ("tuple", "ok"): pytest.approx((0.15, 0.2, 3.0, None)),
        ("ClientRead", "ok"): pytest.approx((0.34, 0.09, 2.0, None)),
        (None, "ok"): pytest.approx((0.0, 0.01, 0.0, None)),
        (None, "seen by no sample"): (None, 0.0, None, pytest.approx(0.2)),
    }
    assert set(events["source"]) == {"scheduler trace"}
    assert events["samples"].null_count() == 4


def test_a_trace_with_a_gap_gives_way_to_the_samples():
    traced = [r | {"status": "lost"} for r in _trace(2.0, 3.0, 4.9)]
    tables = _tables(_cell(_samples([("S", "Lock/tuple")] * 10), traced=traced, tasks=_reads(2, 3)))
    assert set(tables["ledger"].filter(scope="rung", account="sleep")["source"]) == {
        "activity samples, estimated"
    }


def test_cpu_time_of_children_that_the_trace_followed_counts_once():
    """A session that samples met but no read did used 0.5 s and ended: so say the trace, and, 0.05 s of a
    session that nothing met included, the server's main process of its children."""
    main = {"pid": 1, "tid": 1, "start_ticks": 1, "role": "helper:main", "session": None}
    reads = [task_row(t * S, 0, 0, **main, children_ns=ns) for t, ns in ((10, 0), (20, S * 55 // 100))]
    met = {"pid": 100, "tid": 100, "start_ticks": 1400}
    gone = task_row(15 * S, None, None, **met | {"start_ticks": None}, status="vanished")
    life = {"run_ns": S // 2, "runq_ns": 0, "sleep_ns": S // 2, "role": "session", "session": 0}
    idle = {"run_ns": 0, "runq_ns": 0}
    followed = [
        {"before_ns": t * S, "after_ns": t * S, "status": "ok", **figures}
        for t, figures in (
            (10, main | idle | {"sleep_ns": 0}),
            (16, met | life),
            (20, main | idle | {"sleep_ns": 10 * S}),
        )
    ]
    seen = sample_row(0, S * 145 // 10, "R", **met)
    cell = made_cell(
        {
            "tasks": [*reads, gone],
            "traced": followed,
            "samples": [seen],
            "sampler": [sampler_row(0, S * 145 // 10)],
        },
        sessions=0,
    )
    run = _tables(cell)["ledger"].filter(scope="rung", account="run")
    assert run["aas"].to_list() == [pytest.approx(0.055)]


def test_a_rung_of_both_tiers_is_the_sum_of_its_sessions():
    other = {"pid": 101, "tid": 101, "session": 1}
    sampled = _samples([("S", "Lock/tuple")] * 5 + [("R", None)] * 5, pid=101, session=1)
    tables = _tables(_cell(TRACED, sampled, tasks=_reads(2, 3) + _reads(3, 2, **other), sessions=2))
    rung = _accounts(tables["ledger"])
    assert rung[("sleep", "Lock/tuple")] == pytest.approx(0.15 + 0.5)
    assert rung[("unaccounted", None)] == pytest.approx(0.01)
    assert ("runq.throttled", None) not in rung, "one session's throttled time is not known"
    assert ("runq.throttled", None) in _accounts(tables["ledger"], "session", session=0)
    source = tables["ledger"].filter(scope="rung", account="sleep", detail="Lock/tuple")["source"].item()
    assert source == "activity samples, estimated; scheduler trace"


def test_time_labelled_with_a_wait_but_runnable_is_cpu_wait():
    """Never asleep: half of the samples say ClientRead, idle. Run 1, run queue 9: all of it in the ledger's
    CPU WAIT, nearly half of that under the client's label, and none is the client's."""
    states = [("R", None), ("R", "Client/ClientRead")] * 50
    sampled = _samples(states)
    for row in sampled["samples"]:
        row["state"] = "idle" if row["wait_class"] else "active"
    ledger = _tables(_cell(sampled, tasks=_reads(1, 9)))["ledger"]
    rung = _accounts(ledger)
    assert (rung[("client", None)], rung[("runq", None)], rung[("unaccounted", None)]) == (0.0, 0.9, 0.0)
    label, state = _by_name(queue_labels(ledger)), _memos(ledger, "state.runq")
    assert label[("runq", "Client/ClientRead")] == pytest.approx(0.4975, abs=0.002)
    assert state[("state.runq", "idle")] == pytest.approx(label[("runq", "Client/ClientRead")])
    assert _memos(ledger, "naive") == {("naive.cpu", None): 0.5, ("naive.active", None): 0.5}


def test_samples_that_contradict_the_margins_leave_a_remainder():
    """Off 9 of 10 s, and of 400 samples only half asleep: at most 54.9 % (Wilson), with 1.2 % of a stale read
    or two; the rest is unaccounted, and the raw disagreement is 0.4."""
    states = [("S", "Lock/tuple"), ("R", None)] * 200
    ledger = _tables(_cell(_samples(states), tasks=_reads(0.5, 0.5)))["ledger"]
    rung = _accounts(ledger)
    slept = rung[("sleep", "Lock/tuple")]
    assert 0.5487 < slept < 0.5487 + 0.003
    assert rung[("unaccounted", None)] == pytest.approx(0.9 - slept)
    row = ledger.filter(scope="rung", account="unaccounted").row(0, named=True)
    assert row["low"] == pytest.approx(0.9 - slept)
    assert row["high"] == pytest.approx(0.9 - (1 - 0.5487) + 0.002, abs=0.001)
    assert _memos(ledger, "margin") == pytest.approx({("margin.off", None): 0.4})


def test_time_that_no_sample_saw_has_no_label():
    """Off 0.02 though no sample of 20 was asleep; run queue 0.01 though none of 20 was runnable."""
    awake = _tables(_cell(_samples([("R", None)] * 20), tasks=_reads(9, 0.8)))
    assert _accounts(awake["ledger"])[("sleep", None)] == pytest.approx(0.02)
    row = awake["events"].filter(scope="rung", status="seen by no sample").row(0, named=True)
    assert (row["sleep"], row["samples"], row["wait_class"]) == (pytest.approx(0.02), 0.0, None)
    asleep = _tables(_cell(_samples([("S", "Lock/x")] * 20), tasks=_reads(0.1, 0.1)))
    assert _memos(asleep["ledger"], "label.run") == pytest.approx({("label.run", None): 0.01})
    (part,) = queue_labels(asleep["ledger"]).to_dicts()
    assert (part["detail"], part["status"], part["aas"]) == (None, "no label seen", pytest.approx(0.01))


def test_labels_come_from_memory_and_their_states_from_the_server():
    """Memory: 30 asleep in ClientRead, 10 without a label. The server's 4 answers of ClientRead: 3 idle, 1
    idle in transaction; of no label none: unknown."""
    memory = _samples([("S", "Client/ClientRead")] * 30 + [("S", None)] * 10, "memory", state=None)
    asked = _samples([("S", "Client/ClientRead")] * 4)
    for row, state in zip(asked["samples"], ["idle"] * 3 + ["idle in transaction"], strict=True):
        row["state"] = state
    tables = _tables(_cell(memory, asked, tasks=_reads(0, 0)))
    events = tables["events"].filter(scope="rung").sort("sleep", descending=True)
    assert events.select("state", "wait_event").rows() == [
        ("idle", "ClientRead"),
        (None, None),
        ("idle in transaction", "ClientRead"),
    ]
    assert events["sleep"].to_list() == pytest.approx([0.75 * 0.75, 0.25, 0.75 * 0.25])
    assert events["samples"].to_list() == pytest.approx([22.5, 10, 7.5])
    assert set(events["source"]) == {"wait event word, estimated"}
    low, high = events.select("sleep_low", "sleep_high").row(0)
    assert low < 0.75 * 0.31 and high > 0.75 * 0.9, "3 of 4 answers: 30 to 95 % (Wilson)"


def test_a_label_may_be_wrong_when_the_state_is_read_after_it():
    """1,000 sleeps a second, 100 us from label to state: a tenth of the time may have a wrong label."""
    reads = [r | {"voluntary": n} for r, n in zip(_reads(4, 1, state="S"), (0, 10_000), strict=True)]
    sampled = _samples([("S", "Client/ClientRead")] * 450 + [("S", None)] * 50 + [("R", None)] * 500)
    for row in sampled["samples"]:
        row["task_ns"] += 100_000 - 500
    ledger = _tables(_cell(sampled, tasks=reads))["ledger"]
    ghost = ledger.filter(scope="rung", account="sleep", detail="no wait event").row(0, named=True)
    assert (ghost["aas"], ghost["low"]) == (pytest.approx(0.05), 0.0)
    client = ledger.filter(scope="rung", account="client").row(0, named=True)
    assert client["aas"] == pytest.approx(0.45)
    assert client["high"] == pytest.approx(0.5, abs=0.005), "no more than all time off"


def test_steal_bounds_the_remainder():
    """1 s stolen in 10 s; the session could have run in 4 s of them."""
    host = [
        {"before_ns": t * S, "after_ns": t * S, "key": "cpu.steal_ns", "value": v, "status": "ok"}
        for t, v in ((10, 0), (20, S))
    ]
    states = [("S", "Lock/tuple"), ("R", None)] * 5
    plain, stolen = (
        _tables(_cell(_samples(states), tasks=_reads(3, 1), host=rows))["ledger"]
        .filter(scope="rung", account="unaccounted")
        .row(0, named=True)
        for rows in ([], host)
    )
    assert stolen["high"] == pytest.approx(plain["high"] + 0.1)
    assert (stolen["low"], stolen["aas"]) == (plain["low"], plain["aas"])
    assert "steal" in stolen["source"]
    assert "steal" not in plain["source"]


def test_a_wait_for_a_cpu_that_goes_on_at_the_read_is_in_the_interval():
    """Asleep at both ends: exact. Runnable: 10 ms, or twice the mean wait of 100 ms (10 slices a second)."""
    ends = {}
    for state in ("S", "R"):
        reads = [r | {"slices": n} for r, n in zip(_reads(1, 8, state=state), (0, 80), strict=True)]
        ledger = _tables(_cell(_samples([("R", None)] * 9 + [("S", "Lock/x")]), tasks=reads))["ledger"]
        ends[state] = ledger.filter(scope="rung", account="runq").select("low", "high").row(0)
    assert ends["S"] == pytest.approx((0.8 - 0.0001 - 0.000016, 0.8 + 0.0001 + 0.000016))
    assert ends["R"] == pytest.approx((0.8 - 0.02, 0.8 + 0.02), abs=2e-5)


def test_workers_are_in_their_sessions_accounts_and_have_rows_of_their_own():
    worker = {"pid": 200, "tid": 200, "role": "helper:parallel worker", "session": None, "start_ticks": 8}
    sampled = _samples([("S", "IPC/ExecuteGather")] * 8 + [("R", None)] * 2)
    more = _samples([("R", None)] * 6 + [("S", "IO/DataFileRead")] * 4, leader_pid=100, **worker)
    more["samples"] = [r for r in more["samples"] if r.pop("tid", None) or True]
    cell = _cell(sampled, {"samples": more["samples"]}, tasks=_reads(1, 1) + _reads(5, 1, **worker))
    tables = _tables(cell)
    assert _accounts(tables["ledger"])[("run", None)] == pytest.approx(0.6)
    assert _memos(tables["ledger"], "workers") == pytest.approx(
        {("workers.run", None): 0.5, ("workers.runq", None): 0.1, ("workers.sleep", None): 0.4}
    )
    states = tables["microstates"].sort("pid")
    assert states.select("pid", "worker", "session", "name").rows() == [
        (100, False, 0, "session 0"),
        (200, True, 0, "parallel worker of session 0"),
    ]


def test_microstates_are_those_worked_out_by_hand():
    """10 s: 2 s user, 1 s kernel, 1 s queue; off 6 s, of 12 samples asleep 2 in Lock, 1 in LWLock, 6 at the
    client, 3 in IO."""
    waits = ["Lock/a"] * 2 + ["LWLock/b"] + ["Client/ClientRead"] * 6 + ["IO/c"] * 3
    states = [("S", w) for w in waits] + [("R", None)] * 8
    last = {"user_ns": 2 * S, "system_ns": S, "slices": 900, "voluntary": 700, "blkio_ns": S}
    first = dict.fromkeys(last, 0)
    tasks = [task_row(10 * S, 0, 0, **first), task_row(20 * S, 3 * S, S, **last)]
    listed = {"at_ns": 10 * S, "pid": 100, "user": "u", "database": "d", "application": "app", "status": "ok"}
    helper = {"pid": 7, "tid": 7, "role": "helper:walwriter", "session": None}
    driver = {"pid": 9, "tid": 9, "role": "driver", "session": None}
    tasks += _reads(1, 0, **helper) + _reads(2, 1, **driver)
    frame = _tables(_cell(_samples(states), tasks=tasks, backends=[listed]))["microstates"]
    rows = {r["role"]: r for r in frame.to_dicts()}
    me = rows["session"]
    parts = ("usr", "sys", "cpu_wait", "lock", "client", "sleep", "block_io", "unaccounted")
    assert [me[p] for p in parts] == pytest.approx([0.2, 0.1, 0.1, 0.15, 0.3, 0.15, 0.1, 0.0])
    assert (me["voluntary_per_s"], me["slices_per_s"], me["involuntary_per_s"]) == (70.0, 90.0, None)
    assert (me["name"], me["wall_s"]) == ("app u@d", 10.0)
    assert me["usr_low"] < 0.2 < me["usr_high"] and me["lock_low"] < 0.15 < me["lock_high"]
    unsampled = rows["helper:walwriter"]
    assert [unsampled[p] for p in ("lock", "client", "sleep")] == [None] * 3, "nobody looked"
    assert unsampled["unaccounted"] == pytest.approx(0.9)
    assert unsampled["name"] == "walwriter"
    own = rows["driver"]
    assert [own[p] for p in ("lock", "client", "sleep", "unaccounted")] == pytest.approx(
        [None, None, 0.7, 0.0]
    )


def test_strips_are_those_worked_out_by_hand():
    """First half: 0.4 on a CPU, 0.2 in the queue, asleep in Lock twice and in IO once. Second: nothing on a
    CPU, no sample."""
    tasks = [
        task_row(t * S, min(t - 10, 5) * 4 * S // 10, min(t - 10, 5) * 2 * S // 10) for t in range(10, 21)
    ]
    sampled = _samples([("S", "Lock/x"), ("S", "Lock/y"), ("S", "IO/z"), ("R", None)])
    for n, row in enumerate(sampled["samples"]):
        at = round((12.1 + 0.2 * n) * S)
        row |= {"task_ns": at, "sql_before_ns": at, "sql_after_ns": at}
        sampled["sampler"][n] |= {"due_ns": at, "start_ns": at, "end_ns": at}
    strips = _tables(_cell(sampled, tasks=tasks))["strips"]
    bins = {s: dict(p.select("part", "share").rows()) for (s,), p in strips.group_by("start_s")}
    assert len(bins) == 10
    assert bins[2.0] == pytest.approx({"run": 0.4, "runq": 0.2, "Lock": 0.4 * 2 / 3, "IO": 0.4 / 3})
    assert bins[0.0] == pytest.approx({"run": 0.4, "runq": 0.2, "asleep": 0.4})
    assert bins[7.0] == pytest.approx({"asleep": 1.0})


def test_strips_without_task_reads_come_from_the_servers_states():
    states = [(None, "Lock/x"), (None, None), (None, "Client/ClientRead"), (None, "Lock/x")]
    tasks = [task_row(t * S, None, None, status="not here", start_ticks=None) for t in (10, 20)]
    sampled = _samples(states)  # type: ignore[arg-type]
    for row in sampled["samples"]:
        row["status"] = "not here"
    tables = _tables(_cell(sampled, tasks=tasks))
    strips = tables["strips"]
    shares = {(s, p): v for s, p, v in strips.select("start_s", "part", "share").rows()}
    assert shares[1.0, "Lock"] == 1.0
    assert shares[3.0, "active without wait event"] == 1.0
    assert shares[0.0, "unknown"] == 1.0
    assert strips.group_by("start_s").agg(pl.col("share").sum())["share"].to_list() == [1.0] * 10
    events = tables["events"].filter(scope="rung")
    assert events.filter(wait_event="x").select("sleep", "run", "status").row(0) == (0.5, None, "not here")
    assert events.filter(pl.col("wait_class").is_null())["status"].to_list() == ["active without wait event"]


def test_without_sessions_there_are_no_rows():
    tables = _tables(made_cell({}))
    assert {name: frame.height for name, frame in tables.items()} == dict.fromkeys(tables, 0)
