"""Laws of the window room: additive cuts, weights that fill the window, counts that add up."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fakery import S, climb, made_cell, sampler_row, session_row, task_row

from dbdyno.account.window import cut_sampler, cut_tasks, rates
from dbdyno.model.schema.tables import merged, quantiles_ns
from dbdyno.stats.estimates import Mean

SLOW = examples(60)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draws reads of a task: time (1 s or more apart), run, run queue. Both together grow no faster than
    time."""
    now, run, runq = 10 * S, draw(st.integers(0, S)), draw(st.integers(0, S))
    reads = [(now, run, runq)]
    for _ in range(draw(st.integers(2, 6))):
        step = draw(st.integers(S, 3 * S))
        more = draw(st.integers(0, step))
        now, run, runq = now + step, run + more, runq + draw(st.integers(0, step - more))
        reads.append((now, run, runq))
    return reads


def _cut(reads: list[tuple[int, int, int]], t0: int, t1: int) -> dict[str, Any]:
    cell = made_cell({"tasks": [task_row(*r) for r in reads], "sessions": [session_row()]}, t0=t0, t1=t1)
    return cut_tasks([cell]).row(0, named=True)


@SLOW
@given(lives(), st.data())
def test_cutting_at_reads_is_additive(reads, data):
    """[a, b) + [b, c) = [a, c)."""
    i, j, k = sorted(data.draw(st.lists(st.integers(0, len(reads) - 1), min_size=3, max_size=3, unique=True)))
    a, b, c = (reads[n][0] for n in (i, j, k))
    first, second, whole = _cut(reads, a, b), _cut(reads, b, c), _cut(reads, a, c)
    for name in ("wall_ns", "run_ns", "runq_ns"):
        assert first[name] + second[name] == whole[name]
    assert whole["run_ns"] + whole["runq_ns"] <= whole["wall_ns"]


@SLOW
@given(lives(), st.integers(0, 5), st.integers(1, 10**9))
def test_a_counter_that_fell_is_never_a_number(reads, where, fall):
    where = 1 + where % (len(reads) - 1)
    at, run, runq = reads[where]
    spoilt = [*reads[:where], (at, reads[where - 1][1] - fall, runq), *reads[where + 1 :]]
    row = _cut(spoilt, reads[0][0], reads[-1][0])
    assert (row["run_ns"], row["status"]) == (None, "reset")
    assert run >= 0


@SLOW
@given(
    st.lists(st.tuples(st.integers(8 * S, 22 * S), st.sampled_from(["ok", "ok", "ok", "lost"])), max_size=30)
)
def test_the_samples_spans_fill_the_window(samples):
    rows = [sampler_row(i, at, status) for i, (at, status) in enumerate(sorted(samples))]
    spans = cut_sampler([made_cell({"sampler": rows})]).sort("low_ns", "high_ns")
    inside = [at for at, status in samples if status == "ok" and 10 * S <= at < 20 * S]
    assert spans.height == len(inside)
    if inside:
        assert (spans["low_ns"][0], spans["high_ns"][-1]) == (10 * S, 20 * S)
        assert spans["low_ns"][1:].to_list() == spans["high_ns"][:-1].to_list()
        assert (spans["high_ns"] - spans["low_ns"]).sum() == 10 * S
        assert spans.filter(~pl.col("at_ns").is_between("low_ns", "high_ns")).is_empty()


@SLOW
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 5 * S), st.integers(0, 10 * S)), min_size=1, max_size=8
    )
)
def test_the_rungs_rate_is_the_sum_of_its_sessions(sessions):
    rows = [
        session_row(n, first_start_ns=10 * S + late, last_end_ns=10 * S + late + span, calls=calls)
        if calls
        else session_row(n, first_start_ns=None, last_end_ns=None, calls=0, in_call_ns=0)
        for n, (calls, span, late) in enumerate(sessions)
    ]
    values = rates([made_cell({"sessions": rows}, sessions=len(rows))]).filter(name="calls_per_s")
    known = values.filter(scope="session")["value"].drop_nulls()
    rung = values.filter(scope="rung")["value"].item()
    if len(known):
        assert abs(rung - known.sum()) <= 1e-9 * abs(rung)
    else:
        assert rung is None, "no call measured is unknown, not 0"


