"""All charts of a report, in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dbdyno.model.results import Results
from dbdyno.report import charts_rate, charts_spread, charts_time
from dbdyno.report.chart import Chart
from dbdyno.report.figures import Series, series_of


class Group(NamedTuple):
    """Charts under one heading; an empty heading: of the whole run."""

    heading: str
    charts: list[Chart]


def groups(results: Results) -> list[Group]:
    """Per workload the charts that compare its variants, then each variant's own."""
    series = series_of(results)
    made: list[Group] = []
    workloads = list(dict.fromkeys(s.workload for s in series))
    for workload in workloads:
        mine = [s for s in series if s.workload == workload]
        heading = workload if len(workloads) > 1 else ""
        made.append(Group(heading, [c for c in _shared(results, mine) if c]))
        own = [Group(s.label, [c for c in _own(results, s) if c]) for s in mine]
        if len(series) > 1:
            made += own
        else:
            made[-1].charts.extend(own[0].charts)
    return [g for g in made if g.charts]


def _shared(results: Results, series: list[Series]) -> Iterator[Chart | None]:
    yield charts_rate.throughput(results, series)
    yield charts_rate.response(results, series)
    yield charts_spread.percentiles(results, series)


def _own(results: Results, series: Series) -> Iterator[Chart | None]:
    yield charts_time.time_stack(results, series, "aas")
    yield charts_time.time_stack(results, series, "share")
    yield charts_time.cpu_by_source(results, series)
    yield charts_time.helpers(results, series)
    yield charts_spread.spread(results, series)
    yield charts_spread.distribution(results, series)
