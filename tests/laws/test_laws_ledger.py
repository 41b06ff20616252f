"""Laws of the ledger: it closes for any raw tables, and unknown stays unknown."""

from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fakery import Climb, S, climb, made_cell, sample_row, sampler_row, session_row, task_row

from dbdyno.account.ledger import accounts
from dbdyno.account.window import cut, cut_without_samples, sample_chunks
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.results.ledger_rows import account_rows, top_level
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.tables import empty

pytestmark = pytest.mark.queries

STATES = st.sampled_from(["R", "S", "D", "Z", None])
WAITS = st.sampled_from([None, "Client/ClientRead", "IO/DataFileRead", "LWLock/WALWrite", "Lock/tuple"])
SERVER_STATES = st.sampled_from(["active", "idle", "idle in transaction", None])
STATUSES = st.sampled_from(["ok", "ok", "ok", "not here", "not permitted", "vanished"])
Tables = dict[str, pl.DataFrame]
SUMMED = ("run", "runq", "sleep", "client", "active without wait event", "unaccounted")


@st.composite
def task_reads(draw: st.DrawFn, session: int) -> list[dict[str, Any]]:
    """Draws any reads at all: too few, going down, failed."""
    pid = 100 + session
    who = {"pid": pid, "tid": pid, "session": session}
    times = sorted(draw(st.lists(st.integers(8 * S, 22 * S), max_size=5, unique=True)))
    rows = []
    for at in times:
        status = draw(STATUSES)
        figures = [draw(st.integers(0, 5 * S)) if status == "ok" else None for _ in range(4)]
        start = draw(st.sampled_from([7, 7, 7, 9])) if status == "ok" else None
        more = {"user_ns": figures[2], "system_ns": figures[3], "start_ticks": start, "status": status}
        rows.append(task_row(at, figures[0], figures[1], **who, **more))
    return rows


