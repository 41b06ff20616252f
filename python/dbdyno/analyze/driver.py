"""Was the driver itself in the way?

A driver thread that waits for a CPU delays the answers that it should take. On one machine with the
server it often has to wait, and with long calls that does not matter; so two shares are looked at:

- starved: its run-queue time over its runnable time (run + run queue);
- delay: its run-queue time over the time that the sessions spent in calls: what it adds to responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.model.units import NS_PER_S

STARVED = 0.05
DELAY = 0.01
STARVED_INVALID = 0.20
DELAY_INVALID = 0.10
"""Beyond both, what was measured is the driver: the rung is invalid."""

MACHINE_SHARE = 0.10
"""More of the machine's CPUs than this the driver should not take."""

Figures = Mapping[str, float | None]


class Starvation(NamedTuple):
    starved: float
    delay: float

    @property
    def matters(self) -> bool:
        return self.starved > STARVED and self.delay > DELAY

    @property
    def invalid(self) -> bool:
        return self.starved > STARVED_INVALID and self.delay > DELAY_INVALID


def starvation(figures: Figures) -> Starvation | None:
    """From the rung's rates; ``None`` where one of them is unknown."""
    starved, runq = figures.get("driver_starved"), figures.get("driver_runq")
    rate, response_ns = figures.get("calls_per_s"), figures.get("response_mean_ns")
    if starved is None or runq is None or not rate or not response_ns:
        return None
    return Starvation(starved, runq * NS_PER_S / (rate * response_ns))


def is_invalid(figures: Figures) -> bool:
    found = starvation(figures)
    return found is not None and found.invalid
