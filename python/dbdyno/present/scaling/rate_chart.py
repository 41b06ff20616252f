"""Draws a ladder of rates: calls delivered against calls due, with the capacity."""

from __future__ import annotations

from dbdyno.model.results.analyses import Scaling
from dbdyno.present.charts.chart import LETTERS, channel, chart, encoded, layer, tips
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import var


def charts(scaling: Scaling) -> list[Chart]:
    """Returns the chart of delivered calls; empty if nothing was measured."""
    points = scaling.ladder.points.select("load", "repeat", "throughput").to_dicts()
    if not points:
        return []
    curve = scaling.curve.sort("load").to_dicts()
    band = [r for r in curve if r["low"] is not None]
    top = max(p["load"] for p in points)
    due = [{"load": n, "throughput": n} for n in (0.0, top)]
    highest = 1.1 * max(r["throughput"] for r in (*points, *curve))
    x = channel("load:Q", title=scaling.ladder.load_unit, scale={"domain": [0, top], "nice": False})
    unit = scaling.ladder.throughput_unit
    y = channel("throughput:Q", title=unit, axis=LETTERS, scale={"domain": [0, highest], "nice": False})
    shade = layer(band, "area", opacity=0.2, clip=True, color=var("series-1"))
    ink = {"strokeDash": [6, 4], "strokeWidth": 1.5, "opacity": 0.8, "clip": True, "color": var("muted")}
    dots = layer(points, "point", filled=True, size=46, opacity=0.9, color=var("text"))
    tooltip = tips(
        ("load:Q", ",.5~r", "calls/s due"), ("throughput:Q", ",.5~r", f"{unit} delivered"), "repeat:Q"
    )
    layers = [
        encoded(shade, x=x, y=channel("low:Q", title=unit), y2={"field": "high"}),
        encoded(layer(due, "line", **ink), x=x, y=y),
        encoded(layer(curve, "line", strokeWidth=2.5, clip=True, color=var("series-1")), x=x, y=y),
        encoded(dots, x=x, y=y, tooltip=tooltip),
    ]
    legend = [Key("measured", var("text"), "dot"), Key("all delivered", var("muted"), "dash")]
    legend += [Key("up to the capacity", var("series-1"))] if curve else []
    legend += [Key("its 95 % interval", var("series-1"), "fill", 0.2)] if band else []
    drawn = chart(
        "capacity",
        f"Delivered, {unit}",
        "On the dashed line all calls that become due are delivered; above the capacity some are left over.",
        layers,
        f"Throughput in {unit} against {scaling.ladder.load_unit}, with the capacity",
        points,
        legend=legend,
        wide=True,
    )
    return [drawn]
