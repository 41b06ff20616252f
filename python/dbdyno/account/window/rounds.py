"""Rounds: calls that all sessions began together (driver.rounds), if all were measured."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell


def cut_rounds(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``rounds``. A session's n-th call belongs to round n. A round with a failed,
    unmeasured or missing call is left out."""
    return for_each("rounds", (c for c in cells if c.meta.cell.driver.rounds), _rounds)


def _rounds(cell: RawCell) -> pl.DataFrame:
    calls = cell.tables["calls"].sort("session", "start_ns")
    numbered = calls.with_columns(round=pl.col("session").cum_count().over("session").cast(pl.Int64))
    whole = numbered.group_by("round").agg(
        whole=(pl.len() == cell.meta.cell.sessions) & (pl.col("ok") & pl.col("measured")).all()
    )
    kept = numbered.join(whole.filter("whole"), on="round").sort("round", "session")
    return kept.select("round", "session", "start_ns", "duration_ns", "cpu", "migrations")
