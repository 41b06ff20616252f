"""The heat strip: a row a session, its seconds split into where they went."""

from __future__ import annotations

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.wait_families import AT_CLIENT, families_of
from dbdyno.present import figures, sources_used
from dbdyno.present.chart import number
from dbdyno.present.document import Block, Paragraph, Strip
from dbdyno.present.palette import account_colours
from dbdyno.present.selection import Pick

MAX_ROWS = 60
MAX_PIECES = 60
"""Pieces of a row; finer strips are drawn in pieces of several."""
_EDGE = 1e-3  # of a piece: rounding is no overlap
_FIRST = ("run", "runq")
_NONE = "No strip of sessions over time: they were not sampled together with their tasks."
_CAPTION = (
    "A row is a session, its height is all its time: CPU at the bottom, CPU WAIT on it, then sleep by wait "
    "class, the client on top."
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
    return [Paragraph(_NONE, "muted") if made is None else made]


def strip(results: Results, cell: str | None, shown: list[str], name: str = "strip") -> Strip | None:
    """The most active sessions of one cell, or of all windows in a row; ``None`` where there are none."""
    rows = _rows(results, cell)
    if rows.is_empty():
        return None
    start, end = number(rows["start_s"].min()), number(rows["end_s"].max())
    if not end > start:
        return None
    count = _pieces(rows, end - start)
    width = (end - start) / count
    idle = [*_clients(results, shown), "unknown"]
    busy = rows.filter(~pl.col("part").is_in(idle)).group_by("who").agg(
        ((pl.col("end_s") - pl.col("start_s")) * pl.col("share")).sum().alias("busy")
    )  # fmt: skip
    order = rows.select("who", "session").unique("who").join(busy, on="who", how="left")
    order = order.sort(pl.col("busy").fill_null(0.0), "session", descending=[True, False])
    kept = order.head(MAX_ROWS).sort("session", "who")
    names = kept["who"].to_list()
    sums = (
        _cut(rows.filter(pl.col("who").is_in(names)), start, width, count)
        .group_by("who", "part", "piece")
        .agg(pl.col("s").sum())
        .with_columns(whole=pl.col("s").sum().over("who", "piece"))
        .with_columns(percent=(100 * pl.col("s") / pl.col("whole")).round(0).cast(pl.Int64))
    )
    found = {(w, p, part): v for w, part, p, v in sums.select("who", "part", "piece", "percent").rows()}
    seen = {(w, p) for w, p, _ in found}
    paint = colours(results, shown)
    return Strip(
        id=name,
        title="Each session over time",
        caption=f"{_CAPTION} {sources_used.caption(results)}",
        parts=[(label(results, p), paint[p]) for p in shown],
        names=[f"session {n}" if n is not None else w for w, n in kept.select("who", "session").rows()],
        pieces=[
            [[found.get((w, p, part), 0) for part in shown] if (w, p) in seen else None for p in range(count)]
            for w in names
        ],
        start_s=round(start, 3),
        end_s=round(end, 3),
        left_out=len(order) - len(kept),
    )


def _rows(results: Results, cell: str | None) -> pl.DataFrame:
    """who (a text that tells sessions apart), session, start_s, end_s, part, share."""
    who = pl.col("session").cast(pl.String).alias("who")
    if cell is not None:
        return results.of_cell("strips", cell).with_columns(who)
    many = results.tables["windows"].height > MAX_PIECES
    table = results.ask("strips", _coarse) if many else results.tables["strips"]
    offsets = figures.windows(results).select("cell", offset="start_s")
    processes = results.ask("microstates", _processes)
    # A session's number is its window's own; its process is the same in all.
    named = processes.select("cell", "session", pl.format("pid {}", "pid").alias("process"))
    named = named.unique(["cell", "session"], keep="first", maintain_order=True)  # of several in turn, one
    joined = table.join(offsets, on="cell").join(named, on=["cell", "session"], how="left")
    shifted = [(pl.col(c) + pl.col("offset")).alias(c) for c in ("start_s", "end_s")]
    session = pl.when(pl.col("process").is_null()).then("session").alias("session")
    return joined.with_columns(*shifted, pl.coalesce("process", who).alias("who"), session)


def _parts(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select("part").unique()


def _processes(rows: pl.LazyFrame) -> pl.LazyFrame:
    whose = (pl.col("role") == "session") & ~pl.col("worker")
    return rows.filter(whose).select("cell", "session", "pid")


def _coarse(rows: pl.LazyFrame) -> pl.LazyFrame:
    """A window as one: no piece of the drawing is shorter."""
    start, end = pl.col("start_s"), pl.col("end_s")
    spent = ((end - start) * pl.col("share")).sum()
    return (
        rows.group_by("cell", "session", "part")
        .agg(start.min(), end.max(), share=spent)
        .with_columns(share=pl.col("share") / (pl.col("end_s") - pl.col("start_s")))
    )


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
