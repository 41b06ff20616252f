"""Raking: iterative proportional fitting of the joint table to exact margins (Deming and Stephan 1940)."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.account.ledger.sample_rows import LABEL

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
SWEEPS = 200
LABELLED = 0.02
"""Seed of run : run queue under a wait label, against 1 : 1 without one. A labelled session is runnable
because it was woken and waits for a CPU; the CPU time under its label is the two ends of a system call."""
EVEN = ("IO",)
"""Classes whose waits may be CPU time at heart: a read that the OS cache serves never sleeps."""


def ipf(seed: Floats, group: NDArray[np.int64], rows: Floats, columns: Floats) -> Floats:
    """``seed`` fitted to the totals of its rows and, for each group of rows, of its columns.

    ``seed`` (n, c); ``group`` (n,): number of the table each row belongs to; ``rows`` (n,): row totals;
    ``columns`` (tables, c): column totals. Rows and columns are scaled in turn until the rows' totals are
    within 1e-9 of their table's, or 200 times; column totals are exact in the end. Margins that contradict
    one another, or zeros in the seed that forbid them, leave the rows' totals unmet.
    """
    fitted = seed.astype(np.float64)
    tables, width = columns.shape
    whole = np.maximum(_sums(group, rows, tables), np.finfo(np.float64).tiny)[group]
    for _ in range(SWEEPS):
        fitted *= _ratio(rows, fitted.sum(axis=1))[:, None]
        sums = np.stack([_sums(group, fitted[:, j], tables) for j in range(width)], axis=1)
        fitted *= _ratio(columns, sums)[group]
        if not len(rows) or np.max(np.abs(fitted.sum(axis=1) - rows) / whole) < TOLERANCE:
            break
    return fitted


def _sums(group: NDArray[np.int64], values: Floats, size: int) -> Floats:
    return np.bincount(group, values, size).astype(np.float64)


def _ratio(want: Floats, have: Floats) -> Floats:
    """``want / have``; 0 where there is nothing to scale."""
    return np.divide(want, have, out=np.zeros_like(have), where=have > 0)


def run_shares(labels: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """How much of each label's runnable time was on a CPU: ``share``, and the range over seeds.

    ``labels``: per task and label ``weight``, the samples' weight found runnable. ``tasks``: ``task``,
    ``run_ns``, ``runq_ns``. ``share_low`` and ``share_high`` let the seed of each labelled class be anything
    from 0 (no CPU time under a label) to 1 (as without a label), each for itself; they are within Frechet's
    bounds max(0, r - runq) <= run <= min(r, run).
    """
    table = labels.join(tasks.select("task", "run_ns", "runq_ns"), on="task", maintain_order="left")
    index = table["task"].rank("dense").cast(pl.Int64).to_numpy() - 1
    run, runq = (table[n].cast(pl.Float64).to_numpy() for n in ("run_ns", "runq_ns"))
    weight = table["weight"].cast(pl.Float64).to_numpy()
    size = int(index.max()) + 1 if len(index) else 0
    both = run + runq
    rows = both * _ratio(weight, _sums(index, weight, size)[index])
    columns = np.zeros((size, 2))
    columns[index, 0], columns[index, 1] = run, runq
    free = table["wait_class"].is_null().to_numpy()
    even = free | table["wait_class"].is_in(EVEN).fill_null(False).to_numpy()
    seed = np.stack([np.where(even, 1.0, LABELLED), np.ones(len(rows))], axis=1)
    fitted = ipf(seed, index, rows, columns)
    low, high = _range(rows, run, both, free, _sums(index, rows * free, size)[index])
    shares = {"share": fitted[:, 0], "share_low": low, "share_high": high}
    return table.select("task", *LABEL).with_columns(
        pl.Series(name, np.clip(_ratio(part, rows), 0.0, 1.0)) for name, part in shares.items()
    )


def _range(
    rows: Floats, run: Floats, both: Floats, free: NDArray[np.bool_], frees: Floats
) -> tuple[Floats, Floats]:
    """Least and most CPU time of each row over all seeds in [0, 1] of the labelled rows.

    With odds 0 or 1 a fit of two columns has a closed form: rows of odds 1 share the CPU time evenly, and
    rows of odds 0 get what is over. A row has the most where the other labelled ones have odds 0.
    """
    least = np.where(free, rows * _ratio(run, both), np.maximum(0.0, run - (both - rows)))
    beside = np.where(free, frees, frees + rows)
    most = rows * np.minimum(1.0, _ratio(run, beside))
    return least, most
