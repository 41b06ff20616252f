"""A ladder as points, and what models say of it: the words between the rooms that fit, answer and show.

Units: load in sessions (or threads, processors: ``load_unit``), throughput in ``throughput_unit`` (per
second), times in seconds, CPU in CPU seconds per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.model.claim import Claim
from dbdyno.model.estimate import Estimate as Estimate
from dbdyno.model.frame import Frame

if TYPE_CHECKING:
    from dbdyno.model.regression import Regression

POINTS: dict[str, type[pl.DataType]] = {
    "load": pl.Float64,  # 1 or more
    "repeat": pl.Int64,  # 1, 2, ...: points of one repeat were measured in one climb
    "throughput": pl.Float64,  # above 0
    "response_s": pl.Float64,  # mean per unit of work as the session saw it; NULL: not measured
    "response_p95_s": pl.Float64,
    "cpu": pl.Float64,  # CPU seconds per second of the sessions' own processes
    "cpu_user": pl.Float64,
    "cpu_system": pl.Float64,
    "cpu_wait": pl.Float64,  # run queue, seconds per second
}
"""Columns of ``Ladder.points``: one row a rung and repeat, by load, then repeat. All but the first
three may be NULL."""

CURVE = dict.fromkeys(("load", "throughput", "low", "high", "response_s", "perfect"), pl.Float64) | {
    "beyond": pl.Boolean
}
"""Columns of ``Scaling.curve``."""
RESIDUALS = {
    "load": pl.Float64,
    "repeat": pl.Int64,
    "throughput": pl.Float64,
    "predicted": pl.Float64,
    "residual": pl.Float64,
    "efficiency": pl.Float64,
}
"""Columns of ``Scaling.residuals``."""


@dataclass(frozen=True)
class Machine:
    """What the load ran on. ``None``: not known."""

    cpus: float | None = None
    """Logical CPUs that may be used (hardware threads; less where a quota or cpuset says so)."""
    cores: float | None = None
    """Physical cores behind them."""
    threads_per_core: int | None = None
    model: str | None = None


@dataclass(frozen=True)
class Ladder:
    """Measured points of one workload on one machine under one variant."""

    name: str
    points: Frame
    throughput_unit: str = "calls/s"
    load_unit: str = "sessions"
    machine: Machine = Machine()
    think_s: float | None = None
    """Pause between calls; ``None``: not known, taken for none."""
    notes: tuple[str, ...] = ()
    """What was left out or put in order when it was read."""
    workload: str | None = None
    """Of a ladder of a run: what was climbed, by which its tables are found."""
    variant: str | None = None


@dataclass(frozen=True)
class Fitted:
    """One model fitted to a ladder."""

    model: str
    """linear | amdahl | usl | plateau | queue | repairman | one-knee | two-knees."""
    title: str
    formula: str
    cites: str
    parameters: tuple[Estimate, ...]
    rss: float
    degrees: int
    r_squared: float
    aic: float
    aicc: float
    bic: float
    weight: float
    """Akaike weight by AICc among those fitted, 0..1."""
    weight_bic: float
    peak: Estimate | None = None
    """Load of the largest throughput; ``None``: it has none, or it is a plateau."""
    peak_throughput: Estimate | None = None
    knees: tuple[Estimate, ...] = ()
    """Loads at which growth changes, ascending."""
    durbin_watson: float | None = None
    autocorrelation_p: float | None = None
    """Of residuals in the order of load, that they are independent; two-sided."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scaling:
    """What all models say of a ladder."""

    ladder: Ladder
    fits: tuple[Fitted, ...]
    """Best first (by AICc). Empty: nothing could be fitted, ``refused`` says why."""
    curve: Frame
    """The best fit: ``load``, ``throughput``, ``low``, ``high`` (95 % band of the mean), ``response_s``,
    ``perfect`` (one session's throughput times load), ``beyond`` (outside the measured range)."""
    residuals: Frame
    """Per point: ``load``, ``repeat``, ``throughput``, ``predicted``, ``residual``, ``efficiency``
    (throughput per load over that of one session)."""
    refused: tuple[str, ...] = ()
    """What the data cannot tell, in words."""
    notes: tuple[str, ...] = ()
    answers: tuple[Claim, ...] = field(default=())
    regressions: tuple[Regression, ...] = ()
    """CPU on work, one a regime; empty: CPU was not measured."""

    @property
    def best(self) -> Fitted | None:
        return self.fits[0] if self.fits else None

    def fit(self, model: str) -> Fitted | None:
        return next((f for f in self.fits if f.model == model), None)
