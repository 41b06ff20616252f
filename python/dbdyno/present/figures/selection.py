"""Which cells a report shows in detail: the top rung first, then others while there is room."""

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

# Events and microstates of an observation's windows as one: means weighted by time.
#
# A window without a row saw nothing of it: nothing there. One with NULL does not know and is left out of
# that figure's time.

_ENDS = ("", "_low", "_high")
_EVENT = [f"{part}{end}" for part in ("run", "sleep", "runq") for end in _ENDS]
_STATES = [f"{s}{e}" for s in ("usr", "sys", "cpu_wait", "lock", "client", "sleep") for e in _ENDS]
_RATES = [
    *_STATES, "block_io", "unaccounted", "voluntary_per_s", "involuntary_per_s", "slices_per_s",
    *(rate.column.name for rate in process_rates()),
]  # fmt: skip
_WHOLE = ["usr", "sys", "cpu_wait", "lock", "client", "sleep", "unaccounted"]
_ALL = 0.95  # of a window
_PROCESS = ["pid", "start_ticks", "role", "worker"]


def events(results: Results) -> pl.DataFrame:
    """Table events of all windows together, single sessions left out; seconds per second of the whole."""
    walls = results.tables["windows"].select("cell", "wall_s")
    rows = results.tables["events"].filter(pl.col("scope") != "session").join(walls, on="cell")
    whole = pl.lit(float(walls["wall_s"].sum()))
    keys = ["scope", "who", "state", "wait_class", "wait_event"]
    figures = (*_EVENT, "waits_per_s", "sleeps_per_s")
    # A window may tell of a label twice: what samples saw of it, and what none saw.
    once = rows.group_by(*keys, "cell", maintain_order=True).agg(
        *(sum_of_known(c) for c in (*figures, "samples")),
        pl.col("wall_s").first(), _first_not_ok(), pl.col("source").unique(maintain_order=True),
    ).with_columns(pl.col("source").list.join(", "))  # fmt: skip
    made = once.group_by(keys, maintain_order=True).agg(
        *(_mean(c, whole) for c in figures), sum_of_known("samples"), _first_not_ok(), _all("source")
    )
    return _conforming("events", made)


def microstates(results: Results) -> pl.DataFrame:
    """Table microstates of all windows together: a process's means over the time that it was seen."""
    made = results.ask("microstates", _Together(_walls(results)))
    sources = results.ask("microstates", _sources).sort("source").group_by(_PROCESS)
    joined = sources.agg(pl.col("source").str.join(", "))
    made = made.join(joined, on=_PROCESS, how="left", nulls_equal=True, maintain_order="left")
    return _conforming("microstates", made.rename({"seen_s": "wall_s"}))


