"""Builds the tables of a snapshot from rows of the server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from dbdyno.engines.postgres.snapshots.sources import all_tables, view_of
from dbdyno.engines.postgres.statements import by_key
from dbdyno.model.engine.snapshot import TABLES
from dbdyno.model.schema.tables import Tables

_POLARS: Mapping[str, Any] = {"i64": pl.Int64, "f64": pl.Float64, "str": pl.String, "bool": pl.Boolean}
_SIZES = {"table": "table_bytes", "index": "index_bytes", "toast": "toast_bytes"}
_RESETS = {
    "pg_stat_wal": "WAL",
    "pg_stat_bgwriter": "background writer",
    "pg_stat_checkpointer": "checkpoints",
    "pg_stat_archiver": "archiver",
}


def conform_to(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the columns of the table, NULL if ``frame`` lacks them."""
    if not frame.width:
        return pl.DataFrame(schema={c.name: _POLARS[c.type] for c in TABLES[table].columns})
    return frame.select(
        (pl.col(c.name) if c.name in frame.columns else pl.lit(None)).cast(_POLARS[c.type]).alias(c.name)
        for c in TABLES[table].columns
    )


def tables(read: Mapping[str, Mapping[str, pl.DataFrame]], major: int, own: Collection[int]) -> Tables:
    """Returns all tables of the schema, from the frames by statement and database. Tables that were not
    read are empty."""
    result = {name: merge(name, read.get(name, {}).values()) for name in TABLES}
    sizes = read.get("sizes", {})
    for name, add in (("relations", add_sizes), ("indexes", add_index_sizes)):
        frames = read.get(name, {}).items()
        result[name] = merge(name, (add(f, sizes[db]) if db in sizes else f for db, f in frames))
    for frame in read.get("database_sizes", {}).values():
        whole = result["databases"].drop("size_bytes")
        sized = whole.join(frame.rename({"oid": "database_id"}), on="database_id", how="left")
        result["databases"] = conform_to("databases", sized)
    statement_rows, server_row = (
        next(iter(read.get(n, {}).values()), pl.DataFrame()) for n in ("statements", "server")
    )
    if statement_rows.height:
        result["statements"] = statements(statement_rows, own)
    result["server"] = figure_rows(server_row, major)
    result["resets"] = resets(result, server_row, statement_rows)
    return result


def merge(table: str, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Returns one table for several databases. Shared objects occur once."""
    parts = [conform_to(table, frame) for frame in frames]
    whole = pl.concat(parts) if parts else conform_to(table, pl.DataFrame())
    return whole.unique([c.name for c in TABLES[table].key], keep="first", maintain_order=True)


def add_sizes(relations: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """Adds sizes of relations, summed over their files. A file that could not be read counts with the size
    in the catalogue."""
    size = pl.coalesce("bytes", "known")
    by_relation = sizes.group_by(relation_id="owner").agg(
        *(size.filter(pl.col("kind") == kind).sum().alias(name) for kind, name in _SIZES.items()),
        sized=pl.col("bytes").is_not_null().all(),
    )
    return _with_key_type(relations, "relation_id").join(
        by_relation, on="relation_id", how="left", maintain_order="left"
    )


def add_index_sizes(indexes: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    own = sizes.select(index_id="oid", size_bytes=pl.coalesce("bytes", "known"))
    return _with_key_type(indexes, "index_id").join(own, on="index_id", how="left", maintain_order="left")


def _with_key_type(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Casts the key, since a frame without rows has no types."""
    return frame.with_columns(pl.col(key).cast(pl.Int64))


def statements(frame: pl.DataFrame, own: Iterable[int]) -> pl.DataFrame:
    """Returns the statements without dbdyno's own. Those hidden from the role are summed."""
    read = conform_to("statements", frame)
    users = read.filter(~pl.col("query_id").is_in(list(own)).fill_null(value=False))
    return by_key(users)


def figure_rows(wide: pl.DataFrame, major: int) -> pl.DataFrame:
    """Returns the table ``server`` from a row with all its figures."""
    values = wide.row(0, named=True) if wide.height else {}
    records = [
        {
            "figure": name,
            "unit": origin.kept_as,
            "value": values.get(name),
            "reset_s": values.get(f"reset {view_of(origin.expression(major))}"),
        }
        for name, origin in all_tables()["server"].figures.items()
        if origin.expression(major) is not None
    ]
    return conform_to("server", pl.DataFrame(records, infer_schema_length=None))


def resets(tables: Mapping[str, pl.DataFrame], wide: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Returns the table ``resets``. ``counted`` are the statements as read."""
    return conform_to("resets", pl.DataFrame(list(_resets(tables, wide, counted)), infer_schema_length=None))


def _resets(
    tables: Mapping[str, pl.DataFrame], wide: pl.DataFrame, counted: pl.DataFrame
) -> Iterator[dict[str, Any]]:
    if counted.height:
        first = counted.row(0, named=True)
        yield {"what": "statements", "evictions": first["evictions"], "reset_s": first["reset_s"]}
    for what, name in (("I/O", "io"), ("caches", "caches")):
        if tables[name].height:
            yield {"what": what, "reset_s": tables[name]["reset_s"].max()}
    for view, what in _RESETS.items():
        if f"reset {view}" in wide.columns:
            yield {"what": what, "reset_s": wide[f"reset {view}"][0]}
    for database, reset_s in tables["databases"].select("database", "reset_s").rows():
        yield {"what": f"database {database}" if database else "shared objects", "reset_s": reset_s}
