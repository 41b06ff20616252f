"""Renders a document as one HTML page that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from dbdyno.model.text.visible import visible_json
from dbdyno.present.charts.chart import HEIGHT
from dbdyno.present.document import palette
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Choice,
    Column,
    Document,
    Drawing,
    Flame,
    Key,
    KeyFigure,
    PageLink,
    Paragraph,
    Section,
    Statement,
    Statements,
    Strip,
    Table,
    Verbatim,
    links_by_kind,
    walk,
)
from dbdyno.present.document.page import Content, Html, asset, charts_code, el, escaped, join
from dbdyno.present.document.page import page as whole

_DRAWING = Html(
    '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
)
_UNKNOWN = "unknown: see below the table"


class Frame(NamedTuple):
    """The surroundings of a document on a web server, and additions to it.

    ``links`` to other pages stand above the contents, ``above`` before the blocks. ``scripts`` and ``styles``
    are texts; ``data`` are JSON values by the id of their element. ``show``: the key of the options that are
    shown first. ``served``: see :func:`whole`.
    """

    links: Html | None = None
    above: Html | None = None
    scripts: Sequence[str] = ()
    styles: str = ""
    data: Mapping[str, Any] = MappingProxyType({})
    show: str = ""
    served: bool = False


def page(shown: Document, frame: Frame = Frame()) -> str:  # noqa: B008  immutable
    """Returns the page with the scripts that its blocks need."""
    shown = replace(shown, blocks=_explained_once(shown.blocks, set()))
    blocks = list(walk(shown.blocks))
    charts = {name: form.spec for b in blocks if isinstance(b, Chart) for name, form in _forms(b)}
    strips = {b.id: _strip_data(b) for b in blocks if isinstance(b, Strip)}
    code = [charts_code()] if charts else []
    code += [asset("strips.js")] if strips else []
    flames = {b.id: _flame_data(b) for b in blocks if isinstance(b, Flame)}
    code += [asset("flame.js")] if flames else []
    code += [asset("page.js"), asset("tables.js"), *frame.scripts]
    data = [_data("specs", charts), *(_data(name, value) for name, value in frame.data.items())]
    data += [_data("strips", strips)] if strips else []
    data += [_data("flames", flames)] if flames else []
    footer = el("footer", el("div", _left_out(shown.blocks), shown.footer))
    main = el("main", frame.above, parts(shown.blocks))
    nav = _contents(shown, blocks, frame)
    body = join(
        nav, el("div", _header(shown), main, footer, class_="page"), *data, _hatches() if charts else None
    )
    return whole(shown.title, body, code, frame.styles, served=frame.served)


def _left_out(blocks: Iterable[Block]) -> Html | None:
    """Returns the line that names the folded sections on paper, where nobody can open them."""
    names = [b.title for b in walk(blocks) if isinstance(b, Section) and b.folded and b.title]
    text = f"Not on paper, in the page alone: {', '.join(dict.fromkeys(names))}."
    return el("p", text, class_="paper") if names else None


def _all_folded(shown: Section) -> bool:
    """Returns whether a section shows nothing until it is opened."""
    return all(isinstance(b, Section) and (b.folded or _all_folded(b)) for b in shown.blocks)


_EXPLANATION = 40
"""Least characters of a remark that explains; a shorter one is a fact about its own table."""


def _explained_once(blocks: Iterable[Block], known: set[str]) -> list[Block]:
    """Leaves out captions and remarks that an earlier part of the page shows."""
    kept: list[Block] = []
    for block in blocks:
        match block:
            case Chart() | Strip() | Flame() | Drawing():
                kept.append(replace(block, caption="") if block.caption in known else block)
                known.add(block.caption)
            case Paragraph(tone="muted", text=text) if len(text) >= _EXPLANATION:
                kept += [] if text in known else [block]
                known.add(text)
            case Section():
                inner = _explained_once(block.blocks, {*known} if block.folded else known)
                kept.append(replace(block, blocks=inner))
            case Choice():
                options = [o._replace(blocks=_explained_once(o.blocks, {*known})) for o in block.options]
                kept.append(replace(block, options=options))
            case _:
                kept.append(block)
    return kept


def fragment(blocks: Iterable[Block]) -> Html:
    """Returns blocks without charts as they are in a page, to be put into one."""
    return parts(_explained_once(blocks, set()))


def parts(blocks: Iterable[Block], depth: int = 2) -> Html:
    """Returns the blocks in their order; ``depth`` is the level of their headings."""
    elements: list[Html] = []
    for drawn, group in groupby(blocks, key=lambda b: isinstance(b, Chart)):
        some = list(group)
        charts = [c for c in some if isinstance(c, Chart)]
        elements += [_charts(charts)] if drawn else [_part(b, depth) for b in some]
    return join(*elements)


def _contents(shown: Document, blocks: Sequence[Block], frame: Frame) -> Html:
    """Returns the fixed navigation: links to other pages, links to sections, and one selector for all
    choices."""
    button = el("button", "light / dark", id="theme", type="button", hidden=True)
    top = el("div", el("span", "dbdyno", class_="brand"), button, class_="top")
    sections = [b for b in shown.blocks if isinstance(b, Section) and b.id and b.title]
    links = [el("li", el("a", b.name or b.title, href=f"#{b.id}")) for b in sections]
    skip = el("a", "Skip to the content", href="#content", class_="skip")
    return el(
        "nav",
        skip,
        top,
        frame.links,
        _selector(blocks, frame.show),
        el("ol", *links) if links else None,
        class_="toc",
        aria_label="Contents",
    )


def _selector(blocks: Iterable[Block], show: str) -> Html | None:
    """Returns the selector for all choices of the page, hidden until page.js handles it; None without
    options. ``data-elsewhere``: the other options are on pages of their own."""
    choices = [b for b in blocks if isinstance(b, Choice) and b.options]
    here = {o.key: o.label for c in choices for o in c.options}
    labels = {key: label for c in choices for key, label in c.labels} | here
    if len(labels) < 2:
        return None
    first = next(iter(here))
    options = [
        el("option", text, value=key, selected=key == (show if show in here else first))
        for key, text in labels.items()
    ]
    elsewhere = len(here) < len(labels)
    # a browser that goes back would select the option of the page that it left
    kept = "off" if elsewhere else None
    chosen = el("select", *options, id="pick", data_elsewhere=elsewhere, autocomplete=kept)
    still = el("p", f"Shown: {here[first]}. To choose another needs JavaScript.", class_="foot")
    notes = [el("p", n, class_="foot") for n in dict.fromkeys(c.note for c in choices) if n]
    label = el("label", f"{choices[0].name} ", chosen, class_="choose", hidden=True)
    return join(label, el("noscript", still), *notes)


def _header(shown: Document) -> Html:
    tiles = el("dl", *map(_tile, shown.figures), class_="tiles") if shown.figures else None
    about = el("dl", *(_fact(name, value) for name, value in shown.about), class_="about")
    content = el("div", el("h1", shown.title), _lead(shown.lead), tiles, about if shown.about else None)
    return el("header", content, id="content")


_PARAGRAPHS = 3
"""Most answers in large type above a page; of more, those after the first are a list."""


def _lead(lead: Sequence[Paragraph]) -> Html:
    answers = [p for p in lead if p.lead]
    if len(answers) <= _PARAGRAPHS:
        return parts(lead)
    first = lead.index(answers[0]) + 1
    listed = el("ul", *(el("li", *_words(p)) for p in answers[1:]), class_="answers")
    return join(parts(lead[:first]), listed, parts(p for p in lead[first:] if not p.lead))


_SHORT = 40
"""Most characters of a fact of the title block that stands beside others."""
_LARGE = 10
"""Longest text of a tile in large letters: a longer one leaves the tile."""


def _fact(name: str, value: str) -> Html:
    wide = "wide" if len(value) > _SHORT else None
    return el("div", el("dt", name), el("dd", value), class_=wide)


def _linked(text: str, target: str) -> Content:
    """Returns a link to the block of this id, or to an address of the server, which begins with a slash."""
    where = target if target.startswith("/") else f"#{target}"
    return el("a", text, href=where, class_="to") if target else text


def _paragraph(shown: Paragraph) -> Html:
    return el("p", *_words(shown), class_="lead" if shown.lead else shown.tone or None)


def _words(shown: Paragraph) -> list[Content]:
    """Returns the text with its links."""
    elements: list[Content] = []
    rest = shown.text
    for part, target in shown.links:
        before, separator, after = rest.partition(part)
        if separator:
            elements += [before, _linked(part, target)]
            rest = after
    return [*elements, rest]


def _tile(shown: KeyFigure) -> Html:
    note = ", ".join(t for t in (shown.cell.unit, shown.note) if t)
    long = len(shown.cell.text) > _LARGE
    return el(
        "div",
        el("dt", _linked(shown.name, shown.target)),
        el("dd", shown.cell.text, el("small", note) if note else None, class_="words" if long else None),
    )


def _part(block: Block, depth: int) -> Html:
    match block:
        case Paragraph():
            return _paragraph(block)
        case Statements():
            return _statements(block) if block.items else join()
        case Table():
            return join() if block.in_title_block else _table(block)
        case Drawing():
            caption = el("figcaption", block.caption) if block.caption else None
            return el("figure", caption, Html(block.svg))
        case Strip():
            return _strip(block)
        case Flame():
            return _flame(block)
        case Verbatim():
            return join() if block.sketch else el("pre", block.text)
        case Choice():
            return _choice(block, depth)
        case Section():
            return _section(block, depth)
        case Chart():
            return _charts([block])


def _charts(charts: Sequence[Chart]) -> Html:
    """Returns wide charts above the others, which stand in pairs."""
    sizes = [[_figure(c) for c in charts if c.wide is wide] for wide in (True, False)]
    return join(_DRAWING, *(el("div", *some, class_="charts") for some in sizes if some))


def _figure(chart: Chart) -> Html:
    log = _button("log scale", "log") if chart.log else None
    switch = _button(chart.other.title, "switch") if chart.other else None
    head = el("div", el("h3", chart.title), log, switch, class_="head")
    caption = el("figcaption", chart.caption) if chart.caption else None
    size = "chart card wide" if chart.wide else "chart card"
    forms = [_form(name, form, first=name == chart.id) for name, form in _forms(chart)]
    return el("figure", head, *forms, caption, id=chart.id, class_=size, data_marks=chart.marks)


def _button(text: str, name: str) -> Html:
    return el("button", text, type="button", class_=name, aria_pressed="false", hidden=True)


def _forms(chart: Chart) -> list[tuple[str, Chart]]:
    """Returns the forms of a chart with the names of their specifications."""
    return [(chart.id, chart), *([(f"{chart.id}-other", chart.other)] if chart.other else [])]


def _form(name: str, chart: Chart, *, first: bool) -> Html:
    """Returns where page.js draws a form, and its legend; the first form is shown."""
    named = {"role": "img", "aria_label": str(chart.spec.get("description", chart.title))}
    high = chart.spec.get("height", HEIGHT)
    plot = el("div", class_="plot", style=f"--high:{high}px" if high < HEIGHT else None, **named)
    legend = el("ul", *map(_key, chart.legend), class_="legend") if chart.legend else None
    caption = None if first else el("p", chart.caption, class_="foot")
    return el("div", plot, legend, caption, class_="form", data_spec=name, hidden=not first)


def _key(key: Key) -> Html:
    paint = f"color:{key.colour};opacity:{key.opacity}"
    fill = f";background:{key.colour}" if key.mark in ("fill", "dot") else ""
    return el("li", el("i", class_=key.mark, style=paint + fill), key.label)


def _strip(shown: Strip) -> Html:
    """Returns the element in which strips.js draws, and the legend."""
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
        el("figcaption", shown.caption) if shown.caption else None,
        class_="card strips",
    )


def _strip_data(shown: Strip) -> dict[str, Any]:
    return {
        "parts": [{"name": name, "colour": colour or None} for name, colour in shown.parts],
        "from": shown.start_s,
        "to": shown.end_s,
        "clock": shown.clock_ms,
        "left_out": shown.left_out,
        "marks": [list(mark) for mark in shown.marks],
        "names": shown.names,
        "pieces": shown.pieces,
    }


def _flame(shown: Flame) -> Html:
    """Returns the element in which flame.js draws."""
    search = el("label", "Search ", el("input", type="search", placeholder="function or module"))
    reset = el("button", "Reset zoom", type="button")
    tools = el("div", search, reset, el("output"), class_="tools", hidden=True)
    frames = el("div", class_="frames", role="tree", aria_label=shown.title)
    status = el("div", class_="frame foot", role="status")
    caption = el("figcaption", shown.caption) if shown.caption else None
    head = el("div", el("h3", shown.title), class_="head")
    parts = (head, tools, el("div", frames, class_="over"), status, caption, _DRAWING)
    return el("figure", *parts, id=shown.id, class_="card flame", data_flame=shown.id)


def _flame_data(shown: Flame) -> dict[str, Any]:
    named = ("names", "root", "colours", "scale", "unit", "compared")
    return {name: getattr(shown, name) for name in named}


def _choice(shown: Choice, depth: int) -> Html:
    """Returns the options, all but the first hidden; page.js shows the selected one in all choices."""
    some = [
        el("div", parts(o.blocks, depth), class_="of", data_pick=o.key, hidden=n > 0)
        for n, o in enumerate(shown.options)
    ]
    return el("div", *some, class_="choice")


def _statements(shown: Statements) -> Html:
    names = "findings brief" if shown.brief else "findings"
    return el("ul", *(_statement(item, shown.brief) for item in shown.items), class_=names)


def _statement(item: Statement, brief: bool) -> Html:
    title = el("span", item.title, class_="tag") if item.title else None
    evidence = el("span", f" ({item.evidence})", class_="foot") if item.evidence else None
    advice = el("div", f"What to do: {item.advice}") if item.advice else None
    note = el("div", item.note, class_="foot") if item.note else None
    text = join(title, el("span", _linked(item.text, item.target)), evidence)
    rest = join(advice, note, _pages(item.pages))
    whole = el("details", el("summary", text), rest) if brief else join(text, rest)
    return el("li", whole, class_=item.tone or None, data_claim=item.id or None)


def _pages(pages: Sequence[PageLink]) -> Html | None:
    return el("div", *_words(links_by_kind(pages)), class_="foot pages-of") if pages else None


_PAGE_PX, _CHAR_PX, _PAD_PX, _WORD = 700.0, 5.9, 8.0, 16
"""Estimated sizes of a table on a printed page (A4 less margins), in the type of page.css.

