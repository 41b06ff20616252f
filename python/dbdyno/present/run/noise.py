"""Shows where the noise of equal measurements comes from, and the repeats that differences take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, counted, fine_percent, format_count, format_given, in_minutes
from dbdyno.present.document.document import Block, Cell, Column, known, numeric, remarks, table, word
from dbdyno.stats.noise_budget import CONFIDENCE, POWER, Budget

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
        f"Two variants of one run, in turns; found with a probability of {100 * POWER:g} % while the noise "
        "is as measured. More variants or loads take more repeats. A difference below the margin of dbdyno "
        "compare counts only with --margin.",
        *_planned_with(results),
    ]
    if restarted:
        notes.append("Restarted: each measurement has a start of the server of its own.")
    if len({row["sessions"] for row in rows.values()}) == 1:
        columns = columns[1:]
    return [table("Repeats that a difference takes", columns, list(rows.values())), *remarks(notes)]


def _planned_with(results: Results) -> Iterator[str]:
    """Yields for each load the deviation that its repeats are planned with, beside the measured one."""
    noise = results.plan.experiment.noise
    budgets = results.tables["noise_budget"].to_dicts()
    for row in budgets if noise is not None else ():
        budget = Budget.of_row(row)
        plans = results.tables["noise_plan"].filter(sessions=row["sessions"], status="ok").to_dicts()
        wanted = [p for p in plans if noise is not None and math.isclose(p["difference"], noise.see)]
        for plan in sorted(wanted or plans, key=lambda p: p["restarts"])[:1]:
            length_s = plan["measure_s"]
            same = math.isclose(length_s, budget.cell_s)
            how = "that was measured" if same else "that follow for this length"
            measured = fine_percent(math.sqrt(budget.variance(length_s).value))
            yield (
                f"Planned with a deviation of {fine_percent(budget.deviation(length_s))} of one repeat of "
                f"{format_given(length_s)} s, the upper bound ({100 * CONFIDENCE:g} % confidence) of the "
                f"{measured} {how}. More measurements (--time) narrow it."
            )


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
    )
    unknown = [
        f"{row['part']} ({row['status'].removeprefix('not measured: ')})"
        for row in frame.to_dicts()
        if row["status"] != "ok"
    ]
    notes = [f"Not known: {', '.join(unknown)}."] if unknown else []
    limited = results.tables["rates"].filter(scope="rung", name="client_limits", value=1.0).height
    if limited:
        notes.append(f"Left out, as in comparisons: {counted(limited, 'measurement')} limited by the client.")
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
    return [table("Where the noise comes from", columns, frame.to_dicts()), *remarks([*notes, note, *times])]


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
