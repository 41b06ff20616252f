"""Results for programs that follow figures over builds: Bencher, github-action-benchmark, Prometheus.

A figure that is unknown is left out, never 0, and so are load levels that the client limited or that are
unusable. Their formats:

- Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format
- tools customBiggerIsBetter and customSmallerIsBetter: https://github.com/benchmark-action/github-action-benchmark
- OpenMetrics 1.0: https://prometheus.io/docs/specs/om/open_metrics_spec
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.ledger_rows import together_at
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.results import Results
from dbdyno.model.results.trend import FIGURES, Figure
from dbdyno.model.schema.quantiles import QUANTILES, RESPONSE
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_given
from dbdyno.stats.estimates import Mean

_QUANTILES = {one.name: one for one in QUANTILES}
_LONGEST_NAME = 1024  # characters of a benchmark's name in Bencher, and here of a label of OpenMetrics


class Measure(NamedTuple):
    """A figure of a load level with its 95 % interval, if there is one."""

    name: str
    figure: Figure
    value: float
    low: float | None
    high: float | None


class Level(NamedTuple):
    row: Mapping[str, Any]
    """The row of table ``rungs``."""
    measures: tuple[Measure, ...]

    @property
    def name(self) -> str:
        """``lio, base, 4 sessions``, with the rate of paced load."""
        return _bounded(load_name(self.row))


def _bounded(name: str) -> str:
    return one_line(name)[:_LONGEST_NAME]


def load_name(row: Mapping[str, Any]) -> str:
    """Returns ``lio, base, 4 sessions`` for a row of table ``rungs``, with the rate of paced load."""
    rate = None if row["rate_per_s"] is None else f"{format_given(row['rate_per_s'])}/s"
    parts = (row["workload"], row["variant"], counted(row["sessions"], "session"), rate)
    return ", ".join(filter(None, parts))


def levels(results: Results) -> list[Level]:
    """Returns the usable load levels with what is known of them. Raises UsageError if there are none."""
    spreads = _spreads(results)
    rows = results.tables["rungs"].to_dicts()
    usable = [r for r in rows if r["status"] not in LEFT_OUT]
    found = [Level(r, measures) for r in usable if (measures := tuple(_measures(r, spreads)))]
    if not found:
        raise UsageError(
            f"run {results.info.id} has no usable load level to export",
            "an observation has none; of another run: dbdyno show RUN says why",
        )
    return found


_Place = tuple[str, str, int, str]
"""Workload, variant, sessions, and the name of all repeats together."""


def _place(row: Mapping[str, Any]) -> _Place:
    return row["workload"], row["variant"], row["sessions"], together_at(row["rate_per_s"])


def _spreads(results: Results) -> dict[tuple[_Place, str], tuple[float, float]]:
    """Returns the 95 % interval of each load level's figures, where there is one: of percentiles that of all
    calls together, of others Student's of the mean over the usable repeats."""
    columns = [f.column for f in FIGURES.values() if f.column not in RESPONSE]
    wanted = (pl.col("scope") == "rung") & pl.col("name").is_in(columns) & pl.col("value").is_not_null()
    windows = results.tables["windows"].filter(pl.col("status") != "invalid")
    rates = results.tables["rates"].filter(wanted).select("cell", "name", "value")
    cells = windows.select("cell", "workload", "variant", "sessions", "rate_per_s").join(rates, on="cell")
    values: dict[tuple[_Place, str], list[float]] = {}
    for row in cells.iter_rows(named=True):
        values.setdefault((_place(row), row["name"]), []).append(row["value"])
    spreads = {
        key: ends for key, of_key in values.items() if (ends := Mean.of(of_key).positive95) is not None
    }
    quantiles = results.tables.get("response_quantiles", empty("response_quantiles"))
    for row in quantiles.drop_nulls(["low_ns", "high_ns"]).iter_rows(named=True):
        place = (row["workload"], row["variant"], row["sessions"], row["cell"])
        spreads[place, _QUANTILES[row["quantile"]].response] = row["low_ns"], row["high_ns"]
    return spreads


