"""The axis of charts over the time of an observation: wall-clock time, up to its end."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S
from dbdyno.present.charts.chart import HEIGHT, Spec, channel, encoded, layer, tips
from dbdyno.present.document.palette import var
from dbdyno.present.figures import figures

_SECONDS_S, _DAY_S = 1200, 86_400
"""Length of an observation up to which its axis has seconds; from which on it has days."""
FROM_TO: list[tuple[str, str, str]] = [("from_clock:N", "", "from"), ("to_clock:N", "", "to")]
"""First lines of a tooltip."""


def at_ms(results: Results, at_ns: int) -> int:
    """Returns the place of a monotonic time on the axis: milliseconds of local time, as if that were UTC.

    A browser in another time zone then shows the same time.
    """
    return round(figures.local(results, at_ns).replace(tzinfo=UTC).timestamp() * 1000)


def x_span(results: Results) -> dict[str, Spec]:
    """Returns the channels x and x2 of marks from ``from_ms`` to ``to_ms``."""
    frame = results.tables["windows"]
    ends: Any = frame["t0_ns"].min(), frame["t1_ns"].max()
    long_s = (ends[1] - ends[0]) / NS_PER_S
    form = "%H:%M:%S" if long_s <= _SECONDS_S else "%H:%M" if long_s < _DAY_S else "%d %b %H:%M"
    x = channel(
        "from_ms:T",
        title=f"time ({figures.zone(results)})",
        axis={"format": form, "labelOverlap": True},
        scale={"type": "utc", "nice": False},
    )
    return {"x": x, "x2": {"field": "to_ms"}}


def with_times(results: Results, rows: pl.DataFrame) -> pl.DataFrame:
    """Replaces t0_ns and t1_ns by the columns that :func:`x_span` and :data:`FROM_TO` need."""
    ends = {"from": rows["t0_ns"].to_list(), "to": rows["t1_ns"].to_list()}
    return rows.drop("t0_ns", "t1_ns").with_columns(
        *(pl.Series(f"{n}_ms", [at_ms(results, t) for t in v], pl.Int64) for n, v in ends.items()),
        *(
            pl.Series(f"{n}_clock", [figures.clock(results, t) for t in v], pl.String)
            for n, v in ends.items()
        ),
    )


def left_open(results: Results, server: str = "") -> list[Spec]:
    """Returns the layer of gaps, in grey; empty without gaps. ``server`` names whose they are."""
    pauses = figures.gaps(results)
    if not pauses:
        return []
    rows = with_times(results, pl.DataFrame(pauses)).with_columns(server=pl.lit(server))
    grey = layer(rows, "rect", color=var("line"), opacity=0.6)
    tooltip = tips(*(["server:N"] if server else []), ("what:N", "", "gap"), *FROM_TO)
    return [encoded(grey, **x_span(results), y={"value": 0}, y2={"value": HEIGHT}, tooltip=tooltip)]


GREY = " Grey: nothing was measured there."
