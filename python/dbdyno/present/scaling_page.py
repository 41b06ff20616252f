"""What ladders say of scaling, as sections of a page, and as a page of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from dbdyno import __version__
from dbdyno.model.claim import Claim
from dbdyno.model.scaling import Estimate, Scaling
from dbdyno.present import bundle, regression, scaling_charts
from dbdyno.present import scaling_rows as rows
from dbdyno.present.chart import Chart
from dbdyno.present.files import write_atomic
from dbdyno.present.markup import Html, details, el, join, table
from dbdyno.present.media import html as document_html
from dbdyno.present.page import asset
from dbdyno.present.page import page as whole
from dbdyno.present.page_parts import data, figure, section

_DRAWING = Html(
    '<noscript><p class="muted">Charts need JavaScript; the tables hold the figures.</p></noscript>'
)


class Sections:
    """Sections of a page and the specifications of their charts, which go into its element ``specs``."""

    def __init__(self, scalings: Sequence[Scaling]) -> None:
        self.scalings = scalings
        self._charts = [scaling_charts.charts(s) for s in scalings]

    @property
    def specs(self) -> dict[str, Any]:
        """Identifier of the figure -> Vega-Lite specification."""
        return {_id(n, c): c.spec for n, drawn in enumerate(self._charts) for c in drawn}

    def html(self) -> Iterator[Html]:
        """For a run's report: one section with a heading a ladder."""
        if not self.scalings:
            return
        parts: list[Html] = []
        for n, scaling in enumerate(self.scalings):
            parts += [el("h3", scaling.ladder.name)] if len(self.scalings) > 1 else []
            words = rows.paragraph(scaling)
            parts += [el("p", words, class_="lead")] if words else []
            parts += [_answers(scaling), self.figures(n), *_refused(scaling)]
            parts += [details("Parameters, models that were tried, every rung", *_tables(scaling))]
        yield section("scaling", "Where it stops scaling", *parts)

    def figures(self, number: int) -> Html:
        """The wide charts above the others, which go two and two."""
        drawn = self._charts[number]
        sizes = [[figure(_id(number, c), c) for c in drawn if c.wide is wide] for wide in (True, False)]
        return join(_DRAWING, *(el("div", *some, class_="charts") for some in sizes if some))


def document(scalings: Sequence[Scaling]) -> str:
    """A page of its own."""
    return page(scalings, bundle.begin())


def write(scalings: Sequence[Scaling], path: Path) -> Path:
    """Raises StoreError where ``path`` cannot be written."""
    return write_atomic(path, document(scalings).encode("utf-8"))


def page(scalings: Sequence[Scaling], code: Future[str]) -> str:
    """The whole document; ``code``: the charts' JavaScript, which may still be on its way."""
    made = Sections(scalings)
    title = rows.title(scalings[0]) if len(scalings) == 1 else f"Scaling of {len(scalings)} ladders"
    main = el("main", *(s for n in range(len(scalings)) for s in _sections(made, n)), id="content")
    foot = el("footer", el("div", f"Analysed with dbdyno {__version__}"))
    body = join(_header(title, scalings), main, foot, data("specs", made.specs))
    return whole(title, body, scripts=[code.result(), asset("page.js")])


def _header(title: str, scalings: Sequence[Scaling]) -> Html:
    button = el("button", "light / dark", id="theme", type="button", hidden=True)
    top = el("div", el("span", "dbdyno", class_="brand"), button, class_="top")
    one = scalings[0] if len(scalings) == 1 else None
    words = rows.paragraph(one) if one else None
    known = rows.machine(one.ladder.machine) if one else ""
    return el(
        "header",
        el("a", "Skip to the answers", href="#content", class_="skip"),
        el(
            "div",
            top,
            el("h1", title),
            el("p", known, class_="muted") if known else None,
            el("p", words, class_="lead") if words else None,
            _tiles(one) if one else None,
        ),
    )


def _sections(made: Sections, number: int) -> Iterator[Html]:
    scaling = made.scalings[number]
    many = len(made.scalings) > 1
    name = f"-{number + 1}" if many else ""
    if many:
        words = rows.paragraph(scaling)
        lead = [el("p", words, class_="lead")] if words else []
        yield section(f"ladder{name}", rows.title(scaling), *lead)
    yield section(f"charts{name}", "The ladder and the model", made.figures(number))
    if rows.answers(scaling) or scaling.refused:
        yield section(f"answers{name}", "Answers", _answers(scaling), *_refused(scaling))
    yield section(f"model{name}", "Model and choice", *_tables(scaling))
    caveats = [el("p", c) for c in rows.caveats(scaling)]
    if caveats:
        yield section(f"notes{name}", "What to bear in mind", *caveats)


def _tiles(scaling: Scaling) -> Html | None:
    found = [_tile(answer, value) for answer, value in rows.tiles(scaling)]
    return el("dl", *found, class_="tiles") if found else None


def _tile(answer: Claim, value: Estimate) -> Html:
    note = ", ".join(t for t in (value.unit, rows.interval(value, 3)) if t)
    small = el("small", note) if note else None
    return el("div", el("dt", rows.answer_title(answer)), el("dd", rows.number(value.value, 3), small))


def _answers(scaling: Scaling) -> Html:
    items = [
        el(
            "li",
            el("span", rows.answer_title(a), class_="tag"),
            el("span", a.text),
            el("span", f" ({a.evidence})", class_="foot") if a.evidence else None,
            class_="note" if a.value else None,
        )
        for a in rows.answers(scaling)
    ]
    return el("ul", *items, class_="findings") if items else join()


def _refused(scaling: Scaling) -> list[Html]:
    if not scaling.refused:
        return []
    items = [
        el("li", el("span", "cannot be told", class_="tag"), r, class_="warning") for r in scaling.refused
    ]
    return [el("ul", *items, class_="findings refused")]


def _tables(scaling: Scaling) -> Iterator[Html]:
    best = scaling.best
    if best is not None:
        caption = rows.chosen(scaling) + (f" ({best.cites})" if best.cites else "")
        yield table(caption, rows.PARAMETER_HEADS, rows.parameter_rows(best), rows.PARAMETER_NUMERIC, "named")
        caption = "Models that were tried; the weight is how much the data speak for each"
        yield table(caption, rows.MODEL_HEADS, rows.model_rows(scaling), rows.MODEL_NUMERIC, "named")
        yield from _others(scaling)
    per_work = regression.section(scaling.regressions)
    if per_work is not None:
        yield document_html.parts([per_work], 3)
    if not scaling.ladder.points.is_empty():
        heads, numeric, lines = rows.rung_table(scaling)
        yield table("Every rung, means over repeats", heads, lines, numeric)


def _others(scaling: Scaling) -> Iterator[Html]:
    """Figures of the models that are not the best one."""
    made = [
        table(f.title, rows.PARAMETER_HEADS, rows.parameter_rows(f), rows.PARAMETER_NUMERIC, "named")
        for f in scaling.fits[1:]
    ]
    if made:
        yield details("Figures of the other models", *made)


def _id(number: int, chart: Chart) -> str:
    return f"scaling-{number}-{chart.id}"
