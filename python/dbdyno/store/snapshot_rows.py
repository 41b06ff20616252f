"""Encodes consecutive snapshots of a table as changed rows: a full first one, then differences.

An integer is stored as the difference to the previous row of the same object, so that a sum restores its
value; names, times and fractions are stored as they are. A row exists where anything differs from the
snapshot before. A row with ``gone`` marks an object that is no longer in the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.engine.snapshot import TABLES, SnapshotTable
from dbdyno.model.schema.column import Column
from dbdyno.model.schema.tables import POLARS

SEQ, NTH, GONE, SINCE = "seq", "nth", "gone", "since"
"""Columns of a stored row.

Number of the snapshot; index among rows with the same key; whether the object is gone; whether the growth of
its counters is that since the snapshot before.
"""
_GROUP = "_group"


def shaped(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns ``frame`` with exactly the columns of ``table``; missing ones are NULL."""
    return frame.select(_shape(TABLES[table].columns, frame.columns))


def encoded(table: str, frames: Sequence[tuple[int, pl.DataFrame]]) -> pl.DataFrame:
    """Returns the rows of snapshots (number and full table, in order), of which the first one is the base."""
    form = TABLES[table]
    key = [*(c.name for c in form.key), NTH]
    numbers = pl.Series([seq for seq, _ in frames], dtype=pl.Int64)
    whole = pl.concat(
        [
            shaped(table, frame).with_columns(
                pl.int_range(pl.len(), dtype=pl.Int64).over([c.name for c in form.key]).alias(NTH),
                pl.lit(at, pl.Int64).alias(SEQ),
            )
            for at, (_, frame) in enumerate(frames)
        ]
    ).sort(*key, SEQ)
    same = _same_as_before(key)
    rows = whole.with_columns((~same).cum_sum().alias(_GROUP))
    kept = rows.filter(_changed(form)).with_columns(pl.lit(False).alias(GONE))
    gone = _gone(rows, [*key, _GROUP], len(frames))
    with_rows = [at for at, (_, frame) in enumerate(frames) if frame.height]
    return (
        pl.concat([kept.with_columns(_differences(form)), gone], how="diagonal")
        .with_columns((pl.col(SEQ) - 1).is_in(with_rows).alias(SINCE))
        .with_columns(pl.lit(numbers).gather(pl.col(SEQ)).alias(SEQ))
        .sort(*key, SEQ)
        .drop(_GROUP)
    )


def decoded(table: str, rows: pl.DataFrame, seq: int) -> pl.DataFrame:
    """Returns the full table of snapshot ``seq``, in the order of its key."""
    form = TABLES[table]
    present = [c for c in form.columns if c.name in rows.columns]
    sums = {c.name for c in _summed(form)}
    key = [*(c.name for c in form.key), NTH]
    summed = (
        rows.lazy()
        .filter(pl.col(SEQ) <= seq)
        .group_by(key, maintain_order=True)
        .agg(
            *(_value(c.name, c.name in sums) for c in present if c not in form.key),
            pl.col(GONE).last(),
        )
        .filter(~pl.col(GONE))
        .collect()
    )
    return shaped(table, summed)


def _shape(columns: Sequence[Column], names: Sequence[str]) -> list[pl.Expr]:
    return [
        (pl.col(c.name) if c.name in names else pl.lit(None)).cast(POLARS[c.type]).alias(c.name)
        for c in columns
    ]


def _summed(form: SnapshotTable) -> list[Column]:
    return [c for c in form.counters if c.type == "i64"]


def _value(name: str, summed: bool) -> pl.Expr:
    last = pl.col(name).last()
    return pl.when(last.is_not_null()).then(pl.col(name).sum()).alias(name) if summed else last


def _same_as_before(key: Sequence[str]) -> pl.Expr:
    """Returns whether the row above belongs to the same object."""
    return pl.all_horizontal(pl.col(k).eq_missing(pl.col(k).shift(1)) for k in key) & (
        pl.int_range(pl.len()) > 0
    )


def _changed(form: SnapshotTable) -> pl.Expr:
    columns = (*form.attributes, *form.counters, *form.gauges)
    differs = [pl.col(c.name).ne_missing(pl.col(c.name).shift(1)) for c in columns]
    first = pl.col(_GROUP).ne_missing(pl.col(_GROUP).shift(1))
    return pl.any_horizontal(first, pl.col(SEQ) != pl.col(SEQ).shift(1) + 1, *differs)


def _gone(rows: pl.DataFrame, key: Sequence[str], snapshots: int) -> pl.DataFrame:
    """Returns a row per object in the first snapshot that no longer has it."""
    following = pl.col(SEQ).shift(-1)
    stays = (pl.col(_GROUP) == pl.col(_GROUP).shift(-1)).fill_null(False) & (following == pl.col(SEQ) + 1)
    return rows.filter(~stays.fill_null(False) & (pl.col(SEQ) < snapshots - 1)).select(
        *key, (pl.col(SEQ) + 1).alias(SEQ), pl.lit(True).alias(GONE)
    )


def _differences(form: SnapshotTable) -> list[pl.Expr]:
    """Returns differences to the last known value; NULL stays NULL."""
    return [
        pl.col(c.name) - pl.col(c.name).forward_fill().shift(1).over(_GROUP).fill_null(0)
        for c in _summed(form)
    ]
