"""Events and microstates of an observation's windows as one: means weighted by time.

A window without a row saw nothing of it: nothing there. One with NULL does not know and is left out of
that figure's time.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.model.data_sources import process_rates
from dbdyno.model.results import Results
from dbdyno.model.tables import DERIVED

_ENDS = ("", "_low", "_high")
_EVENT = [f"{part}{end}" for part in ("run", "sleep", "runq") for end in _ENDS]
_STATES = [f"{s}{e}" for s in ("usr", "sys", "cpu_wait", "lock", "client", "sleep") for e in _ENDS]
_RATES = [
    *_STATES, "block_io", "unaccounted", "voluntary_per_s", "involuntary_per_s", "slices_per_s",
    *(rate.column.name for rate in process_rates()),
]  # fmt: skip
_WHOLE = ["usr", "sys", "cpu_wait", "lock", "client", "sleep", "unaccounted"]
_ALL = 0.95  # of a window
_PROCESS = ["pid", "start_ticks", "role", "worker"]


def events(results: Results) -> pl.DataFrame:
    """Table events of all windows together, single sessions left out; seconds per second of the whole."""
    walls = results.tables["windows"].select("cell", "wall_s")
    rows = results.tables["events"].filter(pl.col("scope") != "session").join(walls, on="cell")
    whole = pl.lit(float(walls["wall_s"].sum()))
    keys = ["scope", "who", "state", "wait_class", "wait_event"]
    figures = (*_EVENT, "waits_per_s")
    # A window may tell of a label twice: what samples saw of it, and what none saw.
    once = rows.group_by(*keys, "cell", maintain_order=True).agg(
        *(_known_sum(c) for c in (*figures, "samples")),
        pl.col("wall_s").first(), _first_not_ok(), pl.col("source").unique(maintain_order=True),
    ).with_columns(pl.col("source").list.join(", "))  # fmt: skip
    made = once.group_by(keys, maintain_order=True).agg(
        *(_mean(c, whole) for c in figures), _known_sum("samples"), _first_not_ok(), _all("source")
    )
    return _conforming("events", made)


def microstates(results: Results) -> pl.DataFrame:
    """Table microstates of all windows together: a process's means over the time that it was seen."""
    made = own_time(results, results.tables["microstates"])
    made = made.group_by(_PROCESS, maintain_order=True).agg(
        pl.col("session").drop_nulls().last(), pl.col("name").last(),
        *(_mean(c, pl.col("wall_s").sum()) for c in _RATES),
        pl.col("wall_s").sum().alias("seen_s"), _first_not_ok(), _all("source"),
    )  # fmt: skip
    return _conforming("microstates", made.rename({"seen_s": "wall_s"}))


def own_time(results: Results, rows: pl.DataFrame) -> pl.DataFrame:
    """Microstates as shares of the time that the process was there, instead of the whole window.

    Both are the same but for a process that came or went inside it.
    """
    whole, told = pl.sum_horizontal(_WHOLE, ignore_nulls=False), pl.sum_horizontal(_WHOLE)
    walls = results.tables["windows"].select("cell", window_s="wall_s")
    there = (pl.col("wall_s") / pl.col("window_s")).clip(0.0, 1.0)
    # Without all states their sum is not known: how long it was there is, though reads are up to 1 s apart.
    partly = (told < _ALL) & (there > 0) & (there < _ALL)
    share = pl.when(whole > 0).then(whole).when(partly).then(there).otherwise(1.0)
    joined = rows.join(walls, on="cell", how="left", maintain_order="left").with_columns(share=share)
    return joined.with_columns(pl.col(c) / pl.col("share") for c in _RATES).drop("window_s", "share")


def _mean(column: str, whole: pl.Expr) -> pl.Expr:
    value, wall = pl.col(column), pl.col("wall_s")
    asked = whole.first() - wall.filter(value.is_null()).sum()
    return pl.when(value.null_count() < pl.len()).then((value * wall).sum() / asked).alias(column)


def _known_sum(column: str) -> pl.Expr:
    value = pl.col(column)
    return pl.when(value.null_count() < pl.len()).then(value.sum()).alias(column)


def _first_not_ok() -> pl.Expr:
    told = pl.col("status").filter(pl.col("status") != "ok").first()
    return told.fill_null("ok").alias("status")


def _all(column: str) -> pl.Expr:
    return pl.col(column).unique(maintain_order=True).str.join(", ").alias(column)


def _conforming(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The table's columns; those of a cell are gone."""
    names: Sequence[str] = [c.name for c in DERIVED[table]]
    return frame.select([n for n in names if n in frame.columns])
