"""Merges the tables of several drivers into those of one load. Only the host of a histogram bucket is
lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from dbdyno.model.schema.tables import RAW, CoreColumn, by_second, empty, from_core, merged, raw, schema

Core = Mapping[str, Mapping[str, CoreColumn]]

_KEYS = {
    "scripts": ("script", "name", "weight"),
    "script_errors": ("script", "sqlstate"),
    "script_commands": ("script", "command", "line", "text"),
    "pace": (),
}
"""Table with one row, or a few, for all sessions -> its key columns; the others are figures."""
_LEAST = {"min_ns", "idle_ns"}
_MOST = {"max_ns", "lag_max_ns", "driver_lag_max_ns", "backlog_age_max_ns"}
_HISTOGRAMS = {"histogram", "script_histogram", "service_histogram", "lag_histogram", "backlog_histogram"}


def merge(parts: Iterable[tuple[int, Core]]) -> dict[str, dict[str, CoreColumn]]:
    """Merges ``parts``: the number of the driver's first session, and its tables."""
    frames: dict[str, list[pl.DataFrame]] = {}
    for first, tables in parts:
        for name, table in tables.items():
            frames.setdefault(name, []).append(_renumber(from_core(raw(name), table), first))
    return {name: core(_merge(name, all_)) for name, all_ in frames.items()}


def joined(parts: Sequence[Core]) -> dict[str, dict[str, CoreColumn]]:
    """Concatenates tables whose rows arrived in parts."""
    frames: dict[str, list[pl.DataFrame]] = {}
    for part in parts:
        for name, table in part.items():
            frames.setdefault(name, []).append(from_core(raw(name), table))
    return {name: core(pl.concat(all_)) for name, all_ in frames.items()}


def core(frame: pl.DataFrame) -> dict[str, CoreColumn]:
    """Returns a frame as a table of the core."""
    return {series.name: ("", series, None) for series in frame.get_columns()}


def _renumber(frame: pl.DataFrame, first: int) -> pl.DataFrame:
    return frame.with_columns(pl.col("session") + first) if "session" in frame.columns else frame


def _merge(table: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    together = pl.concat(frames)
    if table in _HISTOGRAMS:
        return _buckets(table, together)
    if table == "second_histogram":
        return by_second(together)
    if table not in _KEYS:
        return together
    keys = _KEYS[table]
    figures = [_together(table, name) for name in together.columns if name not in keys]
    if not keys:
        return together.select(figures).select(together.columns) if together.height else together
    return together.group_by(keys, maintain_order=True).agg(figures).select(together.columns)


def _together(table: str, name: str) -> pl.Expr:
    column = pl.col(name)
    if name in _LEAST:
        return column.min()
    if name in _MOST:
        return column.max()
    if schema(raw(table))[name] == pl.String:
        return column.first()
    unknown = column.is_null().all()
    return pl.when(unknown).then(None).otherwise(column.sum()).alias(name)


def _buckets(table: str, together: pl.DataFrame) -> pl.DataFrame:
    if "script" not in together.columns:
        return merged(together)
    by_script = together.partition_by("script", maintain_order=True)
    parts = [
        merged(t.drop("script")).with_columns(script=pl.lit(t["script"][0], pl.Int64)) for t in by_script
    ]
    return pl.concat([empty(raw(table)), *(t.select([c.name for c in RAW[table]]) for t in parts)])
