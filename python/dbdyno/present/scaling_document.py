"""How a ladder scales, as a document: the answer, the charts, the model, every load, the notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbdyno import __version__
from dbdyno.model.analyses import Fitted, Scaling
from dbdyno.present import regression, scaling_charts
from dbdyno.present import scaling_rows as rows
from dbdyno.present.document import (
    Block,
    Cell,
    Chart,
    Document,
    KeyFigure,
    Paragraph,
    Section,
    Statement,
    Statements,
    remarks,
)

_BRIEF = ("one-session", "one-core", "knee", "second-knee", "reason", "smt-yield", "cpu-inflation")
"""Answers that a run's summary has."""


def document(scalings: Sequence[Scaling]) -> Document:
    """One ladder, or several one after another."""
    footer = f"Analysed with dbdyno {__version__}"
    if len(scalings) != 1:
        blocks = [s for n, one in enumerate(scalings) for s in _sections(one, n, f"-{n + 1}")]
        return Document(f"Scaling of {len(scalings)} ladders", blocks, footer=footer)
    one = scalings[0]
    known = rows.machine(one.ladder.machine)
    lead = [*remarks([known] if known else []), *_lead(one)]
    return Document(rows.title(one), [*_sections(one, 0, "")], lead, _figures(one), footer)


def section(scalings: Sequence[Scaling]) -> Section | None:
    """Within the report of a run; ``None``: it has no ladder."""
    if not scalings:
        return None
    many = len(scalings) > 1
    parts: list[Block] = []
    for n, one in enumerate(scalings):
        more = Section("All answers, models, every load", [*_answers(one), *_tables(one)], folded=True)
        blocks: list[Block] = [*_lead(one), *charts(one, n), more]
        parts += [Section(one.ladder.name, blocks)] if many else blocks
    return Section("Scalability", parts, "scaling")


def brief(scalings: Sequence[Scaling], run: str) -> Iterator[Block]:
    """Below a run's tables: which model, what one session and one core deliver, where it bends and why."""
    for one in scalings:
        name = f"{one.ladder.name}: " if len(scalings) > 1 else ""
        if one.best is None:
            yield from (Paragraph(f"{name}{r}", "warning") for r in one.refused)
            continue
        told = {a.id: a for a in rows.answers(one) if a.value is not None or a.id == "reason"}
        yield Section(
            f"{name}{_chosen(one, one.best)}", [Paragraph(told[i].text) for i in _BRIEF if i in told]
        )
    if any(one.best is not None for one in scalings):
        yield Paragraph(f"dbdyno analyze {run}: all answers, every model, the curve", "muted")


def charts(scaling: Scaling, number: int = 0) -> list[Chart]:
    """``number``: of the ladder in its document."""
    return [replace(c, id=f"scaling-{number}-{c.id}") for c in scaling_charts.charts(scaling)]


def _sections(scaling: Scaling, number: int, name: str) -> Iterator[Section]:
    """``name``: what the sections of this ladder end in where there are several."""
    if name:
        yield Section(rows.title(scaling), _lead(scaling), f"ladder{name}")
    yield Section("The ladder and the model", charts(scaling, number), f"charts{name}")
    answers = _answers(scaling)
    if answers:
        yield Section("Answers", answers, f"answers{name}")
    yield Section("Model and measurements", _tables(scaling), f"model{name}")
    caveats = remarks(rows.caveats(scaling))
    if caveats:
        yield Section("Notes", caveats, f"notes{name}")


def _lead(scaling: Scaling) -> list[Paragraph]:
    words = rows.paragraph(scaling)
    return [Paragraph(words, lead=True)] if words else []


def _figures(scaling: Scaling) -> list[KeyFigure]:
    return [
        KeyFigure(rows.answer_title(a), Cell(rows.number(e.value, 3), e.value, e.unit), rows.interval(e, 3))
        for a, e in rows.tiles(scaling)
    ]


def _answers(scaling: Scaling) -> list[Block]:
    """Claims, and why there are none."""
    found = [
        Statement(a.text, rows.answer_title(a), a.evidence, "note" if a.value else "", a.id)
        for a in rows.answers(scaling)
    ]
    found += [Statement(r, "unknown", tone="warning") for r in scaling.refused]
    return [Statements(found)] if found else []


def _tables(scaling: Scaling) -> list[Block]:
    blocks: list[Block] = []
    best = scaling.best
    if best is not None:
        formula = best.formula if "=" in best.formula or not best.formula else f"X(N) = {best.formula}"
        told = formula + (f" ({best.cites})" if best.cites else "")
        blocks += [rows.parameters(best, _chosen(scaling, best)), *remarks([told] if told else [])]
        blocks.append(rows.models(scaling))
        others = [rows.parameters(f, f.title) for f in scaling.fits[1:]]
        blocks += [Section("Figures of the other models", others, folded=True)] if others else []
    per_work = regression.section(scaling.regressions)
    blocks += [per_work] if per_work is not None else []
    if not scaling.ladder.points.is_empty():
        blocks.append(rows.measured(scaling))
    return blocks


def _chosen(scaling: Scaling, fit: Fitted) -> str:
    return f"{rows.chosen(scaling)} (weight {fit.weight:.2f}, R² {fit.r_squared:.4f})"
