"""Throughput of both machines over load on logarithmic axes, with the crossings and their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.model.machines import Machines
from dbdyno.model.scaling import Ladder
from dbdyno.present.chart import Spec, channel, encoded, finished, layer, series_keys, series_scale
from dbdyno.present.document import Chart, Key
from dbdyno.present.palette import var


def chart(made: Machines, number: int = 0) -> Chart:
    """A line each through the means at its own loads; a crossing as a rule, its interval as a band."""
    unit, load_unit = made.a.throughput_unit, made.a.load_unit
    rows = [r for name, side in zip(made.names, (made.a, made.b), strict=True) for r in _means(name, side)]
    loads = sorted({r["load"] for r in rows})
    ticks = {"values": loads, "format": "~g", "labelOverlap": "greedy", "labelSeparation": 6}
    ends = [loads[0], max(loads[-1], 2 * loads[0])] if loads else [1, 2]
    rates = [r["rate"] for r in rows] or [1.0]
    logarithmic = {"type": "log", "nice": False}
    heights = {**logarithmic, "domain": [min(rates) / 1.2, 1.2 * max(rates)]}
    base = {
        "x": channel("load:Q", title=load_unit, axis=ticks, scale={**logarithmic, "domain": ends}),
        "y": channel("rate:Q", title=unit, axis={"format": "~s"}, scale=heights),
        "color": channel("machine:N", scale=series_scale(made.names), legend=None),
    }
    tip = [
        channel("machine:N"),
        channel("load:Q", title=load_unit),
        channel("rate:Q", format=".4~s", title=unit),
    ]
    layers = [
        *_crossings(made, ends),
        encoded(layer(rows, "line", strokeWidth=2), **base),
        encoded(layer(rows, "point", filled=True, size=40, opacity=1), **base, tooltip=tip),
    ]
    crossing = [Key("crossing, 95 % interval", var("muted"), "dash")] if made.crossings else []
    return Chart(
        id=f"machines-{number}-throughput",
        title=f"Throughput, {unit}",
        caption="Both machines under the same work, on logarithmic axes: equal distances are equal ratios.",
        spec=finished(layers, f"Throughput in {unit} over {load_unit}, both machines, logarithmic"),
        legend=[*series_keys(made.names), *crossing],
        wide=True,
        marks=len(rows),
    )


def _means(name: str, ladder: Ladder) -> list[Spec]:
    """Load and geometric mean of each load."""
    known = ladder.points.filter(pl.col("throughput") > 0)
    means = known.group_by("load").agg(rate=pl.col("throughput").log().mean().exp()).sort("load")
    return [{"machine": name, **r} for r in means.to_dicts()]


def _crossings(made: Machines, ends: Sequence[float]) -> Iterator[Spec]:
    """An end that is not known lies at the chart's edge."""
    for e in made.crossings:
        low, high = (end if v is None else v for v, end in zip((e.low, e.high), ends, strict=True))
        data = [{"load": e.value, "from": low, "to": high, "name": f"crossing {e.value:.3g}"}]
        if e.method:
            band = layer(data, "rect", color=var("line"), opacity=0.6, clip=True)
            yield encoded(band, x=channel("from:Q"), x2={"field": "to"})
        rule = layer(data, "rule", color=var("muted"), strokeWidth=1.5, strokeDash=[4, 3])
        yield encoded(rule, x=channel("load:Q"))
        name = layer(data, "text", color=var("muted"), align="left", dx=4, fontSize=11)
        yield encoded(name, x=channel("load:Q"), y={"value": 10}, text=channel("name:N"))