Width of the page, width of a character, padding of a column; letters of a word that are kept together.
"""


def _table(shown: Table) -> Html:
    """Returns a table in a box that scrolls sideways, and takes the focus so that keys scroll it.

    A line below has the columns that have one value. tables.js leaves columns of high rank out where there
    is no room; on paper, rules of style do.
    """
    shown, same = shown.without_constants()
    shown = shown.shown(sketches=False, bars=True)
    off = _unprinted(shown)
    classes = [
        _classes(
            c.number and "num",
            c.shortens and "long",
            not c.number and _of_short_words(r.cells[n].text for r in shown.rows) and "words",
            n in off and "off",
        )
        for n, c in enumerate(shown.columns)
    ]
    named = any(c.head or c.name for c in shown.columns)
    header_cells = [_head(c, classes[n]) for n, c in enumerate(shown.columns)]
    heads = el("thead", el("tr", *header_cells)) if named else None
    rows = [el("tr", *map(_cell, range(len(classes)), r.cells, classes), id=r.id or None) for r in shown.rows]
    caption = el("caption", el("span", shown.title)) if shown.title else None
    name = "named" if shown.named else None if heads else "facts"
    table = el("table", caption, heads, el("tbody", *rows), class_=name)
    box = el("div", table, class_="scroll", tabindex=0, role="region", aria_label=shown.title or "table")
    left = ", ".join(c.name or c.head for n, c in enumerate(shown.columns) if n in off)
    return join(
        box,
        el("p", "; ".join(f"{name}: {value}" for name, value in same), class_="foot") if same else None,
        el("p", f"Not on paper: {left}.", class_="foot paper") if left else None,
    )


def _unprinted(shown: Table) -> set[int]:
    """Returns the columns without room on a printed page, the highest rank first."""
    widths = [_width(c, [r.cells[n] for r in shown.rows]) for n, c in enumerate(shown.columns)]
    kept = set(range(len(widths)))
    for rank in sorted({c.rank for c in shown.columns if c.rank}, reverse=True):
        if sum(widths[n] for n in kept) <= _PAGE_PX:
            break
        kept -= {n for n, c in enumerate(shown.columns) if c.rank == rank}
    return set(range(len(widths))) - kept


_BREAKS = re.compile(r"[\s/]+")


def _of_short_words(texts: Iterable[str]) -> bool:
    """Returns whether a column for which :func:`_width` leaves room need not break inside words."""
    return all(len(part) <= _WORD for text in texts for part in _BREAKS.split(text))


def _width(column: Column, cells: Sequence[Cell]) -> float:
    """Returns the least width of a column in pixels: headings and texts wrap at words, numbers do not."""
    words = max(map(len, (column.name or column.head).split()), default=0)
    texts = max((len(c.text) for c in cells), default=0)
    bar = 70.0 if any(c.bar for c in cells) else 0.0
    return _PAD_PX + bar + _CHAR_PX * max(words, texts if column.number else min(texts, _WORD))


def _head(column: Column, classes: str | None) -> Html:
    text = column.name or column.head
    content = el("abbr", text, title=column.note) if column.note else text
    classes = _classes(classes or "", column.side and f"side-{column.side}")
    return el("th", content, scope="col", class_=classes, data_rank=column.rank or None)


def _cell(number: int, cell: Cell, classes: str | None) -> Html:
    """Returns a cell; the first cell of a row is its header."""
    unknown = cell.text == UNKNOWN
    plain = not (unknown or any(cell[3:]) or (classes and "words" in classes))
    if plain and number:
        return el("td", cell.text, class_=classes)
    note = cell.note or (_UNKNOWN if unknown else "")
    tone = _classes(unknown and "unknown", cell.tone and f"tone {cell.tone}")
    words: Content = _linked(cell.text, cell.target)
    if classes and "words" in classes and not cell.target:  # browsers do not break at a slash by themselves
        words = Html(escaped(cell.text).replace("/", "/<wbr>"))
    text = el("span", words, title=note or None, class_=tone) if note or tone else words
    if cell.whole:
        text = el("details", el("summary", cell.text), el("pre", cell.whole))
    widths = [
        el("i", style=f"width:{100 * share:.1f}%;background:{palette.var(colour)}")
        for share, colour in cell.bar
    ]
    bar = el("span", *widths, class_="bar", aria_hidden="true") if widths else None
    scope = {"scope": "row"} if number == 0 else {}
    return el("td" if number else "th", text, bar, class_=classes, **scope)


def _classes(*names: str | bool) -> str | None:
    return " ".join(n for n in names if isinstance(n, str) and n) or None


def _section(shown: Section, depth: int) -> Html:
    inner = parts(shown.blocks, depth + 1)
    if shown.folded:
        return el("details", el("summary", shown.title), inner, id=shown.id or None)
    named = f"{shown.id}-title" if shown.id and shown.title else None
    off = "off" if _all_folded(shown) else None
    title = el("a", shown.title, href=f"#{shown.id}", class_="self") if named and depth == 2 else shown.title
    heading = el(f"h{min(depth, 6)}", title, id=named, class_=off) if shown.title else None
    if depth > 2:
        return join(heading, inner)
    return el("section", heading, inner, id=shown.id or None, aria_labelledby=named)


def _data(name: str, value: Any) -> Html:
    safe = visible_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{name}">{safe}</script>')


def _hatches() -> Html:
    """Returns patterns of stripes for time in the run queue, which charts refer to; they follow the theme."""
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
