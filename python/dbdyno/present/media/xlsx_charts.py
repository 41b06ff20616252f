"""Draws charts natively in Excel: lines, points and stacked bars of a Vega-Lite specification.

Their figures are on a sheet of their own, so a chart follows a changed figure. Other marks are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.model.text.visible import visible
from dbdyno.present.charts.chart import WHOLE
from dbdyno.present.document.document import Chart
from dbdyno.present.document.palette import light

SHEET = "chart data"
ROWS = 22
"""Rows of a sheet that a chart covers."""
_SIZE = {"width": 760, "height": 420}
_GRID = {"visible": True, "line": {"color": "#DDDDDD"}}
_HATCHED = "hatch-"
_INT_EXACT = 2**53  # larger integers are not exact in a spreadsheet, whose numbers are doubles
Spec = Mapping[str, Any]


class Drawn(NamedTuple):
    """A series: a line, points, or the pieces of one colour in stacked bars."""

    mark: str  # line, point, bar
    name: str
    colour: str  # value in the specification
    dashed: bool
    xs: Sequence[Any]
    ys: Sequence[float | None]


def series(chart: Chart) -> list[Drawn]:
    """Returns the parts of a chart that Excel can draw: lines, points without a line, and stacked bars."""
    layers = chart.spec.get("layer", ())
    lines = {x["data"]["name"] for x in layers if x["mark"]["type"] == "line"}
    kept = [x for x in layers if x["mark"]["type"] != "point" or x["data"]["name"] not in lines]
    return [s for x in kept for s in _series(chart, x, chart.spec["datasets"][x["data"]["name"]])]


def add(book: Any, data: Any, top: int, chart: Chart, drawn: Sequence[Drawn]) -> tuple[Any, int]:
    """Adds a chart, and its figures to sheet ``data`` from row ``top``; returns it and the next free row."""
    stacked = drawn[0].mark == "bar"
    kind = {"type": "column", "subtype": "stacked"} if stacked else {"type": "scatter", "subtype": "straight"}
    excel_chart = book.add_chart(kind)
    title, x, y = map(visible, (chart.title, *_titles(chart)))
    data.write_string(top, 0, title)
    for n, shown in enumerate(drawn):
        at = 2 * n
        data.write_string(top + 1, at, x)
        data.write_string(top + 1, at + 1, visible(shown.name))
        for row, values in enumerate(zip(shown.xs, shown.ys, strict=True), start=top + 2):
            for column, value in enumerate(values, start=at):
                write(data, row, column, value)
        last = top + 1 + len(shown.xs)
        excel_chart.add_series(
            {
                "name": [SHEET, top + 1, at + 1],
                "categories": [SHEET, top + 2, at, last, at],
                "values": [SHEET, top + 2, at + 1, last, at + 1],
                **_look(shown),
            }
        )
    excel_chart.set_title({"name": title, "name_font": {"size": 12}})
    excel_chart.set_x_axis({"name": x, "label_position": "low"})
    excel_chart.set_y_axis({"name": y, "major_gridlines": _GRID})
    excel_chart.set_legend({"position": "bottom"})
    excel_chart.set_size(_SIZE)
    excel_chart.show_blanks_as("gap")  # unknown is a gap, not 0
    return excel_chart, top + 3 + max(len(shown.xs) for shown in drawn)


def _series(chart: Chart, layer: Spec, rows: Sequence[Spec]) -> Iterator[Drawn]:
    """Yields a series per combination of colour, detail and dashes."""
    mark, channels = layer["mark"]["type"], layer["encoding"]
    x, y, y2, colour = (channels.get(c, {}).get("field") for c in ("x", "y", "y2", "color"))
    stacked = mark == "bar" and colour is not None and "x2" not in channels
    if not (stacked or mark in ("line", "point")) or x is None or y is None or _renamed(channels["x"]):
        return
    places = list(dict.fromkeys(r[x] for r in rows))
    for name, part in _parts(channels, rows):
        xs, ys = [r[x] for r in part], [r[y] if y2 is None else r[y2] - r[y] for r in part]
        if stacked:  # every series of a stack has all places
            by_place = dict(zip(xs, ys, strict=True))
            xs, ys = places, [by_place.get(p) for p in places]
        shown = Drawn(mark, name, _colour(layer, part[0]), _dashed(layer, part[0]), xs, ys)
        yield shown._replace(name=_name(chart, layer, shown))


def _renamed(axis: Spec) -> bool:
    """Returns whether the labels of the axis differ from its values."""
    return (axis.get("axis") or {}).get("labelExpr") not in (None, WHOLE["labelExpr"])


def _parts(channels: Spec, rows: Sequence[Spec]) -> Iterator[tuple[str, list[Spec]]]:
    """Yields the rows that one mark joins, with the values that distinguish them."""
    detail = channels.get("detail", [])
    by = [channels.get("color", {}), channels.get("strokeDash", {})]
    by += detail if isinstance(detail, list) else [detail]
    fields = dict.fromkeys(c["field"] for c in by if "field" in c)
    apart = [f for f in fields if len({r[f] for r in rows}) > 1] or list(fields)[:1]
    for key in dict.fromkeys(tuple(r[f] for f in apart) for r in rows):
        part = [r for r in rows if tuple(r[f] for f in apart) == key]
        yield str(part[0].get("label") or ", ".join(map(str, key))), part


def _name(chart: Chart, layer: Spec, one: Drawn) -> str:
    """Returns the distinguishing values, or the entry of the legend if they do not name the series."""
    if one.name and "strokeDash" not in layer["mark"]:
        return one.name
    alike = [k for k in chart.legend if (k.mark in ("dash", "dots")) == one.dashed]
    labels = [k.label for k in alike if k.colour == one.colour] or [k.label for k in alike]
    return ": ".join(filter(None, (one.name, *labels[:1]))) or chart.title


def _scaled(channel: Spec, row: Spec) -> Any:
    """Returns the value of a channel's scale for the row; ``None`` without a scale."""
    scale = channel.get("scale") or {}
    values = dict(zip(scale.get("domain", ()), scale.get("range", ()), strict=False))
    return values.get(row.get(channel.get("field", "")))


