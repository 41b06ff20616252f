"""Handles columns of quantiles above the median, which are known only with many calls."""

from __future__ import annotations

from dataclasses import replace

from dbdyno.model.schema.tables import CALLS_ABOVE, fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.present.document.document import UNKNOWN, Block, Cell, Table, remarks

_TAILS = {"p95": 0.95, "p99": 0.99}


def with_reason(shown: Table, counted: str = "") -> list[Block]:
    """Returns the table without columns that have no known quantile, and the number of calls that one
    needs."""
    unknown: dict[str, float] = {}
    kept = []
    for n, column in enumerate(shown.columns):
        q = _TAILS.get(column.head.split()[-1] if column.head else "")
        texts = {r.cells[n].text for r in shown.rows} - {""}
        if q is not None and UNKNOWN in texts:
            unknown[f"p{100 * q:g}"] = q
        if q is None or texts != {UNKNOWN}:
            kept.append(n)
    rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in shown.rows]
    what = counted or noun("calls")
    needed = ", ".join(f"{name} needs {fewest_calls(q):,} {what}" for name, q in unknown.items())
    why = [f"{needed}, so that {CALLS_ABOVE} are above it."] if unknown and shown.rows else []
    return [replace(shown, columns=[shown.columns[n] for n in kept], rows=rows), *remarks(why)]


def note(figure: Cell, q: float, note: str) -> str:
    """Returns ``note``, or the reason why the quantile is unknown."""
    return note if figure.value is not None else f"unknown: it needs {fewest_calls(q):,} {noun('calls')}"
