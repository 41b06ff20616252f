"""A figure over successive runs of one workload with the same parameters on the same machine, or over
snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from dbdyno.model.plan.plan import Workload
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.schema.quantiles import TAILS


class Figure(NamedTuple):
    """The figure that a trend follows."""

    title: str
    column: str  # column of table rungs, or of an interval
    higher: bool | None  # whether higher is better; None if neither
    unit: str  # unit of the column: "ns", "work/s", "calls/s"
    by_call: bool = True  # whether it depends on the size of a call


FIGURES: Mapping[str, Figure] = {
    "throughput": Figure("Throughput", "work_per_s", True, "work/s", by_call=False),
    "calls": Figure("Calls", "calls_per_s", True, "calls/s"),
    "mean": Figure("Mean response time", "response_mean_ns", False, "ns"),
    "p50": Figure("Median response time", "response_p50_ns", False, "ns"),
    **{
        one.name: Figure(f"{one.name} of response times", one.response, False, "ns") for one in TAILS.values()
    },
    "cpu_per_call": Figure("CPU time per call", "cpu_per_call_ns", False, "ns"),
    "cpu_per_work": Figure("CPU time per work unit", "cpu_per_work_ns", False, "ns", by_call=False),
}
ALIASES = {
    "peak": "throughput",
    "lio_per_s": "throughput",
    "work_per_s": "throughput",
    "calls_per_s": "calls",
}


def column_of(name: str) -> str:
    """Returns the column of a figure's short name: ``p99.9`` is ``response_p999_ns``; other names as they
    are."""
    figure = FIGURES.get(ALIASES.get(name, name))
    return name if figure is None else figure.column


def short_name(column: str) -> str:
    """Returns the short name of a column's figure: ``p99.9``; other columns as they are."""
    return next((name for name, figure in FIGURES.items() if figure.column == column), column)


@dataclass(frozen=True)
class Point:
    """A run or snapshot with its value."""

    run: str
    name: str
    started: datetime
    value: float
    sessions: int
    flagged: bool = False
    """The measurement is unusable, for example because the client limited it. It is shown but left out of
    conclusions."""
    around: Mapping[str, str] | None = None
    """Versions and settings that may have changed as well."""
    remark: str = ""
    """The reason of the flag, if the measurement itself is usable, or a note on a gap before this point."""
    low: float | None = None
    high: float | None = None
    """95 % interval of a quantile, within the run; None if it has none."""


@dataclass(frozen=True)
class LeftOut:
    why: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A change of level. Positions are indices of points."""

    at: int
    """Index of the first point after the change."""
    low: int
    high: int
    """95 % interval of ``at``."""
    ratio: Estimate
    """Level after the change divided by the level before."""
    p: float


@dataclass(frozen=True)
class Trend:
    figure: Figure
    unit: str  # "LIO/s", "ns"
    what: str  # "lio at the peak"
    machine: str
    points: Sequence[Point]
    left_out: Sequence[LeftOut] = ()
    steps: Sequence[Step] = ()
    outliers: Sequence[int] = ()
    claims: tuple[Claim, ...] = ()
    thing: str = "run"
    """The kind of a point: a run, or an interval that ends with a snapshot."""
    workload: Workload | None = None
    """The workload of the runs; None for intervals and for scripts, whose names are in ``common``."""
    common: Mapping[str, str] = field(default_factory=dict)
    """Names and values that are the same in all runs: workload, parameters, machine, target."""
