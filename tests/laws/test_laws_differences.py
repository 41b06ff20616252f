"""Laws of differences of two reads: whatever was lost, none is negative where its status claims knowledge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fakery import MS, S, made_cell, session_row, task_row

from dbdyno.account.ledger import accounts, cross_check
from dbdyno.account.statement_ledger import statement_ledger
from dbdyno.account.wait_durations import wait_durations, wait_histogram
from dbdyno.account.window import cut
from dbdyno.model.results.raw import RawCell

pytestmark = pytest.mark.queries

ME = {"pid": 100, "tid": 100, "start_ticks": 7, "role": "session", "session": 0, "status": "ok"}
T0, T1 = 10 * S, 20 * S
BEGUN = 9 * S
_SUMS = ("run_ns", "runq_ns", "sleep_ns")
Row = dict[str, Any]


class Call(NamedTuple):
    """A call of a session: it thinks, waits for a CPU, runs, and sleeps, each so many ns."""

    query: int
    think: int
    queued: int
    run: int
    slept: int


CALLS = st.lists(
    st.builds(
        Call,
        st.integers(1, 3),
        *(st.integers(1, most) for most in (2 * S, S, 300 * MS, S)),
    ),
    min_size=1,
    max_size=12,
)


class Piece(NamedTuple):
    """A session's activity from ``start`` to ``end``.

    At a read up to ``known`` it stands under ``before``, from then on under ``after``: (wait event,
    statement).
    """

    part: str
    start: int
    end: int
    known: int
    before: tuple[str | None, int]
    after: tuple[str | None, int]


def life(calls: Sequence[Call]) -> Iterator[Piece]:
    """Yields pieces as the trace books them.

    The queue of a session that waited for the next statement moves to that statement when its first
    slice on a CPU ends.
    """
    at, last = BEGUN, 1
    for call in calls:
        waits, sleeps = ("ClientRead", last), ("PgSleep", call.query)
        began, queued = at + call.think, at + call.think + call.queued
        done = queued + call.run
        yield Piece("sleep", at, began, at, waits, waits)
        yield Piece("runq", began, queued, done, waits, ("ClientRead", call.query))
        yield Piece("run", queued, done, done, waits, sleeps)
        yield Piece("sleep", done, done + call.slept, done, sleeps, sleeps)
        at, last = done + call.slept, call.query
    # the last one waits for its client for good
    yield Piece("sleep", at, 10**12, at, ("ClientRead", last), ("ClientRead", last))


def read(pieces: Sequence[Piece], at: int) -> tuple[Row, list[Row]]:
    """Returns the row of ``traced`` and those of ``waits`` at an instant."""
    rows: dict[tuple[str | None, int], Row] = defaultdict(lambda: defaultdict(int))
    for p in pieces:
        spent = min(p.end, at) - p.start
        if spent <= 0:
            continue
        row = rows[p.after if at >= p.known else p.before]
        row[f"{p.part}_ns"] += spent
        row["open_ns"] += spent if p.part == "runq" and at < p.known else 0
        row["sleeps"] += p.part == "sleep"
    when = ME | {"before_ns": at, "after_ns": at}
    names = (*_SUMS, "open_ns", "sleeps", "preempted", "came_ns", "left_ns")
    label = {"wait_class": "Client", "query_status": "ok"}
    waits = [
        when | label | {"wait_event": event, "query_id": query} | {n: row[n] for n in names}
        for (event, query), row in rows.items()
    ]
    return when | {n: sum(row[n] for row in waits) for n in _SUMS}, waits


def wait_time_rows(waits: Sequence[Row]) -> list[Row]:
    """Returns rows of ``wait_times`` in which all waits of a label lasted as long."""
    names = ("before_ns", "after_ns", "wait_class", "wait_event", "query_id", "query_status")
    return [
        ME | {n: w[n] for n in names} | {"part": part, "from_ns": 1024, "count": w["sleeps"]}
        for w in waits
        for part in ("sleep", "runq")
        if w["sleeps"]
    ]


def cell_of(reads: Sequence[tuple[Row, list[Row]]], more: Mapping[str, list[Row]] | None = None) -> RawCell:
    tables = {
        "sessions": [session_row()],
        "tasks": [task_row(t, t // 3, t // 3) for t in (T0, T1)],
        "traced": [traced for traced, _ in reads],
        "waits": [row for _, waits in reads for row in waits],
        "wait_times": [row for _, waits in reads for row in wait_time_rows(waits)],
    }
    return made_cell({**tables, **(more or {})})


def derived(cell: RawCell) -> dict[str, pl.DataFrame]:
    tables = cut([cell])
    tables |= accounts(tables)
    tables["data_sources"] = cross_check(tables, tables["ledger"])
    tables["statement_ledger"] = statement_ledger(tables)
    tables["wait_histogram"] = wait_histogram(tables)
    tables["wait_durations"] = wait_durations(tables)
    return tables


SIGNED = {"unaccounted", "margin.off", "relative_difference", "query_id"}
"""Accounts and columns that are differences or names, and shown with their sign."""


def nothing_is_negative(tables: Mapping[str, pl.DataFrame]) -> None:
    for name, frame in tables.items():
        if "account" in frame.columns:
            frame = frame.filter(~pl.col("account").is_in(SIGNED))
        for column, kind in frame.schema.items():
            if kind.is_numeric() and column not in SIGNED:
                below = frame.filter(pl.col(column) < 0)
                assert below.is_empty(), (name, column, below.to_dicts())


@examples(30)
@given(CALLS)
def test_the_queue_of_each_statement_lies_in_its_interval_and_all_add_up(calls: list[Call]) -> None:
    pieces = list(life(calls))
    tables = derived(cell_of([read(pieces, T0), read(pieces, T1)]))
    nothing_is_negative(tables)
    truth: dict[int, int] = defaultdict(int)
    for p in (p for p in pieces if p.part == "runq"):
        truth[(p.after if p.known <= T1 else p.before)[1]] += max(0, min(p.end, T1) - max(p.start, T0))
    rows = tables["statement_ledger"].filter(account="runq")
    assert rows["seconds"].sum() * S == pytest.approx(sum(truth.values()), abs=10)
    for row in rows.to_dicts():
        true_s = truth[row["query_id"]] / S
        assert row["low"] - 1e-8 <= true_s <= row["high"] + 1e-8, (row, dict(truth))
        assert row["low"] - 1e-8 <= row["seconds"] <= row["high"] + 1e-8
    whole = tables["cut_traced"].row(0, named=True)
    assert (whole["status"], whole["wall_ns"]) == ("ok", T1 - T0)
    spent = tables["statement_ledger"].filter(pl.col("account").is_in(["run", "runq", "sleep", "client"]))
    assert spent["seconds"].sum() == pytest.approx(10.0, abs=1e-6)


def test_one_statement_that_had_room_for_the_open_queue_has_it_exactly() -> None:
    """The session is in the queue since 9.5 s for statement 2, whose first slice ends after 10 s.
    Statement 1 was before."""
    calls = [Call(1, 1, 1, 1, 1), Call(2, S // 2, S, S // 10, 8 * S), Call(3, 1, MS, MS, S)]
    pieces = list(life(calls))
    tables = derived(cell_of([read(pieces, T0), read(pieces, T1)]))
    rows = {r["query_id"]: r for r in tables["statement_ledger"].filter(account="runq").to_dicts()}
    assert {q: round(r["seconds"], 6) for q, r in rows.items()} == {1: 0.0, 2: 0.5, 3: 0.001}
    assert all(r["low"] == r["seconds"] == r["high"] for r in rows.values())
    older = derived(without_open(cell_of([read(pieces, T0), read(pieces, T1)])))
    nothing_is_negative(older)
    rows = {r["query_id"]: r for r in older["statement_ledger"].filter(account="runq").to_dicts()}
    assert (rows[1]["seconds"], rows[1]["low"]) == (0.0, 0.0)
    assert rows[1]["high"] > 0
    assert rows[2]["seconds"] == pytest.approx(0.5, abs=1e-6)


def without_open(cell: RawCell) -> RawCell:
    """Returns the cell as an older version stored it."""
    waits = cell.tables["waits"].with_columns(open_ns=pl.lit(None, pl.Int64))
    return RawCell(cell.meta, {**cell.tables, "waits": waits})


DAMAGE = st.sampled_from(
    ["whole", "a label is missing", "all labels are missing", "lost", "back", "no durations"]
)


@st.composite
def damaged_cells(draw: st.DrawFn) -> RawCell:
    """Draws reads of which some were lost, lack labels, or went back."""
    pieces = list(life(draw(CALLS)))
    times = sorted({T0, T1, *draw(st.lists(st.integers(BEGUN, 21 * S), max_size=3))})
    reads, durations = [], []
    for at in times:
        (traced, waits), damage = read(pieces, at), draw(DAMAGE)
        if damage == "lost":
            traced, waits = traced | dict.fromkeys(_SUMS) | {"status": "lost"}, []
        elif damage == "all labels are missing":
            waits = []
        elif damage == "a label is missing" and waits:
            waits.pop(draw(st.integers(0, len(waits) - 1)))
        elif damage == "back" and waits:
            row = draw(st.sampled_from(waits))
            name = draw(st.sampled_from([*_SUMS, "open_ns", "sleeps"]))
            row[name] = draw(st.integers(0, row[name]))
        reads.append((traced, waits))
        durations += [] if damage == "no durations" else wait_time_rows(waits)
    cell = cell_of(reads, {"wait_times": durations})
    return without_open(cell) if draw(st.booleans()) else cell


@examples(50, phases=[Phase.explicit, Phase.generate])  # cells are long to shrink
@given(damaged_cells())
def test_no_figure_is_negative_whatever_was_lost(cell: RawCell) -> None:
    tables = derived(cell)
    nothing_is_negative(tables)
    waits = tables["cut_waits"]
    row = next(tables["cut_traced"].iter_rows(named=True), {"status": "lost"})  # no read was whole
    if row["status"] == "ok" and cell.tables["waits"].is_empty():
        assert waits.is_empty(), "nothing is claimed to be known of labels"
    elif row["status"] == "ok":
        for name in ("sleep_ns", "runq_ns"):
            assert waits[name].sum() == row[name], "labels add up to their task"
    else:
        assert waits["sleep_ns"].null_count() == waits.height
        assert tables["cut_statement_waits"].is_empty()
    counted = tables["cut_wait_times"]
    if row["status"] != "ok" and counted.height:
        assert set(counted["status"]) == {"lost"}


@examples(12)
@given(CALLS, st.data())
def test_a_read_without_its_labels_is_a_lost_one(calls: list[Call], data: st.DataObject) -> None:
    """This holds at either end: the task's sums are known, its waits are not, and no label claims to know
    them."""
    pieces = list(life(calls))
    reads = [read(pieces, T0), read(pieces, T1)]
    grown = {n: reads[1][0][n] - reads[0][0][n] for n in _SUMS}
    end = data.draw(st.integers(0, 1))
    assume(any(reads[end][0][n] for n in _SUMS))
    reads[end] = (reads[end][0], [])
    cell = cell_of(reads)
    assume(cell.tables["waits"].height)
    tables = derived(cell)
    nothing_is_negative(tables)
    (row,) = tables["cut_traced"].to_dicts()
    assert {n: row[n] for n in _SUMS} == grown
    assert row["status"] == "lost"
    assert tables["ledger"].filter(pl.col("source") == "scheduler trace").is_empty()
