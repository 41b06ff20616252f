"""Parts of a page that draws: sections, figures, data and code inside."""

from __future__ import annotations

import json
from typing import Any

from dbdyno.present.document import Chart, Key
from dbdyno.present.markup import Html, el


def section(name: str, title: str, *children: Html) -> Html:
    return el(
        "section", el("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title"
    )


def figure(identifier: str, chart: Chart) -> Html:
    log = el("button", "log scale", type="button", class_="log", aria_pressed="false", hidden=True)
    head = el("div", el("h3", chart.title), log if chart.log else None, class_="head")
    plot = el("div", class_="plot", role="img", aria_label=str(chart.spec.get("description", chart.title)))
    legend = el("ul", *map(_key, chart.legend), class_="legend") if chart.legend else None
    caption = el("figcaption", chart.caption)
    return el(
        "figure", head, plot, legend, caption, id=identifier, class_=_class(chart), data_marks=chart.marks
    )


def _class(chart: Chart) -> str:
    return "chart card wide" if chart.wide else "chart card"


def _key(key: Key) -> Html:
    paint = f"color:{key.colour};opacity:{key.opacity}"
    fill = f";background:{key.colour}" if key.mark in ("fill", "dot") else ""
    return el("li", el("i", class_=key.mark, style=paint + fill), key.label)


def data(name: str, value: Any) -> Html:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{name}">{safe}</script>')
