"""Made-up runs with repeats that differ: the law is known (report_results), so the truth is, too."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
from tests.unit import report_results

from dbdyno.model.results.results import Results


def noisy(
    world: report_results.World,
    *,
    spread: float = 0.01,
    drift: float = 0.05,
    seed: int = 1,
    id: str = "20261121-x",
) -> Results:
    """The world's rates times drift of the block (the same for all variants of it) and noise of the cell."""
    plain = report_results.results(world)
    chance = random.Random(seed)
    keys = plain.tables["windows"].select("cell", "sessions", "repeat")
    blocks = {(s, r): 1 + chance.gauss(0, drift) for _, s, r in keys.rows()}
    factor = {c: blocks[s, r] * (1 + chance.gauss(0, spread)) for c, s, r in keys.rows()}
    of_cell = pl.col("cell").replace_strict(factor, return_dtype=pl.Float64)
    inverse = pl.col("name").str.ends_with("_ns")
    value = pl.when(inverse).then(pl.col("value") / of_cell).otherwise(pl.col("value") * of_cell)
    tables = {**plain.tables, "rates": plain.tables["rates"].with_columns(value=value)}
    return replace(plain, tables=tables, info=plain.info.model_copy(update={"id": id}))


def without_cells(results: Results, cell_part: str) -> Results:
    """Returns the results with the windows of these cells invalid."""
    hit = pl.col("cell").str.contains(cell_part, literal=True)
    windows = results.tables["windows"].with_columns(
        status=pl.when(hit).then(pl.lit("invalid")).otherwise("status"),
        reason=pl.when(hit).then(pl.lit("cut short")).otherwise("reason"),
    )
    return replace(results, tables={**results.tables, "windows": windows})
