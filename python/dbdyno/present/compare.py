"""A comparison as a document: the answer, the rank at each number of sessions, the reasons, the notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbdyno.model.analyses import Machines
from dbdyno.model.comparison import Comparison, MetricTable
from dbdyno.present import compare_rows as rows
from dbdyno.present import machines as of_machines
from dbdyno.present.compare_plot import plot
from dbdyno.present.document import (
    Block,
    Column,
    Document,
    Drawing,
    Paragraph,
    Row,
    Section,
    Table,
    remarks,
    word,
)

_LONGEST = 400
"""Characters of a setting that are shown."""


def document(made: Comparison | None, machines: Sequence[Machines] = ()) -> Document:
    """The comparison, the machines behind it, or both."""
    behind = of_machines.sections(machines)
    if made is None:
        return Document(behind[0].title, behind)
    return Document(rows.title(made), [*_sections(made), *behind], lead=_answer(made))


def brief(made: Comparison, run: str) -> list[Block]:
    """The heart of it, within the report of a run: the answer, the first quantity, and why."""
    first = made.metrics[0]
    why = [Section("Why: where the session time went", [*_whys(made, rows.places(first))], folded=True)]
    more = Paragraph(f"All quantities, and why: dbdyno compare {run}", "muted")
    return [*_answer(made), *_quantity(made, first), *(why if made.why else []), more]


def _answer(made: Comparison) -> list[Paragraph]:
    return [Paragraph(s, lead=True) for s in made.summary]


def _sections(made: Comparison) -> Iterator[Section]:
    first, others = made.metrics[0], made.metrics[1:]
    tops = rows.tops(first)
    yield Section(f"Effect: {first.title}", _quantity(made, first), "effect")
    if others:
        shown = [Section(_where(made, p), [rows.others(others, p, made.margin)]) for p in tops]
        each = [Section(t.title, _quantity(made, t), folded=True) for t in others]
        yield Section("Other quantities", [*shown, *each], "quantities")
    if made.why:
        rest = [p for p in rows.places(first) if p not in tops]
        below = [Section(_where(made, p), [*_whys(made, [p])], folded=True) for p in rest]
        yield Section("Why: where the session time went", [*_whys(made, tops), *below], "why")
    if made.differences:
        yield Section("Differences in environment, settings and plan", [_differences(made)], "differences")
    yield Section("Notes", remarks(made.notes), "method")


def _where(made: Comparison, place: rows.Place) -> str:
    return place.words(len({p.workload for p in rows.places(made.metrics[0])}) > 1)


def _quantity(made: Comparison, t: MetricTable) -> list[Block]:
    """Every number of sessions with its rank and its neighbours; of two runs one table."""
    drawing = plot(t, made)
    blocks: list[Block] = [Paragraph("No ratio is known.", "muted") if drawing is None else Drawing(drawing)]
    if made.kind == "runs":
        blocks.append(rows.rungs(t, made.margin, f"{t.title}; ratio: B to A"))
    for place in rows.places(t) if made.kind == "variants" else ():
        title = f"{t.title}, {_where(made, place)}; ratio to {made.baseline}"
        following = rows.neighbours(t, place, made.margin)
        blocks += [rows.ranks(t, place, made.margin, title), *([following] if following else [])]
    return [*blocks, *remarks(rows.claim_notes(t))]


def _whys(made: Comparison, places: Sequence[rows.Place]) -> Iterator[Block]:
    for place in places:
        tables = [rows.why_table(why) for why in rows.whys_at(made, place)]
        if tables:
            yield Section(f"{_where(made, place)}: session time by account, largest change first", tables)


def _differences(made: Comparison) -> Table:
    columns = [Column("", wraps=True)]
    columns += [Column(h, wraps=True) for h in (made.baseline, "B" if made.kind == "runs" else "other")]
    told = ((d.what, d.baseline, d.variant) for d in made.differences)
    return Table("", columns, [Row([word(_short(t)) for t in line]) for line in told])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
