"""Columns of quantiles above the median, which only many calls make known."""

from __future__ import annotations

from dataclasses import replace

from dbdyno.model.schema.tables import CALLS_ABOVE, fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.present.document.document import UNKNOWN, Block, Cell, Table, remarks

_TAILS = {"p95": 0.95, "p99": 0.99}


def with_reason(made: Table, counted: str = "") -> list[Block]:
    """The table without columns in which no quantile is known, and why one is not."""
    asked: dict[str, float] = {}
    kept = []
    for n, column in enumerate(made.columns):
        q = _TAILS.get(column.head.split()[-1] if column.head else "")
        texts = {r.cells[n].text for r in made.rows} - {""}
        if q is not None and UNKNOWN in texts:
            asked[f"p{100 * q:g}"] = q
        if q is None or texts != {UNKNOWN}:
            kept.append(n)
    rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in made.rows]
    needed = ", ".join(
        f"{name} needs {fewest_calls(q):,} {counted or noun('calls')}" for name, q in asked.items()
    )
    why = [f"{needed}: {CALLS_ABOVE} above it."] if asked and made.rows else []
    return [replace(made, columns=[made.columns[n] for n in kept], rows=rows), *remarks(why)]


def note(figure: Cell, q: float, note: str) -> str:
    """``note``, or why the quantile is unknown."""
    return note if figure.value is not None else f"unknown: it needs {fewest_calls(q):,} {noun('calls')}"
