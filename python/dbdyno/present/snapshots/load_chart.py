"""Draws the load of an interval between two snapshots beside that of the intervals around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dbdyno.model.results.interval import LoadPoint
from dbdyno.model.units import NS_PER_S, shown_second
from dbdyno.present.charts.chart import LETTERS, ROUNDED, Spec, channel, chart, encoded, layer, tips
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import var

_REPORTED, _OTHER = "this report", "before and after"
_SECONDS_S, _DAY_S = 1200, 86_400
"""Length up to which the axis has seconds; from which on it has days."""


def charts(points: Sequence[LoadPoint]) -> list[Chart]:
    """Returns transactions per second and DB time over the intervals; empty unless there are several."""
    if len(points) < 2:
        return []
    drawn = [
        ("transactions", "Transactions per second", "transactions/s", [p.transactions_per_s for p in points]),
        (
            "db-time",
            "Average active sessions",
            "DB time, s/s",
            [None if p.active_ns_per_s is None else p.active_ns_per_s / NS_PER_S for p in points],
        ),
    ]
    return [_bars(*figure, points) for figure in drawn if any(v is not None for v in figure[3])]


def over_time(points: Sequence[LoadPoint], name: str, colour: str, transactions: bool) -> dict[str, Any]:
    """Returns the load between consecutive snapshots as data for the lab's chart over time: transactions or
    DB time per second."""
    times, values, before = list[float](), list[float | None](), None
    for point in points:
        if before is not None and point.start > before:
            times.append(before.timestamp())
            values.append(None)
        active = None if point.active_ns_per_s is None else point.active_ns_per_s / NS_PER_S
        value = point.transactions_per_s if transactions else active
        times.append(point.start.timestamp())
        values.append(None if value is None else float(f"{value:.4g}"))
        before = point.end
    if before is not None:
        times.append(before.timestamp())
        values.append(None)
    return {"times": times, "series": [{"name": name, "colour": colour, "values": values}], "lines": []}


def _bars(
    name: str, title: str, unit: str, values: Sequence[float | None], points: Sequence[LoadPoint]
) -> Chart:
    rows = [
        {
            "from_ms": _ms(p.start),
            "to_ms": _ms(p.end),
            "from": f"{shown_second(p.start):%Y-%m-%d %H:%M:%S}",
            "to": f"{shown_second(p.end):%Y-%m-%d %H:%M:%S}",
            "value": value,
            "part": _REPORTED if p.reported else _OTHER,
        }
        for p, value in zip(points, values, strict=True)
        if value is not None
    ]
    length_s = (points[-1].end - points[0].start).total_seconds()
    form = "%H:%M:%S" if length_s <= _SECONDS_S else "%H:%M" if length_s < _DAY_S else "%d %b %H:%M"
    paints = {_REPORTED: var("accent"), _OTHER: var("client")}
    x: Spec = channel(
        "from_ms:T",
        title="time (UTC)",
        axis={"format": form, "labelOverlap": True},
        scale={"type": "utc", "nice": False},
    )
    colour = channel("part:N", scale={"domain": [*paints], "range": [*paints.values()]}, legend=None)
    bars = encoded(
        layer(rows, "rect", stroke=var("card"), strokeWidth=1),
        x=x,
        x2={"field": "to_ms"},
        y=channel("value:Q", title=unit, axis=LETTERS, scale={"zero": True}),
        y2={"datum": 0},
        color=colour,
        tooltip=tips(
            ("from:N", "", "from"), ("to:N", "", "to"), ("value:Q", ROUNDED, unit), ("part:N", "", "")
        ),
    )
    shown = [k for k in paints if any(r["part"] == k for r in rows)]
    return chart(
        f"load-{name}",
        title,
        "A bar is the time between two snapshots, its height the mean.",
        [bars],
        f"{title} between snapshots, by time",
        rows,
        legend=[Key(k, paints[k], "fill") for k in shown],
    )


def _ms(moment: datetime) -> int:
    return round(moment.astimezone(UTC).timestamp() * 1000)
