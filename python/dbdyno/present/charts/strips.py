"""The heat strip: a row a session, its seconds split into where they went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.sources.wait_families import AT_CLIENT, families_of
from dbdyno.model.text.nouns import fill
from dbdyno.present.charts import triggers
from dbdyno.present.charts.chart import ROOM, number
from dbdyno.present.document.document import Block, Paragraph, Strip
from dbdyno.present.document.palette import account_colours
from dbdyno.present.figures import figures, sources_used
from dbdyno.present.figures.selection import Pick

MAX_ROWS = 60
MAX_PIECES = 60
"""Pieces of a row; finer strips are drawn in pieces of several."""
_EDGE = 1e-3  # of a piece: rounding is no overlap
_FIRST = ("run", "runq")
_NONE = "No strip of {~slots} over time: they were not sampled together with their tasks."
_CAPTION = (
    "A row is a {~slot}, its height is all its time: CPU at the bottom, CPU WAIT on it, then sleep by wait "
    "class{~client_on_top}."
)
_WORDS = {
    "run": "CPU",
    "runq": "CPU WAIT",
    "unknown": "not known",
    "asleep": "asleep, seen by no sample",
}


def parts(results: Results) -> list[str]:
    """All parts of a run in the order of stacking."""
    found: list[str] = results.ask("strips", _parts)["part"].sort().to_list()
    last = ("asleep", *_clients(results, found), "unknown")
    others = [p for p in found if p not in (*_FIRST, *last)]
    return [p for p in (*_FIRST, *others, *last) if p in found]


def _clients(results: Results, shown: list[str]) -> list[str]:
    families = families_of(results.tables)
    return [p for p in shown if families.of(p) in AT_CLIENT]


def label(results: Results, part: str) -> str:
    return "client" if _clients(results, [part]) else _WORDS.get(part, part)


def colours(results: Results, shown: list[str]) -> dict[str, str]:
    """Part -> name of its colour; what is not known has none (an empty one)."""
    families = families_of(results.tables)
    hues = {p: families.hue(p) for p in shown if p != "unknown"}
    paint = account_colours(hues.values())
    return {p: paint[hues[p]] if p in hues else "" for p in shown}


def strips(results: Results, pick: Pick) -> list[Block]:
    """The strip of one pick, or a remark why there is none."""
    shown = parts(results)
    made = strip(results, pick.cell, shown, f"strip-{pick.key}") if shown else None
    if made is None:
        return [Paragraph(fill(_NONE), "muted")]
    return [replace(_few(made), title=f"{made.title}, {pick.at}")]


def _few(shown: Strip) -> Strip:
    """The least parts as one where a legend has no room for all."""
    over = len(shown.parts) - ROOM
    if over <= 0:
        return shown
    spent = [sum(p[n] for row in shown.pieces for p in row if p) for n in range(len(shown.parts))]
    waits = [n for n, (_, colour) in enumerate(shown.parts) if colour not in ("", "run", "runq", "client")]
    rest = set(sorted(waits, key=lambda n: spent[n])[: over + 1])
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
    """The most active sessions of one cell, or of all windows in a row; ``None`` where there are none."""
    idle = (*_clients(results, shown), "unknown")
    bins = _bins(results) if cell is None else None
    found = _of_rows(_rows(results, cell), idle) if bins is None else _of_bins(results, bins, idle)
    if found is None:
        return None
    sums = found.sums.with_columns(whole=pl.col("s").sum().over("who", "piece"))
    sums = sums.with_columns(percent=(100 * pl.col("s") / pl.col("whole")).round(0).cast(pl.Int64))
    percent = {(w, p, part): v for w, part, p, v in sums.select("who", "part", "piece", "percent").rows()}
    seen = {(w, p) for w, p, _ in percent}
    paint = colours(results, shown)
    note = f" A piece of a row holds up to {bins.most} windows." if bins else ""
    fired = triggers.of_cell(results, cell)
    note += triggers.words(fired)
    return Strip(
        id=name,
        title="Each session over time",
        caption=f"{_CAPTION}{note} {sources_used.caption(results)}",
        parts=[(label(results, p), paint[p]) for p in shown],
        names=[f"pid {who}" if who > 0 else f"session {_LEAST - who}" for who in found.kept],
        pieces=[
            [
                [percent.get((w, p, part), 0) for part in shown] if (w, p) in seen else None
                for p in range(found.pieces)
            ]
            for w in found.kept
        ],
        start_s=round(found.start_s, 3),
        end_s=round(found.end_s, 3),
        left_out=found.left_out,
        marks=[(m["fired_s"], m["fired"]) for m in fired],
    )


class _Drawn(NamedTuple):
    sums: pl.DataFrame
    """who, part, piece, s: its seconds."""
    kept: list[int]
    left_out: int
    pieces: int
    start_s: float
    end_s: float


_LEAST = -1
_WHO = pl.coalesce("pid", _LEAST - pl.col("session")).alias("who")
"""A session's number is its window's own; its process is the same in all. Without one: below zero."""
_SPENT = ((pl.col("end_s") - pl.col("start_s")) * pl.col("share")).alias("s")


def _of_rows(rows: pl.DataFrame, idle: tuple[str, ...]) -> _Drawn | None:
    """In pieces of the rows' own length."""
    if rows.is_empty():
        return None
    start, end = number(rows["start_s"].min()), number(rows["end_s"].max())
    if not end > start:
        return None
    kept, left_out = _kept(_Busy(idle)(rows.lazy()).collect())
    count = _pieces(rows, end - start)
    mine = rows.with_columns(_WHO).filter(pl.col("who").is_in(kept))
    sums = _cut(mine, start, (end - start) / count, count).group_by("who", "part", "piece")
    return _Drawn(sums.agg(pl.col("s").sum()), kept, left_out, count, start, end)


