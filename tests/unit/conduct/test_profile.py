"""Load profile and top events, on the fake server with its known law and by hand."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakery import (
    Climb,
    S,
    climb,
    made_cell,
    sample_row,
    sampler_row,
    session_row,
    task_row,
)

from dbdyno.account.ledger import ledger
from dbdyno.account.load_profile import (
    event_seconds,
    events_together,
    profile,
    profile_total,
    top_events,
    top_events_total,
)
from dbdyno.account.window import cut
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema import column
from dbdyno.model.schema.tables import rows as rows_of

pytestmark = [pytest.mark.whole, pytest.mark.queries]

CELL = [c.name for c in column.CELL]
_KNOWN = st.floats(0, 1e6)
_SECONDS = st.fixed_dictionaries(
    {
        "seconds": _KNOWN,
        "error": st.none() | _KNOWN,
        "runq_s": st.none() | _KNOWN,
        "waits": st.none() | _KNOWN,
    }
)
_CELLS = st.lists(st.dictionaries(st.sampled_from("abc"), _SECONDS), min_size=1, max_size=3)


def _rows(climbed: Climb, table: str, cell: str) -> dict[str, dict]:
    frame = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells).tables[table]
    return {r["name"]: r for r in frame.filter(pl.col("cell") == cell).to_dicts()}


def _by_hand(*cells: RawCell, table: str = "profile") -> dict[str, dict]:
    tables = cut(cells)
    tables["ledger"] = ledger(tables)
    derive_table = {
        "profile": lambda t: profile(t),
        "top": lambda t: top_events(t["windows"], event_seconds(t)),
        "total": lambda t: profile_total(t["windows"], profile(t)),
    }[table]
    return {r["name"]: r for r in derive_table(tables).to_dicts()}


def _counter(name: str, before: float, after: float | None, status: str = "ok", **changes) -> list[dict]:
    """Returns both reads of a counter, half a second late; its growth is of 10 s all the same."""
    head = {"scope": "server", "name": name, "kind": "counter", "unit": "count", "status": status} | changes
    ends = (("t0", 10.5, before), ("t1", 20.5, after))
    return [
        head | {"phase": phase, "before_ns": int(at * S), "after_ns": int(at * S), "value": value}
        for phase, at, value in ends
    ]


def test_the_profile_of_a_driven_cell_has_the_figures_of_its_law():
    """Eight sessions on two CPUs, 20 ms of CPU and 10 ms of I/O a call: 2 CPUs, 1 asleep, 5 waiting."""
    climbed = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms", [8])
    rows = _rows(climbed, "profile", climbed.cells[0].id)
    assert rows["DB time"]["per_s"] == pytest.approx(8.0, rel=0.01)
    assert rows["DB time"]["source"].startswith("ledger")
    assert rows["DB CPU"]["per_s"] == pytest.approx(2.0, rel=0.01)
    assert rows["CPU WAIT"]["per_s"] == pytest.approx(5.0, rel=0.02)
    assert rows["calls"]["per_s"] == pytest.approx(100, rel=0.01)
    assert rows["DB CPU"]["per_call"] == pytest.approx(0.020, rel=0.01)
    assert rows["DB CPU"]["per_transaction"] == pytest.approx(0.020, rel=0.01), "a call is a transaction"
    assert rows["logical reads"]["per_call"] == pytest.approx(132, rel=0.01)
    assert rows["physical reads"]["per_execution"] == pytest.approx(1, rel=0.01)
    assert rows["cache hit ratio"]["total"] == pytest.approx(131 / 132)
    assert rows["deadlocks"]["total"] == 0
    assert rows["calls"]["total"] == pytest.approx(10 * rows["calls"]["per_s"])


def test_a_driven_cell_has_one_db_time_in_all_its_tables():
    """Half of the time of four sessions is not the client's: it is the base of every share."""
    climbed = climb("fake:cpus=4,cpu=50ms,wait=LWLock/WALWrite:50ms,think=100ms", [4])
    cell = climbed.cells[0].id
    events, figures = (_rows(climbed, table, cell) for table in ("top_events", "profile"))
    served = figures["DB time"]
    assert served["per_s"] == pytest.approx(2.0, rel=0.1), "by samples"
    for name, event in events.items():
        assert event["share"] == pytest.approx(event["seconds"] / served["total"], rel=1e-6), name
    assert events["LWLock/WALWrite"]["share"] == pytest.approx(0.5, rel=0.1)
    assert sum(e["share"] for e in events.values()) == pytest.approx(1.0, rel=1e-6)


