"""Of which cells a report shows the fine detail: the top rung first, then others while there is room."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results import Results
from dbdyno.present import combine, figures
from dbdyno.present.timeline import clock

ROWS = 1_000
"""Room for table rows and pieces of strips, so that the page stays small: the export holds all."""
TOGETHER = "all"
"""The cell that tables profile and top_events give what several cells say together."""
_PIECES_A_ROW = 40  # pieces of a strip that take the room of a table's row


class Pick(NamedTuple):
    """A cell whose detail is shown; ``cell`` None: all windows of an observation together."""

    key: str
    label: str  # "8 sessions", "all windows"
    cell: str | None
    rung: tuple[str, str, int]  # workload, variant, sessions
    repeats: int = 1

    @property
    def at(self) -> str:
        """After a noun: ``at 8 sessions``, ``over all windows``."""
        if self.cell is None:
            return f"over {self.label}"
        return f"at {self.label}" if self.rung[2] else f"in {self.label}"

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
    n = rows[0]["sessions"]
    return Pick("", f"{n} session{'' if n == 1 else 's'} ({cell})", cell, _rung(rows[0]))


def rows_of(results: Results, table: str, pick: Pick) -> pl.DataFrame:
    """The pick's rows of events, microstates, profile, top_events or witnesses."""
    if table == "microstates" and pick.cell is not None:
        return combine.own_time(results, results.of_cell(table, pick.cell))
    if table == "microstates":
        return combine.microstates(results)
    frame = results.tables[table]
    if table in ("profile", "top_events") and (pick.cell is None or pick.repeats > 1):
        workload, variant, sessions = pick.rung
        of_rung = figures.of_series(frame, figures.Series(workload, variant, ""))
        together = of_rung.filter((pl.col("cell") == TOGETHER) & (pl.col("sessions") == sessions))
        if len(together):
            return together
    if pick.cell is not None:
        return frame.filter(pl.col("cell") == pick.cell)
    return combine.events(results) if table == "events" else frame.clear()


def _window(results: Results, row: dict[str, Any], number: int) -> Pick:
    label = f"window {clock(results, row['t0_ns'])} to {clock(results, row['t1_ns'])} UTC"
    return Pick(f"c{number}", label, row["cell"], _rung(row))


def _rung(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["variant"], row["sessions"]


def _rungs(results: Results) -> list[Pick]:
    """One cell a rung, from the top down: an invalid one only where there is no other."""
    series = figures.series_of(results)
    windows = results.tables["windows"].with_columns(
        bad=pl.col("status") == "invalid", repeats=pl.len().over("workload", "variant", "sessions")
    )
    found: list[Pick] = []
    for s in series:
        best = figures.of_series(windows, s).sort(
            "sessions", "bad", "repeat", descending=[True, False, False]
        )
        name = f"{s.label}: " if len(series) > 1 else ""
        for row in best.unique("sessions", keep="first", maintain_order=True).to_dicts():
            n = row["sessions"]
            label = f"{name}{n} session{'' if n == 1 else 's'}"
            found.append(Pick(f"c{len(found)}", label, row["cell"], _rung(row), row["repeats"]))
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
