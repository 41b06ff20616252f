"""What all charts share: Vega-Lite specifications as plain dictionaries (docs/decisions/0008)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import polars as pl

from dbdyno.model.units import NS_PER_S
from dbdyno.present.document import Chart, Key
from dbdyno.present.figures import cpus_text
from dbdyno.present.palette import SERIES, var

__all__ = ["Chart", "Key"]
HEIGHT = 300
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
Spec = dict[str, Any]
"""A part of a Vega-Lite specification."""
_TYPES = {"Q": "quantitative", "O": "ordinal", "N": "nominal"}


def channel(field: str, **options: Any) -> Spec:
    """What a column of the data is shown by: ``channel("rate:Q", title="calls/s")``."""
    name, _, kind = field.rpartition(":")
    return {"field": name, "type": _TYPES[kind], **options}


def layer(rows: pl.DataFrame | Sequence[Spec], mark: str, **style: Any) -> Spec:
    """One mark for each row; NULL stays null and is not drawn."""
    values = rows.to_dicts() if isinstance(rows, pl.DataFrame) else list(rows)
    return {"data": {"values": values}, "mark": {"type": mark, **style}, "encoding": {}}


def encoded(drawn: Spec, **channels: Any) -> Spec:
    """The layer with further channels."""
    return {**drawn, "encoding": {**drawn["encoding"], **channels}}


def finished(layers: Sequence[Spec], description: str) -> Spec:
    """The layers as one specification as wide as its container; data that layers share are in it once."""
    names: dict[str, str] = {}
    drawn = [
        {**one, "data": {"name": names.setdefault(_text(one["data"]["values"]), f"data-{len(names)}")}}
        for one in layers
        if one["data"]["values"]  # without a row there is no extent to draw
    ]
    size: Spec = {"width": "container", "height": HEIGHT, "description": description}
    return {**size, "layer": drawn, "datasets": {name: json.loads(text) for text, name in names.items()}}


def _text(values: list[Spec]) -> str:
    return json.dumps(values, allow_nan=False)


def sessions_axis() -> Spec:
    """Sessions to scale."""
    axis = {"tickMinStep": 1, "format": "d", "labelOverlap": True}
    return channel("sessions:Q", title="sessions", axis=axis, scale={"domainMin": 0, "nice": True})


def rungs_axis() -> Spec:
    """Sessions as steps of equal width: for bars."""
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 8, "ticks": False}
    return channel("sessions:O", title="sessions", axis=axis, scale={"type": "band", "paddingInner": 0.15})


def colours(keys: Sequence[str], values: Sequence[str]) -> Spec:
    return {"domain": list(keys), "range": list(values)}


def series_scale(labels: Sequence[str]) -> Spec:
    return colours(labels, [var(SERIES[i % len(SERIES)]) for i in range(len(labels))])


def series_keys(labels: Sequence[str]) -> list[Key]:
    return [Key(label, var(SERIES[i % len(SERIES)])) for i, label in enumerate(labels)]


def cpu_mark(cpus: float, axis: Literal["x", "y"]) -> list[Spec]:
    """A rule where the server's CPUs are all busy, with its name."""
    data = [{"cpus": cpus, "name": cpus_text(cpus)}]
    at = {axis: channel("cpus:Q")}
    rule = layer(data, "rule", color=var("muted"), strokeDash=[2, 3], strokeWidth=1.5)
    name = channel("name:N")
    if axis == "x":
        text = layer(data, "text", color=var("muted"), align="left", fontSize=11, dx=4)
        return [encoded(rule, **at), encoded(text, **at, text=name, y={"value": HEIGHT - 8})]
    halo = {"color": var("card"), "stroke": var("card"), "strokeWidth": 4}
    texts = [
        layer(data, "text", **ink, align="left", fontSize=11, dx=4, dy=-8)
        for ink in (halo, {"color": var("text")})
    ]
    return [encoded(rule, **at), *(encoded(t, **at, text=name, x={"value": 2}) for t in texts)]


def number(value: Any) -> float:
    """An extreme of a column: 0 of an empty one."""
    return float(value or 0)


def time_unit(highest_ns: float) -> tuple[str, float]:
    """The unit that suits a time axis, and nanoseconds in it."""
    for unit, factor in (("s", float(NS_PER_S)), ("ms", 1e6), ("µs", 1e3)):
        if highest_ns >= 2 * factor:
            return unit, factor
    return "ns", 1.0
