"""Samples cut to the window, each with the time that it stands for.

A sample stands for the time from the middle between it and the previous one to the middle between it and
the next, cut at the window. An unanswered sample stands for nothing: its neighbours take its time, and the
ledger's intervals grow by it. The two samplers (SQL, and the server's memory) number their samples
separately, and each fills the window.
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
    """Returns table ``cut_sampler``: the consecutive spans of a sampler's samples, which fill its window."""
    return for_each("cut_sampler", cells, spans_of)


def cut_samples(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cut_samples``: the rows of the samples in ``cut_sampler``."""
    return for_each("cut_samples", cells, _rows)


def sample_chunks(cells: Sequence[RawCell], rows: int = CHUNK_ROWS) -> Iterator[pl.DataFrame]:
    """Yields the rows of ``cut_samples`` that the ledger uses, about ``rows`` at a time, with all rows of
    a sample in one chunk. Samples outside the window are included."""
    parts: list[pl.DataFrame] = []
    for part in (part for cell in cells for part in _whole_samples(cell, rows)):
        parts.append(part)
        if sum(p.height for p in parts) >= rows // 2:
            yield pl.concat(parts)
            parts = []
    yield pl.concat(parts) if parts else empty("cut_samples")


def _whole_samples(cell: RawCell, rows: int) -> Iterator[pl.DataFrame]:
    """Yields chunks of whole samples. A sample that a chunk's end may have cut is kept for the next.
    Sample numbers ascend."""
    cut = pl.col("sample") == pl.col("sample").max().over("via")
    kept: list[pl.DataFrame] = []
    read = ("task_ns", "sql_before_ns", "sql_after_ns")
    for chunk in cell.chunks("samples", *_KEY, *_SEEN, *read, rows=rows):
        head = (pl.lit(cell.id).alias("cell"), "pid", _tid(), "start_ticks")
        part = pl.concat([*kept, chunk.select(*head, _via(), "sample", *_SEEN, *_read())])
        whole = int(part.select(cut.arg_max()).item())
        rest = part[whole:]
        kept = [rest.filter(cut)]
        yield pl.concat([part[:whole], rest.filter(~cut)])
    yield from kept


def seen_spans(cell: RawCell, where: pl.Expr | None = None) -> pl.DataFrame:
    """Returns per session and task ``seen_from`` and ``seen_to``, the time that its samples stand for."""
    condition = (pl.col("role") == "session") & (True if where is None else where)
    key, spans = ("session", "pid", "tid"), spans_of(cell)

    def ends(parts: list[pl.DataFrame], low: str, high: str) -> pl.DataFrame:
        every = pl.concat(parts).group_by(key, maintain_order=True)
        return every.agg(seen_from=pl.col(low).min(), seen_to=pl.col(high).max())

    rows = (c.with_columns(_via(), _tid()) for c in cell.chunks("samples", *key, *_SAMPLE, where=condition))
    parts = [ends([part.join(spans, on=_SAMPLE)], "low_ns", "high_ns") for part in rows]
    none = [pl.DataFrame(schema=dict.fromkeys((*key, "seen_from", "seen_to"), pl.Int64))]
    return ends([*none, *parts], "seen_from", "seen_to")


def _tid() -> pl.Expr:
    return pl.coalesce("tid", "pid").alias("tid")


def _via() -> pl.Expr:
    return pl.col("via").fill_null("sql")


@once_each
def spans_of(cell: RawCell) -> pl.DataFrame:
    """Returns the spans of the samples that were answered in the window: ``at_ns``, ``late_ns``,
    ``low_ns``, ``high_ns``."""
    t0, t1 = cell.meta.t0_ns, cell.meta.t1_ns
    start = pl.col("start_ns")
    at = start + (pl.col("end_ns") - start) // 2
    answered = cell.tables["sampler"].filter(pl.col("status") == "ok").with_columns(_via(), at_ns=at)
    inside = answered.filter((pl.col("at_ns") >= t0) & (pl.col("at_ns") < t1)).sort("via", "at_ns", "sample")
    at_ = pl.col("at_ns")
    before, after = (at_.shift(n).over("via") for n in (1, -1))
    return inside.select(
        *_SAMPLE,
        "at_ns",
        late_ns=start - pl.col("due_ns"),
        low_ns=(before + (at_ - before) // 2).fill_null(t0),
        high_ns=(at_ + (after - at_) // 2).fill_null(t1),
    )


def _read() -> tuple[pl.Expr, pl.Expr]:
    skew = pl.col("task_ns") - (pl.col("sql_before_ns") + pl.col("sql_after_ns")) // 2
    return pl.col("task_ns").fill_null(pl.col("sql_after_ns")).alias("at_ns"), skew.alias("skew_ns")


def _rows(cell: RawCell) -> pl.DataFrame:
    samples = fold(cell.scan("samples").collect().with_columns(_via(), _tid()), workers(cell))
    inside = samples.join(spans_of(cell).select(_SAMPLE), on=_SAMPLE, maintain_order="left")
    return inside.select(*_KEY, *_SEEN, *_MORE, *_read())
