"""A ladder as points, and the models fitted to it: the types shared by the rooms that fit, conclude and
present.

Units: load in sessions (or threads, processors, calls due per second: ``load_unit``), throughput in
``throughput_unit`` (per second), times in seconds, CPU in CPU seconds per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.claim import Estimate as Estimate
from dbdyno.model.schema.tables import Frame

POINTS: dict[str, type[pl.DataType]] = {
    "load": pl.Float64,  # 1 or more
    "repeat": pl.Int64,  # 1, 2, ...: points of one repeat were measured in one climb of the ladder
    "throughput": pl.Float64,  # above 0
    "response_s": pl.Float64,  # mean per unit of work as seen by the session; NULL if not measured
    "response_p95_s": pl.Float64,
    "cpu": pl.Float64,  # CPU seconds per second of the sessions' own processes
    "cpu_user": pl.Float64,
    "cpu_system": pl.Float64,
    "cpu_wait": pl.Float64,  # run queue, seconds per second
    "tasks": pl.Float64,  # mean number of tasks; NULL if each session is a single task
}
"""Columns of ``Ladder.points``, with one row per rung and repeat, sorted by load and repeat. All columns but
the first three may be NULL."""

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
    """The machine that carried the load. ``None`` means unknown."""

    cpus: float | None = None
    """Logical CPUs that may be used, that is hardware threads; a quota or cpuset may reduce them."""
    cores: float | None = None
    """Physical cores of these CPUs."""
    threads_per_core: int | None = None
    model: str | None = None
    quota: bool = False
    """Whether a quota of CPU time decides ``cpus``: it belongs to the server alone, and no cores belong to
    it."""


@dataclass(frozen=True)
class Ladder:
    """Measured points of one workload on one machine under one variant."""

    name: str
    points: Frame
    throughput_unit: str = "calls/s"
    load_unit: str = "sessions"
    machine: Machine = Machine()
    think_s: float | None = None
    """Pause between calls; ``None`` if unknown, and then taken as zero."""
    notes: tuple[str, ...] = ()
    """Points that were left out or reordered on reading."""
    workload: str | None = None
    """The workload of a ladder that belongs to a run. It is the key to the run's tables."""
    variant: str | None = None
    of_work: str = ""
    """The unit of work that the times refer to (``LIO``). It is empty if they are response times of whole
    calls."""
    axis: str | None = None
    """Set if the loads are numbers of threads within a job. Each is then a variant of its own, ``variant``
    is ``None``, and this text is the part that these variants have in common (``level=9``), or empty."""
    outliers: tuple[tuple[float, float], ...] = ()
    """Load and throughput of measurements that do not fit between their neighbours. They are not among the
    points."""
    broken_from: float | None = None
    """Load from which on throughput collapses. Models are fitted to the loads below it."""
    disturbed: tuple[float, ...] = ()
    """Loads at which others took much of the CPUs. Conclusions that rest on them are in doubt."""
    by_rate: bool = False
    """The load is the number of calls that become due per second. The delivered rate follows it up to the
    capacity, so models of sessions and Little's law by their number do not apply."""

    @property
    def time_name(self) -> str:
        """The name of ``response_s`` and of load divided by throughput: ``response time`` or ``time per
        LIO``."""
        return f"time per {self.of_work}" if self.of_work else "response time"


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
    """Akaike weight by AICc among the fitted models, 0..1."""
    weight_bic: float
    peak: Estimate | None = None
    """Load of the largest throughput; ``None`` if the model has no maximum or a plateau."""
    peak_throughput: Estimate | None = None
    knees: tuple[Estimate, ...] = ()
    """Loads at which the growth changes, ascending."""
    durbin_watson: float | None = None
    autocorrelation_p: float | None = None
    """Two-sided p of the hypothesis that residuals, in order of load, are independent."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scaling:
    """All models fitted to a ladder."""

    ladder: Ladder
    fits: tuple[Fitted, ...]
    """The fitted models, best first by AICc. It is empty if none could be fitted; ``refused`` gives the
    reason."""
    curve: Frame
    """The curve of the best fit: ``load``, ``throughput``, ``low``, ``high`` (95 % band of the mean),
    ``response_s``, ``perfect`` (throughput with an efficiency of 1), ``beyond`` (outside the range of
    measured loads)."""
    residuals: Frame
    """One row per point: ``load``, ``repeat``, ``throughput``, ``predicted``, ``residual``, ``efficiency``
    (throughput per load, relative to that at the lowest load)."""
    refused: tuple[str, ...] = ()
    """Questions that the data cannot answer, in words."""
    notes: tuple[str, ...] = ()
    answers: tuple[Claim, ...] = field(default=())
    regressions: tuple[Regression, ...] = ()
    """Regressions of CPU on work, one per regime; empty if CPU was not measured."""

    @property
    def best(self) -> Fitted | None:
        return self.fits[0] if self.fits else None

    def fit(self, model: str) -> Fitted | None:
        return next((f for f in self.fits if f.model == model), None)


# Two machines compared with the same work, at equal load and at their peaks.

How = Literal["measured", "interpolated", "fitted"]


@dataclass(frozen=True)
class Speed:
    """One quantity of both machines and its ratio B / A. ``None`` means unknown; ``reason`` gives the
    cause."""

    what: str
    unit: str
    a: Estimate | None = None
    b: Estimate | None = None
    ratio: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class AtLoad:
    """Both machines at the same load."""

    load: float
    throughput: Speed
    response: Speed
    """Mean response time in seconds; with a ratio above 1, B takes longer."""
    how: How
    """``interpolated``: one machine was not measured at this load, only below and above it. ``fitted``: one
    machine has no repeats, so its value is that of its model."""


@dataclass(frozen=True)
class Machines:
    """Machine B compared with machine A, the baseline."""

    a: Ladder
    b: Ladder
    names: tuple[str, str]
    one_session: Speed
    """Throughput of a single session, that is the speed of one thread."""
    at_loads: tuple[AtLoad, ...]
    """Loads within both ranges at which at least one machine was measured, ascending."""
    crossings: tuple[Estimate, ...]
    """Loads at which the faster machine changes. A bound is ``None`` if it lies outside the common range."""
    peak: Speed
    """Highest throughput of each machine at a measured load."""
    peak_loads: tuple[float, float]
    per_core: Speed
    """Peak throughput per physical core."""
    per_thread: Speed
    """Peak throughput per logical CPU."""
    per_cpu_second: Speed
    """Throughput at the peak divided by the CPU used there: the work done by a second of CPU."""
    claims: tuple[Claim, ...]
    notes: tuple[Claim, ...] = ()


# A regression gives the CPU cost of a unit of work, and the CPU used without any work.

PARTS = ("cpu", "user", "system")
"""Total CPU, and the two parts that add up to it."""

REGRESSION_POINTS: dict[str, type[pl.DataType]] = {
    "load": pl.Float64,  # NULL in a time series
    "repeat": pl.Int64,  # NULL in a time series
    "work": pl.Float64,  # work of the first kind, per second
    "cpu": pl.Float64,  # CPU seconds per second
    "predicted": pl.Float64,
    "residual": pl.Float64,
    "leverage": pl.Float64,  # 0..1
    "cook": pl.Float64,  # Cook's distance; NULL if the point alone determines the fit
}
"""Columns of ``Regression.points``, with one row per point in the order of the input."""


@dataclass(frozen=True)
class Part:
    """The regression of total CPU, of its user time or of its system time."""

    name: str
    slopes: tuple[Estimate, ...]
    """CPU seconds per unit of work, one for each kind of work."""
    background: Estimate
    """CPU seconds per second at zero work."""
    r_squared: float | None
    """``None`` if CPU does not vary."""
    residual_sd: float
    """CPU seconds per second."""

    @property
    def slope(self) -> Estimate:
        return self.slopes[0]


@dataclass(frozen=True)
class Regression:
    """A regression of CPU on work in one regime. If there are no parts, ``refused`` gives the reason."""

    name: str
    regime: str
    """``up to 4 sessions``, ``above 4 sessions, oversubscribed``, ``all windows``, ..."""
    work_units: tuple[str, ...]
    n: int
    degrees: int
    method: str
    """The method of the standard errors and intervals."""
    parts: tuple[Part, ...]
    """The regression of total CPU first, then user and system if known."""
    points: Frame
    ratio: Estimate | None = None
    """Total CPU divided by all work of the first kind, background included. It is known even without a
    slope."""
    durbin_watson: float | None = None
    autocorrelation_p: float | None = None
    """Two-sided p of the hypothesis that residuals, in order of time or load, are independent."""
    breusch_pagan_p: float | None = None
    """p of the hypothesis that errors have the same variance at all amounts of work."""
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def part(self, name: str) -> Part | None:
        return next((p for p in self.parts if p.name == name), None)

    @property
    def total(self) -> Part | None:
        return self.part("cpu")