def _measures(
    row: Mapping[str, Any], spreads: Mapping[tuple[_Place, str], tuple[float, float]]
) -> Iterator[Measure]:
    """Yields known figures. The mean of all calls together may lie outside the interval of the mean of
    repeats, and then has none."""
    for name, figure in FIGURES.items():
        value = row.get(figure.column)
        if value is None:
            continue
        low, high = spreads.get((_place(row), figure.column), (None, None))
        if figure.column == "calls_per_s":
            low, high = row["calls_per_s_low"], row["calls_per_s_high"]
        holds = low is not None and high is not None and low <= value <= high
        yield Measure(name, figure, value, *((low, high) if holds else (None, None)))


# -- Bencher --

_BENCHER = {"calls": "throughput", "throughput": "work-per-second", "mean": "latency"}
"""Measures that Bencher has in each project, in operations per second and ns, and one with a clearer name."""


def bencher_measure(name: str) -> str:
    """Returns the slug of a measure: ``latency-p99-9``, ``cpu-per-call``."""
    return _BENCHER.get(name, re.sub("[_.]", "-", f"latency-{name}" if name in _QUANTILES else name))


def bmf(results: Results) -> bytes:
    """Returns Bencher Metric Format: benchmark, measure, value with lower and upper value; times in ns."""
    document = {
        level.name: {bencher_measure(m.name): _bmf(m) for m in level.measures} for level in levels(results)
    }
    return _json(document)


def _bmf(measure: Measure) -> dict[str, float]:
    ends = {"lower_value": measure.low, "upper_value": measure.high}
    return {"value": measure.value, **{k: v for k, v in ends.items() if v is not None}}


# -- github-action-benchmark --


def github_benchmark(results: Results) -> dict[str, bytes]:
    """Returns two files by name, since a file has one direction: bigger is better, smaller is better."""
    files: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    works = results.info.workloads
    for level in levels(results):
        for measure in level.measures:
            if (higher := measure.figure.higher) is None:
                continue
            work = works[level.row["workload"]].work_short if level.row["workload"] in works else "work"
            by, unit = _CHART_UNITS.get(measure.figure.unit, (1, measure.figure.unit))
            entry: dict[str, Any] = {
                "name": f"{level.name}: {measure.figure.title}",
                "unit": unit.replace("work", one_line(work)),
                "value": round(measure.value / by, 9) if by != 1 else measure.value,
            }
            extra = [f"{counted(level.row['repeats'], 'repeat')} of run {results.info.id}"]
            if measure.low is not None and measure.high is not None:
                half = max(measure.high - measure.value, measure.value - measure.low) / by
                entry["range"] = f"± {_decimal(half)}"
                ends = f"{_decimal(measure.low / by)} to {_decimal(measure.high / by)}"
                extra.insert(0, f"95 % interval {ends}")
            files[higher].append({**entry, "extra": "\n".join(extra)})
    return {
        "bigger-is-better.json": _json(files[True]),
        "smaller-is-better.json": _json(files[False]),
    }


_CHART_UNITS = {"ns": (1e6, "ms")}
"""Unit of a figure -> divisor and unit in charts, the same in all builds, since a chart has one unit."""


def _decimal(value: float) -> str:
    """Returns four significant digits without an exponent, which the action would not read."""
    decimals = 3 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, decimals)}f}"


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


# -- OpenMetrics --

_PREFIX = "dbdyno_result_"
"""Metrics of a run that has ended: those of a load that is being observed have no such word."""
_LABELS = ("workload", "variant", "sessions", "rate")
"""Not the run, which is in the info alone: a label of its own would begin new series with each run."""


