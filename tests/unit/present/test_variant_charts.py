"""Charts of variants that were measured at one load each: rates, their intervals, statistics of durations."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.unit import report_results
from tests.unit.report_results import World

from dbdyno.present.document.document import Chart
from dbdyno.present.figures import figures
from dbdyno.present.run import variant_charts

VARIANTS = ("base", "second", "third")


def rows(chart: Chart, mark: str) -> list[dict[str, Any]]:
    (name,) = (x["data"]["name"] for x in chart.spec["layer"] if x["mark"]["type"] == mark)
    return list(chart.spec["datasets"][name])


@pytest.mark.parametrize(
    ("world", "apply"),
    [
        (World(rungs=(4,), variants=VARIANTS), True),
        (World(rungs=(4,)), False),
        (World(rungs=(1, 4), variants=VARIANTS), False),
    ],
)
def test_they_are_for_several_variants_of_one_load(world: World, *, apply: bool) -> None:
    results = report_results.results(world)
    assert variant_charts.apply(results, figures.series_of(results)) is apply


def test_a_bar_for_each_variant_has_its_rate_in_the_order_of_the_plan() -> None:
    results = report_results.results(World(rungs=(4,), variants=VARIANTS))
    chart = variant_charts.throughput(results, figures.series_of(results))
    assert chart is not None and chart.marks == len(VARIANTS)
    bars = rows(chart, "bar")
    assert [b["series"] for b in bars] == list(VARIANTS)
    rates = dict(results.tables["rungs"].select("variant", "work_per_s").iter_rows())
    assert {b["series"]: b["rate"] for b in bars} == pytest.approx(rates)
    assert all(b["low"] is None for b in bars), "one repeat has no interval"


def test_intervals_of_repeats_hold_the_rate_and_end_within_the_chart() -> None:
    results = report_results.results(World(rungs=(4,), variants=VARIANTS, repeats=4))
    chart = variant_charts.throughput(results, figures.series_of(results))
    assert chart is not None
    edge = chart.spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1]
    lines = rows(chart, "rule")
    assert len(lines) == len(VARIANTS)
    assert all(line["low"] <= line["rate"] <= line["high"] <= edge for line in lines)


def test_durations_have_mean_median_and_tail_of_each_variant() -> None:
    results = report_results.results(World(rungs=(4,), variants=VARIANTS))
    chart = variant_charts.response(results, figures.series_of(results))
    assert chart is not None
    dots = rows(chart, "point")
    assert len(dots) == 3 * len(VARIANTS) and all(math.isfinite(d["time"]) for d in dots)
    for variant in VARIANTS:
        times = {d["statistic"]: d["time"] for d in dots if d["series"] == variant}
        assert times["median"] <= times["95 %"]


def test_a_chart_grows_with_the_number_of_variants() -> None:
    many = ("base", "b", "c", "d", "e")
    heights = []
    for variants in (VARIANTS, many):
        results = report_results.results(World(rungs=(1,), variants=variants))
        chart = variant_charts.response(results, figures.series_of(results))
        assert chart is not None
        heights.append(chart.spec["height"])
    assert heights[0] < heights[1]
