"""Raking: iterative proportional fitting of a table to exact margins (Deming and Stephan 1940)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
SWEEPS = 200


def ipf(seed: Floats, group: NDArray[np.int64], rows: Floats, columns: Floats) -> Floats:
    """Returns ``seed`` scaled to the totals of its rows and, for each group of rows, of its columns.

    ``seed`` (n, c); ``group`` (n,): number of the table that each row belongs to; ``rows`` (n,): row
    totals; ``columns`` (tables, c): column totals. Rows and columns are scaled in turn until the row
    totals are within 1e-9 of their table's, or 200 times; column totals are exact at the end. Row totals
    are not met if margins contradict each other, or zeros of the seed forbid them.
    """
    fitted = seed.astype(np.float64)
    tables, width = columns.shape
    # The smallest normal number keeps an empty table from a division by zero.
    whole = np.maximum(sums_of(group, rows, tables), np.finfo(np.float64).tiny)[group]
    for _ in range(SWEEPS):
        fitted *= ratio(rows, fitted.sum(axis=1))[:, None]
        sums = np.stack([sums_of(group, fitted[:, j], tables) for j in range(width)], axis=1)
        fitted *= ratio(columns, sums)[group]
        if not len(rows) or np.max(np.abs(fitted.sum(axis=1) - rows) / whole) < TOLERANCE:
            break
    return fitted


def sums_of(group: NDArray[np.int64], values: Floats, size: int) -> Floats:
    """Returns the sum of ``values`` in each of ``size`` groups."""
    return np.bincount(group, values, size).astype(np.float64)


def ratio(want: Floats, have: Floats) -> Floats:
    """Returns ``want / have``; 0 if ``have`` is 0."""
    return np.divide(want, have, out=np.zeros_like(have), where=have > 0)
