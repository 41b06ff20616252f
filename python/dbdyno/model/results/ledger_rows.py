"""Selects rows of the table ledger that add up, and groups cells that belong together.

An account has a row of its own and rows for its parts. Cells belong together as windows of an observation or
repeats of a rung.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import polars as pl

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import ByCell, Tables, empty
from dbdyno.model.sources.wait_families import TABLE as FAMILIES

UNNAMED = "no label seen"
"""Status of run-queue time that has no known wait label."""
_PARENTS = {
    "run.user": "run",
    "run.system": "run",
    "runq.throttled": "runq",
    "runq.throttled_bracket": "runq",
    "block_io": "sleep",
}
"""Parents of the accounts that lie within another account. The parts of ``runq`` by wait label have its own
name as their parent."""
WORKERS = pl.col("account").str.starts_with("workers.") & (pl.col("aas") > 0)
"""Matches the rows with the part of parallel workers in their sessions' accounts, if they used time."""
BY_LABEL = pl.col("parent").eq_missing(pl.col("account"))
"""Matches the rows that are parts by wait label."""
ALL = pl.lit(True)
_ROUNDING = 1e-9  # seconds per second; a smaller remainder is rounding, not a part
_OLDER = "label.runq"  # the account of wait labels in older ledgers, which had no parts


def top_level(ledger: pl.DataFrame, where: pl.Expr = ALL) -> pl.DataFrame:
    """Returns the rows that add up to the wall time in each scope, hence without parts of other rows."""
    return ledger.filter(pl.col("parent").is_null() & where)


_Frame = TypeVar("_Frame", pl.DataFrame, pl.LazyFrame)


def account_rows(ledger: _Frame, *names: str, scope: str = "rung", where: pl.Expr = ALL) -> _Frame:
    """Returns the rows of these accounts in a scope. An account that is split by label yields its total
    only."""
    # for few names this is faster than is_in()
    among = reduce(or_, (pl.col("account") == name for name in names))
    return ledger.filter((pl.col("scope") == scope) & among & ~BY_LABEL & where)


def queue_labels(ledger: pl.DataFrame, scope: str = "rung") -> pl.DataFrame:
    """Returns the parts of ``runq`` by wait label. A part without ``detail`` has no known label."""
    return ledger.filter((pl.col("scope") == scope) & (pl.col("account") == "runq") & BY_LABEL)


def with_parents(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns ``rows`` with ``parent`` set if their account is always a part of another."""
    known = pl.col("account").replace_strict(_PARENTS, default=None, return_dtype=pl.String)
    given = pl.col("parent") if "parent" in rows.columns else pl.lit(None, dtype=pl.String)
    return rows.with_columns(parent=pl.coalesce(given, known))


def divided(totals: pl.DataFrame, parts: pl.DataFrame, key: str) -> pl.DataFrame:
    """Returns the ``parts`` of an account, scaled to add up to its ``totals`` (both by ``key``: ``aas``,
    ``low``, ``high``).

    Labels may have been counted independently of the total. If they exceed it, all are reduced in
    proportion. If they leave a remainder, it becomes a part without ``detail``. No part exceeds the upper
    bound of the total. If the total is unknown, its known parts stay as they are.
    """
    bounds = totals.select(key, "account", "source", whole="aas", least="low", most="high")
    labelled = parts.join(bounds.drop("source"), on=key, maintain_order="left")
    named = pl.col("aas").sum()
    whole = pl.col("whole")
    exceeds = (named.over(key) > 0) & (named.over(key) > whole - _ROUNDING)
    scale = pl.when(exceeds).then(whole / named.over(key)).otherwise(1.0)
    aas, low, high = (pl.col(n) * scale for n in ("aas", "low", "high"))
    fitted = labelled.with_columns(aas, low, high=pl.max_horizontal(aas, pl.min_horizontal(high, "most")))
    rest = bounds.join(parts.group_by(key).agg(named=named), on=key, how="left", maintain_order="left")
    left = whole - pl.col("named").fill_null(0.0)
    rest = rest.filter(left > _ROUNDING).with_columns(
        aas=left,
        low=(left - whole + pl.col("least")).clip(0.0),
        high=left + pl.col("most") - whole,
        status=pl.lit(UNNAMED),
    )
    both = [fitted.drop("whole", "least", "most"), rest.drop("whole", "least", "most", "named")]
    return pl.concat(both, how="diagonal").with_columns(parent=pl.col("account"))


def of_older(ledger: pl.DataFrame) -> pl.DataFrame:
    """Converts a ledger that was stored without ``parent``; returns any other unchanged."""
    memos = ledger.filter(pl.col("account") == _OLDER)
    rows = with_parents(ledger).filter(pl.col("account") != _OLDER)
    if memos.is_empty():
        return rows
    whose = ("cell", "session", "who")
    keys = rows.select(whose).unique(maintain_order=True).with_row_index("group")
    totals = rows.filter((pl.col("account") == "runq") & pl.col("who").is_in(memos["who"].implode()))
    totals = totals.join(keys, on=whose, nulls_equal=True, maintain_order="left")
    named = memos.drop_nulls("detail").join(keys, on=whose, nulls_equal=True, maintain_order="left")
    labelled = divided(
        totals, named.select("group", "detail", "aas", "low", "high", "status", "source"), "group"
    )
    heads = totals.drop("account", "detail", "aas", "low", "high", "status", "source", "parent")
    labelled = labelled.join(heads, on="group", maintain_order="left")
    return pl.concat([rows, labelled.select(rows.columns)])


TOGETHER = "all"
"""The cell name of a combination of several cells."""


def together_at(rate_per_s: float | None) -> str:
    """Returns the cell name of the combined repeats of a load. Paced repeats are combined by rate."""
    return TOGETHER if rate_per_s is None else f"{TOGETHER}-{rate_per_s:g}ps"


_NEEDED = ("ledger", "events", "cut_levels", "cell_sessions", "cell_sources", "cut_sampler")
_CELL = [c.name for c in CELL]

Window = dict[str, Any]


def of_cells(tables: Tables) -> Iterator[tuple[dict[str, Any], Window, dict[str, pl.DataFrame]]]:
    """Yields (key, window, its tables) for each cell in the order of running."""
    parts = _parts(tables)
    for window in tables["windows"].iter_rows(named=True):
        yield {name: window[name] for name in _CELL}, window, parts.of(window["cell"])


def groups(windows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], list[Window]]]:
    """Yields (key, cells) for each load. The key has the cell name of :func:`together_at` and repeat 0.
    Invalid cells are left out unless there are no others."""
    by = ["workload", "variant", "sessions"]
    for key, rows in windows.group_by(*by, "rate_per_s", maintain_order=True):
        cells = rows.to_dicts()
        head = dict(zip(by, key[:-1], strict=True)) | {
            "cell": together_at(cells[0]["rate_per_s"]),
            "repeat": 0,
        }
        yield head, [w for w in cells if w["status"] != "invalid"] or cells


def among(rows: pl.DataFrame, cells: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Returns the rows of these cells, which are rows of ``windows``; without a copy if they are all."""
    inside = rows["cell"].is_in([w["cell"] for w in cells])
    return rows if inside.all() else rows.filter(inside)


def _parts(tables: Tables) -> ByCell:
    return ByCell({name: tables.get(name, empty(name)) for name in _NEEDED} | {FAMILIES: tables[FAMILIES]})
