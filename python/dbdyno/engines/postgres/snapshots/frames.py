"""From rows of the server to the tables of a snapshot."""

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


def shaped(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Exactly the columns of the table; what ``frame`` lacks is NULL."""
    if not frame.width:
        return pl.DataFrame(schema={c.name: _POLARS[c.type] for c in TABLES[table].columns})
    return frame.select(
        (pl.col(c.name) if c.name in frame.columns else pl.lit(None)).cast(_POLARS[c.type]).alias(c.name)
        for c in TABLES[table].columns
    )


def tables(read: Mapping[str, Mapping[str, pl.DataFrame]], major: int, own: Collection[int]) -> Tables:
    """All tables of the schema, from the frames of each statement by database; what was not read is empty."""
    made = {name: joined(name, read.get(name, {}).values()) for name in TABLES}
    sizes = read.get("sizes", {})
    for name, sized in (("relations", with_sizes), ("indexes", with_index_sizes)):
        frames = read.get(name, {}).items()
        made[name] = joined(name, (sized(f, sizes[db]) if db in sizes else f for db, f in frames))
    for frame in read.get("database_sizes", {}).values():
        whole = made["databases"].drop("size_bytes")
        known = whole.join(frame.rename({"oid": "database_id"}), on="database_id", how="left")
        made["databases"] = shaped("databases", known)
    counted, wide = (next(iter(read.get(n, {}).values()), pl.DataFrame()) for n in ("statements", "server"))
    if counted.height:
        made["statements"] = statements(counted, own)
    made["server"] = figures(wide, major)
    made["resets"] = resets(made, wide, counted)
    return made


def joined(table: str, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """One table of several databases; what they share is in it once."""
    parts = [shaped(table, frame) for frame in frames]
    whole = pl.concat(parts) if parts else shaped(table, pl.DataFrame())
    return whole.unique([c.name for c in TABLES[table].key], keep="first", maintain_order=True)


def with_sizes(relations: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table ``relations`` from those of single files. What could not be looked at counts as
    large as the catalogue says."""
    known = pl.coalesce("bytes", "known")
    owned = sizes.group_by(relation_id="owner").agg(
        *(known.filter(pl.col("kind") == kind).sum().alias(name) for kind, name in _SIZES.items()),
        sized=pl.col("bytes").is_not_null().all(),
    )
    return _keyed(relations, "relation_id").join(owned, on="relation_id", how="left", maintain_order="left")


def with_index_sizes(indexes: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    own = sizes.select(index_id="oid", size_bytes=pl.coalesce("bytes", "known"))
    return _keyed(indexes, "index_id").join(own, on="index_id", how="left", maintain_order="left")


def _keyed(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """A frame without rows knows no types."""
    return frame.with_columns(pl.col(key).cast(pl.Int64))


def statements(found: pl.DataFrame, own: Iterable[int]) -> pl.DataFrame:
    """Without dbdyno's own; those hidden from the role in sum."""
    read = shaped("statements", found)
    users = read.filter(~pl.col("query_id").is_in(list(own)).fill_null(value=False))
    return by_key(users)


def figures(wide: pl.DataFrame, major: int) -> pl.DataFrame:
    """The table ``server`` from one row of all of its figures."""
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
    return shaped("server", pl.DataFrame(records, infer_schema_length=None))


def resets(tables: Mapping[str, pl.DataFrame], wide: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """The table ``resets``; ``counted``: statements as they were read."""
    return shaped("resets", pl.DataFrame(list(_resets(tables, wide, counted)), infer_schema_length=None))


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
