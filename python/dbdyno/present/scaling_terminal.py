"""What a ladder says of scaling, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from dbdyno.model.scaling import Fitted, Scaling
from dbdyno.present import regression
from dbdyno.present import scaling_rows as rows
from dbdyno.present.media.text import Printed
from dbdyno.present.scaling_columns import columns


def scaling_text(scalings: Sequence[Scaling]) -> RenderableType:
    """One block a ladder: the paragraph, the answers, the model, the choice, every rung, the fine print."""
    parts: list[RenderableType] = []
    for n, scaling in enumerate(scalings):
        parts += [Text("")] if n else []
        parts += _one(scaling)
    return Group(*parts)


_HEART = ("one-session", "one-core", "knee", "second-knee", "reason", "smt-yield", "cpu-inflation")


def heart(scalings: Sequence[Scaling], run: str) -> Iterator[RenderableType]:
    """Beneath a run's tables: which model, what one session and one core deliver, where it bends and why."""
    many = len(scalings) > 1
    for scaling in scalings:
        name = f"{scaling.ladder.name}: " if many else ""
        if scaling.best is None:
            yield from (Text(f"{name}{r}", style="yellow") for r in scaling.refused)
            continue
        yield Text(f"{name}{_chosen(scaling, scaling.best)}", style="bold")
        told = {a.id: a for a in rows.answers(scaling) if a.value is not None or a.id == "reason"}
        yield from (Text(told[i].text) for i in _HEART if i in told)
    if any(s.best is not None for s in scalings):
        yield Text(f"dbdyno analyze {run}: all answers, every model, the curve", style="dim")


def _one(scaling: Scaling) -> Iterator[RenderableType]:
    yield Text(rows.title(scaling), style="bold")
    known = rows.machine(scaling.ladder.machine)
    if known:
        yield Text(known, style="dim")
    words = rows.paragraph(scaling)
    if words:
        yield Text(words)
    yield from _answers(scaling)
    yield from (Text(r, style="yellow") for r in scaling.refused)
    if scaling.best is not None:
        yield from _model(scaling, scaling.best)
        yield from _choice(scaling)
    per_work = regression.section(scaling.regressions)
    if per_work is not None:
        yield Printed([per_work])
    if not scaling.ladder.points.is_empty():
        yield from _headed("Every rung", columns(*rows.rung_table(scaling)))
    yield from _notes(rows.caveats(scaling))


def _answers(scaling: Scaling) -> Iterator[RenderableType]:
    found = rows.answers(scaling)
    if found:
        yield Text("")
        yield Text("Answers", style="bold")
    for a in found:
        yield Text.assemble("- ", a.text, (f"  ({a.evidence})" if a.evidence else "", "dim"))


def _model(scaling: Scaling, fit: Fitted) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(_chosen(scaling, fit), style="bold")
    if fit.formula:
        formula = fit.formula if "=" in fit.formula else f"X(N) = {fit.formula}"
        yield Text(f"{formula}" + (f"  [{fit.cites}]" if fit.cites else ""), style="dim")
    yield from columns(rows.PARAMETER_HEADS, rows.PARAMETER_NUMERIC, rows.parameter_rows(fit))


def _choice(scaling: Scaling) -> Iterator[RenderableType]:
    if len(scaling.fits) > 1:
        # formulas are long: the page has them
        lines = [line[:-1] for line in rows.model_rows(scaling)]
        heads, numeric = rows.MODEL_HEADS[:-1], rows.MODEL_NUMERIC[:-1]
        yield from _headed("Models that were tried", columns(heads, numeric, lines))
        others = (Text(f"{f.title}: {rows.in_a_line(f)}") for f in scaling.fits[1:])
        yield from _headed("Figures of the other models", others)


def _headed(title: str, lines: Iterable[RenderableType]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, style="bold")
    yield from lines


def _notes(notes: Sequence[str]) -> Iterator[RenderableType]:
    if notes:
        yield Text("")
    yield from (Text(n, style="dim") for n in notes)


def _chosen(scaling: Scaling, fit: Fitted) -> str:
    return f"{rows.chosen(scaling)} (weight {fit.weight:.2f}, R² {fit.r_squared:.4f})"
