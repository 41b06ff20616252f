"""Handles columns of quantiles above the median, which are known only with many calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dbdyno.model.schema.quantiles import FEW, TAILS, fewest_calls
from dbdyno.model.text.nouns import noun
from dbdyno.present.document.document import UNKNOWN, Block, Cell, Table, remarks
from dbdyno.present.figures.figures import grouped
from dbdyno.present.figures.sources_used import in_words

_ENDS = tuple(f"_{tail.key}_ns" for tail in TAILS.values())


def with_reason(shown: Table, counted: str = "", numbers: Iterable[int] = ()) -> list[Block]:
    """Returns the table without columns that have no known quantile, and why quantiles are unknown.

    ``numbers`` are the calls of the rows, if known; ``counted`` names them.
    """
    unknown: dict[str, float] = {}
    kept = []
    for n, column in enumerate(shown.columns):
        tail = TAILS.get(column.head.split()[-1] if column.head else "")
        texts = {r.cells[n].text for r in shown.rows} - {""}
        if tail is not None and UNKNOWN in texts:
            unknown[tail.name] = tail.q
        if tail is None or texts != {UNKNOWN}:
            kept.append(n)
    rows = [r._replace(cells=[r.cells[n] for n in kept]) for r in shown.rows]
    why = [_too_few(unknown, counted or noun("calls"), numbers)] if unknown and shown.rows else []
    return [replace(shown, columns=[shown.columns[n] for n in kept], rows=rows), *remarks(why)]


def explains(column: str, why: str) -> bool:
    """Returns whether :func:`with_reason` already states why the figures of a column are unknown."""
    return why == in_words(FEW) and column.endswith(_ENDS)


def _too_few(unknown: Mapping[str, float], what: str, numbers: Iterable[int]) -> str:
    """Returns ``p95 and p99 unknown: too few calls (23 to 154; p95 needs 200, p99 needs 1,000).``

    Quantiles that other rows lack have a sentence of their own.
    """
    counts = sorted(numbers)
    ranges = ((_range([n for n in counts if n < fewest_calls(q)]), name) for name, q in unknown.items())
    sentences = []
    for has, names in grouped(ranges).items():
        needs = ", ".join(f"{name} needs {fewest_calls(unknown[name]):,}" for name in names)
        which = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        sentences.append(f"{which} unknown: too few {what} ({'; '.join(filter(None, (has, needs)))}).")
    return " ".join(sentences)


def _range(counts: Sequence[int]) -> str:
    """Returns ``23 to 154``, ``23``, or nothing."""
    return " to ".join(dict.fromkeys(f"{n:,}" for n in (counts[0], counts[-1]))) if counts else ""


def note(figure: Cell, q: float, note: str) -> str:
    """Returns ``note``, or the reason why the quantile is unknown."""
    return note if figure.value is not None else f"unknown: it needs {fewest_calls(q):,} {noun('calls')}"
