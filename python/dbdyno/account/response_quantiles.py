"""Table ``response_quantiles``: quantiles of response times with intervals that hold for calls which are not
independent.

A quantile's interval follows from the number of calls above it and its design effect
(:mod:`dbdyno.stats.tail_intervals`): from the variation between repeats, from three on; else between the
seconds of a window. Neither covers a cause that did not come up in the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from dbdyno.account.ladder import states_of_best
from dbdyno.account.making import makes
from dbdyno.account.window.cells import key
from dbdyno.model.results.ledger_rows import groups
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources.response_quantiles import (
    BURSTS,
    DRIFTING,
    REPEATS,
    SECONDS,
    SHORT,
    UNEQUAL,
    UNREPEATED,
)
from dbdyno.model.schema.quantiles import FEW, QUANTILES, Quantile
from dbdyno.model.schema.tables import ByCell, Tables, known_quantiles_ns, merged, quantile_ns, rows
from dbdyno.stats.autocorrelation import Floats
from dbdyno.stats.tail_intervals import (
    LEAST_ABOVE,
    LEAST_SECONDS,
    design_effect,
    effect_of_groups,
    is_steady,
    ranks,
)

_LONGEST = 20
"""Most windows' lengths that are named as long enough. For more, the estimate says little."""
_COUNTS = ("low_ns", "high_ns", "count")


@makes("response_quantiles", reads=("rates",))
def response_quantiles(
    cells: Sequence[RawCell], rates: pl.DataFrame, cell_histogram: pl.DataFrame
) -> pl.DataFrame:
    """Returns the quantiles of each cell. Their intervals cover the chance within its window."""
    records: list[dict[str, Any]] = []
    parts = ByCell({"rates": rates, "cell_histogram": cell_histogram})
    for cell in cells:
        histogram = parts.table("cell_histogram", cell.id).select(_COUNTS)
        by_second = cell.tables.get("second_histogram")
        seconds = [] if by_second is None else list(_seconds(by_second))
        refused = _refused(histogram, seconds)
        for one in QUANTILES if histogram.height else ():
            effect = None if refused else design_effect(*_above(seconds, histogram, one.q))
            reason = refused or (DRIFTING if effect is None else None)
            found = _row(one, histogram, _longest(parts, [cell.id]), effect, SECONDS, reason)
            records.append(key(cell) | found)
    return rows("response_quantiles", records)


@makes("response_quantiles", stage="total")
def response_quantiles_total(tables: Tables) -> pl.DataFrame:
    """Returns the quantiles of the calls of all repeats of a load, of the same cells as table ``rungs``."""
    records: list[dict[str, Any]] = []
    figures = tables["rates"].filter(pl.col("scope") == "rung")
    parts = ByCell({"rates": figures, "cell_histogram": tables["cell_histogram"]})
    of_cells = tables["response_quantiles"]
    for head, cells in groups(tables["windows"]):
        ids = list(states_of_best(parts, pl.DataFrame(cells).select("cell", "status")))
        histograms = [parts.table("cell_histogram", i).select(_COUNTS) for i in ids]
        whole = merged(pl.concat(histograms))
        for one in QUANTILES if whole.height else ():
            effect, basis = effect_of_groups(*_above(histograms, whole, one.q)[:2]), REPEATS
            same = of_cells.filter(pl.col("cell").is_in(ids) & (pl.col("quantile") == one.name))
            reason = next(iter(same["reason"].drop_nulls().to_list()), None)
            if effect is None:
                effect, basis = _mean_effect(same), SECONDS
            records.append(head | _row(one, whole, _longest(parts, ids), effect, basis, reason))
    return rows("response_quantiles", records)


def _mean_effect(cells: pl.DataFrame) -> float | None:
    """Returns the design effect of the calls of one or two windows; None if one is unknown."""
    if cells.is_empty() or cells["design_effect"].null_count():
        return None
    return float(
        cells.select((pl.col("design_effect") * pl.col("calls")).sum() / pl.col("calls").sum()).item()
    )


