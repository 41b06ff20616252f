"""The load profile, ready for showing: what was done per second, transaction, execution and call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dbdyno.model.results import Results
from dbdyno.model.units import NS_PER_S, format_ns, format_rate, significant
from dbdyno.present.figures import UNKNOWN, percent
from dbdyno.present.missing_values import in_words
from dbdyno.present.selection import Pick, rows_of

_PER = ("per_s", "per_transaction", "per_execution", "per_call")
HEADS = {"per_s": "per second", "per_transaction": "per transaction", "per_execution": "per execution",
         "per_call": "per call"}  # fmt: skip


class Line(NamedTuple):
    """A row of the profile; ``values`` in the order of the page's heads."""

    name: str
    values: list[str]
    status: str  # why, where all values are unknown; else empty
    source: str


class Event(NamedTuple):
    """A row of the top events."""

    rank: str
    name: str
    seconds: str
    interval: str
    share: str  # of DB time
    runq: str  # seconds under its label in the run queue
    waits: str
    mean: str
    source: str


class Profile(NamedTuple):
    heads: list[str]
    lines: list[Line]
    ratios: list[tuple[str, str]]
    events: list[Event]
    notes: list[str]  # why figures are unknown


def profile(results: Results, pick: Pick) -> Profile:
    """The page of one pick; empty lists where the run has no profile."""
    rows = rows_of(results, "profile", pick).to_dicts()
    figures = [r for r in rows if r["unit"] != "ratio"]
    columns = [c for c in _PER if c == "per_s" or any(r[c] is not None for r in figures)]
    lines = [_line(r, columns) for r in figures]
    ratios = [
        (r["name"], UNKNOWN if r["total"] is None else f"{percent(r['total'], digits=2)} %")
        for r in rows
        if r["unit"] == "ratio"
    ]
    events = [_event(r) for r in rows_of(results, "top_events", pick).sort("rank").to_dicts()]
    return Profile([HEADS[c] for c in columns], lines, ratios, events, _notes(rows, columns))


def value(amount: float | None, unit: str) -> str:
    """A figure with its unit: ``7.71 s``, ``132 k``, ``812 B``; unknown is ``?``."""
    if amount is None:
        return UNKNOWN
    if unit == "s":
        return format_ns(amount * NS_PER_S)
    return f"{format_rate(amount)}{_space(amount)}B" if unit == "bytes" else format_rate(amount)


def _value(amount: float | None, unit: str, column: str) -> str:
    """Seconds per second are all in seconds, to compare down the column."""
    if amount is not None and unit == "s" and column == "per_s":
        return f"{significant(amount)} s"
    return value(amount, unit)


def _space(amount: float) -> str:
    """``1.2 kB`` has its space already."""
    return "" if abs(amount) >= 1e3 else " "


def _line(row: dict[str, Any], columns: list[str]) -> Line:
    unit = row["unit"]
    suffix = {"blocks": ", blocks", "rows": ", rows"}.get(unit, "")
    known = row["total"] is not None or row["per_s"] is not None
    # A divisor over itself says nothing; one that is unknown has its own row with the reason.
    values = [_value(row[c], unit, c) if row[c] is not None or not known else "-" for c in columns]
    return Line(row["name"] + suffix, values, "" if known else in_words(row["status"]), row["source"])


def _event(row: dict[str, Any]) -> Event:
    ends = row["low"], row["high"]
    interval = "" if None in ends else f"{significant(ends[0])} to {significant(ends[1])}"
    own = row["name"] in ("DB CPU", "CPU WAIT")
    return Event(
        str(row["rank"]),
        row["name"],
        significant(row["seconds"]),
        interval,
        UNKNOWN if row["share"] is None else f"{percent(row['share'], digits=1)}",
        _optional(row["runq_s"], significant, "" if own else "-"),
        _optional(row["waits"], format_rate, "-"),
        _optional(row["mean_ns"], format_ns, "-"),
        row["source"],
    )


def _optional(amount: float | None, text: Callable[[float], str], absent: str) -> str:
    return absent if amount is None else text(amount)


def _notes(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    """Unknown figures by their common reason."""
    reasons: dict[str, list[str]] = {}
    for r in rows:
        if r["total"] is None and r["per_s"] is None:
            reasons.setdefault(in_words(r["status"]), []).append(r["name"])
    notes = [f"{UNKNOWN} {', '.join(names)}: {why}." for why, names in reasons.items()]
    absent = [HEADS[c] for c in _PER if c not in columns]
    if absent and rows:
        notes.append(
            f"No column {' and none '.join(absent)}: how many there were is not known, or there were none."
        )
    return notes