def openmetrics(results: Results) -> bytes:
    """Returns the text exposition: rates as gauges, times in seconds, quantiles of response times as a
    summary."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(results))
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]


_Figure = Callable[[Measure], float | None]
_value: _Figure = attrgetter("value")
_low: _Figure = attrgetter("low")
_high: _Figure = attrgetter("high")


class _Collected:
    """The metric families of a run, as the client library asks for them."""

    def __init__(self, results: Results) -> None:
        self._results, self._levels = results, levels(results)

    def collect(self) -> Iterator[Any]:
        from prometheus_client import metrics_core as core

        info = self._results.info
        server = self._results.environment.server.version
        facts = {"run": info.id, "dbdyno": info.dbdyno, "server": server, "started": info.started.isoformat()}
        labels = {k: _bounded(v) for k, v in facts.items() if v}
        # a gauge, since Prometheus' text format has no type info: its readers would refuse the whole file
        about = core.GaugeMetricFamily(f"{_PREFIX}info", "The run that the figures are of.", labels=[*labels])
        about.add_metric(list(labels.values()), 1)
        yield about
        for name, column, what in (
            ("calls", "calls", "Measured calls, all repeats."),
            ("errors", "errors", "Measured calls that ended in an error, all repeats."),
        ):
            counts = core.CounterMetricFamily(_PREFIX + name, what, labels=_LABELS)
            for level in self._levels:
                counts.add_metric(self._labels(level), level.row[column])
            yield counts
        for name, column, what in (
            ("calls_per_second{}", "calls_per_s", "Calls per second, mean of the repeats."),
            ("work_per_second{}", "work_per_s", "Work units per second."),
        ):
            yield from self._gauges(core, name, column, what, 1.0, "")
        for name, column, what in (
            ("cpu_per_call{}_seconds", "cpu_per_call_ns", "Server CPU time of a call."),
            ("cpu_per_work{}_seconds", "cpu_per_work_ns", "Server CPU time of a work unit."),
        ):
            yield from self._gauges(core, name, column, what, NS_PER_S, "seconds")
        yield self._response(core)

    def _labels(self, level: Level) -> list[str]:
        row = level.row
        rate = "" if row["rate_per_s"] is None else format_given(row["rate_per_s"])
        texts = (row["workload"], row["variant"], str(row["sessions"]), rate)
        return [_bounded(t) for t in texts]

    def _gauges(
        self, core: Any, name: str, column: str, what: str, divisor: float, unit: str
    ) -> Iterator[Any]:
        """Yields the gauge, and the two of its interval. ``name`` has a slot for the end."""
        by_end = (
            ("", what, _value),
            ("_low", f"Lower end of the 95 % interval. {what}", _low),
            ("_high", f"Upper end of the 95 % interval. {what}", _high),
        )
        for end, text, figure in by_end:
            family = core.GaugeMetricFamily(_PREFIX + name.format(end), text, labels=_LABELS, unit=unit)
            for level in self._levels:
                for measure in level.measures:
                    if measure.figure.column == column and (value := figure(measure)) is not None:
                        family.add_metric(self._labels(level), value / divisor)
            if family.samples:
                yield family

    def _response(self, core: Any) -> Any:
        family = core.SummaryMetricFamily(
            f"{_PREFIX}response_seconds", "Response times of measured calls.", labels=_LABELS, unit="seconds"
        )
        for level in self._levels:
            labels = self._labels(level)
            named = dict(zip(_LABELS, labels, strict=True))
            for measure in level.measures:
                if (quantile := _QUANTILES.get(measure.name)) is not None:
                    key = {**named, "quantile": f"{quantile.q:g}"}
                    family.add_sample(family.name, key, measure.value / NS_PER_S)
            mean = next((m.value for m in level.measures if m.name == "mean"), None)
            if mean is not None:
                calls = level.row["calls"]
                family.add_metric(labels, count_value=calls, sum_value=mean * calls / NS_PER_S)
        return family
