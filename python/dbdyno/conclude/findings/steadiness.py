"""Was it the same all the time, and for all sessions?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.significance import FALSE_ALARMS, Change, unequal, welch

DRIFT = 0.05
"""A change from half to half is told from this on, if it is not chance."""
UNEVEN, VERY_UNEVEN = 1.2, 2.0
"""Fastest over slowest session of a rung."""
PHASE_VARIANCE = 1 / 6
"""Of the calls that one session ends in a span: the variance of two rounding errors (1/12 each)."""
_BLOCKS = 10

Series = Sequence[tuple[float, float]]  # (middle of the span in s since t0, rate)


def drift(case: Case) -> Iterator[Claim]:
    """First half of a window against the second: calls a second, or on somebody else's load the number of
    sessions that are served."""
    tested = [(change, c) for c in case.usable() if (change := _change(case, c)) is not None]
    limit = FALSE_ALARMS / max(1, len(tested))
    found = [(f, c) for f, c in tested if f.p < limit and abs(f.relative) >= DRIFT]
    if not found:
        return
    worst, cell = max(found, key=lambda f: abs(f[0].relative))
    yield claim(
        "drift",
        {
            "measurements": case.many(len(found)),
            "place": at(cell, case),
            "first": worst.first,
            "second": worst.second,
            "change": worst.relative,
            "table": "table samples" if case.observed else "table progress",
            "p": worst.p,
            "limit": limit,
            "alarms": FALSE_ALARMS,
        },
        worst.relative,
        case="observed" if case.observed else "run",
        severity="note" if case.observed else None,
        cells=ids([c for _, c in found]),
    )


@of_cell
def _change(case: Case, cell: Row) -> Change | None:
    series = _at_work(case, cell) if case.observed else _progress(case, cell)
    half = cell["wall_s"] / 2
    first, second = ([v for t, v in series if (t < half) == early] for early in (True, False))
    least = 0.0 if case.observed else PHASE_VARIANCE * cell["sessions"] / half**2
    return welch(first, second, least)


def _progress(case: Case, cell: Row) -> Series:
    """Calls a second between the times that the driver was asked."""
    asked = case.table("cell_progress", cell["cell"]).sort("at_ns")
    asked = asked.filter(pl.col("at_ns").is_between(cell["t0_ns"], cell["t1_ns"]))
    span = pl.col("at_ns").diff()
    middle = (pl.col("at_ns") - span / 2 - cell["t0_ns"]) / NS_PER_S
    rates = asked.select(middle=middle, rate=pl.col("calls").diff() / span * NS_PER_S).drop_nulls()
    return [(float(t), float(v)) for t, v in rates.rows()]


def _at_work(case: Case, cell: Row) -> Series:
    """Mean number of sessions not asleep at their client, in ten parts of the window: neighbouring samples
    see the same calls, parts of a second hardly."""
    served = case.table("served", cell["cell"])
    via = served["via"].mode().sort()
    if not len(via):
        return []
    length = (cell["t1_ns"] - cell["t0_ns"]) / _BLOCKS
    block = ((pl.col("at_ns") - cell["t0_ns"]) / length).floor()
    means = served.filter(via=via[0]).group_by(block=block, maintain_order=True).agg(pl.col("n").mean())
    return [((b + 0.5) * length / NS_PER_S, float(n)) for b, n in means.rows()]


def uneven_sessions(case: Case) -> Iterator[Claim]:
    """The rung whose fastest session is furthest from its slowest, if that is not chance."""
    found = [(low, high, p, c) for c in case.usable() for low, high, p in _spread(case, c)]
    limit = FALSE_ALARMS / max(1, len(found))
    found = [f for f in found if f[1] > UNEVEN * f[0] and f[2] < limit]
    if not found:
        return
    low, high, _, cell = max(found, key=lambda f: f[1] / f[0])
    yield claim(
        "uneven-sessions",
        {"place": at(cell, case), "low": low, "high": high, "ratio": high / low, "limit": limit},
        high / low,
        severity="warning" if high > VERY_UNEVEN * low else None,
        cells=ids([f[3] for f in found]),
    )


@of_cell
def _spread(case: Case, cell: Row) -> list[tuple[float, float, float]]:
    """Slowest and fastest session, and how likely their differences are by chance."""
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    sessions = case.table("cell_sessions", cell["cell"]).filter(
        (pl.col("calls") > 1) & (pl.col("end_reason") != "lost") & (span > 0)
    )
    if sessions.height < 2:
        return []
    n, mean = pl.col("calls"), pl.col("in_call_ns") / pl.col("calls")
    variance = (pl.col("sum_sq_ns2") / n - mean * mean).clip(0) / (mean * mean)
    rates = sessions.select(rate=n * NS_PER_S / span, relative=(variance / (n - 1)).clip(1e-8))
    values = [float(v) for v in rates["rate"]]
    variances = [float(v) for v in rates.select(pl.col("relative") * pl.col("rate") ** 2).to_series()]
    return [(min(values), max(values), unequal(values, variances))]
