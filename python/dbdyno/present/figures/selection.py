"""Selects the cells that a report shows in detail: the top rung first, then others while there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.ledger_rows import TOGETHER, together_at
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources import process_rates
from dbdyno.model.schema.tables import DERIVED, REGISTERED, empty, sum_of_known
from dbdyno.model.text.nouns import at_once, noun
from dbdyno.model.units import format_given
from dbdyno.present.figures import figures
from dbdyno.present.figures.figures import clock

# Events and microstates of all windows of an observation together: means weighted by time.
#
# A window without a row counts as 0. A window with NULL is unknown, and its time is left out of that figure.

_ENDS = ("", "_low", "_high")
_EVENT = [f"{part}{end}" for part in ("run", "sleep", "runq") for end in _ENDS]
_STATES = [f"{s}{e}" for s in ("usr", "sys", "cpu_wait", "lock", "client", "sleep") for e in _ENDS]
_RATES = [
    *_STATES,
    "block_io",
    "unaccounted",
    "voluntary_per_s",
    "involuntary_per_s",
    "slices_per_s",
    *(rate.column.name for rate in process_rates()),
]
_WHOLE = ["usr", "sys", "cpu_wait", "lock", "client", "sleep", "unaccounted"]
_ALL = 0.95
"""Share of a window from which on a process counts as present for all of it: reads are up to 1 s apart."""
_PROCESS = ["pid", "start_ticks", "role", "worker"]


def events(results: Results) -> pl.DataFrame:
    """Returns table events of all windows together, without single sessions, in seconds per second."""
    walls = results.tables["windows"].select("cell", "wall_s")
    rows = results.tables["events"].filter(pl.col("scope") != "session").join(walls, on="cell")
    whole = pl.lit(float(walls["wall_s"].sum()))
    keys = ["scope", "who", "state", "wait_class", "wait_event"]
    figures = (*_EVENT, "waits_per_s", "sleeps_per_s")
    # A window may have two rows of a label: its sampled time, and time that no sample saw.
    once = (
        rows.group_by(*keys, "cell", maintain_order=True)
        .agg(
            *(sum_of_known(c) for c in (*figures, "samples")),
            pl.col("wall_s").first(),
            _first_not_ok(),
            pl.col("source").unique(maintain_order=True),
        )
        .with_columns(pl.col("source").list.join(", "))
    )
    merged = once.group_by(keys, maintain_order=True).agg(
        *(_mean(c, whole) for c in figures), sum_of_known("samples"), _first_not_ok(), _all("source")
    )
    return _conforming("events", merged)


def microstates(results: Results) -> pl.DataFrame:
    """Returns table microstates of all windows together, averaged over the time that a process was
    observed."""
    merged = results.ask("microstates", _Together(_walls(results)))
    sources = results.ask("microstates", _sources).sort("source").group_by(_PROCESS)
    joined = sources.agg(pl.col("source").str.join(", "))
    merged = merged.join(joined, on=_PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return _conforming("microstates", merged.rename({"seen_s": "wall_s"}))


def _sources(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select(*_PROCESS, "source").unique()


@dataclass(frozen=True)
class _Together:
    """Query: means by process. Equal windows make equal queries, so that the result can be cached."""

    walls: tuple[tuple[str, float], ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return (
            _own_time(self.walls, rows)
            .group_by(_PROCESS, maintain_order=True)
            .agg(
                pl.col("session").last(ignore_nulls=True),
                pl.col("name").last(),
                *(_mean(c, pl.col("wall_s").sum()) for c in _RATES),
                pl.col("wall_s").sum().alias("seen_s"),
                _first_not_ok(),
            )
        )


def own_time(results: Results, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns microstates as shares of the time that the process existed, instead of the whole window.

    Both are equal except for a process that started or ended inside the window.
    """
    return _own_time(_walls(results), rows.lazy()).collect()


def _walls(results: Results) -> tuple[tuple[str, float], ...]:
    return tuple(results.tables["windows"].select("cell", "wall_s").iter_rows())