def test_think_time_is_no_db_time():
    """5 ms of CPU and 15 ms of thinking: a quarter of each of two sessions."""
    climbed = climb("fake:cpus=8,cpu=5ms,think=15ms", [2])
    assert _rows(climbed, "profile", climbed.cells[0].id)["DB time"]["per_s"] == pytest.approx(0.5, rel=0.02)


def test_repeats_together_are_sums_over_wall_time():
    climbed = climb("fake:cpus=2,cpu=20ms", [2], repeats=3)
    one, all_ = (_rows(climbed, "profile", c) for c in (climbed.cells[0].id, "all"))
    for name in ("DB time", "DB CPU", "calls", "commits"):
        assert all_[name]["total"] == pytest.approx(3 * one[name]["total"], rel=0.01)
        assert all_[name]["per_s"] == pytest.approx(one[name]["per_s"], rel=0.01)
    assert all_["DB CPU"]["per_call"] == pytest.approx(one["DB CPU"]["per_call"], rel=0.01)


def test_an_unknown_figure_has_the_reason_as_its_status():
    counters = [
        *_counter("executions", 0, None, "not supported"),
        *_counter("transactions_committed", 100, 300),
        *_counter("transactions_rolled_back", 0, 0),
    ]
    rows = _by_hand(made_cell({"sessions": [session_row()], "counters": counters}))
    assert rows["executions"]["total"] is None
    assert rows["executions"]["status"].startswith("not supported: needs")
    assert rows["commits"]["total"] == pytest.approx(200)
    assert rows["commits"]["per_execution"] is None
    assert rows["DB time"]["total"] == pytest.approx(10), "ten calls of a second in 10 s"
    assert rows["DB time"]["per_transaction"] == pytest.approx(0.05)
    assert rows["DB CPU"]["total"] is None
    assert rows["WAL"]["status"].startswith("off: ")
    assert rows["cache hit ratio"]["total"] is None


def test_growth_is_scaled_from_the_reads_to_the_window():
    """160 in the 8 s between the reads are 200 in the window of 10 s."""
    late = _counter("transactions_committed", 100, 260)
    late[0] |= {"before_ns": 12 * S, "after_ns": 12 * S}
    late[1] |= {"before_ns": 20 * S, "after_ns": 20 * S}
    rows = _by_hand(made_cell({"sessions": [session_row()], "counters": late}))
    assert rows["commits"]["total"] == pytest.approx(200)


@pytest.mark.parametrize("committed", [0, 3])
def test_transactions_that_no_session_reported_are_unknown(committed: int):
    """Sessions that touch no table report at their end: 400 statements without a transaction are not 0
    transactions."""
    counters = [
        *_counter("executions", 0, 400),
        *_counter("transactions_committed", 100, 100 + committed),
        *_counter("transactions_rolled_back", 7, 7),
    ]
    rows = _by_hand(made_cell({"sessions": [session_row()], "counters": counters}))
    known = None if committed == 0 else pytest.approx(committed)
    assert (rows["commits"]["total"], rows["transactions"]["total"]) == (known, known)
    assert ("not all reported" in rows["transactions"]["status"]) is (committed == 0)
    assert rows["executions"]["total"] == pytest.approx(400)


@pytest.mark.parametrize(
    ("reported_s", "status"), [(0.2, "not all reported"), (3.9, "ok"), (40.0, "of before the window, too")]
)
def test_transactions_of_another_time_than_the_window_are_unknown(reported_s: float, status: str):
    """A session ran for 4 of 10 s. The server has reported 0.2 s of them, all, or also what ran before."""
    raw = _observed_by_hand(
        [
            *_counter("db_time_ns", 0, reported_s * S),
            *_counter("transactions_committed", 0, 30),
            *_counter("transactions_rolled_back", 0, 0),
        ]
    )
    rows = _by_hand(raw)
    assert rows["DB time"]["total"] == pytest.approx(4.0, rel=0.01)
    known = pytest.approx(30) if status == "ok" else None
    assert (rows["commits"]["total"], rows["transactions"]["total"]) == (known, known)
    assert rows["transactions"]["status"].startswith(status)


def _observed_by_hand(counters: list[dict]) -> RawCell:
    """Returns a window of 10 s in which a session ran 4 s; six of ten samples met it asleep at the client."""
    samples = [sample_row(n, (10 + n) * S, "S" if n < 6 else "R", "Client/ClientRead") for n in range(10)]
    tables = {
        "tasks": [task_row(10 * S, 0, 0), task_row(20 * S, 4 * S, 0)],
        "sampler": [sampler_row(n, (10 + n) * S) for n in range(10)],
        "samples": samples,
        "sessions": [session_row(calls=0, first_start_ns=None, last_end_ns=None, in_call_ns=0)],
        "counters": counters,
    }
    return made_cell(tables, sessions=0)


