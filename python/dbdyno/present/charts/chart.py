"""Builds the parts that all charts share: Vega-Lite specifications as plain dictionaries
(docs/decisions/0008)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import SERIES, var
from dbdyno.present.figures.figures import SESSIONS, Load, cpus_text

HEIGHT = 300
Spec = dict[str, Any]
"""A part of a Vega-Lite specification."""
_TYPES = {"Q": "quantitative", "O": "ordinal", "N": "nominal", "T": "temporal"}


class Group(NamedTuple):
    """Charts under one heading; an empty heading stands for the whole run."""

    heading: str
    charts: list[Chart]


def channel(field: str, **options: Any) -> Spec:
    """Returns an encoding channel for a column of the data: ``channel("rate:Q", title="calls/s")``."""
    name, _, kind = field.rpartition(":")
    if isinstance(title := options.get("title"), str):
        options["title"] = one_line(title)  # a line break would end a string in Vega's expressions
    return {"field": name, "type": _TYPES[kind], **options}


def coloured(field: str, names: Iterable[str], paints: Iterable[str] | None = None) -> Spec:
    """Returns a colour channel with one colour per value of a column; the colours of series without
    ``paints``."""
    scale = series_scale(list(names)) if paints is None else {"domain": list(names), "range": list(paints)}
    return channel(f"{field}:N", scale=scale, legend=None)


def tips(*fields: str | tuple[str, str, str]) -> list[Spec]:
    """Returns tooltip channels. Each field is a column, or a column with its format (or "") and title."""
    described = [(f, "", "") if isinstance(f, str) else f for f in fields]
    options = [(field, {"format": form, "title": title}) for field, form, title in described]
    return [channel(field, **{k: v for k, v in given.items() if v}) for field, given in options]


def layer(rows: pl.DataFrame | Sequence[Spec], mark: str, **style: Any) -> Spec:
    """Returns a layer with one mark per row. A row is not drawn where its value is NULL."""
    values = rows.to_dicts() if isinstance(rows, pl.DataFrame) else list(rows)
    return {"data": {"values": values}, "mark": {"type": mark, **style}, "encoding": {}}


def encoded(drawn: Spec, **channels: Any) -> Spec:
    """Returns the layer with further encoding channels."""
    return {**drawn, "encoding": {**drawn["encoding"], **channels}}


def line_and_points(rows: Sequence[Spec], size: int, tooltip: list[Spec], **channels: Any) -> list[Spec]:
    """Returns a line per colour, and a point with a tooltip per row."""
    points = layer(rows, "point", filled=True, size=size, opacity=1)
    return [
        encoded(layer(rows, "line", strokeWidth=2), **channels),
        encoded(points, **{k: c for k, c in channels.items() if k != "strokeDash"}, tooltip=tooltip),
    ]


def chart(
    id: str, title: str, caption: str, layers: Sequence[Spec], description: str, rows: Any, **more: Any
) -> Chart:
    """Returns a chart of these layers.

    ``caption`` is one sentence on what the reader should see, ``description`` the text for screen readers.
    ``rows`` are the data that the chart draws at least. ``more``: further fields of
    :class:`~dbdyno.present.document.document.Chart`.
    """
    return Chart(id, title, caption, finished(layers, description), marks=len(rows), **more)


def finished(layers: Sequence[Spec], description: str) -> Spec:
    """Returns the layers as one specification as wide as its container. Data that layers share are stored
    once."""
    names: dict[str, str] = {}
    drawn = [
        {**given, "data": {"name": names.setdefault(_text(given["data"]["values"]), f"data-{len(names)}")}}
        for given in layers
        if given["data"]["values"]  # without a row there is no extent to draw
    ]
    size: Spec = {"width": "container", "height": HEIGHT, "description": description}
    return {**size, "layer": drawn, "datasets": {name: json.loads(text) for text, name in names.items()}}


def _text(values: list[Spec]) -> str:
    return json.dumps(values, allow_nan=False)


LETTERS: Spec = {
    "labelExpr": "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"
}
"""Axis labels with k, M and G from 1000 on. SI prefixes below 1 are left out: nobody reads 900m for 0.9."""
WHOLE: Spec = {"tickMinStep": 1, "labelExpr": "datum.value % 1 ? '' : format(datum.value, ',d')"}
"""Axis labels of whole numbers; ticks between them, which Vega adds on short axes, have none."""
ROUNDED = ",.4~r"
"""Format of a tooltip: four digits without a prefix. A tooltip's format cannot be an expression."""


def load_axis(load: Load = SESSIONS) -> Spec:
    """Returns a quantitative x axis of sessions or rates."""
    axis: Spec = {"labelOverlap": True}
    if load == SESSIONS:
        axis |= WHOLE
    return channel(
        f"{load.column}:Q", title=fill(load.title), axis=axis, scale={"domainMin": 0, "nice": True}
    )


def rungs_axis(load: Load = SESSIONS) -> Spec:
    """Returns an x axis of sessions or rates as equal steps, for bars."""
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 8, "ticks": False}
    scale = {"type": "band", "paddingInner": 0.15}
    return channel(f"{load.column}:O", title=fill(load.title), axis=axis, scale=scale)


