"""Shows a run in progress: what it does now, its plan, and the ladder so far.

Figures of a measurement that has just ended are those of the lines on the terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.plan.plan import Cell as Planned
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import at_once, capital, fill, noun
from dbdyno.model.text.visible import visible
from dbdyno.model.units import (
    NS_PER_S,
    format_given,
    format_ns,
    format_percent,
    format_rate,
    in_minutes,
)
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    KeyFigure,
    Row,
    Section,
    Table,
    known,
    numeric,
    remarks,
    word,
)
from dbdyno.present.document.palette import SERIES
from dbdyno.present.figures import figures, headline, tails
from dbdyno.present.run import rungs

Note = Mapping[str, Any]
"""The latest note of the measuring process (:mod:`dbdyno.conduct.measure.announcing`)."""
_MOST_ROWS = 100
_AT_WORK = ("settling", "measuring")
_PHASES = {"closing": "closing the sessions", "last calls": "waiting for the last calls"}
_ON_CPU = {"run or queue": "on a CPU or waiting for one"}
"""Words of a line on the terminal, in full."""


def load_of_cell(cell: Planned) -> str:
    """Returns ``8 sessions``, or ``at 500/s`` for paced load."""
    return at_once(str(cell.sessions)) if cell.rate_per_s is None else f"at {format_given(cell.rate_per_s)}/s"


def waiting_calls(phase: str, waiting: int, oldest_ns: float) -> str:
    """Returns the number of calls that are due but not begun; empty in phases without calls."""
    if phase not in _AT_WORK:
        return ""
    return f"{waiting:,} waiting, the first for {format_ns(oldest_ns)}" if waiting else "none waiting"


@dataclass(frozen=True)
class Now:
    """How far a run is. ``note`` is empty if the measuring process wrote none, as older versions do.

    ``expected_ns``: duration of each measurement by the plan. ``left_s`` counts from now.
    """

    plan: Plan
    expected_ns: Mapping[str, int]
    done: Collection[str]
    current: str | None
    note: Note
    left_s: float | None

    @property
    def cell(self) -> Planned | None:
        return next((c for c in self.plan.cells if c.id == self.current), None)

    def figure(self, name: str) -> float | None:
        value = self.note.get(name)
        return float(value) if isinstance(value, int | float) else None

    def word(self, name: str) -> str:
        value = self.note.get(name)
        return visible(value)[:200] if isinstance(value, str) else ""


def headline_now(now: Now) -> str:
    """Returns a sentence that stays the same within a phase of a measurement."""
    with speaking_of(kind_of(now.plan)):
        cell = now.cell
        if now.plan.cells and all(c.id in now.done for c in now.plan.cells):
            return "All is measured; the results are being worked out."
        if cell is None or now.word("doing"):
            return f"{capital(now.word('doing')) or 'Preparing'}."
        phase = _phase(now)
        return f"Measurement {_number(now)}: {_what(now.plan, cell)}{f', {phase}' if phase else ''}."


def _phase(now: Now) -> str:
    return _PHASES.get(now.word("phase"), now.word("phase"))


def _number(now: Now) -> str:
    cells = now.plan.cells
    number = next((n for n, c in enumerate(cells, 1) if c.id == now.current), 0)
    return str(number) if now.plan.adaptive is not None else f"{number} of {len(cells)}"


def _what(plan: Plan, cell: Planned) -> str:
    variant = f"{cell.variant}, " if len(plan.variants) > 1 else ""
    repeat = f", repeat {cell.repeat}" if any(c.repeat > 1 for c in plan.cells) else ""
    return f"{variant}{load_of_cell(cell)}{repeat}"


def progress_figures(now: Now) -> list[KeyFigure]:
    """Returns what a terminal shows in the line of the measurement in progress."""
    with speaking_of(kind_of(now.plan)):
        return list(_figures(now))


def _figures(now: Now) -> list[KeyFigure]:
    cell, phase = now.cell, now.word("phase")
    at_most = "at most, by the plan" if now.plan.adaptive is not None else "by the plan and the pace so far"
    left = known(now.left_s, lambda s: in_minutes(s * NS_PER_S))
    shown = [KeyFigure("Measurement", word(_number(now)), f"{len(now.done)} done")] if cell else []
    shown.append(KeyFigure("Time left", left, at_most))
    if cell is None or not now.note:
        return shown
    if phase in _AT_WORK and not cell.once:
        elapsed = known(now.figure("elapsed_s"), lambda s: in_minutes(s * NS_PER_S))
        shown.insert(1, KeyFigure(phase, elapsed, f"of {in_minutes(cell.settle_ns + cell.measure_ns)}"))
    else:
        shown.insert(1, KeyFigure("Phase", word(_phase(now))))
    per_s, mean_ns = now.figure("calls_per_s"), now.figure("response_mean_ns")
    if per_s is not None and phase in _AT_WORK:
        waiting = waiting_calls(phase, int(now.figure("waiting") or 0), now.figure("oldest_ns") or 0.0)
        paced = cell.rate_per_s is not None
        shown.append(KeyFigure(f"{noun('calls')}/s now", known(per_s, format_rate), waiting if paced else ""))
    if mean_ns is not None and phase in _AT_WORK:
        shown.append(KeyFigure(f"mean {noun('response_time')} now", known(mean_ns, format_ns)))
    errors = now.figure("errors")
    if errors:
        shown.append(KeyFigure("errors", known(errors, lambda n: f"{n:,.0f}"), "in this measurement"))
    if shares := _shares(now):
        shown.append(KeyFigure(noun("session_time"), word(shares), "by the latest samples"))
    return shown


def _shares(now: Now) -> str:
    shares = now.note.get("shares")
    if not isinstance(shares, Mapping):
        return ""
    known_ones = [(visible(str(k))[:40], v) for k, v in shares.items() if isinstance(v, int | float)]
    return ", ".join(f"{_ON_CPU.get(name, name)} {format_percent(v)}" for name, v in known_ones[:3])


def plan_table(now: Now) -> Table:
    """Returns the measurements in their order: done, under way, to come."""
    several = len(now.plan.variants) > 1
    repeated = any(c.repeat > 1 for c in now.plan.cells)
    columns = [
        numeric("no."),
        *([Column("variant")] if several else []),
        Column("load"),
        *([numeric("repeat")] if repeated else []),
        numeric("expected"),
        Column("state"),
    ]
    cells = [*enumerate(now.plan.cells, 1)]
    at = next((n for n, c in cells if c.id == now.current), 1)
    first = max(0, min(at - _MOST_ROWS // 2, len(cells) - _MOST_ROWS))
    rows = []
    for number, cell in cells[first : first + _MOST_ROWS]:
        state = "done" if cell.id in now.done else "under way" if cell.id == now.current else "to come"
        expected = "" if cell.once else in_minutes(now.expected_ns.get(cell.id, 0))
        middle = [word(load_of_cell(cell)), *([Cell(str(cell.repeat), cell.repeat)] if repeated else [])]
        rows.append(
            Row(
                [
                    Cell(str(number), number),
                    *([word(cell.variant)] if several else []),
                    *middle,
                    Cell(expected),
                    Cell(state, state, tone="note" if state == "under way" else ""),
                ],
                key=state == "under way",
            )
        )
    return Table("", columns, rows, along_axis=True)


def blocks(now: Now, ladder: Sequence[Block]) -> list[Section]:
    """Returns the sections below the chart."""
    with speaking_of(kind_of(now.plan)):
        shown = plan_table(now)
        left_out = len(now.plan.cells) - len(shown.rows)
        remark = [f"{left_out} more are not shown."] if left_out else []
        if now.plan.adaptive is not None:
            remark.append("The ladder decides after each measurement which one follows.")
        return [
            Section("Measured so far", ladder, "ladder"),
            Section("Plan", [shown, *remarks(remark)], "plan"),
        ]


def ladder(results: Results, measured: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Returns the table of the measurements so far, each with its line of the terminal; ``results`` has the
    rungs, repeats together."""
    with speaking_of(kind_of(results.plan)):
        paced = rungs.is_paced(measured)
        work = figures.throughput_work(results, measured[0]["workload"])
        columns, line = rungs.running(work, paced, results)
        several = len(results.plan.variants) > 1
        repeated = any(c.repeat > 1 for c in results.plan.cells)
        heads = [
            *([Column("variant")] if several else []),
            *columns,
            *([numeric("repeat")] if repeated else []),
        ]
        rows = []
        for one in measured[-_MOST_ROWS:]:
            shown = line(one)
            before = [word(one["variant"])] if several else []
            after = [Cell(str(one["repeat"]), one["repeat"])] if repeated else []
            rows.append(shown._replace(cells=[*before, *shown.cells, *after]))
        notes = [*rungs.marks(results), *_preliminary(rows)]
        calls = pl.Series([one.get("calls") for one in measured]).drop_nulls()
        return [*tails.with_reason(Table("", heads, rows, along_axis=True), numbers=calls), *remarks(notes)]


