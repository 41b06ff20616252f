"""CPU per unit of work on a terminal, as HTML and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dbdyno.model.regression import PARTS, Part, Regression
from dbdyno.model.scaling import Estimate
from dbdyno.model.units import format_ns
from dbdyno.present.compare import columns
from dbdyno.present.figures import UNKNOWN
from dbdyno.present.markup import Html, el, table

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""
HEADS = ("regime", "CPU", "a unit costs", "95 % interval", "background", "95 % interval", "R2", "points")
NUMERIC = (False, False, True, True, True, True, True, True)
_NAMES = {"cpu": "all", "user": "user", "system": "system"}
Row = tuple[str, ...]


def regression_text(made: Sequence[Regression]) -> RenderableType:
    """The sentences, the table, what to bear in mind."""
    if not made:
        return Group()
    parts: list[RenderableType] = [
        Text(title(made), style="bold"),
        *(Text(s) for s in sentences(made)),
        Text(""),
    ]
    return Group(
        *parts,
        *columns(HEADS, NUMERIC, rows(made)),
        Text(""),
        *(Text(n, style="dim") for n in notes(made)),
    )


def regression_html(made: Sequence[Regression]) -> Html:
    """Sentences and the table; empty where there is no regression."""
    if not made:
        return Html("")
    said = [el("p", s) for s in sentences(made)]
    told = table(title(made), HEADS, rows(made), NUMERIC)
    return el("div", *said, told, *(el("p", n, class_="muted") for n in notes(made)))


def regression_json(made: Sequence[Regression]) -> dict[str, Any]:
    """Unknown is ``None``."""
    return {"format": FORMAT, "regressions": [_document(r) for r in made]}


def title(made: Sequence[Regression]) -> str:
    named = f": {made[0].name}" if made[0].name else ""
    return f"CPU per {' and '.join(made[0].work_units)}{named}"


def sentences(made: Sequence[Regression]) -> list[str]:
    """What a unit costs, where that is known; how it changes from regime to regime."""
    told = [f"{_where(r)} {_cost(r.total)}." for r in made if r.total is not None]
    known = [r for r in made if r.total is not None]
    for one, other in pairwise(known):
        if all(r.total is not None and (r.total.slope.low or 0) > 0 for r in (one, other)):
            assert one.total is not None
            assert other.total is not None
            times = other.total.slope.value / one.total.slope.value
            told.append(
                f"{_where(other)} 1 {one.work_units[0]} costs {times:.3g} times what it costs {one.regime}."
            )
    return told


def _where(r: Regression) -> str:
    return f"{r.regime[:1].upper()}{r.regime[1:]}:"


def _cost(part: Part) -> str:
    if any(e.low is not None and e.low <= 0 for e in part.slopes):
        return f"what 1 {' or 1 '.join(e.name for e in part.slopes)} costs cannot be told from 0"
    costs = [f"1 {e.name} costs {time(e.value)} of CPU{_ends(e, ' ({})')}" for e in part.slopes]
    background = part.background
    if background.value < 0:
        return ", ".join(costs)
    rest = f"{background.value:.3g} CPUs are used in the background{_ends(background, ' ({})')}"
    return ", ".join([*costs, rest])


def rows(made: Sequence[Regression]) -> list[Row]:
    """A regime a block: all CPU, user, system; with several kinds of work a line each."""
    return [row for r in made for row in _rows(r)]


def _rows(r: Regression) -> Iterator[Row]:
    if not r.parts:
        ratio = "" if r.ratio is None else f"{time(r.ratio.value)} with background"
        ends = UNKNOWN if r.ratio is None else _ends(r.ratio)
        yield (r.regime, "all", ratio or UNKNOWN, ends, UNKNOWN, UNKNOWN, "", str(r.n))
        return
    for part in r.parts:
        for n, slope in enumerate(part.slopes):
            first = part is r.parts[0] and n == 0
            name = _NAMES[part.name] if len(part.slopes) == 1 else f"{_NAMES[part.name]}, {slope.name}"
            yield (
                r.regime if first else "",
                name,
                time(slope.value),
                _ends(slope),
                f"{part.background.value:.3g}" if n == 0 else "",
                _ends(part.background) if n == 0 else "",
                "" if n else UNKNOWN if part.r_squared is None else f"{part.r_squared:.4f}",
                str(r.n) if first else "",
            )


def time(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def _ends(e: Estimate, form: str = "{}") -> str:
    if e.low is None or e.high is None:
        return UNKNOWN if form == "{}" else ""
    timed = e.unit.startswith("CPU seconds/") and e.unit != "CPU seconds/s"
    low, high = (time(v) if timed else f"{v:.3g}" for v in (e.low, e.high))
    return form.format(f"{low} .. {high}")


def notes(made: Sequence[Regression]) -> Iterator[str]:
    """Refusals first; then how errors were made, and doubts."""
    for r in made:
        if r.refused is not None:
            yield f"{r.regime}: no regression: {r.refused}"
    for method in dict.fromkeys(r.method for r in made if r.parts):
        yield f"Intervals are 95 %: {method}. Background: CPU seconds per second at no work."
    for r in made:
        yield from (f"{r.regime}: {n}" for n in r.notes)


def _document(r: Regression) -> dict[str, Any]:
    return {
        "name": r.name,
        "regime": r.regime,
        "work_units": list(r.work_units),
        "n": r.n,
        "degrees": r.degrees,
        "method": r.method,
        "parts": {p.name: _part(p) for p in sorted(r.parts, key=lambda p: PARTS.index(p.name))},
        "ratio": None if r.ratio is None else dict(vars(r.ratio)),
        "durbin_watson": r.durbin_watson,
        "autocorrelation_p": r.autocorrelation_p,
        "breusch_pagan_p": r.breusch_pagan_p,
        "notes": list(r.notes),
        "refused": r.refused,
        "points": r.points.to_dicts(),
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "slopes": [dict(vars(e)) for e in part.slopes],
        "background": dict(vars(part.background)),
        "r_squared": part.r_squared,
        "residual_sd": part.residual_sd,
    }
