"""Shows the load profile, the events that took the most time, and every wait event."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import SERVED, current_kind
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.sources.second_counters import LATE_S
from dbdyno.model.sources.source import TRACE
from dbdyno.model.text.nouns import capital, fill, noun
from dbdyno.model.units import NS_PER_S, format_average, format_count, format_ns, format_rate
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Paragraph,
    Row,
    Table,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures import accounts, sources_used
from dbdyno.present.figures.accounts import BRACKET, THROTTLED, UNSEEN
from dbdyno.present.figures.figures import grouped, is_observation, percent
from dbdyno.present.figures.selection import Pick, rows_of
from dbdyno.present.figures.sources_used import in_words

_PER = ("per_s", "per_transaction", "per_execution", "per_call")
HEADS = {
    "per_s": "per second",
    "per_transaction": "per transaction",
    "per_execution": "per execution",
    "per_call": "per {~call}",
}
_TRANSACTION = "per_transaction"
LEAST_ERROR = 0.02
"""Relative error from which on the number of transactions, and figures per transaction, are marked."""
_ABOUT = (
    "~: sessions report transactions up to a second late, statements at once; so figures per transaction err "
    "by up to {error} % here (dbdyno help observe)."
)
_RANKS = {"per_s": 0, "per_call": 1, "per_transaction": 2, "per_execution": 3}
_RATIO = "ratio"
_OF_COMMANDS = ("DB CPU", "CPU WAIT", "calls")
"""Figures that executions of commands have; the others are counters and samples of a server."""
_NONE = "-"  # text of a cell without a figure
_TRANSACTIONS_ALONE = ("transactions", "commits", "rollbacks")  # as late as their divisor
_OWN = {"DB CPU": "", "CPU WAIT": ""}  # these are no waits, so they have no run queue of their own
_TOP = "time: a wait's is asleep; CPU WAIT: in the run queue under its label, counted in the line CPU WAIT."


def load_profile(results: Results, pick: Pick) -> list[Block]:
    """Returns a row per figure and a column per divisor, and the reasons why figures are unknown."""
    rows = rows_of(results, "profile", pick).to_dicts()
    served = current_kind().among((SERVED,))
    if not served:
        rows = [r for r in rows if r["name"] in _OF_COMMANDS]
    if not rows:
        return [Paragraph("No load profile: the run has no counters.", "muted")]
    per = [c for c in _PER if c == "per_s" or any(r[c] is not None for r in rows if r["unit"] != _RATIO)]
    columns = [Column(""), *(numeric(fill(HEADS[c]), _RANKS[c]) for c in per), Column("source", rank=4)]
    repeats = f", all {pick.repeats} repeats together" if pick.repeats > 1 else ""
    shown = sorted(rows, key=lambda r: r["unit"] == _RATIO)
    error = transactions_error(results, pick) if _TRANSACTION in per else 0.0
    about = (_TRANSACTION,) if error >= LEAST_ERROR else ()
    profile = Table(
        f"Load profile {pick.at}{repeats}{_scope(results)}",
        columns,
        [Row(_line(r, per, about)) for r in shown],
        named=True,
    )
    notes = _notes(rows, per if served else [*_PER])
    if about:
        notes.append(_ABOUT.format(error=percent(error)))
    return [profile, *remarks(notes)]


def _scope(results: Results) -> str:
    """Returns which figures are of the whole server, if only some of its sessions are observed."""
    some = results.plan.experiment.observes_some
    return f"; {noun('db_time')} and its parts: observed sessions, the rest: whole server" if some else ""


def transactions_error(results: Results, pick: Pick) -> float:
    """Returns the largest relative error of the number of transactions in windows of an observation: at
    either end those of :data:`LATE_S` may be counted in the neighbour. A driven load waits for reports."""
    if not is_observation(results):
        return 0.0
    windows = results.tables["windows"].filter(pl.col("status") != "invalid")
    chosen = windows if pick.cell is None else windows.filter(pl.col("cell") == pick.cell)
    return min(1.0, LATE_S / max(float(chosen["wall_s"].sum()), LATE_S))


def events(results: Results, pick: Pick) -> list[dict[str, Any]]:
    """Returns the rows of table ``top_events``, the most time first."""
    return rows_of(results, "top_events", pick).sort("rank").to_dicts()


LEAST = 0.0005
"""Seconds per second; less is shown as 0."""


def nothing_was_active(results: Results, pick: Pick) -> bool:
    """Returns whether it is known that no session did anything."""
    row = rows_of(results, "profile", pick).filter(pl.col("name") == "DB time")
    return row.height == 1 and row["per_s"][0] is not None and row["per_s"][0] < LEAST


def _without_events(results: Results, pick: Pick, what: str) -> Paragraph:
    idle = is_observation(results) and nothing_was_active(results, pick)
    why = "no session was active" if idle else "{~tasks} were neither sampled nor traced"
    return Paragraph(fill(f"{what}: {why}."), "muted")


def top_events(results: Results, pick: Pick) -> list[Block]:
    """Returns the ten largest parts of DB time."""
    largest = events(results, pick)
    if not largest:
        return [_without_events(results, pick, "No {~top_events}")]
    return [
        table(
            f"{noun('top')} {len(largest)} {noun('events')} {_at_known(results, pick)} by total time",
            _EVENT,
            largest,
            named=True,
        ).without_unknown(_NONE),
        *remarks([f"{_TOP} {sources_used.caption(results, pick.cell)}"]),
    ]


def _at_known(results: Results, pick: Pick) -> str:
    """Returns ``over all windows``, or ``over 2 of 3 windows`` if DB time is known in some only."""
    times = rows_of(results, "profile", pick).filter(pl.col("name") == "DB time")
    partly = [status for status in times["status"] if status.endswith(" windows")]
    return f"over {partly[0]}" if partly and pick.cell is None else pick.at


def _event_name(event: str) -> str:
    """Returns the name of an event or a figure in the nouns of the kind of run."""
    return noun("db_cpu") if event == "DB CPU" else event


def _interval(row: dict[str, Any]) -> Cell:
    ends = row["low"], row["high"]
    return word("" if None in ends else f"{_time(ends[0])} to {_time(ends[1])}")


def _time(seconds: float) -> str:
    return format_ns(seconds * NS_PER_S)


def _share(row: dict[str, Any]) -> Cell:
    share = row["share"]
    bar = () if share is None else ((min(1.0, max(0.0, share)), "accent"),)
    return known(share, lambda v: percent(v, digits=1))._replace(bar=bar)


_EVENT: tuple[tuple[Column, Callable[[dict[str, Any]], Cell]], ...] = (
    (Column("{~event}", shortens=True), lambda r: word(_event_name(r["name"]))),
    (numeric("time"), lambda r: known(r["seconds"], _time, "s")),
    (numeric("% {~db_time}"), _share),
    (
        numeric("CPU WAIT", 1),
        lambda r: _optional(r["runq_s"], _time, _OWN.get(r["name"], _NONE)),
    ),
    (numeric("95 % interval", 2), _interval),
    (
        numeric("waits", 4)._replace(
            note="waits that began, each of one sleep or several in one system call"
        ),
        lambda r: _optional(r["waits"], format_count, _NONE),
    ),
    (numeric("mean wait", 3), lambda r: _optional(r["mean_ns"], format_ns, _NONE)),
    (
        numeric("with CPU WAIT", 6)._replace(note="mean wait with its time in the run queue"),
        lambda r: _optional(r["mean_queued_ns"], format_ns, _NONE),
    ),
    (numeric("sleeps", 7), lambda r: _optional(r["sleeps"], format_count, _NONE)),
    (Column("source", rank=5), lambda r: word(sources_used.named(r["source"]))),
)


def _value(amount: float | None, unit: str) -> str:
    """Returns a figure with its unit: ``7.71 s``, ``132 k``, ``812 B``; ``?`` if it is unknown."""
    if amount is None:
        return UNKNOWN
    if unit == "s":
        return _time(amount)
    space = "" if abs(amount) >= 1e3 else " "  # format_rate puts a space before a prefix, as in ``1.2 k``
    return f"{format_rate(amount)}{space}B" if unit == "bytes" else format_rate(amount)


def _line(row: dict[str, Any], columns: list[str], about: Collection[str]) -> list[Cell]:
    if row["unit"] == _RATIO:
        hits = known(row["total"], lambda v: f"{percent(v, digits=2)} %")
        return [word(row["name"]), hits, *[word("")] * (len(columns) - 1), word("")]
    unit = row["unit"]
    suffix = {"blocks": ", blocks", "rows": ", rows"}.get(unit, "")
    any_known = row["total"] is not None or row["per_s"] is not None
    # A divisor divided by itself carries no information; an unknown one has its own row with the reason.
    values = [
        Cell(_NONE)
        if row[c] is None and any_known
        else Cell(
            ("~" if c in about and row[c] and row["name"] not in _TRANSACTIONS_ALONE else "")
            + _value(row[c], unit),
            row[c],
            unit,
            in_words(row["status"]) if row[c] is None else "",
        )
        for c in columns
    ]
    return [word(_event_name(row["name"]) + suffix), *values, word(row["source"])]


def _optional(amount: float | None, text: Callable[[float], str], absent: str) -> Cell:
    return Cell(absent) if amount is None else known(amount, text)


def _notes(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    """Returns unknown figures grouped by their reason, and notes on missing columns."""
    unknown = [r for r in rows if r["total"] is None and r["per_s"] is None]
    reasons = grouped((in_words(r["status"]), r["name"]) for r in unknown)
    notes = [f"{UNKNOWN} {', '.join(names)}: {why}." for why, names in reasons.items()]
    partly = [r for r in rows if r["total"] is not None and r["status"].endswith(" windows")]
    within = grouped((r["status"], _event_name(r["name"])) for r in partly)
    notes += [f"{', '.join(names)}: known in {windows}." for windows, names in within.items()]
    totals = {r["name"]: r["total"] for r in rows}
    absent = [fill(HEADS[c]) for c in _PER if c not in columns]
    none = [head for head in absent if totals.get(f"{head.removeprefix('per ')}s") == 0]
    if none:
        notes.append(f"No column {' and none '.join(none)}: none ended in the measurement.")
    if unknown_ones := [head for head in absent if head not in none]:
        notes.append(f"No column {' and none '.join(unknown_ones)}: how many there were is not known.")
    return notes


# The table of every state and wait event: its time on a CPU, asleep and in the run queue.

MAX_ROWS = 60
_PARTS = ("run", "sleep", "runq")
_ASLEEP = ("sleep", "client", "pool.queue", "active without wait event")
_TOTALS = (("run", "run.user", "run.system"), _ASLEEP, ("runq",))
_UNLABELLED = "active without wait event"
_UNSEEN = "seen by no sample"
_NAMELESS = {_UNSEEN: f"asleep, {UNSEEN}", "no samples": "no samples", _UNLABELLED: _UNLABELLED}
"""Labels of time without a known one, by status in table events."""
_UNDIVIDED = "the scheduler trace does not divide CPU time by label; its sum is exact"
_PARTS_HEADS = ("CPU", "asleep", "CPU WAIT")  # in the order of _PARTS


def wait_events(results: Results, pick: Pick) -> list[Block]:
    """Returns the rows of the rung (sum of all sessions), the most time first; the totals are the
    ledger's."""
    frame = rows_of(results, "events", pick).filter(pl.col("scope") == "rung")
    if frame.is_empty():
        return [_without_events(results, pick, "No {~wait_events}")]
    time = pl.sum_horizontal(pl.col(*_PARTS).fill_null(0.0))
    frame = frame.sort(time, descending=True, maintain_order=True)
    places = _places(results, pick)
    means = accounts.means(results, places)
    known = {row["key"]: row for row in means.to_dicts()}
    hidden = accounts.hidden(results, places)
    sums = [UNKNOWN if hidden and names is _ASLEEP else _sum(known, names) for names in _TOTALS]
    named = [word("all"), word(""), *(c for s in sums for c in (word(s), word("")))]
    total = Row([*named, *[word("")] * (len(_COLUMNS) - len(named))], key=True)
    title = f"{capital(noun('wait_events'))} {pick.at}{pick.which}: seconds per second"
    shown = table(title, _COLUMNS, frame.head(MAX_ROWS).to_dicts(), named=True)
    left = len(frame) - len(shown.rows)
    notes = [f"{left} smaller rows are left out; the export holds them."] if left else []
    notes += [*_wait_notes(frame), *_remainder(known, accounts.missing_parts(results, places, means))]
    notes += [*_throttled(results, pick), sources_used.caption(results, pick.cell)]
    return [replace(shown, rows=[*shown.rows, total]).without_unknown(_NONE), *remarks(notes)]


