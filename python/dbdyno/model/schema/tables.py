"""The written schema between collectors and readers: every raw and derived table, column by column.

All ``*_ns`` time stamps are CLOCK_MONOTONIC nanoseconds of the host dbdyno runs on; the run's
``run.json`` holds one simultaneous pair of monotonic and wall-clock time. NULL means unknown; the
``status`` column beside it gives the reason (:data:`dbdyno.model.sources.source.Status`). Raw tables are
stored per cell and never changed; derived tables can be rebuilt from them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Annotated, Any

import polars as pl
from pydantic import PlainSerializer, PlainValidator

from dbdyno.model.schema.column import CELL, Column, Type, column
from dbdyno.model.schema.column import SCHEMA_VERSION as SCHEMA_VERSION
from dbdyno.model.schema.derived import DERIVED as DERIVED
from dbdyno.model.schema.derived import REGISTERED as REGISTERED
from dbdyno.model.schema.quantiles import fewest_calls
from dbdyno.model.schema.rawtables import RAW as RAW
from dbdyno.model.schema.table import Columns, Table, register
from dbdyno.model.schema.window_schema import CUT

Tables = Mapping[str, pl.DataFrame]
"""Tables by name."""
_CODES: dict[Type, str] = {"i64": "q", "f64": "d", "bool": "B"}
POLARS: dict[Type, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}


OF_CELL = {
    f"cell_{t}": (*CELL, *RAW[t])
    for t in ("sessions", "histogram", "errors", "progress", "sampler", "sources", "backends", "executions")
}
"""Tables that combine a raw table of several cells, with the key of the cell. They are computed with the
window and not stored."""

LABELS = {
    "wait_families": (
        column("wait_class", "str", "the engine's class of waits"),
        column("wait_event", "str", "one of its events; NULL: all others of the class", null=True),
        column("family", "str", "client, lock, latch, io, commit, network, timer, other"),
    ),
    "wait_advice": (
        column("event", "str", "class/event in which sessions wait for each other, or with an earlier name"),
        column("what", "str", "what they wait for"),
        column("advice", "str", "what to change"),
        column("row", "bool", "it is a row that another session changes"),
        column("earlier", "str", "the event that earlier versions show for the same waits; empty if none"),
    ),
}
"""Explanations of labels, which apply to all cells of a run."""

register(
    *(
        Table(n, OF_CELL[n], shown=False)
        for n in ("cell_sessions", "cell_histogram", "cell_errors", "cell_sources")
    ),
    Table("wait_families", LABELS["wait_families"], shown=False),
    Table("rounds", CUT["rounds"], shown=False),
    Table(
        "event_seconds",
        (
            *CELL,
            column(
                "name",
                "str",
                "part of the session time, as in top_events; NULL: all that shares are of",
                null=True,
            ),
            column("seconds", "f64", "over the window, all sessions"),
            column("low", "f64", "lower end of its interval", null=True),
            column("high", "f64", "upper end", null=True),
            column("runq_s", "f64", "seconds under its label in the run queue", null=True),
            column("waits", "f64", "waits that began", null=True),
            column("sleeps", "f64", "sleeps that began", null=True),
            column("source", "str", "data source"),
        ),
        shown=False,
    ),
)


def raw(table: str) -> str:
    """Returns the name under which :data:`TABLES` has a raw table, also if a derived table is named like
    it."""
    return f"raw.{table}"


TABLES: Mapping[str, tuple[Column, ...]] = ChainMap[str, tuple[Column, ...]](
    Columns(every=True),  # type: ignore[arg-type]  # is not written to
    *(RAW, CUT, OF_CELL, LABELS),
    {raw(name): columns for name, columns in RAW.items()},
)
"""Columns of all tables by name. A name that a derived and a raw table share is the derived one; the raw one
is :func:`raw`."""


@cache
def schema(table: str) -> Mapping[str, Any]:
    """Returns the Polars schema of a table."""
    return MappingProxyType({c.name: POLARS[c.type] for c in TABLES[table]})


@cache
def empty(table: str) -> pl.DataFrame:
    """Returns the table without rows. The frame is cached, so it must not be modified in place."""
    return pl.DataFrame(schema=schema(table))


def conform(table: str, frame: pl.DataFrame, key: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Returns ``frame`` with exactly the columns, order and types of ``table``. Missing nullable columns
    become NULL. ``key`` has columns, absent from ``frame``, that have the same value in all rows.

    Raises :class:`ValueError` for an unknown column, for a missing column that may not be NULL, and for a
    NULL in such a column.
    """
    key, types, names = key or {}, schema(table), frame.columns
    exprs = shaped(table, (*key, *names))
    nulls = {name: int(value is None) for name, value in key.items()}
    _whole(table, nulls | dict(zip(names, frame.null_count().row(0), strict=True)))
    if not key and names == list(types) and frame.dtypes == list(types.values()):
        return frame
    fixed = {name: _constant(name, types[name], value) for name, value in key.items()}
    return frame.select(fixed.get(name, expr) for name, expr in zip(types, exprs, strict=True))


