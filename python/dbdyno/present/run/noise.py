"""Shows where the noise of equal measurements comes from, and the repeats that differences take."""

from __future__ import annotations

from typing import Any

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, fine_percent, format_count, format_given, in_minutes
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word

TITLE = "What a comparison can see here"
_Row = dict[str, Any]


def blocks(results: Results) -> list[Block]:
    """Returns the plans by difference, the parts of the noise, and remarks."""
    return [*plan_blocks(results), *part_blocks(results)]


def plan_blocks(results: Results) -> list[Block]:
    """Returns a row for each difference, with and without restarts of the server."""
    frame = results.tables.get("noise_plan", empty("noise_plan"))
    if frame.is_empty():
        return []
    rows: dict[tuple[int, float], _Row] = {}
    for row in frame.to_dicts():
        key = (row["sessions"], row["difference"])
        rows.setdefault(key, {"sessions": key[0], "difference": key[1]})[str(row["restarts"])] = row
    restarted = bool(frame["restarts"].any())
    columns = [
        (numeric("sessions"), lambda r: known(r["sessions"], format_count)),
        (numeric("difference"), lambda r: known(r["difference"], fine_percent)),
        (numeric("repeats"), lambda r: _repeats(r["False"])),
        (numeric("of"), lambda r: _length(r["False"])),
        (numeric("time"), lambda r: _time(r["False"])),
    ]
    if restarted:
        columns += [
            (numeric("repeats, restarted"), lambda r: _repeats(r["True"])),
            (numeric("time, restarted"), lambda r: _time(r["True"])),
        ]
    notes = [
        "Two variants of one run, in turns; found with a probability of 80 %. More variants or loads take "
        "more repeats. A difference below the margin of dbdyno compare counts only with --margin.",
    ]
    if restarted:
        notes.append("Restarted: each measurement has a start of the server of its own.")
    if len({row["sessions"] for row in rows.values()}) == 1:
        columns = columns[1:]
    return [table(TITLE, columns, list(rows.values())), *remarks(notes)]


def part_blocks(results: Results) -> list[Block]:
    """Returns a row for each part of the noise; of one that is unknown, with the reason."""
    frame = results.tables.get("noise", empty("noise"))
    if frame.is_empty():
        return []
    columns = (
        (Column("part"), lambda r: word(r["part"])),
        (numeric("deviation"), lambda r: known(r["deviation"], fine_percent)),
        (numeric("95 % interval"), _interval),
        (numeric("values"), lambda r: known(r["values"], format_count)),
        (Column("unknown because", wraps=True), lambda r: word("" if r["status"] == "ok" else r["status"])),
    )
    note = (
        "Standard deviation of throughput that each part adds; one repeat: all but restarts and drift, which "
        "two variants in turns share."
    )
    budget = results.tables["noise_budget"].to_dicts()
    times = [
        f"Between two measurements {_brief(row['overhead_s'])} s pass"
        + (f", with a restart {_brief(row['overhead_s'] + row['restart_s'])} s" if row["restart_s"] else "")
        + "."
        + (
            f" Seconds resemble their neighbours over {_brief(row['autocorrelation_s'])} s."
            if row["second_variance"]
            else ""
        )
        for row in budget[:1]
    ]
    return [table("Where the noise comes from", columns, frame.to_dicts()), *remarks([note, *times])]


def _brief(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _repeats(row: _Row) -> Cell:
    return known(row["repeats"], format_count)


def _length(row: _Row) -> Cell:
    return known(row["measure_s"], lambda s: f"{format_given(s)} s")


def _time(row: _Row) -> Cell:
    return known(row["time_s"], lambda s: in_minutes(s * NS_PER_S))


def _interval(row: _Row) -> Cell:
    if row["low"] is None:
        return known(None, fine_percent)
    return word(f"{fine_percent(row['low'])} to {fine_percent(row['high'])}")
