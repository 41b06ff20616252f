"""Laws of raking: margins exact, cross-product ratios of the seeds kept, ranges hold every seed."""

from itertools import combinations
from math import sqrt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fake_engine import wait_families

from dbdyno.account.ledger.samples import EVEN, LABELLED, run_shares
from dbdyno.stats.raking import ipf

FAMILIES = wait_families()

EXAMPLES = examples(80)
POSITIVE = st.floats(0.01, 100.0)
CLASSES = (None, "Client", "LWLock", "IO", "Lock")


def _one(seed: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return ipf(seed, np.zeros(len(rows), dtype=np.int64), rows, columns[None, :])


def _ratios(table: np.ndarray) -> list[float]:
    """Returns cross-product ratios of all 2 x 2 tables in it."""
    n, c = table.shape
    return [
        table[i, k] * table[j, m] / (table[i, m] * table[j, k])
        for i, j in combinations(range(n), 2)
        for k, m in combinations(range(c), 2)
    ]


def test_a_two_by_two_table_is_fitted_as_by_hand():
    """The survey 7, 9; 12, 7 raked to the census 5, 15; 10, 10 (B. Klemens, Iterative proportional fitting).

    With x in the first cell the others are 5 - x, 10 - x, 5 + x, and the cross-product ratio stays 49/108:
    108 x (5 + x) = 49 (5 - x) (10 - x), so 59 x^2 + 1275 x - 2450 = 0.
    """
    x = (-1275 + sqrt(1275**2 + 4 * 59 * 2450)) / (2 * 59)
    fitted = _one(np.array([[7.0, 9.0], [12.0, 7.0]]), np.array([5.0, 15.0]), np.array([10.0, 10.0]))
    assert fitted == pytest.approx(np.array([[x, 5 - x], [10 - x, 5 + x]]), abs=1e-6)


def test_a_published_table_is_fitted_with_its_margins_and_ratios():
    """Example 1 of real-statistics.com, "Iterative Proportional Fitting Procedure". The fit is the one table
    with these margins and the cross-product ratios of the seed (Fienberg 1970)."""
    seed = np.array([[8.0, 4, 6, 7], [3, 6, 5, 2], [9, 11, 3, 1]])
    rows, columns = np.array([20.0, 18, 22]), np.array([18.0, 16, 12, 14])
    fitted = _one(seed, rows, columns)
    assert fitted.sum(axis=1) == pytest.approx(rows, abs=1e-6)
    assert fitted.sum(axis=0) == pytest.approx(columns, abs=1e-9)
    assert _ratios(fitted) == pytest.approx(_ratios(seed), rel=1e-9)


def test_ones_give_independence():
    """From seeds of 1: row total times column total over all, in one sweep."""
    rows, columns = np.array([3.0, 5.0, 2.0]), np.array([4.0, 6.0])
    assert _one(np.ones((3, 2)), rows, columns) == pytest.approx(np.outer(rows, columns) / 10)


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws a seed with odds up to 2,500, and the margins of some table."""
    n, c = draw(st.integers(1, 6)), draw(st.integers(2, 3))
    seed = np.array(
        draw(st.lists(st.lists(st.floats(0.02, 1.0), min_size=c, max_size=c), min_size=n, max_size=n))
    )
    truth = np.array(draw(st.lists(st.lists(POSITIVE, min_size=c, max_size=c), min_size=n, max_size=n)))
    return seed, truth.sum(axis=1), truth.sum(axis=0)


@EXAMPLES
@given(tables())
def test_margins_are_met_and_nothing_is_negative(table):
    seed, rows, columns = table
    fitted = _one(seed, rows, columns)
    assert (fitted >= 0).all()
    assert fitted.sum(axis=0) == pytest.approx(columns, rel=1e-9)
    assert np.abs(fitted.sum(axis=1) - rows).max() <= 1e-6 * rows.sum()
    assert _ratios(fitted) == pytest.approx(_ratios(seed), rel=1e-6)


@EXAMPLES
@given(st.lists(tables().filter(lambda t: len(t[2]) == 2), min_size=1, max_size=4), st.randoms())
def test_many_tables_at_once_are_fitted_as_each_alone_in_any_order(several, random):
    """Tables do not influence each other, whatever the order of the rows."""
    rows = [
        (i, seed, total)
        for i, (seeds, totals, _) in enumerate(several)
        for seed, total in zip(seeds, totals, strict=True)
    ]
    random.shuffle(rows)
    group = np.array([i for i, _, _ in rows])
    columns = np.array([c for _, _, c in several])
    fitted = ipf(np.array([s for _, s, _ in rows]), group, np.array([t for _, _, t in rows]), columns)
    for i, (seed, totals, wanted) in enumerate(several):
        alone = _one(seed, totals, wanted)
        fitted_rows = fitted[group == i]
        key = [tuple(s) for g, s, _ in rows if g == i]
        order = [(k, t) for k, (g, _, t) in zip(key, (r for r in rows if r[0] == i), strict=True)]
        for (s, t), row in zip(order, fitted_rows, strict=True):
            at = next(n for n in range(len(seed)) if tuple(seed[n]) == s and totals[n] == t)
            assert row == pytest.approx(alone[at], abs=1e-5 * totals.sum())


@st.composite
def runnables(draw: st.DrawFn) -> tuple[pl.DataFrame, float, float]:
    """Draws labels of one task that was runnable, with their weights, and its run and run queue."""
    classes = draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=5, unique=True))
    weights = [draw(st.integers(1, 1000)) for _ in classes]
    events = [c and f"{c}Event" for c in classes]
    schema = {"task": pl.Int64, "wait_class": pl.String, "wait_event": pl.String, "weight": pl.Int64}
    frame = pl.DataFrame([[3] * len(classes), classes, events, weights], schema=schema)
    return frame, float(draw(st.integers(0, 10**9))), float(draw(st.integers(0, 10**9)))


def _tasks(run: float, runq: float) -> pl.DataFrame:
    return pl.DataFrame({"task": [3], "run_ns": [run], "runq_ns": [runq]})


@EXAMPLES
@given(runnables(), st.data())
def test_the_range_holds_the_fit_and_every_other_seed(runnable, data):
    """Seeds of labelled classes are any from 0 to 1, against 1 without a label. The fit lies within the
    range."""
    frame, run, runq = runnable
    shares = run_shares(frame, _tasks(run, runq), FAMILIES)
    both = run + runq
    weight = frame["weight"].to_numpy().astype(float)
    rows = both * weight / weight.sum()
    share, low, high = (shares[n].to_numpy() for n in ("share", "share_low", "share_high"))
    assert (share * rows).sum() == pytest.approx(run, abs=1e-6 * max(both, 1.0))
    odds = [
        1.0 if c is None else data.draw(st.floats(1e-3, 1.0), label=f"seed of {c}")
        for c in frame["wait_class"]
    ]
    other = _one(np.stack([np.array(odds), np.ones(len(odds))], axis=1), rows, np.array([run, runq]))
    slip = 1e-5 * max(both, 1.0)
    for fitted in (share * rows, other[:, 0]):
        assert (fitted >= low * rows - slip).all()
        assert (fitted <= high * rows + slip).all()
    frechet = np.maximum(0.0, rows - runq)
    assert (low * rows >= frechet - slip).all()
    assert (high * rows <= np.minimum(rows, run) + slip).all()


def test_each_class_has_the_seed_of_its_family():
    """Half of the samples without a label, half under each class; run = run queue = 1: by symmetry the two
    odds are x and x times the seed, with x / (1 + x) + x s / (1 + x s) = 1, so x = 1 / sqrt(s)."""
    for name in ("Client", "LWLock", "IO"):
        frame = pl.DataFrame(
            {"task": [0, 0], "wait_class": [None, name], "wait_event": [None, "x"], "weight": [5, 5]}
        )
        tasks = pl.DataFrame({"task": [0], "run_ns": [1.0], "runq_ns": [1.0]})
        seed = 1.0 if FAMILIES.of(name) in EVEN else LABELLED
        x = 1 / sqrt(seed)
        shares = run_shares(frame, tasks, FAMILIES)["share"].to_list()
        assert shares == pytest.approx([x / (1 + x), x * seed / (1 + x * seed)], abs=1e-8)
        assert seed == (1.0 if name == "IO" else 0.02)


def test_no_rows_have_no_fit():
    nobody = pl.DataFrame(
        schema={"task": pl.Int64, "wait_class": pl.String, "wait_event": pl.String, "weight": pl.Int64}
    )
    assert run_shares(nobody, _tasks(1.0, 1.0), FAMILIES).is_empty()
