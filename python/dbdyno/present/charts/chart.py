"""What all charts share: Vega-Lite specifications as plain dictionaries (docs/decisions/0008)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.units import NS_PER_S
from dbdyno.present.document.document import Chart, Key
from dbdyno.present.document.palette import SERIES, var
from dbdyno.present.figures.figures import SESSIONS, Load, cpus_text

HEIGHT = 300
Spec = dict[str, Any]
"""A part of a Vega-Lite specification."""
_TYPES = {"Q": "quantitative", "O": "ordinal", "N": "nominal"}


class Group(NamedTuple):
    """Charts under one heading; an empty heading: of the whole run."""

    heading: str
    charts: list[Chart]


def channel(field: str, **options: Any) -> Spec:
    """What a column of the data is shown by: ``channel("rate:Q", title="calls/s")``."""
    name, _, kind = field.rpartition(":")
    return {"field": name, "type": _TYPES[kind], **options}


def coloured(field: str, names: Iterable[str], paints: Iterable[str] | None = None) -> Spec:
    """A colour for each value of a column; without ``paints`` those of series."""
    scale = series_scale(list(names)) if paints is None else {"domain": list(names), "range": list(paints)}
    return channel(f"{field}:N", scale=scale, legend=None)


def tips(*told: str | tuple[str, str, str]) -> list[Spec]:
    """What the hover says: a column, or a column with its format (or none) and its title."""
    found = [(t, "", "") if isinstance(t, str) else t for t in told]
    shown = [(field, {"format": form, "title": title}) for field, form, title in found]
    return [channel(field, **{k: v for k, v in options.items() if v}) for field, options in shown]


def layer(rows: pl.DataFrame | Sequence[Spec], mark: str, **style: Any) -> Spec:
    """One mark for each row; NULL stays null and is not drawn."""
    values = rows.to_dicts() if isinstance(rows, pl.DataFrame) else list(rows)
    return {"data": {"values": values}, "mark": {"type": mark, **style}, "encoding": {}}


def encoded(drawn: Spec, **channels: Any) -> Spec:
    """The layer with further channels."""
    return {**drawn, "encoding": {**drawn["encoding"], **channels}}


def line_and_points(rows: Sequence[Spec], size: int, tooltip: list[Spec], **channels: Any) -> list[Spec]:
    """A line for each colour with a point for each row, which says what it is."""
    points = layer(rows, "point", filled=True, size=size, opacity=1)
    return [
        encoded(layer(rows, "line", strokeWidth=2), **channels),
        encoded(points, **{k: c for k, c in channels.items() if k != "strokeDash"}, tooltip=tooltip),
    ]


def chart(
    id: str, title: str, caption: str, layers: Sequence[Spec], description: str, rows: Any, **more: Any
) -> Chart:
    """``caption``: one sentence on what to see; ``description``: what is read aloud; ``rows``: the
    data that it draws at least; ``more``: further fields of
    :class:`~dbdyno.present.document.document.Chart`."""
    return Chart(id, title, caption, finished(layers, description), marks=len(rows), **more)


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


LETTERS: Spec = {
    "labelExpr": "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"
}
"""Labels of an axis with k, M and G from a thousand on. SI prefixes below 1 are left out: nobody reads
900m for 0.9."""
ROUNDED = ",.4~r"
"""Four digits and no prefix, of a tooltip, whose format cannot be an expression."""


def load_axis(load: Load = SESSIONS) -> Spec:
    """Sessions or rates to scale."""
    axis: Spec = {"labelOverlap": True}
    if load == SESSIONS:
        axis |= {"tickMinStep": 1, "format": "d"}
    return channel(
        f"{load.column}:Q", title=fill(load.title), axis=axis, scale={"domainMin": 0, "nice": True}
    )


def rungs_axis(load: Load = SESSIONS) -> Spec:
    """Sessions or rates as steps of equal width: for bars."""
    axis = {"labelAngle": 0, "labelOverlap": "greedy", "labelSeparation": 8, "ticks": False}
    scale = {"type": "band", "paddingInner": 0.15}
    return channel(f"{load.column}:O", title=fill(load.title), axis=axis, scale=scale)


ROOM = 8
"""Entries of a legend; the last of them stands for all others."""


def series_scale(labels: Sequence[str]) -> Spec:
    own = _own(labels)
    return {
        "domain": list(labels),
        "range": [var(SERIES[i]) for i in range(own)] + [_GREY] * (len(labels) - own),
    }


def series_keys(labels: Sequence[str], mark: Literal["line", "fill"] = "line") -> list[Key]:
    own = _own(labels)
    keys = [Key(label, var(SERIES[i]), mark) for i, label in enumerate(labels[:own])]
    return [*keys, *([Key(f"other ({len(labels) - own})", _GREY, mark)] if own < len(labels) else [])]


_GREY = var("client")


def _own(labels: Sequence[str]) -> int:
    """How many have a colour of their own, with room in the legend for one entry more."""
    return len(labels) if len(labels) < ROOM else ROOM - 2


def rule(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, dash: Sequence[int] = ()) -> Spec:
    """A line across the chart."""
    dashed = {"strokeDash": list(dash)} if dash else {}
    return encoded(layer(rows, "rule", color=var(colour), **dashed, strokeWidth=1.5 if dash else 2), **at)


def label(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, **style: Any) -> Spec:
    """The rows' column ``name`` as a text."""
    return encoded(layer(rows, "text", color=var(colour), **style), **at, text=channel("name:N"))


def legible(rows: Sequence[Spec], at: Mapping[str, Any], colour: str, **style: Any) -> list[Spec]:
    """The same on a halo, for texts on what is drawn."""
    halo = label(rows, at, "card", stroke=var("card"), strokeWidth=4, **style)
    return [halo, label(rows, at, colour, **style)]


def cpu_mark(cpus: float | None, axis: Literal["x", "y"], most: float = float("inf")) -> list[Spec]:
    """A rule where the server's CPUs are all busy, with its name; none where they are unknown or ``most``
    is less."""
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
    """An extreme of a column: 0 of an empty one."""
    return float(value or 0)


def time_unit(highest_ns: float) -> tuple[str, float]:
    """The unit that suits a time axis, and nanoseconds in it."""
    for unit, factor in (("s", float(NS_PER_S)), ("ms", 1e6), ("µs", 1e3)):
        if highest_ns >= 2 * factor:
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
    """Statistics of durations against load. ``rows``: series, load, statistic, ns (taken out of them).
    ``statistics``: name, colour, dashes; the first is drawn as a line. ``labels``: of the series."""
    unit, factor = time_unit(max(r["ns"] for r in rows))
    for r in rows:
        r["time"] = r.pop("ns") / factor
    axis, one = f"{noun('response_time')}, {unit}", len(labels) == 1
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
    legend = [Key(n, paint, "line" if n == names[0] else "dash") for n, paint in keys]
    if not one:
        legend = [*series_keys(labels), *(Key(n, var("muted"), "dash") for n in names[1:])]
    description = f"{capital(noun('response_time'))} in {unit} {against}"
    return chart("response", title, caption, layers, description, rows, legend=legend, log=True)
