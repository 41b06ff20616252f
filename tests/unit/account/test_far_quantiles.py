"""Quantiles of response times far in the tail: against NumPy on the single calls, and the calls they need."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

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
