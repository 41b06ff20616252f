"""Distributes sessions over the drivers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.literals import Spread
from dbdyno.stats.apportion import apportioned


def spread(
    sessions: int, cpus: Sequence[float], how: Spread = "even", per_driver: int | None = None
) -> list[int]:
    """Returns the number of sessions of each driver, in order. A driver with 0 stays idle. The sum is
    ``sessions``.

    ``cpus`` has the CPUs of each driver's host. ``per_driver`` is the maximum of a driver; the rest goes to
    the others. Raises :class:`UsageError` if there are too few drivers.
    """
    if not cpus:
        raise UsageError("the cluster has no node that can drive", "dbdyno cluster status shows roles")
    most = sessions if per_driver is None else per_driver
    if sessions > most * len(cpus):
        needed = -(-sessions // most)
        raise UsageError(
            f"{sessions} sessions on {len(cpus)} drivers of at most {most} each are too many",
            f"--drivers {needed}, or a larger --per-driver",
        )
    if how == "pack":
        if per_driver is None:
            raise UsageError("pack needs a number of sessions that fill a driver", "--per-driver 1000")
        return [max(0, min(most, sessions - n * most)) for n in range(len(cpus))]
    return _filled(sessions, [1.0] * len(cpus) if how == "even" else _weights(cpus), most)


def _weights(cpus: Sequence[float]) -> list[float]:
    return list(cpus) if any(cpus) else [1.0] * len(cpus)


def _filled(sessions: int, weights: Sequence[float], most: int) -> list[int]:
    """Distributes sessions in proportion to the weights, at most ``most`` each. Drivers that would exceed it
    are filled, and the others share the rest."""
    full: set[int] = set()
    while True:
        open_ = [n for n in range(len(weights)) if n not in full]
        left = sessions - most * len(full)
        rest = _weights([weights[n] for n in open_])
        shares = dict(zip(open_, apportioned(left, rest) if open_ else [], strict=True))
        over = {n for n, share in shares.items() if share > most}
        if not over:
            return [most if n in full else shares[n] for n in range(len(weights))]
        full |= over