def _colour(layer: Spec, row: Spec) -> str:
    return str(_scaled(layer["encoding"].get("color", {}), row) or layer["mark"].get("color", ""))


def _dashed(layer: Spec, row: Spec) -> bool:
    dash = _scaled(layer["encoding"].get("strokeDash", {}), row) or layer["mark"].get("strokeDash")
    return bool(dash) and list(dash) != [1, 0]


def _titles(chart: Chart) -> tuple[str, str]:
    """Returns the titles of the axes, each from the first layer that has one."""
    encodings = [x["encoding"].get(c, {}) for c in ("x", "y") for x in chart.spec["layer"]]
    half = len(encodings) // 2
    x, y = (
        next((c["title"] for c in part if c.get("title")), "")
        for part in (encodings[:half], encodings[half:])
    )
    return x, y


def _look(one: Drawn) -> dict[str, Any]:
    name = one.colour.removeprefix("var(--").removeprefix(f"url(#{_HATCHED}").rstrip(")")
    colour = light(name) if name else "#000000"
    if one.mark == "bar" and _HATCHED in one.colour:
        stripes = {"pattern": "wide_upward_diagonal", "fg_color": light("runq"), "bg_color": colour}
        return {"pattern": stripes, "gap": 40}
    if one.mark == "bar":
        return {"fill": {"color": colour}, "gap": 40}
    if one.mark == "point":
        marker = {"type": "circle", "size": 6, "fill": {"color": colour}, "border": {"color": colour}}
        return {"line": {"none": True}, "marker": marker}
    line = {"color": colour, "width": 2.0, **({"dash_type": "dash"} if one.dashed else {})}
    return {"line": line, "marker": {"type": "none"}}


def write(sheet: Any, row: int, column: int, value: Any) -> None:
    """Writes a value: a number if a spreadsheet keeps all its digits, an empty cell if it is unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, int | float) and abs(value) <= _INT_EXACT:
        sheet.write_number(row, column, value)
    else:
        sheet.write_string(row, column, visible(str(value)))