def _preliminary(rows: Sequence[Row]) -> list[str]:
    marked = any(c.text.startswith("~") for row in rows for c in row.cells)
    return ["~: of the samples alone; the report has it more exactly."] if marked else []


def curve(results: Results) -> dict[str, Any]:
    """Returns throughput by load for a chart: title of each axis, and points of each ladder.

    ``most``: the highest load of the plan, or 0. ``whole``: loads are whole numbers.
    """
    with speaking_of(kind_of(results.plan)):
        load = figures.load_of(results)
        series = figures.series_of(results)
        answers = [a for s in series if (a := headline.answer(results, s)) and a.peak]
        work = bool(answers) and all(a.rate_column == "work_per_s" for a in answers)
        column = "work_per_s" if work else "calls_per_s"
        lines = []
        for number, one in enumerate(series):
            rows = figures.ladder(results, one).filter(pl.col(column).is_not_null())
            points = rows.select(load.column, column).rows()
            colour = SERIES[min(number, len(SERIES) - 1)]
            lines.append({"name": visible(one.label), "colour": colour, "points": [[*p] for p in points]})
        unit = answers[0].unit if work else f"{noun('calls')}/s"
        most = results.plan.top if load == figures.SESSIONS else 0
        whole = load == figures.SESSIONS
        return {"x": fill(load.title), "y": unit, "series": lines, "most": most, "whole": whole}
