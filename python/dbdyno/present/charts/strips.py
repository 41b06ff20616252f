"""Draws the heat strip: one row per session, its seconds split into where they went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.sources.wait_families import AT_CLIENT, families_of
from dbdyno.model.text.nouns import fill
from dbdyno.present.charts import triggers, wall_clock
from dbdyno.present.charts.chart import ROOM, number
from dbdyno.present.document.document import Block, Paragraph, Strip
from dbdyno.present.document.palette import account_colours
from dbdyno.present.figures import figures, sources_used
from dbdyno.present.figures.selection import Pick

MAX_ROWS = 60
MAX_PIECES = 60
"""Most pieces of a row; finer time steps are merged."""
_EDGE = 1e-3
"""Part of a piece that a row may reach into the next one by rounding, without counting as there."""
_FIRST = ("run", "runq")
_NONE = "No strip of {~slots} over time: they were not sampled together with their tasks."
_CAPTION = (
    "A row is a {~slot}, its height is all its time: CPU at the bottom, CPU WAIT on it, then sleep by wait "
    "class{~client_on_top}."
)
_LABELS = {
    "run": "CPU",
    "runq": "CPU WAIT",
    "unknown": "not known",
    "asleep": "asleep, reason unknown",
}


def parts(results: Results) -> list[str]:
    """Returns all parts of session time in a run, in the order of stacking."""
    present: list[str] = results.ask("strips", _parts)["part"].sort().to_list()
    last = ("asleep", *_clients(results, present), "unknown")
    others = [p for p in present if p not in (*_FIRST, *last)]
    return [p for p in (*_FIRST, *others, *last) if p in present]


def _clients(results: Results, shown: list[str]) -> list[str]:
    """Returns those of the parts that are time at the client."""
    families = families_of(results.tables)
    return [p for p in shown if families.of(p) in AT_CLIENT]


def label(results: Results, part: str) -> str:
    """Returns the name of a part for the legend."""
    return "client" if _clients(results, [part]) else _LABELS.get(part, part)


def colours(results: Results, shown: list[str]) -> dict[str, str]:
    """Returns the name of a colour per part; empty for ``unknown``."""
    families = families_of(results.tables)
    hues = {p: families.hue(p) for p in shown if p != "unknown"}
    paint = account_colours(hues.values())
    return {p: paint[hues[p]] if p in hues else "" for p in shown}


def strips(results: Results, pick: Pick) -> list[Block]:
    """Returns the strip of one load or window, or a remark that there is none."""
    shown = parts(results)
    drawn = strip(results, pick.cell, shown, f"strip-{pick.key}") if shown else None
    if drawn is None:
        return [Paragraph(fill(_NONE), "muted")]
    return [replace(_merge_small(drawn), title=f"{drawn.title}, {pick.at}")]


def _merge_small(shown: Strip) -> Strip:
    """Merges the parts with the least time into one where a legend has no room for all, but no more than
    the least wait with a name took."""
    over = len(shown.parts) - ROOM
    if over <= 0:
        return shown
    spent = [sum(p[n] for row in shown.pieces for p in row if p) for n in range(len(shown.parts))]
    waits = [n for n, (_, colour) in enumerate(shown.parts) if colour not in ("", "run", "runq", "client")]
    waits.sort(key=lambda n: spent[n])
    most = over + 1
    while most > 1 and most < len(waits) and sum(spent[n] for n in waits[:most]) > spent[waits[most]]:
        most -= 1
    if most < 2:
        return shown
    rest = set(waits[:most])
    kept = [n for n in range(len(shown.parts)) if n not in rest]
    at = sum(n < min(rest) for n in kept)
    parts = [shown.parts[n] for n in kept]
    parts.insert(at, (f"other ({len(rest)})", "rest"))

    def merged(piece: Sequence[int] | None) -> list[int] | None:
        if piece is None:
            return None
        values = [piece[n] for n in kept]
        values.insert(at, sum(piece[n] for n in rest))
        return values

    return replace(shown, parts=parts, pieces=[[merged(p) for p in row] for row in shown.pieces])


def strip(results: Results, cell: str | None, shown: list[str], name: str = "strip") -> Strip | None:
    """Returns the strip of the most active sessions of one cell, or of all windows; None without sessions."""
    idle = (*_clients(results, shown), "unknown")
    bins = _bins(results) if cell is None else None
    drawn = _cut_rows(_strip_rows(results, cell), idle) if bins is None else _sum_bins(results, bins, idle)
    if drawn is None:
        return None
    sums = drawn.sums.with_columns(whole=pl.col("s").sum().over("who", "piece"))
    sums = sums.with_columns(percent=(100 * pl.col("s") / pl.col("whole")).round(0).cast(pl.Int64))
    percent = {(w, p, part): v for w, part, p, v in sums.select("who", "part", "piece", "percent").rows()}
    known = {(w, p) for w, p, _ in percent}
    paint = colours(results, shown)
    note = f" A piece of a row holds up to {bins.most} windows." if bins else ""
    fired = triggers.of_cell(results, cell)
    note += triggers.caption_note(fired)
    return Strip(
        id=name,
        title="Each session over time",
        caption=f"{fill(_CAPTION)}{note} {sources_used.caption(results)}",
        parts=[(label(results, p), paint[p]) for p in shown],
        names=[f"pid {who}" if who > 0 else f"session {_LEAST - who}" for who in drawn.kept],
        pieces=[
            [
                [percent.get((w, p, part), 0) for part in shown] if (w, p) in known else None
                for p in range(drawn.pieces)
            ]
            for w in drawn.kept
        ],
        start_s=round(drawn.start_s, 3),
        end_s=round(drawn.end_s, 3),
        left_out=drawn.left_out,
        marks=[(m["fired_s"], m["fired"]) for m in fired],
        clock_ms=_clock_ms(results, cell),
    )


def _clock_ms(results: Results, cell: str | None) -> int | None:
    """Returns the place of second 0 on the axis of wall-clock time; None unless it is an observation."""
    windows = results.tables["windows"]
    first = (windows if cell is None else windows.filter(pl.col("cell") == cell))["t0_ns"].min()
    return wall_clock.at_ms(results, first) if figures.is_observation(results) and first is not None else None  # type: ignore[arg-type]


class _Drawn(NamedTuple):
    """Seconds by session, part and piece, of the sessions that are drawn."""

    sums: pl.DataFrame
    """who, part, piece, s (seconds)."""
    kept: list[int]
    left_out: int
    pieces: int
    start_s: float
    end_s: float


_LEAST = -1
_WHO = pl.coalesce("pid", _LEAST - pl.col("session")).alias("who")
"""The pid, which is the same in all windows; without one, the number of the session as -1, -2, ..."""
_SPENT = ((pl.col("end_s") - pl.col("start_s")) * pl.col("share")).alias("s")


def _cut_rows(rows: pl.DataFrame, idle: tuple[str, ...]) -> _Drawn | None:
    """Cuts the rows of a few windows into pieces of their own length; None without rows."""
    if rows.is_empty():
        return None
    start, end = number(rows["start_s"].min()), number(rows["end_s"].max())
    if not end > start:
        return None
    kept, left_out = _busiest(_Busy(idle)(rows.lazy()).collect())
    count = _pieces(rows, end - start)
    drawn = rows.with_columns(_WHO).filter(pl.col("who").is_in(kept))
    sums = _cut(drawn, start, (end - start) / count, count).group_by("who", "part", "piece")
    return _Drawn(sums.agg(pl.col("s").sum()), kept, left_out, count, start, end)


def _strip_rows(results: Results, cell: str | None) -> pl.DataFrame:
    """Returns the rows of one cell; those of all windows have seconds since the first window."""
    if cell is not None:
        return results.of_cell("strips", cell).with_columns(pid=pl.lit(None, pl.Int64))
    offsets = figures.windows(results).select("cell", offset="start_s")
    joined = results.tables["strips"].join(offsets, on="cell")
    return joined.with_columns((pl.col(c) + pl.col("offset")).alias(c) for c in ("start_s", "end_s"))


class _Bins(NamedTuple):
    """Pieces that hold several windows each."""

    cells: tuple[tuple[str, int], ...]
    """Cell and the piece in which its middle lies."""
    most: int
    """Windows in the fullest piece."""
    pieces: int
    width_s: float


def _bins(results: Results) -> _Bins | None:
    """Returns at most ``MAX_PIECES`` pieces of whole windows; None if each window can have its own piece."""
    windows = figures.windows(results)
    if windows.height <= MAX_PIECES:
        return None
    step, end = number(windows["start_s"].diff().median()), number(windows["end_s"].max())
    width = step * -(-end // (step * MAX_PIECES))
    middle = (pl.col("start_s") + pl.col("end_s")) / 2
    placed = windows.select("cell", piece=(middle / width).floor().cast(pl.Int64))
    most = placed.group_by("piece").len()["len"].max()
    return _Bins(tuple(placed.rows()), int(number(most)), int(-(-end // width)), width)


def _sum_bins(results: Results, bins: _Bins, idle: tuple[str, ...]) -> _Drawn | None:
    """Sums seconds per piece while the rows are read: the rows of all windows would not fit into memory."""
    busy = results.ask("strips", _Busy(idle))
    if busy.is_empty():
        return None
    kept, left_out = _busiest(busy)
    sums = results.ask("strips", _Binned(bins.cells, tuple(kept)))
    return _Drawn(sums, kept, left_out, bins.pieces, 0.0, bins.pieces * bins.width_s)


def _busiest(busy: pl.DataFrame) -> tuple[list[int], int]:
    """Returns the busiest sessions in the order of the drawing, and the number of those left out."""
    most = busy.sort(-pl.col("busy"), pl.col("who").abs())["who"].head(MAX_ROWS).to_list()
    return sorted(most, key=lambda who: (who < 0, abs(who))), busy.height - len(most)


@dataclass(frozen=True)
class _Busy:
    """Query: seconds of each session in parts that are not idle."""

    idle: tuple[str, ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        spent = pl.when(pl.col("part").is_in(self.idle)).then(0.0).otherwise(_SPENT)
        return rows.group_by(_WHO).agg(busy=spent.sum())


@dataclass(frozen=True)
class _Binned:
    """Query: seconds by session, part and piece."""

    cells: tuple[tuple[str, int], ...]
    kept: tuple[int, ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        schema = {"cell": pl.String, "piece": pl.Int64}
        pieces = pl.LazyFrame(list(self.cells), schema=schema, orient="row")
        drawn = rows.select("cell", "part", _WHO, _SPENT).filter(pl.col("who").is_in(self.kept))
        return drawn.join(pieces, on="cell").group_by("who", "part", "piece").agg(pl.col("s").sum())


def _parts(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select("part").unique()


def _cut(rows: pl.DataFrame, start: float, width: float, count: int) -> pl.DataFrame:
    """Splits every row among the pieces that it reaches into: who, part, piece, s (seconds in the piece)."""
    low, high = (pl.col("start_s") - start) / width, (pl.col("end_s") - start) / width
    first = (low + _EDGE).floor().clip(0, count - 1).cast(pl.Int64)
    after = (high - _EDGE).ceil().clip(1, count).cast(pl.Int64)
    spread = rows.with_columns(low=low, high=high, piece=pl.int_ranges(first, after)).explode("piece")
    inside = pl.min_horizontal("high", pl.col("piece") + 1) - pl.max_horizontal("low", "piece")
    return spread.select("who", "part", "piece", s=inside.clip(0.0) * width * pl.col("share"))


def _pieces(rows: pl.DataFrame, span: float) -> int:
    """Returns the number of pieces of the rows' own length, at most ``MAX_PIECES``."""
    width = number((rows["end_s"] - rows["start_s"]).median())
    return max(1, min(MAX_PIECES, round(span / width))) if width > 0 else 1
