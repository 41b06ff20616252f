"""Builds tables of figures between two snapshots: formats of numbers, and why some are unknown or lower
bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.model.results.interval import LOWER_BOUNDS, IntervalFigures
from dbdyno.model.units import counted, format_average, format_count, format_ns, format_rate, format_size
from dbdyno.present.document.document import UNKNOWN, Block, Cell, Column, Row, Table, known, remarks, word
from dbdyno.present.figures.figures import grouped, percent

Figures = Mapping[str, Any]
_NOT_ALL = {
    "index dropped": "an index was dropped in between: index scans and blocks are of the others",
    "partition dropped": "a partition was dropped in between: the growth of the others",
    "remade": "made anew in between under the same name",
    "new": "made in between",
    "reset": "lower bound: counters were reset in between",
}


def rate(value: float) -> str:
    """Returns three digits: ``170``, ``3.91 k``, ``0.012``, ``< 0.001``."""
    return format_rate(value) if value >= 1000 else format_average(value)


def whole(value: float) -> str:
    return f"{value:,.0f}"


def hits(value: float) -> str:
    """Returns a share of hits in percent: ``99.95``."""
    return percent(value, digits=2)


def share(value: float) -> str:
    return percent(value, digits=1)


def share_bar(value: float | None) -> Sequence[tuple[float, str]]:
    """Returns the bar of a share of the whole."""
    return () if value is None else ((min(1.0, value), "accent"),)


def size(value: float) -> str:
    return format_size(value)


def growth(value: float) -> str:
    """Returns the growth of a size: ``+1.20 MiB``, ``-8.00 KiB``, ``0``."""
    return f"{'+' if value > 0 else ''}{format_size(value)}" if value else "0"


def yes(value: object) -> str:
    return "" if value is None else "yes" if value else "no"


class Spec(NamedTuple):
    """A column of numbers: its heading, its name in a row, and its format."""

    head: str
    name: str
    text: Callable[[float], str] = format_count
    unit: str = ""
    rank: int = 0
    optional: bool = False
    """Whether the column is left out where it is 0 in all rows."""
    note: str = ""
    source: str = ""
    """The column of the snapshot if it has another name, to look up why a figure is unknown."""
    long: str = ""
    """The heading where there is room."""
    bar: bool = False
    """Draws the figure, a share of a sum over rows, as a bar."""


class Words(NamedTuple):
    """A column of texts."""

    head: str
    text: Callable[[Figures], str | None]
    rank: int = 0
    shortens: bool = False
    wraps: bool = False


def listed(
    figures: IntervalFigures,
    source: str,
    title: str,
    columns: Sequence[Spec | Words],
    rows: Sequence[Figures],
) -> list[Block]:
    """Returns a table of ``rows``, then why some figures are unknown or lower bounds.

    ``source`` is the table of the snapshots that the rows come from.
    """
    kept = [c for c in columns if isinstance(c, Words) or not c.optional or any(r[c.name] for r in rows)]
    heads = [
        Column(c.head, rank=c.rank, shortens=c.shortens, wraps=c.wraps)
        if isinstance(c, Words)
        else Column(c.head, number=True, rank=c.rank, name=c.long, note=c.note)
        for c in kept
    ]
    lines = [Row([_cell(figures, source, c, r) for c in kept]) for r in rows]
    return [Table(title, heads, lines, named=True), *remarks(_notes(figures, source, kept, rows))]


def _cell(figures: IntervalFigures, source: str, column: Spec | Words, row: Figures) -> Cell:
    if isinstance(column, Words):
        return word(column.text(row))
    value = row[column.name]
    if value is None and not why(figures, source, column):
        if column.text in (share, hits):
            return Cell("-", note="of nothing")
        if source == "io":
            return Cell("-", note="this kind of process does not do it")
    lower = row.get("status") in LOWER_BOUNDS
    note = _NOT_ALL.get(str(row.get("status")), "") if value is not None else why(figures, source, column)
    shown = known(
        value, lambda v: f"{'>= ' if lower and _grows(column) else ''}{column.text(v)}", column.unit, note
    )
    return shown._replace(bar=share_bar(value)) if column.bar else shown


def _grows(column: Spec) -> bool:
    """Returns whether the figure is a sum over the interval, so that a lower bound makes sense."""
    return column.text not in (share, hits, size, growth)


def why(figures: IntervalFigures, source: str, column: Spec) -> str:
    """Returns why a figure is unknown, as the snapshots recorded it; empty if they have no reason."""
    for info in (figures.interval.last, figures.interval.first):
        for key in (f"{source}.{column.source or column.name}", source):
            if key in info.missing:
                return info.missing[key]
    return ""


def _notes(
    figures: IntervalFigures, source: str, columns: Iterable[Spec | Words], rows: Sequence[Figures]
) -> list[str]:
    blank = [c for c in columns if isinstance(c, Spec) and any(r[c.name] is None for r in rows)]
    reasons = grouped((why(figures, source, c), c.head) for c in blank)
    unknown = [f"{UNKNOWN} {', '.join(heads)}: {reason}." for reason, heads in reasons.items() if reason]
    states = grouped((_NOT_ALL[s], r) for r in rows if (s := str(r.get("status"))) in _NOT_ALL and s != "new")
    return [
        *unknown,
        *(f"{counted(len(rows_of_state), 'row')}: {state}." for state, rows_of_state in states.items()),
    ]


def duration(value: float) -> str:
    return format_ns(value)
