"""The report as one HTML file that loads nothing: data, charts' code and styles are inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from importlib.resources import files as resources
from pathlib import Path

from dbdyno.model.results import Results
from dbdyno.report import bundle, headline, html_facts, html_tables, palette
from dbdyno.report.chart import Chart, Key
from dbdyno.report.charts import Group, groups
from dbdyno.report.files import write_atomic
from dbdyno.report.markup import Html, el, join

# The page may run its own code and draw; it may not load a thing from anywhere. Vega compiles expressions.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write(results: Results, path: Path) -> Path:
    """Writes the report; raises StoreError where ``path`` cannot be written."""
    code = bundle.begin()
    return write_atomic(path, page(results, code).encode("utf-8"))


def page(results: Results, code: Future[str]) -> str:
    """The whole document; ``code``: the charts' JavaScript, which may still be on its way."""
    drawn = groups(results)
    body = join(
        _header(results), el("main", *_sections(results, drawn), id="content"), html_facts.footer(results)
    )
    scripts = join(_specs(drawn), _script(code.result()), _script(_asset("page.js")))
    return f'<!doctype html>\n<html lang="en">{_head(results)}<body>{body}{scripts}</body></html>\n'


def _head(results: Results) -> Html:
    style = Html(f"<style>{palette.css()}{_asset('page.css')}</style>")
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("link", rel="icon", href="data:,"),
        el("title", f"dbdyno: {headline.title(results)}"),
        style,
    )


def _header(results: Results) -> Html:
    top = el(
        "div",
        el("span", "dbdyno", class_="brand"),
        el("button", "light / dark", id="theme", type="button", hidden=True),
        class_="top",
    )
    words = [el("p", s, class_="lead") for s in headline.sentences(results)]
    skip = el("a", "Skip to the findings", href="#findings", class_="skip")
    title = el("h1", headline.title(results))
    return el("header", skip, el("div", top, title, *words, html_facts.tiles(results)))


def _sections(results: Results, drawn: list[Group]) -> Iterator[Html]:
    yield html_facts.banner(results)
    yield _section("findings", "Findings", html_facts.findings(results))
    yield _section("rungs", "Rungs", html_tables.rungs(results))
    yield _section("charts", "Charts", *_groups(drawn))
    yield _section("environment", "Environment", html_facts.environment(results))
    yield _section("plan", "Plan and calibration", html_facts.plan(results))
    yield _section("methods", "How each figure was obtained", html_tables.methods(results))
    yield _section("witnesses", "Source against source", html_tables.witnesses(results))


def _section(name: str, title: str, *children: Html) -> Html:
    return el(
        "section", el("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title"
    )


def _groups(drawn: list[Group]) -> Iterator[Html]:
    if not drawn:
        yield el("p", "Nothing was measured that could be drawn.", class_="muted")
    else:
        yield Html(
            '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
        )
    for number, group in enumerate(drawn):
        if group.heading:
            yield el("h3", group.heading)
        figures = [_figure(_id(number, c), c) for c in group.charts]
        yield el("div", *figures, class_="charts")


def _figure(identifier: str, chart: Chart) -> Html:
    log = el("button", "log scale", type="button", class_="log", aria_pressed="false", hidden=True)
    head = el("div", el("h3", chart.title), log if chart.log else None, class_="head")
    plot = el("div", class_="plot", role="img", aria_label=str(chart.spec.get("description", chart.title)))
    legend = el("ul", *map(_key, chart.legend), class_="legend") if chart.legend else None
    caption = el("figcaption", chart.caption)
    return el(
        "figure", head, plot, legend, caption, id=identifier, class_="chart card", data_marks=chart.marks
    )


def _key(key: Key) -> Html:
    paint = f"color:{key.colour};opacity:{key.opacity}"
    fill = f";background:{key.colour}" if key.mark in ("fill", "dot") else ""
    return el("li", el("i", class_=key.mark, style=paint + fill), key.label)


def _id(number: int, chart: Chart) -> str:
    return f"chart-{number}-{chart.id}"


def _specs(drawn: list[Group]) -> Html:
    specs = {_id(n, c): c.spec for n, g in enumerate(drawn) for c in g.charts}
    text = json.dumps(specs, separators=(",", ":"), allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="specs">{safe}</script>')


def _script(code: str) -> Html:
    return Html(f"<script>{code}</script>")


def _asset(name: str) -> str:
    return resources("dbdyno.report").joinpath("assets", name).read_text("utf-8")
