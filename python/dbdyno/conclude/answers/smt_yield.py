"""Threads against cores: what a core's further threads yield, and how many cores were in use. Pure.

A core of m threads is charged to its tasks by the thread: with all of them busy m thread-seconds pass in one
core-second. The *yield* is what such a core delivers, with one busy thread as 1: between 1 and m. CPU per
unit of work, as the operating system charges it, then rises by m / yield (2 / yield with two threads), though
nothing has become slower but the sharing.
"""

from __future__ import annotations

from dbdyno.model.errors import UsageError

NEAR = 0.15
"""A knee this near to the number of cores, relative to it, is taken for the cores' (half a core at least)."""


def yield_of_slopes(ratio: float, threads_per_core: int) -> float:
    """Of a core with all threads busy: 1 + (m - 1) r, where beyond the cores growth is r times that below.

    With X(N) = x N up to K cores and x r for each further thread, X(m K) / X(K) = 1 + (m - 1) r.
    """
    return 1 + (threads_per_core - 1) * ratio


def inflation(core_yield: float, threads_per_core: int = 2) -> float:
    """How many times the CPU seconds a unit of work is charged when all siblings are busy: m / yield.

    Raises :class:`UsageError` for a yield that is not above 0.
    """
    if core_yield <= 0:
        raise UsageError(f"a yield of {core_yield:g} is none", "throughput of a full core over one thread's")
    return threads_per_core / core_yield


def near_cores(knee: float, low: float | None, high: float | None, cores: float) -> bool:
    """Whether a knee may be that of the cores: by its interval, or nearer than :data:`NEAR`."""
    inside = low is not None and high is not None and low <= cores <= high
    return inside or abs(knee - cores) <= max(0.5, NEAR * cores)
