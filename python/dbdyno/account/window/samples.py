"""Samples cut to the window, each with the time that it stands for.

A sample stands for the time from the middle between it and the one before to the middle between it and
the next, cut at the window. A sample that was not answered stands for nothing: its neighbours take its
time, and the ledger's intervals grow by it. The two samplers (the server asked, its memory read) each
number their own samples, and each fill the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.account.window.attribution import fold, workers
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import CHUNK_ROWS, RawCell, once_each
from dbdyno.model.schema.tables import empty

_SAMPLE = ["via", "sample"]
_KEY = ("pid", "tid", "start_ticks", *_SAMPLE)
_SEEN = ("state", "wait_class", "wait_event", "task_state", "status")
_MORE = ("role", "session", "query_id", "leader_pid", "worker")


def cut_sampler(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_sampler``: the spans of a sampler's samples follow one another and fill its window."""
    return for_each("cut_sampler", cells, spans_of)


def cut_samples(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Table ``cut_samples``: the rows of the samples in ``cut_sampler``."""
    return for_each("cut_samples", cells, _rows)


def sample_chunks(cells: Sequence[RawCell], rows: int = CHUNK_ROWS) -> Iterator[pl.DataFrame]:
    """The rows of ``cut_samples`` that the ledger uses, about so many at a time: all rows of a sample come
    together. Samples outside the window are among them."""
    parts: list[pl.DataFrame] = []
    for part in (part for cell in cells for part in _whole_samples(cell, rows)):
        parts.append(part)
        if sum(p.height for p in parts) >= rows // 2:
            yield pl.concat(parts)
            parts = []
    yield pl.concat(parts) if parts else empty("cut_samples")


def _whole_samples(cell: RawCell, rows: int) -> Iterator[pl.DataFrame]:
    """A sample that a chunk's end may have cut is kept for the next one. Samplers number them as they go."""
    cut = pl.col("sample") == pl.col("sample").max().over("via")
    kept: list[pl.DataFrame] = []
    read = ("task_ns", "sql_before_ns", "sql_after_ns")
    for chunk in cell.chunks("samples", *_KEY, *_SEEN, *read, rows=rows):
        whose = (pl.lit(cell.id).alias("cell"), "pid", _tid(), "start_ticks")
        part = pl.concat([*kept, chunk.select(*whose, _via(), "sample", *_SEEN, *_read())])
        whole = int(part.select(cut.arg_max()).item())
        rest = part[whole:]
        kept = [rest.filter(cut)]
        yield pl.concat([part[:whole], rest.filter(~cut)])
    yield from kept


def seen_spans(cell: RawCell, where: pl.Expr | None = None) -> pl.DataFrame:
    """Per session and task: ``seen_from`` and ``seen_to``, the time that samples of it stand for."""
    mine = (pl.col("role") == "session") & (True if where is None else where)
    whose, spans = ("session", "pid", "tid"), spans_of(cell)

    def ends(parts: list[pl.DataFrame], low: str, high: str) -> pl.DataFrame:
        every = pl.concat(parts).group_by(whose, maintain_order=True)
        return every.agg(seen_from=pl.col(low).min(), seen_to=pl.col(high).max())

    rows = (c.with_columns(_via(), _tid()) for c in cell.chunks("samples", *whose, *_SAMPLE, where=mine))
    parts = [ends([part.join(spans, on=_SAMPLE)], "low_ns", "high_ns") for part in rows]
    none = [pl.DataFrame(schema=dict.fromkeys((*whose, "seen_from", "seen_to"), pl.Int64))]
    return ends([*none, *parts], "seen_from", "seen_to")


def _tid() -> pl.Expr:
    return pl.coalesce("tid", "pid").alias("tid")


def _via() -> pl.Expr:
    return pl.col("via").fill_null("sql")


@once_each
def spans_of(cell: RawCell) -> pl.DataFrame:
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    start = pl.col("start_ns")
    at = start + (pl.col("end_ns") - start) // 2
    answered = cell.tables["sampler"].filter(pl.col("status") == "ok").with_columns(_via(), at_ns=at)
    inside = answered.filter((pl.col("at_ns") >= t0) & (pl.col("at_ns") < t1)).sort("via", "at_ns", "sample")
    here = pl.col("at_ns")
    before, after = (here.shift(n).over("via") for n in (1, -1))
    return inside.select(
        *_SAMPLE,
        "at_ns",
        late_ns=start - pl.col("due_ns"),
        low_ns=(before + (here - before) // 2).fill_null(t0),
        high_ns=(here + (after - here) // 2).fill_null(t1),
    )


def _read() -> tuple[pl.Expr, pl.Expr]:
    skew = pl.col("task_ns") - (pl.col("sql_before_ns") + pl.col("sql_after_ns")) // 2
    return pl.col("task_ns").fill_null(pl.col("sql_after_ns")).alias("at_ns"), skew.alias("skew_ns")


def _rows(cell: RawCell) -> pl.DataFrame:
    samples = fold(cell.scan("samples").collect().with_columns(_via(), _tid()), workers(cell))
    inside = samples.join(spans_of(cell).select(_SAMPLE), on=_SAMPLE, maintain_order="left")
    return inside.select(*_KEY, *_SEEN, *_MORE, *_read())
