"""The joint table ready for showing: every (state, wait event) with its sleep and its run queue."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import format_rate, significant
from dbdyno.report.figures import UNKNOWN
from dbdyno.report.picks import Pick, rows_of
from dbdyno.report.unknown import in_words

MAX_ROWS = 60
_PARTS = ("run", "sleep", "runq")
HEADS = ("CPU", "asleep", "CPU WAIT")


class Wait(NamedTuple):
    state: str
    event: str
    figures: list[tuple[str, str]]  # CPU, asleep, CPU WAIT in s per second; each with its interval
    waits: str  # sleeps a second, where traced
    samples: str
    source: str


class Waits(NamedTuple):
    rows: list[Wait]
    total: list[str]  # sums of the three
    left_out: int
    notes: list[str]


def waits(results: Results, pick: Pick) -> Waits:
    """The rows of the rung (all sessions in sum), the most time first."""
    frame = rows_of(results, "events", pick).filter(pl.col("scope") == "rung")
    time = pl.sum_horizontal(pl.col(*_PARTS).fill_null(0.0))
    frame = frame.sort(time, descending=True, maintain_order=True)
    shown = [_wait(r) for r in frame.head(MAX_ROWS).to_dicts()]
    sums = [UNKNOWN if frame[p].null_count() else figure(float(frame[p].sum())) for p in _PARTS]
    return Waits(shown, sums if len(frame) else [], len(frame) - len(shown), _notes(frame))


def figure(aas: float) -> str:
    """Seconds per second with three decimals, fewer where it is large."""
    if aas == 0:
        return "0"
    return f"{aas:.3f}" if abs(aas) < 100 else significant(aas, 4)


def _wait(row: dict[str, Any]) -> Wait:
    label = (
        "no wait event" if row["wait_class"] is None else f"{row['wait_class']}/{row['wait_event'] or '?'}"
    )
    return Wait(
        row["state"] or UNKNOWN,
        label,
        [_figure(row, part) for part in _PARTS],
        "-" if row["waits_per_s"] is None else format_rate(row["waits_per_s"]),
        "-" if row["samples"] is None else f"{row['samples']:,.0f}",
        row["source"],
    )


def _figure(row: dict[str, Any], part: str) -> tuple[str, str]:
    value, low, high = (row[f"{part}{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return UNKNOWN, in_words(row["status"])
    return figure(value), "" if low is None or high is None else f"{figure(low)} to {figure(high)}"


def _notes(frame: pl.DataFrame) -> list[str]:
    bad: dict[str, list[str]] = {}
    for part, head in zip(_PARTS, HEADS, strict=True):
        for status in frame.filter(pl.col(part).is_null())["status"].unique().sort().to_list():
            bad.setdefault(in_words(status), []).append(head)
    notes = [f"{UNKNOWN} {', '.join(heads)}: {why}." for why, heads in bad.items()]
    if len(frame) and frame["waits_per_s"].null_count() == len(frame):
        notes.append("- waits a second: only the scheduler trace counts them.")
    return notes
