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
    return _sum(sessions, pl.col("in_call_ns"), _whole(), t0_ns, t1_ns)


def each_in_call(sessions: pl.DataFrame, t0_ns: int, t1_ns: int) -> pl.DataFrame:
    """Per session: ``alive`` (the part of the window in which it lived) and ``in_call``, as shares of it.

    ``in_call``: NULL without measured calls.
    """
    known = (pl.col("last_end_ns") > pl.col("first_start_ns")) | _throughout()
    spent = _each(pl.col("in_call_ns"), _whole(), t0_ns, t1_ns)
    return sessions.select(
        "session", alive=_alive(t0_ns, t1_ns), in_call=pl.when(known.fill_null(False)).then(spent)
    )


def _throughout() -> pl.Expr:
    return (pl.col("straddle_in") > 0) & (pl.col("calls") + pl.col("errors") == 0)


def _whole() -> pl.Expr:
    return pl.when(_throughout()).then(1.0).otherwise(0.0)


def _alive(t0_ns: int, t1_ns: int) -> pl.Expr:
    end = pl.when(pl.col("end_reason").is_in(_EARLY)).then(pl.min_horizontal("last_end_ns", pl.lit(t1_ns)))
    return (end.otherwise(t1_ns) - t0_ns).clip(0) / (t1_ns - t0_ns)


def _each(amount: pl.Expr, otherwise: pl.Expr | float, t0_ns: int, t1_ns: int) -> pl.Expr:
    span = pl.col("last_end_ns") - pl.col("first_start_ns")
    return pl.when(span > 0).then(amount / span * _alive(t0_ns, t1_ns)).otherwise(otherwise)


def _sum(
    sessions: pl.DataFrame, amount: pl.Expr, otherwise: pl.Expr | float, t0_ns: int, t1_ns: int
) -> float | None:
    total = float(sessions.select(_each(amount, otherwise, t0_ns, t1_ns).sum()).item() or 0.0)
    return total if total > 0 else None
