"""All charts of a report, in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.present import accounts, charts_rate, charts_spread, charts_stack, figures
from dbdyno.present.chart import (
    SHAPES,
    Chart,
    Key,
    channel,
    cpu_mark,
    encoded,
    finished,
    layer,
    number,
    rungs_axis,
    series_keys,
    series_scale,
    sessions_axis,
)
from dbdyno.present.figures import Series, is_observation, of_series, series_of
from dbdyno.present.palette import SERIES, var

# Charts of CPU used: by every data source, and by the server's own processes.


def cpu_by_source(results: Results, series: Series) -> Chart | None:
    """The same quantity, CPU used, from every data source."""
    rows = _witnesses(results, series)
    if rows.is_empty():
        return None
    names = rows["source"].unique(maintain_order=True).to_list()
    scale = series_scale(names)
    tooltip = [
        channel("sessions:Q"), channel("source:N"),
        channel("value:Q", format=".3f", title="CPUs used"),
        channel("difference:Q", format="+.1%", title="to the reference"), channel("verdict:N"),
    ]  # fmt: skip
    base = {
        "x": sessions_axis(),
        "y": channel("value:Q", title="CPUs used", scale={"zero": True}),
        "color": channel("source:N", scale=scale, legend=None),
    }
    shapes = {
        "domain": names,
        "range": list(SHAPES[: len(names)]) if len(names) <= len(SHAPES) else list(SHAPES),
    }
    # Outlines of falling size: sources that agree stay visible one inside the other.
    sizes = {"type": "ordinal", "domain": names, "range": [160 / (i + 1) for i in range(len(names))]}
    points = encoded(
        layer(rows, "point", filled=False, strokeWidth=2, opacity=1),
        **base,
        shape=channel("source:N", scale=shapes, legend=None),
        size=channel("source:O", scale=sizes, legend=None, sort=names),
        tooltip=tooltip,
    )
    cpus = figures.usable_cpus(results)
    mark = cpu_mark(cpus, "y") if cpus and cpus <= 1.3 * number(rows["value"].max()) else []
    return Chart(
        id="cpu",
        title="CPU used, by source",
        caption="Independent data sources of one quantity: where they differ, the cross-check says by how "
        "much, and which one is the reference.",
        spec=finished(
            [encoded(layer(rows, "line", strokeWidth=1.5, opacity=0.8), **base), points, *mark],
            "CPUs used, by each source",
        ),
        legend=series_keys(names),
        marks=len(rows),
    )


def helpers(results: Results, series: Series) -> Chart | None:
    """CPU of the server's own processes, which work for all sessions."""
    rows = _helpers(results, series)
    if rows.is_empty():
        return None
    names = rows["who"].unique(maintain_order=True).to_list()
    scale = series_scale(names)
    bars = encoded(
        layer(rows, "bar", stroke=var("card"), strokeWidth=0.5),
        x=rungs_axis(),
        y=channel("aas:Q", title="CPUs used", stack="zero"),
        color=channel("who:N", scale=scale, legend=None),
        tooltip=[
            channel("sessions:O"),
            channel("who:N", title="process"),
            channel("aas:Q", format=".4f", title="CPUs used"),
        ],
    )
    legend = [Key(k.label, k.colour, "fill") for k in series_keys(names)]
    return Chart(
        id="helpers",
        title="CPU of the server's own processes",
        caption="Work done for the sessions by others: it is not in the sessions' stack and comes on top.",
        spec=finished([bars], "CPUs used by the server's own processes, per rung"),
        legend=legend,
        marks=len(rows),
    )


def _witnesses(results: Results, series: Series) -> pl.DataFrame:
    rows = of_series(results.tables["witnesses"], series).filter(
        pl.col("quantity").is_in(["cpu_used", "cpu_used_machine"]) & pl.col("value").is_not_null()
    )
    machine = pl.col("quantity") == "cpu_used_machine"
    rows = rows.with_columns(
        pl.when(machine).then(pl.format("{} (machine)", "source")).otherwise("source").alias("source")
    )
    return (
        rows.group_by("sessions", "source", maintain_order=True)
        .agg(
            pl.col("value").mean(),
            pl.col("relative_difference").mean().alias("difference"),
            pl.col("verdict").unique().sort().str.join(", "),
        )
        .sort("sessions", maintain_order=True)
    )


def _helpers(results: Results, series: Series) -> pl.DataFrame:
    """CPU per rung and process, mean over the cells; the smallest processes come together as one."""
    rows = accounts.leaves(of_series(results.tables["ledger"], series), "helper")
    cpu = rows.filter(pl.col("account").is_in(["run", "run.user", "run.system"]) & (pl.col("aas") > 0))
    totals = cpu.group_by("who").agg(pl.col("aas").sum()).sort(["aas", "who"], descending=[True, False])
    named = totals["who"].to_list()[: len(SERIES) - 1]
    who = pl.when(pl.col("who").is_in(named)).then("who").otherwise(pl.lit("other processes")).alias("who")
    order = [*named, "other processes"]
    cells = of_series(results.tables["windows"], series).group_by("sessions").agg(pl.len().alias("cells"))
    return (
        cpu.with_columns(who)
        .sort(pl.col("who").replace_strict(order, list(range(len(order))), return_dtype=pl.Int64))
        .group_by("sessions", "who", maintain_order=True)
        .agg(pl.col("aas").sum())
        .join(cells, on="sessions", maintain_order="left")
        .with_columns(pl.col("aas") / pl.col("cells"))
        .drop("cells")
    )


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
    yield cpu_by_source(results, series)
    yield helpers(results, series)