def _longest(parts: ByCell, cells: Sequence[str]) -> float | None:
    of_cells = pl.concat([parts.table("rates", cell) for cell in cells])
    value = of_cells.filter(pl.col("name") == "response_max_ns")["value"].max()
    return None if value is None else float(value)  # type: ignore[arg-type]


def _row(
    one: Quantile,
    histogram: pl.DataFrame,
    longest: float | None,
    effect: float | None,
    basis: str,
    reason: str | None,
) -> dict[str, Any]:
    """Returns the value, its interval, and why one of them is missing."""
    calls = int(histogram["count"].sum())
    (value,) = known_quantiles_ns(histogram, [one.q])
    row: dict[str, Any] = {"quantile": one.name, "q": one.q, "calls": calls, "above": calls * (1 - one.q)}
    row |= {"design_effect": effect, "status": "ok" if value is not None else FEW, "source": "driver"}
    if value is None:
        return row | {"reason": FEW}
    row["value_ns"] = _at_most(value, longest)
    between = None if effect is None else ranks(calls, one.q, effect)
    if between is None or between.low is None or between.high is None:
        if effect is not None:
            reason = UNEQUAL if basis == REPEATS else _too_few(calls * min(one.q, 1 - one.q) / effect)
        return row | {"reason": reason}
    sorted_ = merged(histogram)
    places = np.searchsorted(sorted_["count"].cum_sum().to_numpy(), [between.low, between.high])
    low, high = sorted_["low_ns"][int(places[0])], sorted_["high_ns"][int(places[1])]
    return row | {"low_ns": low, "high_ns": _at_most(high, longest), "basis": basis}


def _too_few(independent: float) -> str:
    times = math.ceil(1.2 * LEAST_ABOVE / independent)
    return f"{BURSTS}; {times} times as long is needed, or 10 repeats" if times <= _LONGEST else BURSTS


def _at_most(value: float, longest: float | None) -> float:
    """A quantile is the upper end of its bucket, which may lie above the longest call."""
    return float(value) if longest is None else min(float(value), longest)


def _refused(histogram: pl.DataFrame, seconds: Sequence[pl.DataFrame]) -> str | None:
    """Returns why no quantile of a window has an interval. Where most calls drift, the slow ones do, too,
    even if they are too few to show it."""
    if not seconds:
        return UNREPEATED
    if len(seconds) < LEAST_SECONDS:
        return SHORT
    counts = [_above(seconds, histogram, q)[:2] for q in (0.5, 0.95)]
    middle = ((pl.col("low_ns") + pl.col("high_ns")) / 2).clip(1).log()
    logs = np.array([s.select((middle * pl.col("count")).sum()).item() for s in seconds], dtype=float)
    return None if all(is_steady(*one) for one in (*counts, (logs, counts[0][1]))) else DRIFTING


def _seconds(by_second: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the histograms of successive intervals of time, also of those in which no call ended."""
    if by_second.is_empty():
        return
    step = int(by_second["seconds"].max()) if "seconds" in by_second.columns else 1  # type: ignore[arg-type]
    of_second = {int(s): part for (s,), part in by_second.group_by("second")}
    for second in range(min(of_second), max(of_second) + 1, step):
        yield of_second.get(second, by_second.clear()).select(_COUNTS)


def _above(parts: Sequence[pl.DataFrame], whole: pl.DataFrame, q: float) -> tuple[Floats, Floats, float]:
    """Returns for each part the calls above the quantile of the whole, and its calls; and the variance that
    is missing because calls in the quantile's own bucket are divided, not counted."""
    value = quantile_ns(whole, q) or 0
    over, within = pl.col("low_ns") > value, pl.col("high_ns").ge(value) & pl.col("low_ns").le(value)
    count = pl.col("count")
    sums = [
        part.select(count.filter(over).sum(), b=count.filter(within).sum(), c=count.sum()) for part in parts
    ]
    above, inside, calls = (np.array([s.row(0)[n] for s in sums], dtype=float) for n in range(3))
    left = (1 - q) * calls.sum() - above.sum()
    share = min(1.0, max(0.0, left / inside.sum())) if inside.sum() else 0.0
    return above + share * inside, calls, float(share * (1 - share) * inside.sum())
