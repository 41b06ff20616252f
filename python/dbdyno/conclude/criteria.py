"""What counts as what: each criterion once."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.estimate import Estimate

CPU_WAIT = 0.05
"""Of session time in the run queue: less is not called CPU WAIT."""


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


def _lower(share: Estimate) -> float:
    return share.value if share.low is None else share.low


def _upper(share: Estimate) -> float:
    return share.value if share.high is None else share.high