def _sources(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select(*_PROCESS, "source").unique()


@dataclass(frozen=True)
class _Together:
    """A query; of the same windows the same."""

    walls: tuple[tuple[str, float], ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return _own_time(self.walls, rows).group_by(_PROCESS, maintain_order=True).agg(
            pl.col("session").last(ignore_nulls=True), pl.col("name").last(),
            *(_mean(c, pl.col("wall_s").sum()) for c in _RATES),
            pl.col("wall_s").sum().alias("seen_s"), _first_not_ok(),
        )  # fmt: skip


def own_time(results: Results, rows: pl.DataFrame) -> pl.DataFrame:
    """Microstates as shares of the time that the process was there, instead of the whole window.

    Both are the same but for a process that came or went inside it.
    """
    return _own_time(_walls(results), rows.lazy()).collect()


def _walls(results: Results) -> tuple[tuple[str, float], ...]:
    return tuple(results.tables["windows"].select("cell", "wall_s").iter_rows())


def _own_time(walls: tuple[tuple[str, float], ...], rows: pl.LazyFrame) -> pl.LazyFrame:
    schema = {"cell": pl.String, "window_s": pl.Float64}
    windows = pl.LazyFrame(list(walls), schema=schema, orient="row")
    whole, told = pl.sum_horizontal(_WHOLE, ignore_nulls=False), pl.sum_horizontal(_WHOLE)
    there = (pl.col("wall_s") / pl.col("window_s")).clip(0.0, 1.0)
    # Without all states their sum is not known: how long it was there is, though reads are up to 1 s apart.
    partly = (told < _ALL) & (there > 0) & (there < _ALL)
    share = pl.when(whole > 0).then(whole).when(partly).then(there).otherwise(1.0)
    joined = rows.join(windows, on="cell", how="left", maintain_order="left").with_columns(share=share)
    return joined.with_columns(pl.col(c) / pl.col("share") for c in _RATES).drop("window_s", "share")


def _mean(column: str, whole: pl.Expr) -> pl.Expr:
    value, wall = pl.col(column), pl.col("wall_s")
    asked = whole - pl.when(value.is_null()).then(wall).otherwise(0.0).sum()  # a filter is not streamed
    return pl.when(value.null_count() < pl.len()).then((value * wall).sum() / asked).alias(column)


def _first_not_ok() -> pl.Expr:
    told = pl.when(pl.col("status") != "ok").then("status").first(ignore_nulls=True)
    return told.fill_null("ok").alias("status")


def _all(column: str) -> pl.Expr:
    return pl.col(column).unique(maintain_order=True).str.join(", ").alias(column)


def _conforming(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The table's columns; those of a cell are gone."""
    names: Sequence[str] = [c.name for c in DERIVED[table]]
    return frame.select([n for n in names if n in frame.columns])


ROWS = 1_000
"""Room for table rows and pieces of strips, so that the page stays small: the export holds all."""
_PIECES_A_ROW = 40  # pieces of a strip that take the room of a table's row


class Pick(NamedTuple):
    """A cell whose detail is shown; ``cell`` None: all windows of an observation together."""

    key: str
    label: str  # "8 sessions", "all windows"
    cell: str | None
    rung: tuple[str, str, int]  # workload, variant, sessions
    repeats: int = 1
    rate_per_s: float | None = None
    named: bool = False  # the label begins with the name of a series

    @property
    def together(self) -> str:
        """The cell of what its repeats say together."""
        return together_at(self.rate_per_s)

    @property
    def at(self) -> str:
        """After a noun: ``at 8 sessions``, ``over all windows``."""
        if self.cell is None:
            return f"over {self.label}"
        if not self.rung[2]:
            return f"in {self.label}"
        return f"{'at' if self.named else noun('at')} {self.label}"

    @property
    def which(self) -> str:
        """What a caption adds: ``; repeat 1 of 5``."""
        return f"; the first good one of {self.repeats} repeats" if self.repeats > 1 else ""


class Picks(NamedTuple):
    shown: list[Pick]  # from many sessions to few, or in time
    note: str  # what is left out; empty: nothing


def picks(results: Results) -> Picks:
    """The first is shown at first."""
    if not figures.is_observation(results):
        return _fitting(results, [], _rungs(results), "rungs")
    windows = results.tables["windows"].sort("t0_ns").to_dicts()
    made = [_window(results, w, i) for i, w in enumerate(windows)]
    whole = [Pick(TOGETHER, "all windows", None, made[0].rung)] if made else []
    return _fitting(results, whole, made, "windows")


def pick_of(results: Results, cell: str | None = None) -> Pick | None:
    """The pick of a cell; without one the top rung or all windows. Raises UsageError where there is none."""
    if cell is None or cell == TOGETHER:
        windows = figures.is_observation(results)
        found = picks(results).shown if windows else _rungs(results)
        return found[0] if found else None
    rows = results.tables["windows"].filter(pl.col("cell") == cell).to_dicts()
    if not rows:
        raise UsageError(
            f"this run has no cell {cell}", "its cells are in the report's plan, or in table windows"
        )
    if figures.is_observation(results):
        return _window(results, rows[0], 0)
    return Pick("", f"{at_once(str(rows[0]['sessions']))} ({cell})", cell, _rung(rows[0]))


def pick_at(results: Results, sessions: int | None) -> Pick:
    """The load of so many sessions with its repeats; ``None``: the highest, or all windows of an observation.
    Raises UsageError where the run has none."""
    found = _rungs(results)
    if sessions is None and (pick := pick_of(results)) is not None:
        return pick
    there = sorted({p.rung[2] for p in found})
    one = next((p for p in found if p.rung[2] == sessions), None)
    if one is None:
        raise UsageError(
            f"the run has no measurement {noun('at')} {at_once(str(sessions or 0))}", f"there are {there}"
        )
    return one


def rows_of(results: Results, table: str, pick: Pick) -> pl.DataFrame:
    """The pick's rows of a derived table; of all repeats of a load together where the table has such rows."""
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
    label = f"window {clock(results, row['t0_ns'])} to {clock(results, row['t1_ns'])} UTC"
    return Pick(f"c{number}", label, row["cell"], _rung(row))


def _rung(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["variant"], row["sessions"]


def _rungs(results: Results) -> list[Pick]:
    """One cell a rung, from the top down: an invalid one only where there is no other."""
    series = figures.series_of(results)
    windows = results.tables["windows"].with_columns(
        bad=pl.col("status") == "invalid",
        repeats=pl.len().over("workload", "variant", "sessions", "rate_per_s"),
    )
    found: list[Pick] = []
    for s in series:
        best = figures.of_series(windows, s).sort(
            "sessions", "rate_per_s", "bad", "repeat", descending=[True, True, False, False]
        )
        name = f"{s.label}: " if len(series) > 1 else ""
        for row in best.unique(["sessions", "rate_per_s"], keep="first", maintain_order=True).to_dicts():
            label = f"{name}{at_once(str(row['sessions']))}"
            label += "" if row["rate_per_s"] is None else f", {format_given(row['rate_per_s'])}/s"
            key, rung, named = f"c{len(found)}", _rung(row), bool(name)
            found.append(Pick(key, label, row["cell"], rung, row["repeats"], row["rate_per_s"], named))
    return found


def _fitting(results: Results, first: list[Pick], made: list[Pick], what: str) -> Picks:
    """``first``, then what fits, evenly spread."""
    sizes = _sizes(results)
    taken: set[str] = set()
    room = ROWS
    for i in _spread(len(made)):
        room -= sizes.get(made[i].cell or "", 0)
        if room < 0 and (taken or first):
            break
        taken.add(made[i].key)
    left = len(made) - len(taken)
    note = (
        f"{left} of {len(made)} {what} are left out here to keep the page small; the export holds them all."
    )
    return Picks([*first, *(p for p in made if p.key in taken)], note if left else "")


def _spread(n: int) -> list[int]:
    """First, last, middle, then the middles of the halves, and so on."""
    order: list[int] = []
    spans = [(0, n - 1)] if n else []
    for low, high in spans:
        order += [low, high, (low + high) // 2]
        if high - low > 1:
            spans += [(low, (low + high) // 2), ((low + high) // 2, high)]
    return list(dict.fromkeys(order))


def _sizes(results: Results) -> dict[str, int]:
    """Cell -> rows of its tables, strips counted less."""
    tables = results.tables
    events = tables["events"].filter(pl.col("scope") != "session")
    counted = [
        events.group_by("cell").agg(n=pl.len().cast(pl.Float64)),
        results.ask("microstates", _counted),
        results.ask("strips", _counted).with_columns(pl.col("n") / _PIECES_A_ROW),
    ]
    sums = pl.concat(counted).group_by("cell").agg(pl.col("n").sum())
    return {cell: int(n) for cell, n in sums.rows()}


def _counted(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("cell").agg(n=pl.len().cast(pl.Float64))