def _places(results: Results, pick: Pick) -> pl.DataFrame:
    """Returns the cells of the pick as one place of the stack."""
    windows = results.tables["windows"]
    cells = windows if pick.cell is None else windows.filter(pl.col("cell") == pick.cell)
    return cells.select("cell", place=pl.lit(0), weight="wall_s")


def _sum(accounts: dict[str, dict[str, Any]], names: tuple[str, ...]) -> str:
    rows = [r for r in accounts.values() if r["account"] in names]
    known = [r["aas"] for r in rows if r["aas"] is not None]
    return figure(sum(known)) if known and len(known) == len(rows) else UNKNOWN


def _remainder(accounts: dict[str, dict[str, Any]], missing: list[str]) -> list[str]:
    """Returns a note on the signed remainder of session time, its interval, and unknown accounts within
    it."""
    row = accounts.get("unaccounted")
    if row is None or row["aas"] is None:
        return []
    ends = (
        ""
        if row["low"] is None or row["high"] is None
        else f" ({_signed(row['low'])} to {_signed(row['high'])})"
    )
    whole = noun("session_time")
    note = f"unaccounted: {_signed(row['aas'])} s per second{ends}, signed: {whole} less all accounts."
    return [f"{note} What is unknown lies in it: {', '.join(missing)}." if missing else note]