def _rows(results: Results, cell: str | None) -> pl.DataFrame:
    if cell is not None:
        return results.of_cell("strips", cell).with_columns(pid=pl.lit(None, pl.Int64))
    offsets = figures.windows(results).select("cell", offset="start_s")
    joined = results.tables["strips"].join(offsets, on="cell")
    return joined.with_columns((pl.col(c) + pl.col("offset")).alias(c) for c in ("start_s", "end_s"))


class _Bins(NamedTuple):
    """Pieces of several windows."""

    cells: tuple[tuple[str, int], ...]
    """Cell -> its piece: the one in which its middle lies."""
    most: int
    """So many windows are in one at most."""
    pieces: int
    width_s: float


def _bins(results: Results) -> _Bins | None:
    """Each of as many windows' length, so that there are MAX_PIECES at most; ``None``: windows are few."""
    windows = figures.windows(results)
    if windows.height <= MAX_PIECES:
        return None
    step, end = number(windows["start_s"].diff().median()), number(windows["end_s"].max())
    width = step * -(-end // (step * MAX_PIECES))
    middle = (pl.col("start_s") + pl.col("end_s")) / 2
    placed = windows.select("cell", piece=(middle / width).floor().cast(pl.Int64))
    most = placed.group_by("piece").len()["len"].max()
    return _Bins(tuple(placed.rows()), int(number(most)), int(-(-end // width)), width)


def _of_bins(results: Results, bins: _Bins, idle: tuple[str, ...]) -> _Drawn | None:
    """Summed as the rows are read: those of all windows would not fit into memory."""
    busy = results.ask("strips", _Busy(idle))
    if busy.is_empty():
        return None
    kept, left_out = _kept(busy)
    sums = results.ask("strips", _Binned(bins.cells, tuple(kept)))
    return _Drawn(sums, kept, left_out, bins.pieces, 0.0, bins.pieces * bins.width_s)


def _kept(busy: pl.DataFrame) -> tuple[list[int], int]:
    """The busiest in the order of the drawing, and how many are left out."""
    most = busy.sort(-pl.col("busy"), pl.col("who").abs())["who"].head(MAX_ROWS).to_list()
    return sorted(most, key=lambda who: (who < 0, abs(who))), busy.height - len(most)


@dataclass(frozen=True)
class _Busy:
    """A query: each session's seconds in parts that are not idle."""

    idle: tuple[str, ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        spent = pl.when(pl.col("part").is_in(self.idle)).then(0.0).otherwise(_SPENT)
        return rows.group_by(_WHO).agg(busy=spent.sum())


@dataclass(frozen=True)
class _Binned:
    """A query: seconds by session, part and piece."""

    cells: tuple[tuple[str, int], ...]
    kept: tuple[int, ...]

    def __call__(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        schema = {"cell": pl.String, "piece": pl.Int64}
        pieces = pl.LazyFrame(list(self.cells), schema=schema, orient="row")
        mine = rows.select("cell", "part", _WHO, _SPENT).filter(pl.col("who").is_in(self.kept))
        return mine.join(pieces, on="cell").group_by("who", "part", "piece").agg(pl.col("s").sum())


def _parts(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select("part").unique()


def _cut(rows: pl.DataFrame, start: float, width: float, count: int) -> pl.DataFrame:
    """Every row in all pieces that it reaches into: who, part, piece, s (its seconds there)."""
    low, high = (pl.col("start_s") - start) / width, (pl.col("end_s") - start) / width
    first = (low + _EDGE).floor().clip(0, count - 1).cast(pl.Int64)
    after = (high - _EDGE).ceil().clip(1, count).cast(pl.Int64)
    spread = rows.with_columns(low=low, high=high, piece=pl.int_ranges(first, after)).explode("piece")
    inside = pl.min_horizontal("high", pl.col("piece") + 1) - pl.max_horizontal("low", "piece")
    return spread.select("who", "part", "piece", s=inside.clip(0.0) * width * pl.col("share"))


def _pieces(rows: pl.DataFrame, span: float) -> int:
    """As many as there are, up to MAX_PIECES."""
    width = number((rows["end_s"] - rows["start_s"]).median())
    return max(1, min(MAX_PIECES, round(span / width))) if width > 0 else 1
