"""A ladder as points, and what models say of it: the words between the rooms that fit, answer and show.

Units: load in sessions (or threads, processors, calls/s due: ``load_unit``), throughput in
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
    "repeat": pl.Int64,  # 1, 2, ...: points of one repeat were measured in one climb
    "throughput": pl.Float64,  # above 0
    "response_s": pl.Float64,  # mean per unit of work as the session saw it; NULL: not measured
    "response_p95_s": pl.Float64,
    "cpu": pl.Float64,  # CPU seconds per second of the sessions' own processes
    "cpu_user": pl.Float64,
    "cpu_system": pl.Float64,
    "cpu_wait": pl.Float64,  # run queue, seconds per second
    "tasks": pl.Float64,  # of commands: tasks on average; NULL: sessions are single tasks
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
    of_work: str = ""
    """The unit of work that its times are of (``LIO``); empty: they are response times, of whole calls."""
    axis: str | None = None
    """Its loads are numbers of threads within a job, each a variant of its own, and ``variant`` is ``None``:
    what these variants have in common (``level=9``), or nothing."""
    outliers: tuple[tuple[float, float], ...] = ()
    """Load and throughput of measurements that do not fit between their neighbours: not among the points."""
    broken_from: float | None = None
    """Load from which on throughput has broken down: models are fitted to the loads below it."""
    by_rate: bool = False
    """The load is the rate at which calls become due, per second: what is delivered follows it up to the
    capacity. Models of sessions, and Little's law by their number, do not apply."""

    @property
    def time_name(self) -> str:
        """Of ``response_s``, and of load over throughput: ``response time``, ``time per LIO``."""
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
    ``perfect`` (with an efficiency of 1), ``beyond`` (outside the range fitted)."""
    residuals: Frame
    """Per point: ``load``, ``repeat``, ``throughput``, ``predicted``, ``residual``, ``efficiency``
    (throughput per load over that at the lowest load)."""
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


# Machine against machine: the same work on two of them, at equal load and at their peaks.

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
    per_cpu_second: Speed
    """Throughput at the peak over the CPU that it used: what a second of CPU delivers."""
    claims: tuple[Claim, ...]
    notes: tuple[Claim, ...] = ()


# CPU per unit of work, as a regression says it: what a unit costs, and what is used without any work.

PARTS = ("cpu", "user", "system")
"""All CPU, and the two that add up to it."""

REGRESSION_POINTS: dict[str, type[pl.DataType]] = {
    "load": pl.Float64,  # NULL: a time series
    "repeat": pl.Int64,  # NULL: a time series
    "work": pl.Float64,  # of the first kind, per second
    "cpu": pl.Float64,  # CPU seconds per second
    "predicted": pl.Float64,
    "residual": pl.Float64,
    "leverage": pl.Float64,  # 0..1
    "cook": pl.Float64,  # Cook's distance; NULL: the point alone decides
}
"""Columns of ``Regression.points``: one row a point, in the order that was given."""


@dataclass(frozen=True)
class Part:
    """All CPU, its user or its system time."""

    name: str
    slopes: tuple[Estimate, ...]
    """CPU seconds per unit of work, one a kind of work."""
    background: Estimate
    """CPU seconds per second at zero work."""
    r_squared: float | None
    """``None``: CPU does not vary."""
    residual_sd: float
    """CPU seconds per second."""

    @property
    def slope(self) -> Estimate:
        return self.slopes[0]


@dataclass(frozen=True)
class Regression:
    """CPU on work in one regime. ``refused``: why there are no parts."""

    name: str
    regime: str
    """``up to 4 sessions``, ``above 4 sessions, oversubscribed``, ``all windows``, ..."""
    work_units: tuple[str, ...]
    n: int
    degrees: int
    method: str
    """How standard errors and intervals were made."""
    parts: tuple[Part, ...]
    """All CPU first; user and system where they are known."""
    points: Frame
    ratio: Estimate | None = None
    """All CPU over all work of the first kind, background included: what is known without a slope, too."""
    durbin_watson: float | None = None
    autocorrelation_p: float | None = None
    """Two-sided, that residuals are independent in the order of time, or of load."""
    breusch_pagan_p: float | None = None
    """That errors are as large at much work as at little."""
    notes: tuple[str, ...] = ()
    refused: str | None = None

    def part(self, name: str) -> Part | None:
        return next((p for p in self.parts if p.name == name), None)

    @property
    def total(self) -> Part | None:
        return self.part("cpu")