def _signed(value: float) -> str:
    if round(value, 3) == 0:
        return "0.000"
    text = format_average(value)
    return f"+{text}" if value > 0 and text[0].isdigit() else text


def _throttled(results: Results, pick: Pick) -> list[str]:
    """Returns a note on throttled time of the cells, which is part of CPU WAIT."""
    inside = pl.col("account").is_in([BRACKET, THROTTLED]) & (pl.col("scope") == "rung")
    cells = _places(results, pick)
    weight = pl.col("weight") / cells["weight"].sum()
    rows = (
        results.tables["ledger"]
        .filter(inside)
        .join(cells, on="cell")
        .with_columns(pl.col("aas", "low", "high") * weight)
        .group_by("account", maintain_order=True)
        .agg(*(sum_if_all_known(c) for c in ("aas", "low", "high")))
        .to_dicts()
    )
    measured = [r for r in rows if r["account"] == THROTTLED and r["aas"] is not None]
    for row in measured or rows:
        low, high = row["low"] or 0.0, row["high"] if row["high"] is not None else row["aas"]
        if high:
            how = "measured" if measured else "a bracket"
            amount = figure(high) if low == high else f"{figure(low)} to {figure(high)}"
            return [f"throttled by a CPU limit: {amount} s per second, inside CPU WAIT ({how}, never added)."]
    return []