def test_a_reset_leaves_the_counters_unknown():
    """Counters that outgrew their old value are unknown, too."""
    climbed = climb("fake:cpus=2,cpu=20ms,reset=4s", [2])
    rows = _rows(climbed, "profile", climbed.cells[0].id)
    assert rows["commits"]["total"] is None
    assert rows["commits"]["status"] == "reset"
    assert rows["DB CPU"]["per_s"] == pytest.approx(2.0, rel=0.01)


def test_a_lost_session_counts_as_long_as_it_lived():
    """The session ended at 15 s: it spent half of the window in calls."""
    gone = session_row(
        1, last_end_ns=15 * S, calls=5, in_call_ns=5 * S, end_reason="lost", end_detail="broke"
    )
    rows = _by_hand(made_cell({"sessions": [session_row(0), gone]}, sessions=2))
    assert rows["DB time"]["total"] == pytest.approx(15)
    assert rows["calls"]["total"] == pytest.approx(15)


def _tables_of_observation(events: bool) -> dict[str, pl.DataFrame]:
    """Returns tables of ten observed sessions: 1 on a CPU, 1 queueing, 3 in I/O, 4 at the client, 1
    sending."""
    tables = cut([made_cell({"sessions": [session_row(calls=0, first_start_ns=None)]}, sessions=0)])
    head = dict(zip(CELL, tables["windows"].select(CELL).row(0), strict=True))
    who = head | {"scope": "rung", "who": "rung", "status": "ok"}
    accounts = (
        ("run", None, 1.0),
        ("runq", None, 1.0),
        ("sleep", "IO/DataFileRead", 3.0),
        ("client", None, 5.0),
    )
    tables["ledger"] = rows_of(
        "ledger",
        [
            who | {"account": a, "detail": d, "aas": v, "low": v, "high": v, "source": "x"}
            for a, d, v in accounts
        ],
    )
    waits = (("IO", "DataFileRead", 3.0), ("Client", "ClientRead", 4.0), ("Client", "ClientWrite", 1.0))
    tables["events"] = rows_of(
        "events",
        [
            who
            | {
                "wait_class": c,
                "wait_event": e,
                "sleep": v,
                "waits_per_s": 300.0,
                "sleeps_per_s": 900.0,
                "source": "x",
            }
            for c, e, v in waits
        ]
        if events
        else [],
    )
    return tables


@pytest.mark.parametrize(("events", "db_time"), [(False, 50.0), (True, 60.0)])
def test_db_time_of_an_observed_load_is_all_but_sleep_at_the_client(events: bool, db_time: float):
    """Sending an answer is part of a call; only the table of events separates it from waiting for a call."""
    rows = {r["name"]: r for r in profile(_tables_of_observation(events)).to_dicts()}
    assert rows["DB time"]["total"] == pytest.approx(db_time)
    assert "calls" not in rows
    assert rows["DB CPU"]["per_call"] is None


