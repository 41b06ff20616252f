"""How sure a window's own figures are: standard errors from what happened in it second by second.

The driver tells about once a second how many calls ended. From bin to bin that is a series whose neighbours
resemble each other; :mod:`dbdyno.stats.autocorrelation` takes that into account. What differs from repeat to
repeat is not in these errors: they are a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.model.raw import RawCell
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.autocorrelation import correlated

Figure = tuple[str, str, float | None, str, str]
_SOURCE = "driver, by the second"
_FEW = "too few seconds"


def within(cell: RawCell) -> Iterator[Figure]:
    """Standard errors of calls/s and mean response, and the effective number of bins that they rest on."""
    bins = _bins(cell)
    rate = correlated(bins["rate"].to_list())
    yield ("calls_per_s_se", "1/s", None if rate is None else rate.std_err, _FEW, _SOURCE)
    yield ("effective_bins", "bins", None if rate is None else rate.effective, _FEW, _SOURCE)
    yield ("response_mean_se_ns", "ns", _response(bins), _FEW, _SOURCE)


def _bins(cell: RawCell) -> pl.DataFrame:
    """Calls, their time and their rate between the times at which the driver was asked."""
    inside = pl.col("at_ns").is_between(cell.meta.t0_ns, cell.meta.t1_ns)
    asked = cell.tables["progress"].filter(inside).sort("at_ns")
    grown = asked.select(pl.col("at_ns", "calls", "in_call_ns").diff()).drop_nulls()
    return grown.filter(pl.col("at_ns") > 0).with_columns(rate=NS_PER_S * pl.col("calls") / pl.col("at_ns"))


def _response(bins: pl.DataFrame) -> float | None:
    """Of the ratio of two sums, by its residuals (Cochran 1977, Sampling Techniques, 6.4)."""
    calls = int(bins["calls"].sum())
    if not calls:
        return None
    mean_ns = float(bins["in_call_ns"].sum()) / calls
    left = correlated((bins["in_call_ns"] - mean_ns * bins["calls"]).to_list())
    return None if left is None else left.std_err * left.n / calls