def figure(aas: float) -> str:
    """Returns seconds per second with three decimals, fewer if the value is large."""
    if aas == 0:
        return "0"
    return format_average(aas)


def _label(row: dict[str, Any]) -> str:
    if row["wait_class"] is not None:
        return f"{row['wait_class']}/{row['wait_event'] or '?'}"
    return _NAMELESS.get(row["status"]) or noun("not_labelled")


def _figure(part: str) -> Callable[[dict[str, Any]], Cell]:
    def cell(row: dict[str, Any]) -> Cell:
        value = row[part]
        if value is None and part == "run" and TRACE in row["source"]:
            return Cell(_NONE, note=_UNDIVIDED)
        if value is None and row["status"] in ("ok", _UNSEEN, "no samples"):
            return Cell(_NONE, note="none was seen")
        return known(value, figure, "s/s", _why(row["status"]) if value is None else "")

    return cell


def _ends(part: str) -> Callable[[dict[str, Any]], Cell]:
    def cell(row: dict[str, Any]) -> Cell:
        value, low, high = (row[f"{part}{end}"] for end in ("", "_low", "_high"))
        return word("" if None in (value, low, high) else f"{figure(low)} to {figure(high)}")

    return cell


def _why(status: str) -> str:
    """Returns the reason why a figure of a row is unknown."""
    if status == _UNLABELLED:
        return fill(
            "active without a {~wait_event}: on a CPU, in the run queue or asleep, its task cannot be seen"
        )
    return in_words(status)


def _wait_notes(frame: pl.DataFrame) -> list[str]:
    traced = pl.col("source").str.contains(TRACE, literal=True)
    silent = pl.col("status").is_in(["ok", _UNSEEN, "no samples"])
    bad = grouped(
        (_why(status), head)
        for part, head in zip(_PARTS, _PARTS_HEADS, strict=True)
        for status in frame.filter(pl.col(part).is_null() & ~silent)["status"].unique().sort()
    )
    notes = [f"{UNKNOWN} {', '.join(heads)}: {why}." for why, heads in bad.items()]
    if len(frame.filter(pl.col("run").is_null() & traced)):
        notes.append(f"- CPU: {_UNDIVIDED}; nor does it read the state.")
    if len(frame) and frame["waits_per_s"].null_count() == len(frame):
        notes.append("Waits and sleeps are counted only by the scheduler trace.")
    return notes


_COLUMNS: tuple[tuple[Column, Callable[[dict[str, Any]], Cell]], ...] = (
    (Column("{~wait_event}", shortens=True), lambda r: word(_label(r))),
    (Column("state", rank=4), lambda r: word(r["state"] or _NONE)),
    *(
        column
        for part, head in zip(_PARTS, _PARTS_HEADS, strict=True)
        for column in (
            (numeric(head), _figure(part)),
            (numeric("95 %", 5), _ends(part)),
        )
    ),
    (numeric("waits/s", 2), lambda r: _optional(r["waits_per_s"], format_rate, _NONE)),
    (numeric("sleeps/s", 3), lambda r: _optional(r["sleeps_per_s"], format_rate, _NONE)),
    (numeric("samples", 3), lambda r: _optional(r["samples"], lambda v: f"{v:,.0f}", _NONE)),
    (Column("source", rank=6), lambda r: word(sources_used.named(r["source"]))),
)
