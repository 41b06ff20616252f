"""The report as one HTML file that loads nothing: data, charts' code and styles are inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dbdyno.model.results import Results
from dbdyno.present import (
    charts,
    compare,
    figures,
    headline,
    html_detail,
    html_facts,
    html_tables,
    html_witnesses,
    palette,
    placement,
    scaling_document,
    selection,
    sources_used,
)
from dbdyno.present.chart import Chart
from dbdyno.present.charts import Group
from dbdyno.present.document import Section
from dbdyno.present.files import write_atomic
from dbdyno.present.markup import Html, el, join
from dbdyno.present.media import html as document_html
from dbdyno.present.page import asset, charts_code
from dbdyno.present.page import page as whole
from dbdyno.present.page_parts import data, figure, section
from dbdyno.present.selection import Picks


def write(results: Results, path: Path) -> Path:
    """Writes the report; raises StoreError where ``path`` cannot be written."""
    return write_atomic(path, page(results).encode("utf-8"))


def page(results: Results) -> str:
    """The whole document."""
    drawn = charts.groups(results), charts.ledgers(results)
    shown = selection.picks(results)
    ladders = scaling_document.section(results.scaling)
    body = join(
        _header(results),
        el("main", *_sections(results, *drawn, shown, ladders), id="content"),
        html_facts.footer(results),
    )
    inside = join(
        data("specs", _specs(*drawn) | document_html.specs([ladders] if ladders else [])),
        data("strips", html_detail.strip_data(results, shown)),
        _hatches(),
    )
    scripts = [charts_code(), asset("strips.js"), asset("page.js")]
    return whole(headline.title(results), join(body, inside), scripts)


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


def _sections(
    results: Results,
    rates: list[Group],
    ledgers: list[Group],
    shown: Picks,
    ladders: Section | None,
) -> Iterator[Html]:
    observed = figures.is_observation(results)
    yield html_facts.banner(results)
    if results.comparison is not None:
        brief = compare.brief(results.comparison, results.info.id)
        yield document_html.parts([Section("Variants compared", brief, "comparison")])
    yield section("findings", "Findings", html_facts.findings(results))
    if not observed:
        yield section("rungs", "Rungs", html_tables.rungs(results))
        yield section("charts", "Throughput and response time", *_groups(rates, "rate"))
    if ladders is not None:
        yield document_html.parts([ladders])
    together = placement.section(results)
    if together is not None:
        yield document_html.parts([together])
    if results.answers:
        yield section("answers", "At the present load", *(el("p", a.text) for a in results.answers))
    yield section("ledger", "Where the time went", *_ledger(results, ledgers, shown))
    yield section("profile", "Load profile", html_detail.chosen(results, shown, html_detail.load_profile))
    title = "Sessions and processes" if observed else "Microstates of every process"
    yield section("microstates", title, html_detail.chosen(results, shown, html_detail.microstates))
    yield section("witnesses", "Source against source", html_witnesses.witnesses(results, shown))
    yield section("environment", "Environment", html_facts.environment(results))
    yield section("plan", "Plan" if observed else "Plan and calibration", html_facts.plan(results))
    yield section("methods", "How each figure was obtained", html_tables.methods(results))


def _ledger(results: Results, drawn: list[Group], shown: Picks) -> Iterator[Html]:
    """Which witness filled it, the stack, each session over time, every wait."""
    yield el("div", *(el("p", w) for w in sources_used.words(results)), class_="tier")
    yield from _groups(drawn, "time")
    yield html_detail.strip(results, shown)
    yield el("h3", "Every state and wait event")
    yield html_detail.chosen(results, shown, html_detail.events)


def _groups(drawn: list[Group], part: str) -> Iterator[Html]:
    if not drawn:
        yield el("p", "Nothing was measured that could be drawn.", class_="muted")
    else:
        yield Html(
            '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
        )
    for number, group in enumerate(drawn):
        if group.heading:
            yield el("h3", group.heading)
        drawn_here = [figure(_id(part, number, c), c) for c in group.charts]
        yield el("div", *drawn_here, class_="charts")


def _id(part: str, number: int, chart: Chart) -> str:
    return f"{part}-{number}-{chart.id}"


def _specs(rates: list[Group], ledgers: list[Group]) -> dict[str, Any]:
    parts = {"rate": rates, "time": ledgers}
    return {
        _id(p, n, c): c.spec for p, groups in parts.items() for n, g in enumerate(groups) for c in g.charts
    }


def _hatches() -> Html:
    """The stripes of time in the run queue, for the charts to refer to; they follow the theme."""
    patterns = [
        el(
            "pattern",
            el("rect", width=6, height=6, style=f"fill:{palette.var('runq')}"),
            el("rect", width=3.5, height=6, style=f"fill:{palette.var(n)}"),
            id=f"hatch-{n}",
            patternUnits="userSpaceOnUse",
            width=6,
            height=6,
            patternTransform="rotate(45)",
        )
        for n in palette.hatches()
    ]
    return el("svg", el("defs", *patterns), class_="hatches", width=0, height=0, aria_hidden="true")
