"""How much of a session's runnable time under each wait label was on a CPU: the joint table, raked."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.account.ledger.sample_rows import LABEL
from dbdyno.model.wait_families import STORAGE, WaitFamilies
from dbdyno.stats.raking import Floats, ipf, ratio, sums_of

LABELLED = 0.02
"""Seed of run : run queue under a wait label, against 1 : 1 without one. A labelled session is runnable
because it was woken and waits for a CPU; the CPU time under its label is the two ends of a system call."""
EVEN = STORAGE
"""Families whose waits may be CPU time at heart: a read that the OS cache serves never sleeps."""


def run_shares(labels: pl.DataFrame, tasks: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
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
    rows = both * ratio(weight, sums_of(index, weight, size)[index])
    columns = np.zeros((size, 2))
    columns[index, 0], columns[index, 1] = run, runq
    free = table["wait_class"].is_null().to_numpy()
    even = free | table.select(even=families.among(*EVEN))["even"].to_numpy()
    seed = np.stack([np.where(even, 1.0, LABELLED), np.ones(len(rows))], axis=1)
    fitted = ipf(seed, index, rows, columns)
    low, high = _range(rows, run, both, free, sums_of(index, rows * free, size)[index])
    shares = {"share": fitted[:, 0], "share_low": low, "share_high": high}
    return table.select("task", *LABEL).with_columns(
        pl.Series(name, np.clip(ratio(part, rows), 0.0, 1.0)) for name, part in shares.items()
    )


def _range(
    rows: Floats, run: Floats, both: Floats, free: NDArray[np.bool_], frees: Floats
) -> tuple[Floats, Floats]:
    """Least and most CPU time of each row over all seeds in [0, 1] of the labelled rows.

    With odds 0 or 1 a fit of two columns has a closed form: rows of odds 1 share the CPU time evenly, and
    rows of odds 0 get what is over. A row has the most where the other labelled ones have odds 0.
    """
    least = np.where(free, rows * ratio(run, both), np.maximum(0.0, run - (both - rows)))
    beside = np.where(free, frees, frees + rows)
    most = rows * np.minimum(1.0, ratio(run, beside))
    return least, most