@st.composite
def samples(draw: st.DrawFn, sessions: int, via: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draws rows of sampler and samples. Rows from memory have no states."""
    times = sorted(draw(st.lists(st.integers(9 * S, 21 * S), max_size=8, unique=True)))
    rows = []
    for number, at in enumerate(times):
        for s in range(sessions):
            if draw(st.booleans()):
                state = draw(STATES)
                row = sample_row(number, at, state, draw(WAITS), pid=100 + s, session=s, via=via)
                row |= {"state": draw(SERVER_STATES) if via == "sql" else None}
                rows.append(row | {"status": "ok" if state else draw(STATUSES)})
    return [sampler_row(n, at) | {"via": via} for n, at in enumerate(times)], rows


@st.composite
def traces(draw: st.DrawFn, session: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draws rows of traced and waits: sums that grow, or fall, or were lost. Labels add up where
    ``whole``."""
    pid = 100 + session
    who = {"pid": pid, "tid": pid, "start_ticks": 7, "role": "session", "session": session}
    traced, waits = [], []
    whole = draw(st.booleans())
    grown = {wait: dict.fromkeys(("sleep_ns", "runq_ns"), 0) for wait in draw(st.sets(WAITS, max_size=3))}
    ran_ns = 0
    for at in sorted(draw(st.lists(st.integers(9 * S, 21 * S), max_size=4, unique=True))):
        read = who | {"before_ns": at - 1000, "after_ns": at + 1000}
        if whole:
            for wait, times in grown.items():
                times |= {n: before + draw(st.integers(0, S)) for n, before in times.items()}
                wait_class, _, event = (wait or "").partition("/")
                label = {"wait_class": wait_class or None, "wait_event": event or None}
                waits.append(read | label | times | {"sleeps": 3, "preempted": 1, "status": "ok"})
            ran_ns += draw(st.integers(0, S))
            sums = {n: sum(times[n] for times in grown.values()) for n in ("sleep_ns", "runq_ns")}
            traced.append(read | sums | {"run_ns": ran_ns, "status": "ok"})
            continue
        sums = {n: draw(st.integers(0, 3 * S)) for n in ("run_ns", "runq_ns", "sleep_ns")}
        traced.append(read | sums | {"status": draw(st.sampled_from(["ok", "ok", "ok", "lost"]))})
        for wait in draw(st.lists(WAITS, max_size=3, unique=True)):
            wait_class, _, event = (wait or "").partition("/")
            label = {"wait_class": wait_class or None, "wait_event": event or None}
            times = {n: draw(st.integers(0, 2 * S)) for n in ("sleep_ns", "runq_ns")}
            waits.append(read | label | times | {"sleeps": 3, "preempted": 1, "status": "ok"})
    return traced, waits


@st.composite
def any_cells(draw: st.DrawFn) -> RawCell:
    sessions = draw(st.integers(1, 4))
    sampled = [draw(samples(sessions, via)) for via in ("sql", "memory")]
    traced = [draw(traces(s)) for s in range(sessions) if draw(st.booleans())]
    tables = {
        "sessions": [session_row(s) for s in range(sessions)],
        "tasks": [row for s in range(sessions) for row in draw(task_reads(s))],
        "sampler": [row for sampler, _ in sampled for row in sampler],
        "samples": [row for _, rows in sampled for row in rows],
        "traced": [row for rows, _ in traced for row in rows],
        "waits": [row for _, rows in traced for row in rows],
    }
    return made_cell(tables, sessions=sessions)


def closes(cell: RawCell, tables: Tables) -> None:
    """Checks run + runq + sleep + client + unaccounted = W for every session and the rung, which is their
    sum."""
    ledger_rows = tables["ledger"]
    added = top_level(ledger_rows).filter(pl.col("account").is_in(SUMMED))
    walls = ledger_rows.filter((pl.col("scope") == "memo") & (pl.col("account") == "wall"))
    by_session = added.filter(scope="session").group_by("session").agg(pl.col("aas").sum())
    assert by_session.height == cell.meta.cell.sessions
    for session, total in by_session.rows():
        wall = walls.filter(who="session", session=session)["aas"].item()
        assert total == pytest.approx(wall, abs=1e-9)
    rung = added.filter(scope="rung")
    assert rung["aas"].sum() == pytest.approx(walls.filter(who="rung")["aas"].item(), abs=1e-9)
    for (account, detail), rows in rung.group_by("account", "detail"):
        parts = added.filter(pl.col("scope") == "session", account=account)
        parts = parts.filter(pl.col("detail").eq_missing(pl.lit(detail, dtype=pl.String)))["aas"].drop_nulls()
        whole = rows["aas"].item()
        if whole is None:
            assert len(parts) == 0, "known parts make a known sum"
        elif whole != 0:
            assert whole == pytest.approx(parts.sum(), abs=1e-9)


def intervals_hold_their_value_and_unknowns_say_why(_cell: RawCell, tables: Tables) -> None:
    ledger_rows = tables["ledger"]
    assert ledger_rows.filter(pl.col("low") > pl.col("aas") + 1e-9).is_empty()
    assert ledger_rows.filter(pl.col("high") < pl.col("aas") - 1e-9).is_empty()
    assert ledger_rows.filter(pl.col("aas").is_null() & (pl.col("status") == "ok")).is_empty()


def parts_add_up_to_their_parent_and_nothing_is_negative(_cell: RawCell, tables: Tables) -> None:
    """Checks that CPU WAIT by label adds up to it, user and system to run, and label.run to run where no
    trace divides it. Only unaccounted and margin.off are signed."""
    ledger_rows = tables["ledger"].filter(pl.col("who").is_in(["session", "rung"]))
    for (_, _), rows in ledger_rows.group_by("who", "session"):
        (queue,), (run,) = (account_rows(rows, n, scope=rows["scope"][0]).to_dicts() for n in ("runq", "run"))
        parts = rows.filter(account="runq", parent="runq")
        if queue["aas"] is not None:
            assert parts["aas"].sum() == pytest.approx(queue["aas"], abs=1e-12)
            assert parts.height > 0 or queue["aas"] <= 1e-9
            assert parts.filter(pl.col("aas") > queue["high"] + 1e-9).is_empty()
        halves = rows.filter(pl.col("account").str.starts_with("run.") & (pl.col("parent") == "run"))
        if not halves["aas"].null_count():
            assert halves["aas"].sum() == pytest.approx(run["aas"], abs=1e-9)
        if run["aas"] is not None and "trace" not in run["source"]:
            assert rows.filter(account="label.run")["aas"].sum() == pytest.approx(run["aas"], abs=1e-6)
    signed = pl.col("account").is_in(["unaccounted", "margin.off"])
    assert ledger_rows.filter(~signed & ((pl.col("aas") < -1e-9) | (pl.col("low") < -1e-9))).is_empty()


def events_are_the_ledgers_accounts_taken_apart(_cell: RawCell, tables: Tables) -> None:
    """Checks that the rung's sleep is the sum of its events', and so is its run queue; a rung is the sum
    of its sessions."""
    rung = top_level(tables["ledger"]).filter(scope="rung")
    events = tables["events"]
    for column, names in (("sleep", ["sleep", "client"]), ("runq", ["runq"])):
        whole = rung.filter(pl.col("account").is_in(names))["aas"].sum()
        parts = events.filter(scope="rung")[column].sum()
        if (runq := rung.filter(account="runq"))["status"].to_list() == ["ok"]:
            assert parts >= whole - 1e-6
            if column == "sleep" or "trace" not in runq["source"].item():  # labels of the trace: see above
                assert parts == pytest.approx(whole, abs=1e-6)
        assert parts == pytest.approx(events.filter(scope="session")[column].sum(), abs=1e-6)
    for part in ("run", "sleep", "runq"):
        value, low, high = (pl.col(f"{part}{end}") for end in ("", "_low", "_high"))
        assert events.filter((low > value + 1e-9) | (high < value - 1e-9) | (low < 0)).is_empty()


LAWS = (
    closes,
    intervals_hold_their_value_and_unknowns_say_why,
    parts_add_up_to_their_parent_and_nothing_is_negative,
    events_are_the_ledgers_accounts_taken_apart,
)


@examples(20)
@given(any_cells())
def test_the_laws_hold_for_any_raw_tables(cell: RawCell):
    tables = accounts(cut([cell]))
    for law in LAWS:
        law(cell, tables)


def test_a_session_of_the_driver_that_only_the_trace_read_stays_in_the_ledger():
    """Its one read failed, and the trace's two are too close. It is unknown, not left out."""
    who = {"pid": 100, "tid": 100, "session": 0}
    read = who | {"start_ticks": 7, "role": "session", "status": "ok"}
    sums = dict.fromkeys(("run_ns", "runq_ns", "sleep_ns"), 0)
    tables = {
        "sessions": [session_row(0)],
        "tasks": [task_row(8 * S, None, None, **who, start_ticks=None, status="vanished")],
        "traced": [read | sums | {"before_ns": at, "after_ns": at + 2000} for at in (9 * S, 9 * S + 1)],
    }
    cell = made_cell(tables, sessions=1)
    results = accounts(cut([cell]))
    for law in LAWS:
        law(cell, results)
    (run,) = results["ledger"].filter(scope="session", account="run").to_dicts()
    assert (run["aas"], run["status"]) == (None, "vanished")


@examples(10)
@given(any_cells(), st.integers(1, 9))
def test_samples_in_chunks_of_any_length_give_the_same_accounts(cell: RawCell, rows: int):
    """Accounts are sums of sums, whatever the parts. A sample that the end of a chunk cuts is put together
    again."""
    whole = accounts(cut([cell]))
    parts = accounts(cut_without_samples([cell]), sample_chunks([cell], rows))
    for name, keys in KEYS.items():
        alike(whole[name], parts[name], keys)


@examples(10, phases=[Phase.explicit, Phase.generate])
@given(any_cells(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(cell: RawCell, random: Any):
    """Shuffled tables give the same accounts, labels and strips."""
    mixed = {}
    for name, table in cell.tables.items():
        order = list(range(table.height))
        random.shuffle(order)
        mixed[name] = table[order] if order else table
    one, other = (accounts(cut([c])) for c in (cell, RawCell(cell.meta, mixed)))
    for name, keys in KEYS.items():
        alike(one[name], other[name], keys)


def alike(one: pl.DataFrame, other: pl.DataFrame, keys: list[str]) -> None:
    figures = [c for c, t in one.schema.items() if t == pl.Float64 and c not in keys]
    first, second = (frame.sort(keys).select(*keys, *figures) for frame in (one, other))
    assert first.select(keys).equals(second.select(keys))
    for column in figures:
        assert first[column].to_list() == pytest.approx(second[column].to_list(), abs=1e-7, nan_ok=True)


KEYS = {
    "ledger": ["scope", "who", "session", "account", "detail"],
    "events": ["scope", "who", "session", "state", "wait_class", "wait_event", "status"],
    "strips": ["session", "start_s", "part"],
}

SOURCES = ("tasks", "samples", "cgroup", "host", "counters", "histogram", "errors", "sources")
NEEDS = {
    "run_aas": "tasks",
    "runq_aas": "tasks",
    "helpers_aas": "tasks",
    "cpu_per_call_ns": "tasks",
    "cpu_per_work_ns": "tasks",
    "driver_cpus": "tasks",
    "driver_starved": "tasks",
    "sleep_aas": "samples",
    "client_aas": "samples",
    "top_wait": "samples",
    "work_per_call": "counters",
    "work_per_s": "counters",
    "response_p50_ns": "histogram",
}


@pytest.fixture(scope="module")
def climbed() -> Climb:
    return climb("fake:cpus=2,cpu=50ms,wait=IO/Read:20ms,think=9ms,helper=checkpointer:0.1,driver=1ms", [3])


@pytest.fixture(scope="module")
def whole_rung(climbed: Climb) -> dict[str, Any]:
    """Returns its rung where no source is missing."""
    return (
        derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
        .tables["rungs"]
        .row(0, named=True)
    )


@examples(8)
@given(gone=st.sets(st.sampled_from(SOURCES)))
def test_unknown_stays_unknown(climbed: Climb, whole_rung: dict[str, Any], gone: set[str]):
    """Figures that need a missing source are NULL, never 0. All others are as before."""
    (cell,) = climbed.cells
    taken = {*gone, "sampler"} if "samples" in gone else gone
    tables = {n: empty(n) if n in taken else t for n, t in cell.tables.items()}
    results = derive(climbed.info, climbed.plan, climbed.environment, [RawCell(cell.meta, tables)])
    row = results.tables["rungs"].row(0, named=True)
    for column, source in NEEDS.items():
        if source in gone:
            assert row[column] is None, column
        elif source != "tasks" and column not in ("sleep_aas", "client_aas", "work_per_s", "cpu_per_work_ns"):
            assert row[column] == whole_rung[column], column
    assert row["calls_per_s"] == whole_rung["calls_per_s"]
    unknown = results.tables["rates"].filter(pl.col("value").is_null())
    assert unknown.filter(pl.col("status") == "ok").is_empty()
    witnesses = results.tables["data_sources"].filter(pl.col("value").is_null())
    assert witnesses.filter((pl.col("status") == "ok") | (pl.col("verdict") != "unknown")).is_empty()


def test_a_server_elsewhere_has_no_cpu_figures_and_nothing_breaks():
    climbed = climb("fake:cpus=2,cpu=50ms,wait=IO/Read:20ms,helper=checkpointer:0.1", [2], os=False)
    results = derive(climbed.info, climbed.plan, climbed.environment, climbed.cells)
    row = results.tables["rungs"].row(0, named=True)
    assert [row[c] for c in ("run_aas", "runq_aas", "helpers_aas", "cpu_per_call_ns")] == [None] * 4
    assert row["sleep_aas"] > 0
    assert row["driver_cpus"] is not None, "our own tasks are here"
    run = results.tables["ledger"].filter(scope="rung", account="run")
    assert run["status"].to_list() == ["not here"]