def _own_time(walls: tuple[tuple[str, float], ...], rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = {"cell": pl.String, "window_s": pl.Float64}
    windows = pl.LazyFrame(list(walls), schema=schema, orient="row")
    whole, known_sum = pl.sum_horizontal(_WHOLE, ignore_nulls=False), pl.sum_horizontal(_WHOLE)
    existed = (pl.col("wall_s") / pl.col("window_s")).clip(0.0, 1.0)
    # If a state is unknown, so is their sum; the observed lifetime of the process then stands for it.
    partial = (known_sum < _ALL) & (existed > 0) & (existed < _ALL)
    share = pl.when(whole > 0).then(whole).when(partial).then(existed).otherwise(1.0)
    joined = rows.join(windows, on="cell", how="left", maintain_order="left").with_columns(share=share)
    return joined.with_columns(pl.col(c) / pl.col("share") for c in _RATES).drop("window_s", "share")


def _mean(column: str, whole: pl.Expr) -> pl.Expr:
    value, wall = pl.col(column), pl.col("wall_s")
    known_s = (
        whole - pl.when(value.is_null()).then(wall).otherwise(0.0).sum()
    )  # polars does not stream a filter here
    return pl.when(value.null_count() < pl.len()).then((value * wall).sum() / known_s).alias(column)


def _first_not_ok() -> pl.Expr:
    status = pl.when(pl.col("status") != "ok").then("status").first(ignore_nulls=True)
    return status.fill_null("ok").alias("status")


def _all(column: str) -> pl.Expr:
    return pl.col(column).unique(maintain_order=True).str.join(", ").alias(column)


def _conforming(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns of the table that the frame has; those of a cell are gone."""
    names: Sequence[str] = [c.name for c in DERIVED[table]]
    return frame.select([n for n in names if n in frame.columns])


ROWS = 1_000
"""Most table rows and pieces of strips in a page, to keep it small; the export has all."""
_PIECES_A_ROW = 40  # pieces of a strip that take as much room as one row of a table
_RECTANGLES_A_ROW = 6  # of a heat map


class Pick(NamedTuple):
    """A cell whose details are shown; ``cell`` is None for all windows of an observation together."""

    key: str
    label: str  # "8 sessions", "all windows"
    cell: str | None
    rung: tuple[str, str, int]  # workload, variant, sessions
    repeats: int = 1
    rate_per_s: float | None = None
    named: bool = False  # whether the label begins with the name of a series

    @property
    def together(self) -> str:
        """The value of column ``cell`` in rows of all repeats together."""
        return together_at(self.rate_per_s)

    @property
    def at(self) -> str:
        """A phrase after a noun: ``at 8 sessions``, ``over all windows``."""
        if self.cell is None:
            return f"over {self.label}"
        if not self.rung[2]:
            return f"in {self.label}"
        return f"{'at' if self.named else noun('at')} {self.label}"

    @property
    def which(self) -> str:
        """An addition to a caption that names the repeat shown; empty with one repeat."""
        return f"; the first good one of {self.repeats} repeats" if self.repeats > 1 else ""

    def repeats_of(self, frame: pl.DataFrame) -> str:
        """Returns an addition to a caption that names the repeats in rows of :func:`rows_of`: all together,
        or the one shown."""
        together = self.repeats > 1 and self.together in frame["cell"]
        return f", all {self.repeats} repeats together" if together else self.which


class Picks(NamedTuple):
    shown: list[Pick]  # from many sessions to few, or in time
    note: str  # a remark on what is left out; empty if nothing is


def picks(results: Results) -> Picks:
    """Returns the picks of a run; the first one is selected when a page opens."""
    if not figures.is_observation(results):
        return _fitting(results, [], loads(results), "rungs")
    windows = results.tables["windows"].sort("t0_ns").to_dicts()
    all_windows = [_window(results, w, i) for i, w in enumerate(windows)]
    whole = [Pick(TOGETHER, "all windows", None, all_windows[0].rung)] if all_windows else []
    return _fitting(results, whole, all_windows, "windows")


def pick_of(results: Results, cell: str | None = None) -> Pick | None:
    """Returns the pick of a cell; without one, the top rung or all windows, or None if nothing was
    measured.

    Raises UsageError if the run has no such cell.
    """
    if cell is None or cell == TOGETHER:
        windows = figures.is_observation(results)
        shown = picks(results).shown if windows else loads(results)
        return shown[0] if shown else None
    rows = results.tables["windows"].filter(pl.col("cell") == cell).to_dicts()
    if not rows:
        raise UsageError(
            f"this run has no cell {cell}", "its cells are in the report's plan, or in table windows"
        )
    if figures.is_observation(results):
        return _window(results, rows[0], 0)
    return Pick("", f"{at_once(str(rows[0]['sessions']))} ({cell})", cell, _rung(rows[0]))


def pick_at(results: Results, sessions: int | None) -> Pick:
    """Returns the load with this number of sessions; None stands for the highest load, or all windows.

    Raises UsageError if the run has no such load.
    """
    at_loads = loads(results)
    if sessions is None and (pick := pick_of(results)) is not None:
        return pick
    counts = sorted({p.rung[2] for p in at_loads})
    pick_at_load = next((p for p in at_loads if p.rung[2] == sessions), None)
    if pick_at_load is None:
        raise UsageError(
            f"the run has no measurement {noun('at')} {at_once(str(sessions or 0))}", f"there are {counts}"
        )
    return pick_at_load


def rows_of(results: Results, table: str, pick: Pick) -> pl.DataFrame:
    """Returns the rows of a derived table for a pick; those of all repeats together if the table has such
    rows."""
    if table == "microstates" and pick.cell is not None:
        return own_time(results, results.of_cell(table, pick.cell))
    if table == "microstates":
        return microstates(results)
    frame = results.tables.get(table, empty(table))
    if REGISTERED[table].together and (pick.cell is None or pick.repeats > 1):
        workload, variant, sessions = pick.rung
        of_rung = figures.of_series(frame, figures.Series(workload, variant, ""))
        together = of_rung.filter((pl.col("cell") == pick.together) & (pl.col("sessions") == sessions))
        if len(together):
            return together
    if pick.cell is not None:
        return frame.filter(pl.col("cell") == pick.cell)
    return events(results) if table == "events" else frame.clear()


def _window(results: Results, row: dict[str, Any], number: int) -> Pick:
    label = f"window {clock(results, row['t0_ns'])} to {clock(results, row['t1_ns'])}"
    return Pick(f"c{number}", label, row["cell"], _rung(row))


def _rung(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["variant"], row["sessions"]


def loads(results: Results) -> list[Pick]:
    """Returns one cell per rung, from the top down; an invalid one only if there is no other."""
    series = figures.series_of(results)
    windows = results.tables["windows"].with_columns(
        bad=pl.col("status") == "invalid",
        repeats=pl.len().over("workload", "variant", "sessions", "rate_per_s"),
    )
    picks_of_rungs: list[Pick] = []
    for s in series:
        best = figures.of_series(windows, s).sort(
            "sessions", "rate_per_s", "bad", "repeat", descending=[True, True, False, False]
        )
        name = f"{s.label}: " if len(series) > 1 else ""
        for row in best.unique(["sessions", "rate_per_s"], keep="first", maintain_order=True).to_dicts():
            label = f"{name}{at_once(str(row['sessions']))}"
            label += "" if row["rate_per_s"] is None else f", {format_given(row['rate_per_s'])}/s"
            key, rung, named = f"c{len(picks_of_rungs)}", _rung(row), bool(name)
            picks_of_rungs.append(
                Pick(key, label, row["cell"], rung, row["repeats"], row["rate_per_s"], named)
            )
    return picks_of_rungs


def _fitting(results: Results, first: list[Pick], candidates: list[Pick], what: str) -> Picks:
    """Returns ``first``, then as many of ``candidates`` as fit, evenly spread."""
    sizes = _sizes(results)
    taken: set[str] = set()
    room = ROWS
    for i in _spread(len(candidates)):
        room -= sizes.get(candidates[i].cell or "", 0)
        if room < 0 and (taken or first):
            break
        taken.add(candidates[i].key)
    left = len(candidates) - len(taken)
    note = (
        f"{left} of {len(candidates)} {what} are left out here to keep the page small; "
        "the export holds them all."
    )
    return Picks([*first, *(p for p in candidates if p.key in taken)], note if left else "")


def _spread(n: int) -> list[int]:
    """Returns indexes: first, last, middle, then the middles of the halves, and so on."""
    order: list[int] = []
    spans = [(0, n - 1)] if n else []
    for low, high in spans:
        order += [low, high, (low + high) // 2]
        if high - low > 1:
            spans += [(low, (low + high) // 2), ((low + high) // 2, high)]
    return list(dict.fromkeys(order))


def _sizes(results: Results) -> dict[str, int]:
    """Returns the number of table rows by cell; pieces of strips count less."""
    tables = results.tables
    events = tables["events"].filter(pl.col("scope") != "session")
    heat = tables.get("response_heat", empty("response_heat"))
    counted = [
        heat.group_by("cell").agg(n=pl.len() / _RECTANGLES_A_ROW),
        events.group_by("cell").agg(n=pl.len().cast(pl.Float64)),
        results.ask("microstates", _counted),
        results.ask("strips", _counted).with_columns(pl.col("n") / _PIECES_A_ROW),
    ]
    sums = pl.concat(counted).group_by("cell").agg(pl.col("n").sum())
    return {cell: int(n) for cell, n in sums.rows()}


def _counted(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("cell").agg(n=pl.len().cast(pl.Float64))