@examples(25)
@given(
    st.integers(1, 4),
    st.integers(3, 400),
    st.integers(1, 6),
    st.sampled_from(
        ["", ",think=7ms", ",lock=LWLock/x:3ms", ",quota=0.7", ",error_every=3", ",lose=0@2700ms"]
    ),
    st.integers(0, 99),
)
def test_all_calls_are_settling_or_measured(cpus, cpu_ms, sessions, more, seed):
    """pgbench's identity: calls_total = settle + measured, the same for errors, and for logged calls."""
    dsn = f"fake:cpus={cpus},cpu={cpu_ms}ms,spread=0.5,seed={seed}{more}"
    cell = climb(dsn, [sessions], measure_ns=2 * S, log_calls=True).cells[0]
    calls, table = cell.tables["calls"], cell.tables["sessions"]
    for s in table.iter_rows(named=True):
        of_session = calls.filter(session=s["session"])
        assert of_session.filter("ok").height == s["calls_total"]
        assert of_session.filter(~pl.col("ok")).height == s["errors_total"]
        assert of_session.filter(pl.col("ok") & pl.col("measured")).height == s["calls"]
        settling = of_session.filter(pl.col("ok") & ~pl.col("measured"))
        assert settling.height + s["calls"] == s["calls_total"]
        assert (settling["start_ns"] < cell.meta.t0_ns).all()
    assert cell.tables["histogram"]["count"].sum() == table["calls"].sum()
    assert cell.tables["errors"]["count"].sum() == table["errors_total"].sum()


buckets = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 100)), max_size=12)


def _histogram(pairs: list[tuple[int, int]]) -> pl.DataFrame:
    data = [{"low_ns": 10 * b, "high_ns": 10 * b + 9, "count": n} for b, n in pairs]
    return pl.DataFrame(data, schema={"low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.Int64})


@SLOW
@given(buckets, buckets, buckets)
def test_histograms_merge_in_any_order(a, b, c):
    one, two, three = _histogram(a), _histogram(b), _histogram(c)
    left = merged(pl.concat([merged(pl.concat([one, two])), three]))
    right = merged(pl.concat([one, merged(pl.concat([three, two]))]))
    assert left.equals(right)
    assert left["count"].sum() == sum(n for _, n in (*a, *b, *c))


@SLOW
@given(buckets, st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_quantiles_are_those_of_the_sorted_calls(pairs, qs):
    """By definition it is the bucket end of the call of rank ceil(q n)."""
    calls = sorted(10 * b + 9 for b, n in pairs for _ in range(n))
    quantiles = quantiles_ns(_histogram(pairs), sorted(qs))
    if not calls:
        assert quantiles == [None] * len(qs)
        return
    assert quantiles == sorted(quantiles)
    for q, value in zip(sorted(qs), quantiles, strict=True):
        below = sum(call <= value for call in calls)
        under = sum(call < value for call in calls)
        assert below >= q * len(calls) - 1e-6
        assert under < max(1e-6, q * len(calls)) + 1e-6


values = st.lists(st.floats(-1e6, 1e6), max_size=20)


@SLOW
@given(values, values, values)
def test_means_merge_in_any_order(a, b, c):
    one, two, three = Mean.of(a), Mean.of(b), Mean.of(c)
    left, right = one.merge(two).merge(three), three.merge(one.merge(two))
    whole = Mean.of([*a, *b, *c])
    for mean in (left, right):
        assert mean.n == whole.n
        if whole.n:
            assert abs(mean.value - whole.value) <= 1e-6
            assert abs(mean.m2 - whole.m2) <= 1e-6 * max(1.0, whole.m2)


def test_the_interval_of_a_mean_is_students_by_hand():
    """4, 5, 6: mean 5, standard error 1 / sqrt(3), t(2) = 4.303: 2.516 to 7.484."""
    low, high = Mean.of([4, 5, 6]).interval95 or (0, 0)
    assert (round(low, 3), round(high, 3)) == (2.516, 7.484)
    assert Mean.of([4]).interval95 is None