def conform_scanned(table: str, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Does the same as :func:`conform` for a frame too large for memory. The frame is read once for the
    check."""
    exprs = shaped(table, tuple(frame.collect_schema().names()))
    _whole(table, frame.null_count().collect(engine="streaming").row(0, named=True))
    return frame.select(exprs)


@lru_cache(maxsize=1024)
def shaped(table: str, names: tuple[str, ...]) -> list[pl.Expr]:
    """Returns the expressions of the columns of ``table``, for a frame that has the columns ``names``.
    Raises :class:`ValueError`."""
    known = TABLES[table]
    if extra := set(names) - {c.name for c in known}:
        raise ValueError(f"table {table}: unknown columns {sorted(extra)}")
    for c in known:
        if not c.null and c.name not in names:
            raise ValueError(f"table {table}: column {c.name} is missing")
    return [
        (pl.col(c.name) if c.name in names else pl.lit(None)).cast(POLARS[c.type]).alias(c.name)
        for c in known
    ]


@lru_cache(maxsize=64)
def _constant(name: str, kind: Any, value: Any) -> pl.Expr:
    """Returns a constant column. It is cached because all tables of a cell have the same key."""
    return pl.lit(value, kind).alias(name)


def _whole(table: str, nulls: Mapping[str, int]) -> None:
    for name in _needed(table):
        if nulls[name]:
            raise ValueError(f"table {table}: NULL in {name}")


@cache
def _needed(table: str) -> list[str]:
    return [c.name for c in TABLES[table] if not c.null]


def rows(table: str, records: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Returns records (dicts) as a conforming frame."""
    if not records:
        return empty(table)
    unknown = {k for r in records for k in r} - set(schema(table))
    if unknown:
        raise ValueError(f"table {table}: unknown columns {sorted(unknown)}")
    columns = (pl.Series(name, [r.get(name) for r in records], kind) for name, kind in schema(table).items())
    return conform(table, pl.DataFrame(columns))


CoreColumn = tuple[str, Any, bytes | None]
"""A column in the representation of the Rust core: type, payload, validity.

The payload of ``i64`` and ``f64`` is little-endian bytes, that of ``bool`` one byte per value. The payload
of ``str`` is ``(codes, categories)`` with little-endian 32-bit codes and -1 for NULL, or a list of ``str |
None``. For any type it may be a polars Series.
The validity is one byte per value, 1 if it is known. It is ``None`` if all values are known, and for
``str``, whose payload marks NULL.
"""


def from_core(table: str, columns: Mapping[str, CoreColumn], needed: Collection[str] = ()) -> pl.DataFrame:
    """Returns a table of the Rust core as a conforming frame, or only the ``needed`` columns of it."""
    if needed:
        return pl.DataFrame({name: _series(name, columns[name]) for name in needed})
    return conform(table, pl.DataFrame({name: _series(name, c) for name, c in columns.items()}))


def to_core(table: str, records: Sequence[Mapping[str, Any]]) -> dict[str, CoreColumn]:
    """Returns records (dicts) in the representation of the core, for a load or a watch that is simulated in
    Python. A missing value becomes NULL."""
    return {c.name: _core_column(c.type, [r.get(c.name) for r in records]) for c in TABLES[table]}


def _core_column(kind: Type, values: list[Any]) -> CoreColumn:
    if kind == "str":
        return (kind, values, None)
    if None not in values:
        return (kind, array(_CODES[kind], values).tobytes(), None)
    payload = array(_CODES[kind], [0 if v is None else v for v in values]).tobytes()
    return (kind, payload, bytes([v is not None for v in values]))


def _texts(name: str, payload: Any) -> pl.Series:
    if isinstance(payload, list):
        return pl.Series(name, payload, dtype=pl.String)
    import numpy as np  # here, since reading a store does not need it

    codes, categories = np.frombuffer(payload[0], dtype="<u4"), payload[1]
    texts = pl.Series(name, [*categories, None], dtype=pl.String)
    # -1 is the greatest code. Series.gather runs a query, which took half of the time of a conversion.
    return texts[pl.Series(np.minimum(codes, len(categories)).astype(np.uint32, copy=False))]


def _series(name: str, column: CoreColumn) -> pl.Series:
    import numpy as np

    kind, payload, validity = column
    if isinstance(payload, pl.Series):
        return payload.alias(name)
    if kind == "str":
        return _texts(name, payload)
    if kind == "bool":
        values = pl.Series(name, np.frombuffer(payload, dtype=np.uint8)).cast(pl.Boolean)
    else:
        values = pl.Series(name, np.frombuffer(payload, dtype="<i8" if kind == "i64" else "<f8"))
    if validity is None:
        return values
    return values.set(pl.Series(np.frombuffer(validity, dtype=np.uint8) == 0), None)


# Tables of many cells are partitioned once instead of filtered for each cell.


class ByCell:
    """Tables partitioned by cell. Tables without a column ``cell`` are shared by all cells."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        self._shared = {name: t for name, t in tables.items() if "cell" not in t.columns}
        self._none = {name: t.clear() for name, t in tables.items() if name not in self._shared}
        self._parts = {name: _by_cell(tables[name]) for name in self._none}

    def table(self, name: str, cell: str) -> pl.DataFrame:
        """Returns the rows of one cell; empty if it has none."""
        return self._parts[name].get(cell, self._none[name])

    def of(self, cell: str) -> dict[str, pl.DataFrame]:
        """Returns all tables of one cell."""
        return self._shared | {name: self.table(name, cell) for name in self._none}


def _by_cell(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if rows.height and (rows["cell"] == rows["cell"][0]).all():
        return {str(rows["cell"][0]): rows}
    return {str(part["cell"][0]): part for part in rows.partition_by("cell") if part.height}


def known_sum(values: pl.Series) -> float | None:
    """Returns the sum of the known values; ``None`` if none is known."""
    return float(values.sum()) if values.null_count() < len(values) else None


def sum_of_known(column: str) -> pl.Expr:
    """Returns the expression for the sum of a column's known values within a group; NULL if none is known."""
    values = pl.col(column)
    return pl.when(values.null_count() < pl.len()).then(values.sum()).alias(column)


def sum_if_all_known(column: str) -> pl.Expr:
    """Returns the expression for the sum of a column within a group; NULL if one of its values is NULL."""
    values = pl.col(column)
    return pl.when(values.null_count() == 0).then(values.sum()).alias(column)


# Quantiles of a table of buckets (columns ``low_ns``, ``high_ns``, ``count``).


def merged(histogram: pl.DataFrame) -> pl.DataFrame:
    """Merges buckets with the same bounds, sorted by bounds. Merging is commutative and associative, and
    idempotent on a single histogram."""
    return histogram.group_by("low_ns", "high_ns").agg(pl.col("count").sum()).sort("low_ns", "high_ns")


def by_second(histogram: pl.DataFrame) -> pl.DataFrame:
    """Merges rows of table ``second_histogram``. All get the longest of their intervals: each length is a
    power of two, so that a longer interval holds whole shorter ones."""
    longest = pl.col("seconds").max()
    same = histogram.with_columns(second=pl.col("second") // longest * longest, seconds=longest)
    counts = same.group_by("second", "seconds", "low_ns", "high_ns").agg(pl.col("count").sum())
    return counts.sort("second", "low_ns").select(histogram.columns)


def quantiles_ns(histogram: pl.DataFrame, qs: Sequence[float]) -> list[int | None]:
    """Returns :func:`quantile_ns` for several ``q``."""
    buckets = merged(histogram)
    highs, counts = buckets["high_ns"].to_list(), buckets["count"].cum_sum().to_list()
    total = counts[-1] if counts else 0
    # 1e-9 absorbs the rounding of q * total: 0.07 * 100 is 7.000000000000001 and must not become rank 8
    ranks = (max(1, math.ceil(q * total - 1e-9)) for q in qs)
    return [highs[bisect_left(counts, rank)] if total else None for rank in ranks]


def known_quantiles_ns(histogram: pl.DataFrame, qs: Sequence[float]) -> list[int | None]:
    """Returns :func:`quantiles_ns`, with ``None`` for quantiles that have too few calls."""
    calls = int(histogram["count"].sum())
    values = quantiles_ns(histogram, qs)
    return [v if calls >= fewest_calls(q) else None for v, q in zip(values, qs, strict=True)]


def known_quantile(q: float) -> pl.Expr:
    """Returns the expression of :func:`quantile` for a group; NULL if the group has too few calls."""
    return pl.when(pl.col("count").sum() >= fewest_calls(q)).then(quantile(q))


def quantile(q: float) -> pl.Expr:
    """Returns the expression of :func:`quantile_ns` for a group whose buckets are sorted by their bounds."""
    count = pl.col("count")
    return pl.col("high_ns").filter(count.cum_sum() >= (q * count.sum() - 1e-9).ceil().clip(1)).first()


def quantile_ns(histogram: pl.DataFrame, q: float) -> int | None:
    """Returns the highest duration of the bucket that holds the call of rank ``ceil(q n)``; ``None`` without
    calls.

    This is HdrHistogram's ``getValueAtPercentile``. With 3 significant digits the result is at most 0.1 %
    too high.
    """
    return quantiles_ns(histogram, [q])[0]


# A small table as a field of a pydantic model. Its JSON has the columns with their types.

_JSON_TYPES = {"f64": pl.Float64, "i64": pl.Int64, "str": pl.String, "bool": pl.Boolean}
_JSON_NAMES = {dtype: name for name, dtype in _JSON_TYPES.items()}


def _frame_written(frame: pl.DataFrame) -> dict[str, Any]:
    return {
        name: {"type": _JSON_NAMES[type(series.dtype)], "values": [_json_number(v) for v in series.to_list()]}
        for name, series in frame.to_dict().items()
    }


def _json_number(value: Any) -> Any:
    """Returns a float that JSON cannot represent (infinite or NaN) as text, any other value unchanged."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read_frame(value: Any) -> pl.DataFrame:
    """Returns the frame for its value in JSON. Raises ValueError if the value is not that of a frame."""
    if isinstance(value, pl.DataFrame):
        return value
    try:
        return pl.DataFrame({name: _series_of(**column) for name, column in value.items()})
    except (AttributeError, KeyError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"no table: {error}") from error


def _series_of(type: str, values: list[Any]) -> pl.Series:  # the name is the key in the file
    dtype = _JSON_TYPES[type]
    if dtype == pl.Float64:
        values = [None if v is None else float(v) for v in values]
    return pl.Series(values, dtype=dtype, strict=True)


Frame = Annotated[pl.DataFrame, PlainValidator(_read_frame), PlainSerializer(_frame_written)]
