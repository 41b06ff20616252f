"""The joint table ready for showing: every (state, wait event) with its sleep and its run queue."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.source import TRACE
from dbdyno.model.units import format_rate, significant
from dbdyno.present import stack
from dbdyno.present.accounts import BRACKET, NO_LABEL, THROTTLED, UNSEEN
from dbdyno.present.figures import UNKNOWN
from dbdyno.present.missing_values import in_words
from dbdyno.present.selection import Pick, rows_of

MAX_ROWS = 60
_PARTS = ("run", "sleep", "runq")
_ASLEEP = ("sleep", "client", "pool.queue", "active without wait event")
_TOTALS = (("run", "run.user", "run.system"), _ASLEEP, ("runq",))
_UNLABELLED = "active without wait event"
_NAMELESS = (UNSEEN, "no samples", _UNLABELLED)
"""What table events says in status of time under no known label."""
_UNDIVIDED = "the scheduler trace does not divide CPU time by label; its sum is exact"
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
    """The rows of the rung (all sessions in sum), the most time first; the sums are the ledger's own."""
    frame = rows_of(results, "events", pick).filter(pl.col("scope") == "rung")
    time = pl.sum_horizontal(pl.col(*_PARTS).fill_null(0.0))
    frame = frame.sort(time, descending=True, maintain_order=True)
    shown = [_wait(r) for r in frame.head(MAX_ROWS).to_dicts()]
    places = _places(results, pick)
    accounts = {row["key"]: row for row in stack.means(results, places).to_dicts()}
    hidden = stack.hidden(results, places)
    sums = [UNKNOWN if hidden and names is _ASLEEP else _sum(accounts, names) for names in _TOTALS]
    notes = [*_notes(frame), *_remainder(accounts, stack.missing(results, places))]
    notes += _throttled(results, pick)
    return Waits(shown, sums if len(frame) else [], len(frame) - len(shown), notes)


def _places(results: Results, pick: Pick) -> pl.DataFrame:
    """The cells of the pick as one place of the stack."""
    windows = results.tables["windows"]
    cells = windows if pick.cell is None else windows.filter(pl.col("cell") == pick.cell)
    return cells.select("cell", place=pl.lit(0), weight="wall_s")


def _sum(accounts: dict[str, dict[str, Any]], names: tuple[str, ...]) -> str:
    rows = [r for r in accounts.values() if r["account"] in names]
    known = [r["aas"] for r in rows if r["aas"] is not None]
    return figure(sum(known)) if known and len(known) == len(rows) else UNKNOWN


def _remainder(accounts: dict[str, dict[str, Any]], missing: list[str]) -> list[str]:
    """What the accounts leave of the sessions' time, signed, how sure that is, and what is unknown in it."""
    row = accounts.get("unaccounted")
    if row is None or row["aas"] is None:
        return []
    ends = "" if row["low"] is None or row["high"] is None else f" ({row['low']:+.3f} to {row['high']:+.3f})"
    words = f"unaccounted: {row['aas']:+.3f} s per second{ends}, signed: session time less all accounts."
    return [f"{words} What is unknown lies in it: {', '.join(missing)}." if missing else words]


def _throttled(results: Results, pick: Pick) -> list[str]:
    """Throttled time of a cell, which lies inside CPU WAIT."""
    if pick.cell is None:
        return []
    inside = pl.col("account").is_in([BRACKET, THROTTLED]) & (pl.col("scope") == "rung")
    rows = results.tables["ledger"].filter((pl.col("cell") == pick.cell) & inside).to_dicts()
    measured = [r for r in rows if r["account"] == THROTTLED and r["aas"] is not None]
    for row in measured or rows:
        low, high = row["low"] or 0.0, row["high"] if row["high"] is not None else row["aas"]
        if high:
            how = "measured" if measured else "a bracket"
            words = figure(high) if low == high else f"{figure(low)} to {figure(high)}"
            return [f"throttled by a CPU limit: {words} s per second, inside CPU WAIT ({how}, never added)."]
    return []


def figure(aas: float) -> str:
    """Seconds per second with three decimals, fewer where it is large."""
    if aas == 0:
        return "0"
    return f"{aas:.3f}" if abs(aas) < 100 else significant(aas, 4)


def _wait(row: dict[str, Any]) -> Wait:
    return Wait(
        row["state"] or "-",
        _label(row),
        [_figure(row, part) for part in _PARTS],
        "-" if row["waits_per_s"] is None else format_rate(row["waits_per_s"]),
        "-" if row["samples"] is None else f"{row['samples']:,.0f}",
        row["source"],
    )


def _label(row: dict[str, Any]) -> str:
    if row["wait_class"] is not None:
        return f"{row['wait_class']}/{row['wait_event'] or '?'}"
    return row["status"] if row["status"] in _NAMELESS else NO_LABEL


def _figure(row: dict[str, Any], part: str) -> tuple[str, str]:
    value, low, high = (row[f"{part}{end}"] for end in ("", "_low", "_high"))
    if value is None and part == "run" and TRACE in row["source"]:
        return "-", _UNDIVIDED
    if value is None and row["status"] in ("ok", UNSEEN, "no samples"):
        return "-", "none was seen"
    if value is None:
        return UNKNOWN, _why(row["status"])
    return figure(value), "" if low is None or high is None else f"{figure(low)} to {figure(high)}"


def _why(status: str) -> str:
    """Why a figure of a row is unknown."""
    if status == _UNLABELLED:
        return "active without a wait event: on a CPU, in the run queue or asleep, its task cannot be seen"
    return in_words(status)


def _notes(frame: pl.DataFrame) -> list[str]:
    bad: dict[str, list[str]] = {}
    traced = pl.col("source").str.contains(TRACE, literal=True)
    silent = pl.col("status").is_in(["ok", UNSEEN, "no samples"])
    for part, head in zip(_PARTS, HEADS, strict=True):
        statuses = frame.filter(pl.col(part).is_null() & ~silent)["status"].unique().sort().to_list()
        for status in statuses:
            bad.setdefault(_why(status), []).append(head)
    notes = [f"{UNKNOWN} {', '.join(heads)}: {why}." for why, heads in bad.items()]
    if len(frame.filter(pl.col("run").is_null() & traced)):
        notes.append(f"- CPU: {_UNDIVIDED}; nor does it read the state.")
    if len(frame) and frame["waits_per_s"].null_count() == len(frame):
        notes.append("- waits a second: only the scheduler trace counts them.")
    return notes
