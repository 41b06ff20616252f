"""From raw tables to the measured window: brackets, deltas, weights, rates. Pure functions of tables."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.bins import cut_bins
from dbdyno.account.window.blocked import cut_blocked
from dbdyno.account.window.cells import of_cells, windows
from dbdyno.account.window.cores import cores_of
from dbdyno.account.window.counters import cut_levels, cut_work
from dbdyno.account.window.paced import histograms
from dbdyno.account.window.rates import over_time, rates_of
from dbdyno.account.window.rounds import cut_rounds
from dbdyno.account.window.samples import cut_sampler, cut_samples, sample_chunks
from dbdyno.account.window.statements import cut_statement_samples, cut_statements
from dbdyno.account.window.tasks import cut_tasks
from dbdyno.account.window.traced import (
    cut_counts,
    cut_statement_waits,
    cut_traced,
    cut_wait_times,
    cut_waits,
)
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.data_sources import counts
from dbdyno.model.schema.tables import OF_CELL, empty, raw
from dbdyno.model.sources.wait_families import merged

__all__ = [
    "cores_of",
    "cut",
    "cut_bins",
    "cut_counts",
    "cut_levels",
    "cut_rates",
    "cut_rounds",
    "cut_sampler",
    "cut_samples",
    "cut_tasks",
    "cut_traced",
    "cut_waits",
    "cut_without_samples",
    "cut_work",
    "over_time",
    "rates",
    "sample_chunks",
    "windows",
]


def cut(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns all tables of this room: ``windows``, ``rates`` and those of ``CUT`` and ``OF_CELL``."""
    return cut_without_samples(cells) | {"cut_samples": cut_samples(cells)}


def cut_without_samples(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns the same without ``cut_samples``, which may be long: :func:`sample_chunks` has its rows."""
    return cut_rates(cells) | {
        "cut_traced": cut_traced(cells),
        "cut_waits": cut_waits(cells),
        "cut_statement_waits": cut_statement_waits(cells),
        "cut_wait_times": cut_wait_times(cells),
        **{f"cut_{c.table}": cut_counts(c, cells) for c in counts()},
        "cut_bins": cut_bins(cells),
        "rounds": cut_rounds(cells),
        "cut_blocked": cut_blocked(cells),
        "cut_statements": cut_statements(cells),
        "cut_statement_samples": cut_statement_samples(cells),
        "statement_texts": pl.concat(
            [empty(raw("statement_texts")), *(c.tables["statement_texts"] for c in cells)]
        ),
        **{table: of_cells(table, cells) for table in OF_CELL if table != "cell_histogram"},
    }


@makes(
    *("windows", "rounds", "statement_texts", "wait_families"),
    *("cell_histogram", "cell_sessions", "cell_errors", "cell_sources"),
    stage="cut",
)
def tables_of_windows(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns the tables of :func:`cut_without_samples`. Its ``rates``, to which the ledger adds, are
    ``cut_rates``."""
    tables = cut_without_samples(cells)
    return {"cut_rates" if name == "rates" else name: table for name, table in tables.items()}


@makes("statement_texts", stage="end")
def each_text_once(statement_texts: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``statement_texts`` of a run."""
    return statement_texts.unique("query_id", maintain_order=True)


@makes("wait_families", stage="end")
def each_family_once(wait_families: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``wait_families`` of a run."""
    return wait_families.unique(maintain_order=True)


def cut_rates(cells: Sequence[RawCell]) -> dict[str, pl.DataFrame]:
    """Returns the tables of :func:`cut` that ``rates`` and a preliminary ledger need."""
    tables = {
        "windows": windows(cells),
        "cut_tasks": cut_tasks(cells),
        "cut_sampler": cut_sampler(cells),
        "cut_work": cut_work(cells),
        "cut_levels": cut_levels(cells),
        "wait_families": merged(c.meta.wait_families for c in cells).table(),
        "cell_histogram": histograms(cells),
    }
    return tables | {"rates": rates_of(cells, tables)}


def rates(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``rates``: per session and per rung."""
    return cut_rates(cells)["rates"]
