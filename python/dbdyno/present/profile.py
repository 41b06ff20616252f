"""The load profile: what was done per second, transaction, execution and call; the events of most time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbdyno.model.results import Results
from dbdyno.model.units import NS_PER_S, format_ns, format_rate, significant
from dbdyno.present import sources_used
from dbdyno.present.document import Block, Cell, Column, Paragraph, Row, Table, known, remarks, table, word
from dbdyno.present.figures import UNKNOWN, percent
from dbdyno.present.selection import Pick, rows_of
from dbdyno.present.sources_used import in_words

_PER = ("per_s", "per_transaction", "per_execution", "per_call")
HEADS = {"per_s": "per second", "per_transaction": "per transaction", "per_execution": "per execution",
         "per_call": "per call"}  # fmt: skip
_RATIO = "ratio"
_TOP = "seconds: a wait's are asleep; CPU WAIT s: in the run queue under its label, counted in CPU WAIT."


def load_profile(results: Results, pick: Pick) -> list[Block]:
    """A row for each figure, a column for each of what it is divided by; then why figures are unknown."""
    rows = rows_of(results, "profile", pick).to_dicts()
    if not rows:
        return [Paragraph("No load profile: the run has no counters.", "muted")]
    per = [c for c in _PER if c == "per_s" or any(r[c] is not None for r in rows if r["unit"] != _RATIO)]
    columns = [Column(""), *(Column(HEADS[c], number=True) for c in per), Column("source", rank=1)]
    repeats = f", all {pick.repeats} repeats together" if pick.repeats > 1 else ""
    shown = sorted(rows, key=lambda r: r["unit"] == _RATIO)
    made = Table(f"Load profile {pick.at}{repeats}", columns, [Row(_line(r, per)) for r in shown], named=True)
    return [made, *remarks(_notes(rows, per))]


def events(results: Results, pick: Pick) -> list[dict[str, Any]]:
    """Rows of table ``top_events``, the most time first."""
    return rows_of(results, "top_events", pick).sort("rank").to_dicts()


def top_events(results: Results, pick: Pick) -> list[Block]:
    """The ten largest parts of DB time."""
    found = events(results, pick)
    if not found:
        return [Paragraph("No top events: sessions were neither sampled nor traced.", "muted")]
    return [
        table(f"Top {len(found)} events {pick.at} by total time", _EVENT, found, named=True),
        *remarks([f"{_TOP} {sources_used.caption(results, pick.cell)}"]),
    ]


def _own(row: dict[str, Any]) -> bool:
    return row["name"] in ("DB CPU", "CPU WAIT")


def _interval(row: dict[str, Any]) -> Cell:
    ends = row["low"], row["high"]
    return word("" if None in ends else f"{significant(ends[0])} to {significant(ends[1])}")


def _share(row: dict[str, Any]) -> Cell:
    share = row["share"]
    bar = () if share is None else ((min(1.0, max(0.0, share)), "accent"),)
    return known(share, lambda v: percent(v, digits=1))._replace(bar=bar)


def _number(head: str, rank: int = 0) -> Column:
    return Column(head, number=True, rank=rank)


_EVENT: tuple[tuple[Column, Callable[[dict[str, Any]], Cell]], ...] = (
    (Column("event", shortens=True), lambda r: word(r["name"])),
    (_number("seconds"), lambda r: known(r["seconds"], significant, "s")),
    (_number("% DB time"), _share),
    (_number("CPU WAIT s", 1), lambda r: _optional(r["runq_s"], significant, "" if _own(r) else "-")),
    (_number("95 % interval", 2), _interval),
    (_number("waits", 4), lambda r: _optional(r["waits"], format_rate, "-")),
    (_number("mean", 3), lambda r: _optional(r["mean_ns"], format_ns, "-")),
    (Column("source", rank=5), lambda r: word(sources_used.named(r["source"]))),
)


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


def _line(row: dict[str, Any], columns: list[str]) -> list[Cell]:
    if row["unit"] == _RATIO:
        hits = known(row["total"], lambda v: f"{percent(v, digits=2)} %")
        return [word(row["name"]), hits, *[word("")] * (len(columns) - 1), word("")]
    unit = row["unit"]
    suffix = {"blocks": ", blocks", "rows": ", rows"}.get(unit, "")
    any_known = row["total"] is not None or row["per_s"] is not None
    # A divisor over itself says nothing; one that is unknown has its own row with the reason.
    values = [
        Cell("-")
        if row[c] is None and any_known
        else Cell(_value(row[c], unit, c), row[c], unit, in_words(row["status"]) if row[c] is None else "")
        for c in columns
    ]
    return [word(row["name"] + suffix), *values, word(row["source"])]


def _optional(amount: float | None, text: Callable[[float], str], absent: str) -> Cell:
    return Cell(absent) if amount is None else known(amount, text)


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
