"""The metrics of all windows so far, as a collector of the library prometheus_client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dbdyno.model.text.visible import one_line
from dbdyno.present.metrics import records
from dbdyno.present.metrics.records import BUCKETS_S, BY_NAME, METRICS
from dbdyno.present.metrics.window import Sample, Window

MOST_VALUES = 200
"""Values that labels from one server may have; further ones are ``other``."""
LONGEST_VALUE = 100  # characters
OTHER = "other"
_BOUNDS = (*map(floatToGoString, BUCKETS_S), "+Inf")
Labels = tuple[str, ...]
Numbers = list[float]


class _Histogram(NamedTuple):
    buckets: Numbers
    sum: Numbers  # one number


class Sums:
    """Sums of counters and histograms over windows, and the gauges of the last window, by server.

    Sums only grow. They begin at 0 when dbdyno starts, which ``created_s`` records.
    """

    def __init__(self) -> None:
        self.created_s = time.time()
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}
        self._latest: dict[str, dict[str, dict[Labels, float]]] = {}  # by server, then metric
        self._ends_s: dict[str, float] = {}  # of the last window
        self._known: dict[tuple[str, Labels], set[Labels]] = {}

    def add(self, server: str, windows: Iterable[Window]) -> None:
        for window in windows:
            latest: dict[str, dict[Labels, float]] = {}
            for sample in (*window.samples, *self._unobserved(server, window)):
                kind = BY_NAME[sample.name].kind
                labels = (server, *self._bounded(server, sample))
                if kind == "counter":
                    sums = self._counters.setdefault(sample.name, {})
                    # rounding of differences may leave -1e-17, and a counter must not fall
                    sums[labels] = sums.get(labels, 0.0) + max(0.0, sample.value)
                elif kind == "histogram":
                    self._add_calls(labels, sample)
                else:
                    values = latest.setdefault(sample.name, {})
                    values[labels] = max(sample.value, values.get(labels, sample.value))
            if latest:
                self._latest[server] = latest

    def _unobserved(self, server: str, window: Window) -> Iterator[Sample]:
        """Yields the time since the end of the server's last window; 0 at the first, so that it grows from
        there."""
        if window.start_s is not None and window.end_s is not None:
            since_s = window.start_s - self._ends_s.get(server, window.start_s)
            self._ends_s[server] = window.end_s
            yield Sample("dbdyno_unobserved_seconds", (), since_s)

    def _add_calls(self, labels: Labels, sample: Sample) -> None:
        histograms = self._histograms.setdefault(sample.name, {})
        histogram = histograms.setdefault(labels, _Histogram([0.0] * len(_BOUNDS), [0.0]))
        for n, calls in enumerate(sample.buckets):
            histogram.buckets[n] += calls
        histogram.sum[0] += sample.value

    def _bounded(self, server: str, sample: Sample) -> Labels:
        """Returns the labels of a sample, each a line of limited length; values that a server invents are
        limited in number."""
        metric = BY_NAME[sample.name]
        values = dict(zip(metric.labels[1:], map(_clean, sample.labels), strict=True))
        if metric.open:
            known = self._known.setdefault((server, metric.open), set())
            value = tuple(values[name] for name in metric.open)
            if value not in known and len(known) >= MOST_VALUES:
                values |= dict.fromkeys(metric.open, OTHER)
            else:
                known.add(value)
        return tuple(values.values())

    def families(self, *, created: bool) -> Iterator[Metric]:
        """Yields the metrics that have values. ``created``: with the time from which sums count."""
        since = self.created_s if created else None
        for metric in METRICS:
            name, text, labels = metric.name, metric.help, metric.labels
            if metric.kind == "counter" and name in self._counters:
                counter = CounterMetricFamily(name, text, labels=labels, unit=metric.unit)
                for values, number in self._counters[name].items():
                    counter.add_metric(values, number, created=since)
                yield counter
            elif metric.kind == "histogram" and name in self._histograms:
                yield self._histogram(metric, since)
            elif name == "dbdyno_build":
                yield InfoMetricFamily("dbdyno_build", text, value={"version": records.VERSION})
            elif latest := [v for by_name in self._latest.values() for v in by_name.get(name, {}).items()]:
                gauge: GaugeMetricFamily | InfoMetricFamily
                if metric.kind == "info":
                    gauge = InfoMetricFamily(name, text)
                    for values, _ in latest:
                        gauge.add_metric((), dict(zip(labels, values, strict=True)))
                else:
                    gauge = GaugeMetricFamily(name, text, labels=labels, unit=metric.unit)
                    for values, number in latest:
                        gauge.add_metric(values, number)
                yield gauge

    def _histogram(self, metric: records.Metric, since: float | None) -> HistogramMetricFamily:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels, unit=metric.unit)
        for values, histogram in self._histograms[metric.name].items():
            calls, buckets = 0.0, []
            for bound, more in zip(_BOUNDS, histogram.buckets, strict=True):
                calls += more
                buckets.append((bound, calls))
            family.add_metric(values, buckets, histogram.sum[0])
            if since is not None:
                named = dict(zip(metric.labels, values, strict=True))
                family.add_sample(f"{metric.name}_created", named, since)
        return family


class Exposed(Collector):
    """The sums as a registry collects them. ``created``: with the time from which sums count, which
    OpenMetrics has; in the older text format it would be further gauges."""

    def __init__(self, sums: Sums, *, created: bool) -> None:
        self._sums, self._created = sums, created

    def collect(self) -> Iterator[Metric]:
        return self._sums.families(created=self._created)


def _clean(text: str) -> str:
    return one_line(text[:LONGEST_VALUE])
