"""Quantiles of response times far in the tail: against NumPy on the single calls, and the calls they need."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.fakery import climb

from dbdyno.account import window
from dbdyno.account.response_quantiles import response_quantiles, response_quantiles_total
from dbdyno.model.schema.data_sources.response_quantiles import (
    BURSTS,
    DRIFTING,
    REPEATS,
    SECONDS,
    SHORT,
    UNREPEATED,
)
from dbdyno.model.schema.quantiles import QUANTILES, TAILS, fewest_calls
from dbdyno.model.schema.tables import known_quantiles_ns


def _histogram(durations: np.ndarray) -> pl.DataFrame:
    """Returns buckets with three significant digits, by hand: 2048 of equal width to each power of two."""
    shift = np.maximum(0, np.floor(np.log2(np.maximum(durations, 1))).astype(int) - 10)
    low = (durations >> shift) << shift
    frame = pl.DataFrame({"low_ns": low, "high_ns": low + (1 << shift) - 1})
    return frame.group_by("low_ns", "high_ns").agg(count=pl.len().cast(pl.Int64))


def test_quantiles_agree_with_the_calls_to_three_digits() -> None:
    rng = np.random.default_rng(7)
    calls = rng.lognormal(14, 1.2, 200_000).astype(np.int64)
    values = known_quantiles_ns(_histogram(calls), [one.q for one in QUANTILES])
    exact = np.quantile(calls, [one.q for one in QUANTILES], method="inverted_cdf")
    assert values == pytest.approx(exact, rel=0.001)


@pytest.mark.parametrize(
    ("name", "calls"), [("p95", 200), ("p99", 1_000), ("p99.9", 10_000), ("p99.99", 100_000)]
)
def test_a_quantile_needs_ten_calls_above_it(name: str, calls: int) -> None:
    assert fewest_calls(TAILS[name].q) == calls
    for n in (calls - 1, calls):
        known = known_quantiles_ns(_histogram(np.arange(1, n + 1)), [TAILS[name].q])[0]
        assert (known is not None) is (n == calls)


def _cells(repeats: int, *, by_second: bool = True) -> dict[str, pl.DataFrame]:
    cells = climb("fake:cpus=2,cpu=4ms,spread=0.5", (2,), repeats=repeats).cells
    if not by_second:
        cells = [
            dataclasses.replace(c, tables={**c.tables, "second_histogram": pl.DataFrame()}) for c in cells
        ]
    tables = window.cut_rates(cells)
    return tables | {
        "response_quantiles": response_quantiles(cells, tables["rates"], tables["cell_histogram"])
    }


def test_repeats_have_an_interval_around_the_value_of_all_calls() -> None:
    tables = _cells(10)
    total = response_quantiles_total(tables)
    p95 = total.row(by_predicate=pl.col("quantile") == "p95", named=True)
    calls = tables["cell_histogram"]
    assert p95["value_ns"] == known_quantiles_ns(calls, [0.95])[0]
    assert p95["basis"] == REPEATS and p95["low_ns"] <= p95["value_ns"] <= p95["high_ns"]
    assert p95["calls"] == calls["count"].sum() and p95["above"] == pytest.approx(p95["calls"] / 20)


def test_one_repeat_without_calls_by_the_second_has_values_and_no_interval() -> None:
    tables = _cells(1, by_second=False)
    for frame in (tables["response_quantiles"], response_quantiles_total(tables)):
        p50 = frame.row(by_predicate=pl.col("quantile") == "p50", named=True)
        assert p50["value_ns"] > 0 and p50["low_ns"] is p50["high_ns"] is p50["basis"] is None
        assert p50["reason"] == UNREPEATED
        far = frame.row(by_predicate=pl.col("quantile") == "p99.99", named=True)
        assert far["value_ns"] is None and far["status"] == far["reason"] == "too few calls"


def test_a_short_window_has_no_interval_and_says_what_one_needs() -> None:
    p50 = _cells(1)["response_quantiles"].row(by_predicate=pl.col("quantile") == "p50", named=True)
    assert p50["value_ns"] > 0 and p50["low_ns"] is None and p50["reason"] == SHORT


def _of_seconds(seconds: pl.DataFrame) -> pl.DataFrame:
    """Returns the quantiles of one window of these calls by second."""
    (cell,) = climb("fake:cpus=2,cpu=4ms", (1,)).cells
    cell = dataclasses.replace(cell, tables={**cell.tables, "second_histogram": seconds})
    counts = seconds.group_by("low_ns", "high_ns").agg(pl.col("count").sum())
    whole = counts.sort("low_ns").select(pl.lit(cell.id).alias("cell"), pl.all())
    rates = pl.DataFrame(schema={"cell": pl.String, "name": pl.String, "value": pl.Float64})
    return response_quantiles([cell], rates, whole)


def test_levels_that_last_for_a_third_of_the_window_have_no_interval() -> None:
    """1,000 calls a second of about 1 ms, and in a third of the 120 s, a fifth slower."""
    rng = np.random.default_rng(2)
    seconds = []
    for n in range(120):
        calls = rng.lognormal(14, 0.3, 1000) * (1.2 if 20 <= n < 60 else 1.0)
        seconds.append(_histogram(calls.astype(np.int64)).with_columns(second=pl.lit(n), seconds=pl.lit(1)))
    rows = _of_seconds(pl.concat(seconds)).filter(pl.col("value_ns").is_not_null())
    assert set(rows["reason"]) == {DRIFTING} and rows["low_ns"].null_count() == rows.height


def test_a_few_bursts_have_no_interval_and_a_length_that_would_have_one() -> None:
    """Three bursts of 60 slow calls in 120 s are most of the calls above p99.9."""
    rng = np.random.default_rng(3)
    seconds = []
    for n in range(120):
        slow = np.full(60 if n in (25, 61, 104) else 0, 500_000_000)
        calls = np.concatenate([rng.lognormal(14, 0.3, 1000).astype(np.int64), slow])
        seconds.append(_histogram(calls).with_columns(second=pl.lit(n), seconds=pl.lit(1)))
    rows = {r["quantile"]: r for r in _of_seconds(pl.concat(seconds)).iter_rows(named=True)}
    assert rows["p50"]["low_ns"] is not None
    assert rows["p99.9"]["low_ns"] is None and rows["p99.9"]["reason"].startswith(BURSTS)


def test_calls_by_the_second_give_the_interval_of_a_window() -> None:
    """1,000 calls a second for 60 s, of 1 to 1,000 us: p99 is 990 us, and each second has the same."""
    us = pl.Series(range(1, 1001)) * 1000
    second = pl.DataFrame({"low_ns": us, "high_ns": us, "count": 1})
    seconds = pl.concat([second.with_columns(second=pl.lit(n), seconds=pl.lit(1)) for n in range(60)])
    p99 = _of_seconds(seconds).row(by_predicate=pl.col("quantile") == "p99", named=True)
    assert p99["value_ns"] == 990_000 and p99["basis"] == SECONDS
    # 600 of 60,000 calls lie above, plus or minus 48 (1.96 sqrt(600 x 0.99)): 0.8 of the 60 calls of 1 us
    assert 988_000 <= p99["low_ns"] <= 990_000 <= p99["high_ns"] <= 992_000
