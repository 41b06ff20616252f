"""Quantities that are compared: names, in which direction they are good, what floors their error."""

from __future__ import annotations

import math
from typing import NamedTuple


class Metric(NamedTuple):
    name: str
    """As in table ``rates``."""
    title: str
    unit: str
    """Of both, ``{work}`` is the workload's work unit."""
    higher_is_better: bool
    within: str | None = None
    """The rate whose relative standard error inside the window holds for this one, too."""
    resolution: float = 0.0
    """Relative width of the steps in which it is told."""

    @property
    def rounding(self) -> float:
        """Standard deviation of rounding to these steps, relative (uniform distribution)."""
        return self.resolution / math.sqrt(12)


_BUCKET = 0.001
"""Of the histogram: three significant digits."""

_TICK = 0.0005
"""The scheduler's own books are up to a tick old: 4 ms, of windows of some 10 s."""
_COUNTED = 1e-6
"""Counts and times of a clock: repeats that agree to that are no accident."""

METRICS = (
    Metric("work_per_s", "{work} per second", "{work}/s", True, "calls_per_s", _COUNTED),
    Metric("calls_per_s", "calls per second", "calls/s", True, "calls_per_s", _COUNTED),
    Metric("response_mean_ns", "response time, mean", "ns", False, "response_mean", _COUNTED),
    Metric("response_p50_ns", "response time, median", "ns", False, None, _BUCKET),
    Metric("response_p95_ns", "response time, 95 %", "ns", False, None, _BUCKET),
    Metric("response_p99_ns", "response time, 99 %", "ns", False, None, _BUCKET),
    Metric("cpu_per_call_ns", "server CPU of a call", "ns", False, None, _TICK),
    Metric("cpu_per_work_ns", "server CPU of a {work}", "ns", False, None, _TICK),
    Metric("client_cpu_per_call_ns", "client CPU of a call", "ns", False, None, _TICK),
    Metric("round_trips_per_call", "round trips of a call", "", False, None, _COUNTED),
)
BY_NAME = {m.name: m for m in METRICS}
RANKING = ("work_per_s", "calls_per_s")
"""The first of these that is known everywhere ranks."""

_WITHIN = {
    "calls_per_s": ("calls_per_s", "calls_per_s_se"),
    "response_mean": ("response_mean_ns", "response_mean_se_ns"),
}


def within_of(metric: Metric, rates: dict[str, float | None]) -> float | None:
    """Relative standard error of a window's own figure, from its rung's rates; ``None``: not known."""
    if metric.within is None:
        return None
    value, error = (rates.get(name) for name in _WITHIN[metric.within])
    return error / value if value and error is not None else None


def least_error(metric: Metric, rates: dict[str, float | None]) -> float:
    """Relative: what happens within the window, or the steps in which the figure is told."""
    return max(within_of(metric, rates) or 0.0, metric.rounding)
