"""A comparison as one HTML page that loads nothing and needs no JavaScript."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dbdyno.model.comparison import Comparison, MetricTable
from dbdyno.model.machines import Machines
from dbdyno.present import compare_rows as rows
from dbdyno.present import machines as machines_document
from dbdyno.present.compare_plot import STYLE, plot
from dbdyno.present.files import write_atomic
from dbdyno.present.markup import Html, details, el, join, table
from dbdyno.present.media import html as document_html
from dbdyno.present.page import page as whole


def write(made: Comparison | None, path: Path, machines: Sequence[Machines] = ()) -> Path:
    """Raises StoreError where ``path`` cannot be written."""
    return write_atomic(path, page(made, machines).encode("utf-8"))


def page(made: Comparison | None, machines: Sequence[Machines] = ()) -> str:
    """The whole document: the comparison, the machines behind it, or both."""
    title = rows.title(made) if made is not None else machines_document.title(machines[0])
    words = [el("p", s, class_="lead") for s in made.summary] if made is not None else []
    top = el("div", el("span", "dbdyno", class_="brand"), class_="top")
    header = el("header", el("div", top, el("h1", title), *words))
    sections = [*(_sections(made) if made is not None else ())]
    sections += [document_html.parts(machines_document.sections(machines))]
    return whole(title, join(header, el("main", *sections, id="content")), STYLE)


def digest(made: Comparison) -> Iterator[Html]:
    """The heart of it, for the report of a run: the answer, the first quantity at every rung, and why."""
    first = made.metrics[0]
    yield from (el("p", s) for s in made.summary)
    yield plot(first, made)
    yield from _tables(made, first)
    if made.why:
        yield details("Why: where the session time went", *_whys(made))
    yield el("p", "All quantities: dbdyno compare RUN; what a verdict means: docs/compare.md", class_="muted")


def _sections(made: Comparison) -> Iterator[Html]:
    first = made.metrics[0]
    yield _section("effect", f"Effect: {first.title}", plot(first, made), *_tables(made, first))
    others = [details(t.title, plot(t, made), *_tables(made, t)) for t in made.metrics[1:]]
    if others:
        yield _section("quantities", "Other quantities", *others)
    if made.why:
        yield _section("why", "Why: where the session time went", *_whys(made))
    if made.differences:
        yield _section("differences", "What is not the same", _differences(made))
    yield _section("method", "What to bear in mind", *(el("p", n) for n in made.notes))


def _section(name: str, title: str, *children: Html) -> Html:
    heading = el("h2", title, id=f"{name}-title")
    return el("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def _tables(made: Comparison, t: MetricTable) -> Iterator[Html]:
    """Every rung with its rank and its neighbours; of two runs one table."""
    many = len({p.workload for p in rows.places(t)}) > 1
    if made.kind == "runs":
        yield table(t.title, rows.RUNG_HEADS, rows.rung_rows(t, made.margin), rows.RUNG_NUMERIC)
        yield from (el("p", n, class_="muted") for n in rows.claim_notes(t))
        return
    heads = rows.heads(rows.RANK_HEADS, by=rows.by(made), baseline=made.baseline)
    for place in rows.places(t):
        where = place.words(many)
        yield table(f"{t.title}, {where}", heads, rows.rank_rows(t, place, made.margin), rows.RANK_NUMERIC)
        following = rows.next_rows(t, place, made.margin)
        if following:
            yield table(f"Next to each other, {where}", rows.NEXT_HEADS, following, rows.NEXT_NUMERIC)
        yield from (el("p", n, class_="muted") for n in rows.claim_notes(t, place))


def _whys(made: Comparison) -> Iterator[Html]:
    """The highest rung in front, the others folded away."""
    first = made.metrics[0]
    tops = rows.tops(first)
    many = len({p.workload for p in rows.places(first)}) > 1
    for place in tops:
        yield el("h3", place.words(many))
        yield from _why(made, place)
    for place in (p for p in rows.places(first) if p not in tops):
        yield details(place.words(many), *_why(made, place))


def _why(made: Comparison, place: rows.Place) -> Iterator[Html]:
    for why in rows.whys_at(made, place):
        heads = rows.heads(rows.WHY_HEADS, baseline=why.baseline, variant=why.variant)
        yield table(rows.why_title(why), heads, rows.why_rows(why), rows.WHY_NUMERIC)


def _differences(made: Comparison) -> Html:
    other = "B" if made.kind == "runs" else "the other"
    told = [(d.what, d.baseline, d.variant) for d in made.differences]
    return table("Environment, settings and plan", ["", made.baseline, other], told)
