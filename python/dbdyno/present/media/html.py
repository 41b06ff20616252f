"""A document as one HTML page that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from dbdyno.present import palette
from dbdyno.present.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Choice,
    Column,
    Document,
    Drawing,
    Key,
    KeyFigure,
    Paragraph,
    Section,
    Statement,
    Statements,
    Strip,
    Table,
    Verbatim,
    walk,
)
from dbdyno.present.page import Html, asset, charts_code, el, join
from dbdyno.present.page import page as whole

_DRAWING = Html(
    '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
)
_UNKNOWN = "unknown: see below the table"


def page(shown: Document) -> str:
    """The whole page, with the code that its blocks need."""
    blocks = list(walk(shown.blocks))
    charts = {b.id: b.spec for b in blocks if isinstance(b, Chart)}
    strips = {b.id: _strip_data(b) for b in blocks if isinstance(b, Strip)}
    code = [charts_code()] if charts else []
    code += [asset("strips.js")] if strips else []
    code += [asset("page.js")] if code or any(isinstance(b, Choice) for b in blocks) else []
    held = [_data("specs", charts)] if code else []
    held += [_data("strips", strips)] if strips else []
    footer = el("footer", el("div", shown.footer)) if shown.footer else None
    body = [_header(shown, bool(charts)), el("main", parts(shown.blocks), id="content"), footer]
    return whole(shown.title, join(*body, *held, _hatches() if charts else None), scripts=code)


def parts(blocks: Iterable[Block], depth: int = 2) -> Html:
    """The blocks in their order; ``depth``: of the headings."""
    made: list[Html] = []
    for drawn, group in groupby(blocks, key=lambda b: isinstance(b, Chart)):
        some = list(group)
        charts = [c for c in some if isinstance(c, Chart)]
        made += [_charts(charts)] if drawn else [_part(b, depth) for b in some]
    return join(*made)


def _header(shown: Document, charts: bool) -> Html:
    button = el("button", "light / dark", id="theme", type="button", hidden=True) if charts else None
    top = el("div", el("span", "dbdyno", class_="brand"), button, class_="top")
    tiles = el("dl", *map(_tile, shown.figures), class_="tiles") if shown.figures else None
    skip = el("a", "Skip to the content", href="#content", class_="skip")
    return el("header", skip, el("div", top, el("h1", shown.title), parts(shown.lead), tiles))


def _tile(shown: KeyFigure) -> Html:
    note = ", ".join(t for t in (shown.cell.unit, shown.note) if t)
    return el("div", el("dt", shown.name), el("dd", shown.cell.text, el("small", note) if note else None))


def _part(block: Block, depth: int) -> Html:
    match block:
        case Paragraph():
            return el("p", block.text, class_="lead" if block.lead else block.tone or None)
        case Statements():
            return el("ul", *map(_statement, block.items), class_="findings") if block.items else join()
        case Table():
            return _table(block.shown(sketches=False, bars=True))
        case Drawing():
            caption = el("figcaption", block.caption) if block.caption else None
            return el("figure", caption, Html(block.svg))
        case Strip():
            return _strip(block)
        case Verbatim():
            return join() if block.sketch else el("pre", block.text)
        case Choice():
            return _choice(block, depth)
        case Section():
            return _section(block, depth)
        case Chart():
            return _charts([block])


def _charts(charts: Sequence[Chart]) -> Html:
    """The wide ones above the others, which go two and two."""
    sizes = [[_figure(c) for c in charts if c.wide is wide] for wide in (True, False)]
    return join(_DRAWING, *(el("div", *some, class_="charts") for some in sizes if some))


def _figure(chart: Chart) -> Html:
    log = el("button", "log scale", type="button", class_="log", aria_pressed="false", hidden=True)
    head = el("div", el("h3", chart.title), log if chart.log else None, class_="head")
    plot = el("div", class_="plot", role="img", aria_label=str(chart.spec.get("description", chart.title)))
    legend = el("ul", *map(_key, chart.legend), class_="legend") if chart.legend else None
    caption = el("figcaption", chart.caption)
    size = "chart card wide" if chart.wide else "chart card"
    return el("figure", head, plot, legend, caption, id=chart.id, class_=size, data_marks=chart.marks)


def _key(key: Key) -> Html:
    paint = f"color:{key.colour};opacity:{key.opacity}"
    fill = f";background:{key.colour}" if key.mark in ("fill", "dot") else ""
    return el("li", el("i", class_=key.mark, style=paint + fill), key.label)


def _strip(shown: Strip) -> Html:
    """Where strips.js draws, and the legend."""
    paints = [
        f"background:{palette.var(c)}" if c else "border:1px dashed var(--muted)" for _, c in shown.parts
    ]
    keys = [
        el("li", el("i", class_="fill", style=p), name)
        for (name, _), p in zip(shown.parts, paints, strict=True)
    ]
    return el(
        "figure",
        el("div", el("h3", shown.title), class_="head"),
        el("div", class_="strip", data_strip=shown.id),
        el("ul", *keys, class_="legend"),
        el("figcaption", shown.caption),
        class_="card strips",
    )


def _strip_data(shown: Strip) -> dict[str, Any]:
    return {
        "parts": [{"name": name, "colour": colour or None} for name, colour in shown.parts],
        "from": shown.start_s,
        "to": shown.end_s,
        "left_out": shown.left_out,
        "names": shown.names,
        "pieces": shown.pieces,
    }


def _choice(shown: Choice, depth: int) -> Html:
    """A select, and the options, all but the first hidden; page.js keeps all choices on one option."""
    options = [el("option", o.label, value=o.key, selected=n == 0) for n, o in enumerate(shown.options)]
    select = el(
        "label", f"{shown.name} ", el("select", *options, class_="pick"), class_="choose", hidden=True
    )
    some = [
        el("div", parts(o.blocks, depth), class_="of", data_pick=o.key, hidden=n > 0)
        for n, o in enumerate(shown.options)
    ]
    note = el("p", shown.note, class_="foot") if shown.note else None
    return el("div", select if len(options) > 1 else None, *some, note, class_="choice")


def _statement(item: Statement) -> Html:
    title = el("span", item.title, class_="tag") if item.title else None
    evidence = el("span", f" ({item.evidence})", class_="foot") if item.evidence else None
    advice = el("div", f"What to do: {item.advice}") if item.advice else None
    note = el("div", item.note, class_="foot") if item.note else None
    claim = item.id or None
    return el(
        "li", title, el("span", item.text), evidence, advice, note, class_=item.tone or None, data_claim=claim
    )


def _table(shown: Table) -> Html:
    """It scrolls sideways in its own box, which takes the focus so that keys scroll it."""
    heads = (
        el("thead", el("tr", *map(_head, shown.columns)))
        if any(c.head or c.name for c in shown.columns)
        else None
    )
    numeric = [c.number for c in shown.columns]
    rows = [el("tr", *map(_cell, range(len(numeric)), r.cells, numeric)) for r in shown.rows]
    caption = el("caption", el("span", shown.title)) if shown.title else None
    name = "named" if shown.named else None if heads else "facts"
    made = el("table", caption, heads, el("tbody", *rows), class_=name)
    return el("div", made, class_="scroll", tabindex=0, role="region", aria_label=shown.title or "table")


def _head(column: Column) -> Html:
    text = column.name or column.head
    return el(
        "th",
        el("abbr", text, title=column.note) if column.note else text,
        scope="col",
        class_=_num(column.number),
    )


def _cell(number: int, cell: Cell, numeric: bool) -> Html:
    """The first of a row names it."""
    unknown = cell.text == UNKNOWN
    note = cell.note or (_UNKNOWN if unknown else "")
    classes = " ".join(filter(None, ("unknown" if unknown else "", cell.tone and f"tone {cell.tone}")))
    text = el("span", cell.text, title=note or None, class_=classes or None) if note or classes else cell.text
    widths = [
        el("i", style=f"width:{100 * share:.1f}%;background:{palette.var(colour)}")
        for share, colour in cell.bar
    ]
    bar = el("span", *widths, class_="bar", aria_hidden="true") if widths else None
    scope = {"scope": "row"} if number == 0 else {}
    return el("td" if number else "th", text, bar, class_=_num(numeric), **scope)


def _num(number: bool) -> str | None:
    return "num" if number else None


def _section(shown: Section, depth: int) -> Html:
    inner = parts(shown.blocks, depth + 1)
    if shown.folded:
        return el("details", el("summary", shown.title), inner, id=shown.id or None)
    named = f"{shown.id}-title" if shown.id and shown.title else None
    heading = el(f"h{min(depth, 6)}", shown.title, id=named) if shown.title else None
    if depth > 2:
        return join(heading, inner)
    return el("section", heading, inner, id=shown.id or None, aria_labelledby=named)


def _data(name: str, value: Any) -> Html:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{name}">{safe}</script>')


def _hatches() -> Html:
    """The stripes of time in the run queue, for charts to refer to; they follow the theme."""
    size = {"width": 6, "height": 6}
    patterns = [
        el(
            "pattern",
            el("rect", **size, style=f"fill:{palette.var('runq')}"),
            el("rect", width=3.5, height=6, style=f"fill:{palette.var(n)}"),
            id=f"hatch-{n}",
            patternUnits="userSpaceOnUse",
            **size,
            patternTransform="rotate(45)",
        )
        for n in palette.hatches()
    ]
    return el("svg", el("defs", *patterns), class_="hatches", width=0, height=0, aria_hidden="true")
