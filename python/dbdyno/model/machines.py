"""Machine against machine: the same work on two of them, at equal load and at their peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dbdyno.model.claim import Claim
from dbdyno.model.scaling import Estimate, Ladder

How = Literal["measured", "interpolated", "fitted"]


@dataclass(frozen=True)
class Speed:
    """One quantity of both machines and its ratio, B over A. ``None``: not known, ``reason`` says why."""

    what: str
    unit: str
    a: Estimate | None = None
    b: Estimate | None = None
    ratio: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class AtLoad:
    """Both machines at one load."""

    load: float
    throughput: Speed
    response: Speed
    """Mean response time in seconds; a ratio above 1 says that B takes longer."""
    how: How
    """``interpolated``: one of them was not measured at this load, but below and above. ``fitted``: one has
    no repeats, so that what is said of it is its model's."""


@dataclass(frozen=True)
class Machines:
    """B against A, which is the baseline."""

    a: Ladder
    b: Ladder
    names: tuple[str, str]
    one_session: Speed
    """Throughput of a single session: the speed of a thread."""
    at_loads: tuple[AtLoad, ...]
    """Loads that at least one of them was measured at and that both ranges hold, ascending."""
    crossings: tuple[Estimate, ...]
    """Loads where the faster one changes. An end ``None``: not within the common range."""
    peak: Speed
    """Highest throughput of each at a load that was measured."""
    peak_loads: tuple[float, float]
    per_core: Speed
    """Peak over physical cores."""
    per_thread: Speed
    """Peak over logical CPUs."""
    claims: tuple[Claim, ...]
    notes: tuple[Claim, ...] = ()