ROOM = 8
"""Most entries of a legend; if there are more series, the last entry stands for all others."""


def series_scale(labels: Sequence[str]) -> Spec:
    """Returns the colour scale of series; those that share the last entry of the legend are grey."""
    own = _own_colours(labels)
    return {
        "domain": list(labels),
        "range": [var(SERIES[i]) for i in range(own)] + [_GREY] * (len(labels) - own),
    }


def series_keys(labels: Sequence[str], mark: Literal["line", "fill"] = "line") -> list[Key]:
    """Returns the entries of the legend of series."""
    own = _own_colours(labels)
    keys = [Key(label, var(SERIES[i]), mark) for i, label in enumerate(labels[:own])]
    return [*keys, *([Key(f"other ({len(labels) - own})", _GREY, mark)] if own < len(labels) else [])]


_GREY = var("client")


def _own_colours(labels: Sequence[str]) -> int:
    """Returns how many series have a colour of their own; one more entry of the legend is for the others."""
    return len(labels) if len(labels) < ROOM else ROOM - 2


def rule(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, dash: Sequence[int] = ()) -> Spec:
    """Returns a line across the chart at the position ``at``."""
    dashed = {"strokeDash": list(dash)} if dash else {}
    return encoded(layer(rows, "rule", color=var(colour), **dashed, strokeWidth=1.5 if dash else 2), **at)


def label(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, **style: Any) -> Spec:
    """Returns a layer with the column ``name`` of the rows as text."""
    return encoded(layer(rows, "text", color=var(colour), **style), **at, text=channel("name:N"))


def legible(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, **style: Any) -> list[Spec]:
    """Returns the labels with a halo around them, for text above other marks."""
    halo = label(rows, at, "card", stroke=var("card"), strokeWidth=4, **style)
    return [halo, label(rows, at, colour, **style)]


def cpu_mark(cpus: float | None, axis: Literal["x", "y"], most: float = float("inf")) -> list[Spec]:
    """Returns a labelled rule where all CPUs of the server are busy.

    Empty if the number of CPUs is unknown or above ``most``.
    """
    if not cpus or cpus > most:
        return []
    data = [{"cpus": cpus, "name": cpus_text(cpus)}]
    at: Spec = {axis: channel("cpus:Q")}
    style: Spec = {"align": "left", "fontSize": 11, "dx": 4}
    if axis == "x":
        texts = [label(data, {**at, "y": {"value": HEIGHT - 8}}, "muted", **style)]
    else:
        texts = legible(data, {**at, "x": {"value": 2}}, "text", **style, dy=-8)
    return [rule(data, at, "muted", (2, 3)), *texts]


def number(value: Any) -> float:
    """Returns the minimum or maximum of a column as a float; 0 for an empty column, whose extreme is None."""
    return float(value or 0)


def time_unit(highest_ns: float) -> tuple[str, float]:
    """Returns the unit that suits a time axis, and its length in nanoseconds."""
    for unit, factor in (("s", float(NS_PER_S)), ("ms", 1e6), ("µs", 1e3)):
        if highest_ns >= factor:
            return unit, factor
    return "ns", 1.0


def response_lines(
    rows: list[Spec],
    statistics: Sequence[tuple[str, str, Sequence[int]]],
    labels: Sequence[str],
    title: str,
    caption: str,
    against: str,
    load: Load = SESSIONS,
) -> Chart:
    """Returns a chart of statistics of durations against load.

    ``rows`` have the columns series, load, statistic and ns; ns is removed from them. ``statistics`` are
    name, colour and dashes; the first one is drawn as a solid line. One without rows has no entry in the
    legend. ``labels`` are those of the series.
    """
    unit, factor = time_unit(max(r["ns"] for r in rows))
    for r in rows:
        r["time"] = r.pop("ns") / factor
    axis, one = f"{noun('response_time')}, {unit}", len(labels) == 1
    solid, drawn = statistics[0][0], {r["statistic"] for r in rows}
    statistics = [s for s in statistics if s[0] in drawn]
    names, paints = [n for n, *_ in statistics], [var(p) for _, p, _ in statistics]
    dashes = {"domain": names, "range": [d for *_, d in statistics]}
    layers = line_and_points(
        rows,
        30,
        tips("series:N", f"{load.column}:Q", "statistic:N", ("time:Q", ",.3~r", axis)),
        x=load_axis(load),
        y=channel("time:Q", title=axis, scale={"type": "linear"}),
        color=coloured("statistic", names, paints) if one else coloured("series", labels),
        detail=[channel("series:N"), channel("statistic:N")],
        strokeDash=channel("statistic:N", scale=dashes, legend=None),
    )
    keys = zip(names, paints, strict=True)
    legend = [Key(n, paint, "line" if n == solid else "dash") for n, paint in keys]
    if not one:
        legend = [*series_keys(labels), *(Key(n, var("muted"), "dash") for n in names if n != solid)]
    description = f"{capital(noun('response_time'))} in {unit} {against}"
    return chart("response", title, caption, layers, description, rows, legend=legend, log=True)
