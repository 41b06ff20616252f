"""Shows executions of commands as tables: commands, grid of jobs and threads, failures, single executions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.plan.parallel_axes import Axis, axes_of, counted
from dbdyno.model.results.ledger_rows import TOGETHER
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.executions import OUTLIER
from dbdyno.model.schema.tables import empty
from dbdyno.model.text.visible import visible
from dbdyno.model.units import (
    NS_PER_S,
    format_average,
    format_count,
    format_ns,
    format_rate,
    format_size,
    significant,
)
from dbdyno.present.document.document import (
    Block,
    Cell,
    Column,
    KeyFigure,
    Row,
    Table,
    figure_cell,
    known,
    numeric,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.selection import Pick, rows_of

MOST = 40
"""Most single executions in a table: those that stand out, then the first ones."""
_Row = dict[str, Any]
_RUNS = "runs"
"""The unit of work if the recipe has none."""


def rates(results: Results) -> list[_Row]:
    """Returns ``execution_rates`` by variant and load.

    A load with several repeats has one row for all of them together.
    """
    rows = results.tables.get("execution_rates", empty("execution_rates")).to_dicts()
    whole = {(r["variant"], r["sessions"]) for r in rows if r["cell"] == TOGETHER}
    shown = [r for r in rows if r["cell"] == TOGETHER or (r["variant"], r["sessions"]) not in whole]
    order = {v.name: n for n, v in enumerate(results.plan.variants)}
    return sorted(shown, key=lambda r: (order.get(r["variant"], len(order)), r["sessions"]))


def brief(results: Results) -> list[Block]:
    """Returns a table of each command or variant at the lowest number of jobs at once; the fastest is
    1.00."""
    rows = rates(results)
    if not rows:
        return []
    lowest = min(r["sessions"] for r in rows)
    rows = [r for r in rows if r["sessions"] == lowest]
    several = len({r["variant"] for r in rows}) > 1
    shown = [r for r in rows if (r["job"] is None) == several]
    values = [_took(r, results) for r in shown]
    least = min((v for v in values if v), default=None)
    for r, value in zip(shown, values, strict=True):
        r["name"] = r["variant"] if several else r["job"]
        r["relative"] = value / least if value and least else None
    once = _runs_sets(results)
    columns = [
        *_BRIEF[:-1],
        *_left_behind_column(shown),
        *_work_column(results),
        *(_BRIEF[-1:] if len(shown) > 1 else ()),
    ]
    columns = [*columns[:1], _MAKESPAN, *columns[1:]] if once and several else columns
    title = f"{lowest} jobs at once" if lowest > 1 else "One job at a time"
    return [table(title, columns, shown), *remarks([_CPU])]


def one_load(results: Results) -> bool:
    """Returns whether the same number of jobs ran at once in all measurements, so that there is no
    ladder."""
    return bool(results.tables["rungs"]["sessions"].n_unique() < 2)


def _left_behind_column(rows: Sequence[_Row]) -> _Columns:
    """Returns the column of executions that left processes behind, if any did."""
    if not any(r["left_over"] for r in rows):
        return ()
    return ((numeric("left behind"), figure_cell("left_over", format_count)),)


def _work_column(results: Results) -> _Columns:
    """Returns the column of work per second (``files/s``), if the unit of work is not a run."""
    (unit, *_) = {j.work_unit for j in results.plan.jobs} or {_RUNS}
    if unit == _RUNS:
        return ()
    in_bytes = unit == "bytes"
    shown = figure_cell("work_per_s", format_size if in_bytes else format_rate, f"{unit}/s")
    return ((numeric("size/s" if in_bytes else f"{unit}/s"), shown),)


def _duration(row: _Row, several_times: bool, once: bool) -> tuple[str, Cell]:
    """Returns the name and cell of the duration of an execution, or of a set of jobs from first start to
    last end."""
    name = "all jobs" if once else "an execution"
    shown = _time("makespan_ns" if once else "mean_ns")(row)
    return f"{'Mean duration' if several_times else 'Duration'} of {name}", shown._replace(unit="")


def _runs_sets(results: Results) -> bool:
    """Returns whether each of several jobs is run a set number of times, so that the end of the last one
    counts."""
    several = any(len(v.jobs) > 1 for v in results.plan.variants)
    return several and any(c.once for c in results.plan.cells)


def key_figures(results: Results) -> list[KeyFigure]:
    """Returns figures of the fastest variant at the lowest number of jobs at once, and the highest
    throughput."""
    rows = [r for r in rates(results) if r["job"] is None and _took(r, results)]
    if not rows:
        return []
    lowest = min(r["sessions"] for r in rows)
    best = min((r for r in rows if r["sessions"] == lowest), key=lambda r: _took(r, results) or 0.0)
    most = max(rows, key=lambda r: r["executions_per_s"] or 0.0)
    several = len({r["variant"] for r in rows}) > 1
    whose = visible(best["variant"]) if several else ""
    fastest = f"{whose}, the fastest" if whose else ""
    repeated = results.plan.experiment.repeats > 1 or (best["executions"] > 1 and not _runs_sets(results))
    failed, ran = (sum(r[c] for r in rows) for c in ("failed", "executions"))
    where = f"{visible(most['variant'])}, " if several else ""
    figures = [
        KeyFigure(*_duration(best, repeated, _runs_sets(results)), fastest, "commands"),
        KeyFigure("Standard deviation of executions", _spread(best)._replace(unit=""), whose),
        KeyFigure("CPUs used by an execution", figure_cell("parallelism", format_average)(best), whose),
        KeyFigure(
            "Most executions",
            known(most["executions_per_s"], format_rate, "per second"),
            f"{where}{most['sessions']} at once",
            "grid",
        ),
        KeyFigure("Executions", known(ran, format_count), f"{failed} failed" if failed else "none failed"),
    ]
    return [f for f in figures if f.cell.text]


def _took(row: _Row, results: Results) -> float | None:
    """Returns the mean duration; for a set of jobs that run once each, the makespan."""
    once = _runs_sets(results) and row["job"] is None
    value: float | None = row["makespan_ns" if once else "mean_ns"]
    return value


def by_job(results: Results, pick: Pick) -> list[Block]:
    """Returns the durations and the resources used by the executions of each job."""
    rows = rows_of(results, "execution_rates", pick).to_dicts()
    named = [r | {"name": r["job"]} for r in rows if r["job"] is not None]
    title = f"By job {pick.at}"
    shells = {r["shell_ns"] for r in named if r["shell_ns"]}
    notes = [f"The start-up of a shell ({format_ns(max(shells))}) is taken off durations."] if shells else []
    took = table(title, [*_BRIEF[:-1], *_left_behind_column(named), *_work_column(results)], named)
    return [took, table(f"{title}: an execution on average", _USED, named), *remarks(notes)]


def failures(results: Results, _pick: Pick | None = None) -> list[Block]:
    """Returns failed executions with the end of their error output."""
    rows = results.tables.get("execution_failures", empty("execution_failures")).to_dicts()
    return [table("Failed executions", _FAILED, rows)] if rows else []


def single(results: Results, pick: Pick, job: str | None = None) -> list[Block]:
    """Returns the executions of a measurement, warm-up included: failed ones and outliers, then the first
    ones."""
    if pick.cell is None:
        return []
    frame = results.of_cell("execution_times", pick.cell).sort("start_s")
    frame = frame if job is None else frame.filter(pl.col("job") == job)
    notable = (pl.col("outcome") != "ok") | pl.col("outlier") | (pl.col("left_over").fill_null(0) > 0)
    shown = pl.concat([frame.filter(notable), frame.filter(~notable)]).head(MOST).sort("start_s")
    notes = [f"Outlier: modified Z-score of {OUTLIER} or more (Iglewicz and Hoaglin 1993)."]
    if len(shown) < len(frame):
        notes.insert(0, f"{len(shown)} of {len(frame):,}; all: table execution_times of dbdyno sql.")
    executions = table(f"Executions, {pick.label}", _SINGLE, shown.to_dicts())
    return [executions, *remarks(notes)] if len(shown) else []


# -- jobs x threads --


class Grid(NamedTuple):
    axis: Axis
    points: list[_Row]  # rows of execution_rates, with ``value`` of the axis


def grids(results: Results) -> list[Grid]:
    """Returns grids of threads within a job by jobs at once, where both have several values."""
    rows = [r for r in rates(results) if r["job"] is None]
    complete = []
    for axis in axes_of(results.plan.variants, {r["variant"] for r in rows}):
        values = {v: n for n, v in axis.points}
        points = [r | {"value": values[r["variant"]]} for r in rows if r["variant"] in values]
        if len({r["sessions"] for r in points}) > 1:
            complete.append(Grid(axis, points))
    return complete


def grid(results: Results) -> list[Block]:
    """Returns a table of executions per second per grid, with one column per number of threads."""
    return [_grid(g) for g in grids(results)]


def _grid(grid: Grid) -> Table:
    values = sorted({r["value"] for r in grid.points})
    best = max((r["executions_per_s"] or 0.0 for r in grid.points), default=0.0)
    heads = [Column("jobs at once", number=True), *(numeric(counted(grid.axis.name, v)) for v in values)]
    rows = []
    for jobs in sorted({r["sessions"] for r in grid.points}):
        by_threads = {r["value"]: r["executions_per_s"] for r in grid.points if r["sessions"] == jobs}
        cells = [known(by_threads.get(v), format_rate, "1/s") for v in values]
        cells = [
            c._replace(tone="good") if by_threads.get(v) == best else c
            for c, v in zip(cells, values, strict=True)
        ]
        rows.append(Row([Cell(str(jobs), jobs), *cells]))
    rest = f" ({grid.axis.rest})" if grid.axis.rest else ""
    return Table(
        f"Executions per second by jobs at once and {grid.axis.name}{rest}", heads, rows, along_axis=True
    )


# -- columns --


def _shortest(row: _Row) -> Cell:
    """Returns the shortest duration; it is below a shell's start-up if nothing was left after subtracting
    that."""
    if row["min_ns"] == 0 and row["shell_ns"]:
        return Cell(f"< {format_ns(row['shell_ns'])}", None, "ns")
    return known(row["min_ns"], format_ns, "ns")


def _time(name: str) -> Callable[[_Row], Cell]:
    return figure_cell(name, format_ns, "ns")


def _seconds(name: str) -> Callable[[_Row], Cell]:
    return lambda r: known(r[name] * NS_PER_S, format_ns, "ns")


def _spread(row: _Row) -> Cell:
    return Cell("") if row["sd_ns"] is None else known(row["sd_ns"], format_ns, "ns")


def _detail(row: _Row) -> Cell:
    text = visible(" ".join((row["detail"] or "").split()))
    return word(text[-60:], visible(row["detail"] or ""))


def _outcome(row: _Row) -> Cell:
    text = row["outcome"] if row["exit_code"] in (None, 0) else f"{row['outcome']} {row['exit_code']}"
    left = f"left {format_count(row['left_over'])} behind" if row.get("left_over") else ""
    if row["outcome"] == "ok":
        kind = "outlier" if row["outlier"] else "" if row["measured"] else "warm-up"
        return word(", ".join(filter(None, (kind, left))))
    return word(", ".join(filter(None, (text, left))))._replace(tone="invalid")


_Columns = Sequence[tuple[Column, Callable[[_Row], Cell]]]
_CPU = "user and system: CPU time of an execution with all its processes."
_MAKESPAN: tuple[Column, Callable[[_Row], Cell]] = (numeric("all jobs"), _time("makespan_ns"))
_BRIEF: _Columns = (
    (Column("command", shortens=True), lambda r: word(visible(r["name"]))),
    (numeric("mean"), _time("mean_ns")),
    (numeric("± sd"), _spread),
    (numeric("user"), _time("cpu_user_ns")),
    (numeric("system"), _time("cpu_system_ns")),
    (numeric("min", 2), _shortest),
    (numeric("median", 4), _time("median_ns")),
    (numeric("max", 2), _time("max_ns")),
    (numeric("runs", 1), figure_cell("executions", format_count)),
    (numeric("failed"), lambda r: Cell("") if not r["failed"] else known(r["failed"], format_count)),
    (numeric("CPUs", 3), figure_cell("parallelism", format_average)),
    (numeric("relative"), figure_cell("relative", significant)),
)
_USED: _Columns = (
    (Column("command", shortens=True), lambda r: word(visible(r["name"]))),
    (numeric("user CPU"), _time("cpu_user_ns")),
    (numeric("kernel CPU"), _time("cpu_system_ns")),
    (numeric("start", 3), _time("spawn_ns")),
    (numeric("max RSS"), figure_cell("max_rss_bytes", format_size, "bytes")),
    (numeric("faults", 4), figure_cell("minor_faults", format_rate)),
    (numeric("with I/O", 5), figure_cell("major_faults", format_rate)),
    (numeric("switches", 6), figure_cell("voluntary", format_rate)),
    (numeric("forced", 7), figure_cell("involuntary", format_rate)),
    (numeric("read", 2), figure_cell("read_bytes", format_size, "bytes")),
    (numeric("written", 2), figure_cell("written_bytes", format_size, "bytes")),
    (numeric("runs/s", 1), figure_cell("executions_per_s", format_rate, "1/s")),
)
_FAILED: _Columns = (
    (Column("job", shortens=True), lambda r: word(visible(r["job"]))),
    (Column("variant", rank=2), lambda r: word(visible(r["variant"]))),
    (numeric("jobs at once", 3), figure_cell("sessions", format_count)),
    (Column("ended by"), lambda r: _outcome(r | {"outlier": False, "measured": True})),
    (numeric("count"), figure_cell("count", format_count)),
    (Column("end of its error output", wraps=True), _detail),
)
_SINGLE: _Columns = (
    (numeric("session", 2), figure_cell("session", lambda v: str(int(v)))),
    (Column("job", shortens=True), lambda r: word(visible(r["job"]))),
    (numeric("start", 1), lambda r: known(r["start_s"], lambda v: format_ns(v * NS_PER_S), "s")),
    (numeric("duration"), _time("duration_ns")),
    (numeric("Z-score", 3), figure_cell("score", significant)),
    (numeric("user CPU", 4), _time("cpu_user_ns")),
    (numeric("kernel CPU", 5), _time("cpu_system_ns")),
    (numeric("max RSS", 6), figure_cell("max_rss_bytes", format_size, "bytes")),
    (Column(""), _outcome),
    (Column("error output", wraps=True, rank=7), _detail),
)
