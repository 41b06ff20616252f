"""What counts as what: each criterion once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.conclude import number_format as fmt
from dbdyno.model.claim import Estimate
from dbdyno.stats import change_points

CPU_WAIT = 0.05
"""Share of session time in the run queue: less is not called CPU WAIT."""

LOG_RECORD = 24.0
"""Bytes of WAL: the shortest record. A call that changes rows writes at least one."""
STRAY_LOG = 65_536.0
"""Bytes of WAL that a load that only reads may write in a measurement: hint bits and the server's own changes
to its catalogue. They touch a few pages, however many calls are made; a logged page takes about 8 kB."""


def writes_as_planned(per_call: float, calls: float | None, changing: bool) -> bool:
    """Whether the sessions' own WAL (bytes per call) is what calls that change rows, or only read, write."""
    wrote = per_call >= LOG_RECORD
    return wrote if changing else not wrote or per_call * (calls or 0.0) <= STRAY_LOG


LEAST_RUNS = change_points.LEAST
"""Of a history: with fewer no change is looked for."""
level_changes, level_outliers = change_points.changes, change_points.outliers
"""When the level of a history changed, beyond chance; which runs lie far from the level around them."""


def begins(shares: Sequence[tuple[float, Estimate]]) -> int | None:
    """Where CPU WAIT begins: the first of ``shares`` (load, share of session time in the run queue; by load)
    that is above :data:`CPU_WAIT` and above the one at the lowest load, both beyond their intervals. Index 0:
    at the lowest load already. ``None``: nowhere."""
    if not shares:
        return None
    if _lower(shares[0][1]) > CPU_WAIT:
        return 0
    floor = max(CPU_WAIT, _upper(shares[0][1]))
    return next((i for i, (_, s) in enumerate(shares) if i and _lower(s) > floor), None)


def waiting(runq: Sequence[pl.DataFrame], load: float) -> Estimate | None:
    """Share of session time in the run queue at ``load``, of the ledger's rows of each repeat, all known:
    with Student's interval over repeats, of a single repeat the ledger's own. ``None``: no rows."""
    found = fmt.estimate("share", [float(rows["aas"].sum()) / load for rows in runq], share=True)
    if found is None or len(runq) > 1 or runq[0]["low"].null_count() or runq[0]["high"].null_count():
        return found
    low, high = (float(runq[0][end].sum()) / load for end in ("low", "high"))
    return Estimate("share", found.value, "", low, high, "ledger")


def _lower(share: Estimate) -> float:
    return share.value if share.low is None else share.low


def _upper(share: Estimate) -> float:
    return share.value if share.high is None else share.high
