"""CPU per unit of work: the section of a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dbdyno.model.analyses import Estimate, Part, Regression
from dbdyno.model.units import format_ns
from dbdyno.present.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    remarks,
    word,
)

_COLUMNS = (
    Column("range"),
    Column("CPU"),
    Column("per unit", number=True),
    Column("95 % interval", number=True),
    Column("background", number=True, rank=1),
    Column("95 % interval", number=True, rank=3),
    Column("R2", number=True, rank=2),
    Column("points", number=True, rank=4),
)
_NAMES = {"cpu": "all", "user": "user", "system": "system"}
_NOTHING = Cell("")


def section(made: Sequence[Regression]) -> Section | None:
    """What a unit of work costs, the table, what to bear in mind; ``None``: there is no regression."""
    if not made:
        return None
    named = f": {made[0].name}" if made[0].name else ""
    rows = [Row(cells) for r in made for cells in _rows(r)]
    claims = Statements([Statement(t) for t in sentences(made)])
    blocks: list[Block] = [claims, Table("", _COLUMNS, rows), *remarks(notes(made))]
    return Section(f"CPU per {' and '.join(made[0].work_units)}{named}", blocks)


def sentences(made: Sequence[Regression]) -> list[str]:
    """What a unit costs, where that is known; how it changes from range to range."""
    known_ones = [(r, r.total) for r in made if r.total is not None]
    told = [f"{_where(r)} {_cost(total)}." for r, total in known_ones]
    for (one, a), (other, b) in pairwise(known_ones):
        if (a.slope.low or 0) > 0 and (b.slope.low or 0) > 0:
            times = b.slope.value / a.slope.value
            told.append(
                f"{_where(other)} 1 {one.work_units[0]} costs {times:.3g} times as much as {one.regime}."
            )
    return told


def _where(r: Regression) -> str:
    return f"{r.regime[:1].upper()}{r.regime[1:]}:"


def _cost(part: Part) -> str:
    if any(e.low is not None and e.low <= 0 for e in part.slopes):
        return f"the cost of 1 {' or 1 '.join(e.name for e in part.slopes)} does not differ from 0"
    costs = [f"1 {e.name} costs {time(e.value)} of CPU{_ends(e, ' ({})')}" for e in part.slopes]
    background = part.background
    if background.value < 0:
        return ", ".join(costs)
    rest = f"{background.value:.3g} CPUs are used in the background{_ends(background, ' ({})')}"
    return ", ".join([*costs, rest])


def _rows(r: Regression) -> Iterator[list[Cell]]:
    """All CPU, user, system; with several kinds of work a line each."""
    if not r.parts:
        unknown = Cell(UNKNOWN)
        ratio = ends = unknown
        if r.ratio is not None:
            ratio = Cell(f"{time(r.ratio.value)} with background", r.ratio.value, "s")
            ends = word(_ends(r.ratio))
        yield [word(r.regime), word("all"), ratio, ends, unknown, unknown, _NOTHING, known(r.n, str)]
    for part in r.parts:
        for n, slope in enumerate(part.slopes):
            first = part is r.parts[0] and n == 0
            name = _NAMES[part.name] if len(part.slopes) == 1 else f"{_NAMES[part.name]}, {slope.name}"
            yield [
                word(r.regime if first else ""),
                word(name),
                known(slope.value, time, "s"),
                word(_ends(slope)),
                _NOTHING if n else known(part.background.value, lambda v: f"{v:.3g}", "CPUs"),
                _NOTHING if n else word(_ends(part.background)),
                _NOTHING if n else known(part.r_squared, lambda v: f"{v:.4f}"),
                known(r.n, str) if first else _NOTHING,
            ]


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
