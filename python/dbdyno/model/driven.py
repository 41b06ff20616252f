"""What sessions that we drive did within the window, from their measured calls.

A session's measured calls start in [t0, t1) and the last one may end later, so their sum is divided by the
session's own span (first start to last end) and taken times the part of the window in which it lived: a
call in flight at t0 is then in it, and what lies beyond t1 is not.
"""

from __future__ import annotations

import polars as pl

from dbdyno.model.units import NS_PER_S

_EARLY = ("lost", "aborted", "limit")


def calls_per_s(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> float | None:
    """Calls a second of the window, all sessions. ``None``: no measured calls."""
    return _sum(sessions, pl.col("calls") * NS_PER_S, 0.0, t0_ns, t1_ns)


def in_call(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> float | None:
    """Seconds a second in calls that end well, all sessions: DB time by the driver's clock.

    A session whose one call spans the whole window was in it all the time. ``None``: no measured calls.
    """
    throughout = (pl.col("straddle_in") > 0) & (pl.col("calls") + pl.col("errors") == 0)
    return _sum(sessions, pl.col("in_call_ns"), pl.when(throughout).then(1.0).otherwise(0.0), t0_ns, t1_ns)


def _sum(
    sessions: pl.DataFrame, amount: pl.Expr, otherwise: pl.Expr | float, t0_ns: int, t1_ns: int
) -> float | None:
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    end = pl.when(pl.col("end_reason").is_in(_EARLY)).then(pl.min_horizontal("last_end_ns", pl.lit(t1_ns)))
    alive = (end.otherwise(t1_ns) - t0_ns).clip(0) / (t1_ns - t0_ns)
    each = pl.when(span > 0).then(amount / span * alive).otherwise(otherwise)
    total = float(sessions.select(each.sum()).item() or 0.0)
    return total if total > 0 else None
