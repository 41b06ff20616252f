"""All charts of a report, in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dbdyno.model.results import Results
from dbdyno.present import charts_rate, charts_spread, charts_stack, charts_time
from dbdyno.present.chart import Chart
from dbdyno.present.figures import Series, is_observation, series_of


class Group(NamedTuple):
    """Charts under one heading; an empty heading: of the whole run."""

    heading: str
    charts: list[Chart]


def groups(results: Results) -> list[Group]:
    """Charts of rate and response: per workload those that compare its variants, then each variant's own."""
    made: list[Group] = []
    for heading, mine in _workloads(results):
        made.append(Group(heading, [c for c in _shared(results, mine) if c]))
        own = [Group(s.label, [c for c in _own(results, s) if c]) for s in mine]
        if len(series_of(results)) > 1:
            made += own
        else:
            made[-1].charts.extend(own[0].charts)
    return [g for g in made if g.charts]


def ledgers(results: Results) -> list[Group]:
    """Charts of where the time went, each variant's own; over time for an observation."""
    if is_observation(results):
        drawn = [charts_stack.timeline(results)]
        return [Group("", [c for c in drawn if c])] if any(drawn) else []
    series = series_of(results)
    made = [Group(s.label if len(series) > 1 else "", [c for c in _time(results, s) if c]) for s in series]
    return [g for g in made if g.charts]


def _workloads(results: Results) -> Iterator[tuple[str, list[Series]]]:
    series = [] if is_observation(results) else series_of(results)
    workloads = list(dict.fromkeys(s.workload for s in series))
    for workload in workloads:
        yield workload if len(workloads) > 1 else "", [s for s in series if s.workload == workload]


def _shared(results: Results, series: list[Series]) -> Iterator[Chart | None]:
    yield charts_rate.throughput(results, series)
    yield charts_rate.response(results, series)
    yield charts_spread.percentiles(results, series)


def _own(results: Results, series: Series) -> Iterator[Chart | None]:
    yield charts_spread.spread(results, series)
    yield charts_spread.distribution(results, series)


def _time(results: Results, series: Series) -> Iterator[Chart | None]:
    yield charts_stack.time_stack(results, series, "aas")
    yield charts_stack.time_stack(results, series, "share")
    yield charts_time.cpu_by_source(results, series)
    yield charts_time.helpers(results, series)
