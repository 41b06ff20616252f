"""A document as one HTML page that loads nothing, or as parts of a page that is made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from dbdyno.present import markup
from dbdyno.present.document import (
    Block,
    Chart,
    Document,
    Drawing,
    KeyFigure,
    Paragraph,
    Section,
    Statement,
    Statements,
    Table,
    walk,
)
from dbdyno.present.markup import Html, el, join
from dbdyno.present.page import asset, charts_code
from dbdyno.present.page import page as whole
from dbdyno.present.page_parts import data, figure

_DRAWING = Html(
    '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
)


def page(shown: Document) -> str:
    """The whole page."""
    charts = specs(shown.blocks)
    footer = el("footer", el("div", shown.footer)) if shown.footer else None
    body = [_header(shown, bool(charts)), el("main", parts(shown.blocks), id="content"), footer]
    if not charts:
        return whole(shown.title, join(*body))
    return whole(shown.title, join(*body, data("specs", charts)), scripts=[charts_code(), asset("page.js")])


def parts(blocks: Iterable[Block], depth: int = 2) -> Html:
    """The blocks in their order; ``depth``: of the headings."""
    made: list[Html] = []
    for drawn, group in groupby(blocks, key=lambda b: isinstance(b, Chart)):
        some = list(group)
        charts = [c for c in some if isinstance(c, Chart)]
        made += [_charts(charts)] if drawn else [_part(b, depth) for b in some]
    return join(*made)


def specs(blocks: Iterable[Block]) -> dict[str, Any]:
    """Identifier of the figure -> Vega-Lite specification."""
    return {b.id: b.spec for b in walk(blocks) if isinstance(b, Chart)}


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
            return _table(block.shown(sketches=False))
        case Drawing():
            caption = el("figcaption", block.caption) if block.caption else None
            return el("figure", caption, Html(block.svg))
        case Section():
            return _section(block, depth)
        case Chart():
            return _charts([block])


def _charts(charts: Sequence[Chart]) -> Html:
    """The wide ones above the others, which go two and two."""
    sizes = [[figure(c.id, c) for c in charts if c.wide is wide] for wide in (True, False)]
    return join(_DRAWING, *(el("div", *some, class_="charts") for some in sizes if some))


def _statement(item: Statement) -> Html:
    title = el("span", item.title, class_="tag") if item.title else None
    evidence = el("span", f" ({item.evidence})", class_="foot") if item.evidence else None
    return el("li", title, el("span", item.text), evidence, class_=item.tone or None, id=item.id or None)


def _table(shown: Table) -> Html:
    heads, numbers = [c.head for c in shown.columns], [c.number for c in shown.columns]
    lines = ([c.text for c in r.cells] for r in shown.rows)
    return markup.table(shown.title, heads, lines, numbers, "named" if shown.named else None)


def _section(shown: Section, depth: int) -> Html:
    inner = parts(shown.blocks, depth + 1)
    if shown.folded:
        return el("details", el("summary", shown.title), inner, id=shown.id or None)
    heading = el(f"h{min(depth, 6)}", shown.title, id=f"{shown.id}-title" if shown.id else None)
    if depth > 2:
        return join(heading if shown.title else None, inner)
    return el(
        "section",
        heading,
        inner,
        id=shown.id or None,
        aria_labelledby=f"{shown.id}-title" if shown.id else None,
    )