def _observed_windows(**accounts: list[float | None]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns windows of 5 s and their profile, from the seconds per second of each account."""
    count = len(next(iter(accounts.values())))
    windows = pl.concat([_tables_of_observation(False)["windows"]] * count)
    windows = windows.with_columns(
        cell=pl.Series([str(n) for n in range(count)]),
        repeat=pl.Series(range(1, count + 1)),
        wall_s=pl.lit(5.0),
    )
    figures = [
        window
        | {"name": name.replace("_", " "), "unit": "s", "source": "ledger"}
        | {"total": v and 5 * v, "status": "too brief" if v is None else "ok"}
        for name, values in accounts.items()
        for window, v in zip(windows.select(CELL).to_dicts(), values, strict=True)
    ]
    return windows, rows_of("profile", figures)


def test_accounts_of_all_windows_are_means_over_the_same_windows():
    """The trace did not read how long the brief sessions of window 2 waited for a CPU: its CPU time is no
    part of the DB time of the others."""
    accounts = {"DB_time": [1.7, None, 0.1], "DB_CPU": [0.4, 0.3, 0.1], "CPU_WAIT": [1.3, None, 0.0]}
    rows = {r["name"]: r for r in profile_total(*_observed_windows(**accounts)).to_dicts()}
    per_s = {n: rows[n]["per_s"] for n in ("DB time", "DB CPU", "CPU WAIT")}
    assert per_s == pytest.approx({"DB time": 0.9, "DB CPU": 0.25, "CPU WAIT": 0.65})
    assert {rows[n]["status"] for n in per_s} == {"2 of 3 windows"}


def test_an_account_known_only_where_db_time_is_not_is_unknown_beside_it():
    accounts = {"DB_time": [None, 1.0], "DB_CPU": [0.3, None], "CPU_WAIT": [None, None]}
    rows = {r["name"]: r for r in profile_total(*_observed_windows(**accounts)).to_dicts()}
    assert [rows[n]["per_s"] for n in ("DB time", "DB CPU", "CPU WAIT")] == [1.0, None, None]
    assert rows["DB CPU"]["status"] == "known only where DB time is not"
    assert rows["CPU WAIT"]["status"] == "too brief"


def test_accounts_are_known_of_all_windows_where_db_time_is_of_none():
    accounts = {"DB_time": [None, None], "DB_CPU": [0.1, 0.3], "CPU_WAIT": [0.5, 0.7]}
    rows = {r["name"]: r for r in profile_total(*_observed_windows(**accounts)).to_dicts()}
    assert [rows[n]["per_s"] for n in ("DB time", "DB CPU", "CPU WAIT")] == [None, 0.2, 0.6]


def test_top_events_leave_out_windows_with_parts_but_no_db_time():
    windows, _ = _observed_windows(DB_time=[2.0, None])
    spent = [
        {"cell": cell, "name": name, "seconds": seconds, "source": "x"}
        for cell, parts in (
            ("0", {None: 10.0, "DB CPU": 4.0, "CPU WAIT": 6.0}),
            ("1", {None: 0.0, "DB CPU": 9.0}),
        )
        for name, seconds in parts.items()
    ]
    head = dict(zip(CELL, windows.select(CELL).row(0), strict=True))
    rows = top_events_total(windows, rows_of("event_seconds", [head | s for s in spent])).to_dicts()
    assert {r["name"]: r["share"] for r in rows} == {"CPU WAIT": 0.6, "DB CPU": 0.4}


def test_a_waits_mean_is_its_seconds_over_its_count():
    tables = _tables_of_observation(True)
    rows = {r["name"]: r for r in top_events(tables["windows"], event_seconds(tables)).to_dicts()}
    assert list(rows) == ["IO/DataFileRead", "DB CPU", "CPU WAIT", "Client/ClientWrite"]
    assert rows["IO/DataFileRead"]["waits"] == pytest.approx(3000)
    assert rows["IO/DataFileRead"]["mean_ns"] == pytest.approx(10e6)
    assert rows["IO/DataFileRead"]["share"] == pytest.approx(0.5)


def test_time_in_the_run_queue_adds_up_over_cells_in_which_nobody_slept():
    tables = _tables_of_observation(True)
    slept = tables["ledger"].filter(account="sleep")
    queued = slept.with_columns(account=pl.lit("runq"), parent=pl.lit("runq"), aas=pl.lit(0.25))
    awake = {**tables, "ledger": pl.concat([tables["ledger"].filter(pl.col("account") != "sleep"), queued])}
    asleep = {**tables, "ledger": pl.concat([tables["ledger"], queued])}
    windows = pl.concat([tables["windows"], tables["windows"].with_columns(cell=pl.lit("other"))])
    other = event_seconds(awake).with_columns(cell=pl.lit("other"))
    single = top_events(windows, pl.concat([event_seconds(asleep), other]))
    assert "IO/DataFileRead" not in single.filter(cell="other")["name"]
    both = top_events_total(windows, pl.concat([event_seconds(asleep), other]))
    row = both.row(by_predicate=pl.col("name") == "IO/DataFileRead", named=True)
    assert row["seconds"] == pytest.approx(30)
    assert row["runq_s"] == pytest.approx(2 * 2.5)
    assert row["source"] == "x"


def test_without_a_wait_event_time_in_the_run_queue_is_not_of_waits():
    tables = _tables_of_observation(True)
    sleep = pl.col("account") == "sleep"
    named = pl.when(sleep).then(pl.lit("no wait event")).otherwise("detail")
    tables["ledger"] = tables["ledger"].with_columns(detail=named)
    none = pl.when(pl.col("wait_class") != "IO").then(pl.col("wait_class", "wait_event"))
    tables["events"] = tables["events"].with_columns(none)
    rows = {r["name"]: r for r in top_events(tables["windows"], event_seconds(tables)).to_dicts()}
    assert rows["no wait event"]["mean_ns"] == pytest.approx(10e6)
    assert rows["no wait event"]["mean_queued_ns"] is None


@given(_CELLS)
def test_seconds_of_cells_add_up_in_any_order_and_their_errors_as_squares(
    cells: list[dict[str, dict]],
) -> None:
    frames = [_seconds_of(n, cell) for n, cell in enumerate(cells)]
    names = [{"cell": f"c{n}", "wall_s": 10.0} for n in range(len(cells))]
    together = {r["name"]: r for r in events_together(names, pl.concat(frames)).to_dicts()}
    turned = {r["name"]: r for r in events_together(names[::-1], pl.concat(frames[::-1])).to_dicts()}
    assert together.pop(None)["seconds"] == pytest.approx(len(cells)) and turned.pop(None)
    assert together.keys() == turned.keys() == {name for cell in cells for name in cell}
    for name, row in together.items():
        parts = [cell[name] for cell in cells if name in cell]
        total = sum(p["seconds"] for p in parts)
        assert row["seconds"] == pytest.approx(total) == pytest.approx(turned[name]["seconds"])
        errors = [p["error"] for p in parts]
        half = None if None in errors else math.hypot(*errors)
        assert row["high"] == (half if half is None else pytest.approx(total + half, abs=1e-6))
        queued = [p["runq_s"] for p in parts if p["runq_s"] is not None]
        assert row["runq_s"] == (pytest.approx(sum(queued)) if queued else None)
        waits = [p["waits"] for p in parts]
        assert row["waits"] == (None if None in waits else pytest.approx(sum(waits)))


def _seconds_of(number: int, cell: dict[str, dict]) -> pl.DataFrame:
    """Table event_seconds of a cell; the base of its shares is 1 s."""
    key = {"cell": f"c{number}", "workload": "w", "variant": "base", "sessions": 0, "repeat": 1}
    records = [key | {"name": None, "seconds": 1.0, "source": ""}]
    for name, part in cell.items():
        value, error = part["seconds"], part["error"]
        ends = {} if error is None else {"low": value - error, "high": value + error}
        figures = {"seconds": value, "runq_s": part["runq_s"], "waits": part["waits"], "source": "samples"}
        records.append(key | {"name": name, **figures, **ends})
    return rows_of("event_seconds", records)


def test_top_events_rank_cpu_and_waits_and_share_db_time():
    climbed = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms+IPC/x:1ms", [8])
    rows = _rows(climbed, "top_events", climbed.cells[0].id)
    assert [r["rank"] for r in rows.values()] == list(range(1, len(rows) + 1))
    assert list(rows)[:2] == ["CPU WAIT", "DB CPU"]
    assert rows["DB CPU"]["seconds"] == pytest.approx(20, rel=0.01)
    assert rows["CPU WAIT"]["share"] == pytest.approx(rows["CPU WAIT"]["seconds"] / 80, rel=0.02)
    assert rows["IO/DataFileRead"]["low"] <= 10 <= rows["IO/DataFileRead"]["high"]
    assert sum(r["share"] for r in rows.values()) <= 1.0 + 1e-9
    assert "Client/ClientRead" not in rows


def test_waits_are_counted_where_they_were_traced():
    """100 calls/s in 10 s, each with one sleep of 10 ms."""
    climbed = climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:10ms", [8], trace=True)
    row = _rows(climbed, "top_events", climbed.cells[0].id)["IO/DataFileRead"]
    assert row["source"] == "scheduler trace"
    assert row["waits"] == pytest.approx(1000, rel=0.02)
    assert row["mean_ns"] == pytest.approx(10e6, rel=0.02)
    assert 0 < row["runq_s"] < 50, "woken, it queues under its label; its later slices have none"


def test_top_events_of_repeats_are_sums_with_errors_added_as_squares():
    climbed = climb("fake:cpus=2,cpu=20ms", [4], repeats=2)
    one, all_ = (_rows(climbed, "top_events", c) for c in (climbed.cells[0].id, "all"))
    assert all_["DB CPU"]["seconds"] == pytest.approx(2 * one["DB CPU"]["seconds"], rel=0.01)
    assert all_["DB CPU"]["share"] == pytest.approx(one["DB CPU"]["share"], rel=0.01)
    width = [r["DB CPU"]["high"] - r["DB CPU"]["low"] for r in (one, all_)]
    assert width[1] == pytest.approx(2**0.5 * width[0], rel=0.05), "independent errors add as squares"


def test_nothing_measured_gives_empty_tables():
    assert profile(cut([]) | {"ledger": ledger(cut([]))}).is_empty()


def test_a_window_that_never_began_has_no_rates():
    """The server was lost before it: the window has no length."""
    cell = made_cell({"sessions": [session_row(calls=0, in_call_ns=0)]}, t0=10 * S, t1=10 * S)
    assert {row["per_s"] for row in _by_hand(cell).values()} == {None}
