"""Processes beside the server and dbdyno: how much CPU they used during a measurement. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell


@makes("other_processes")
def other_processes(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``other_processes``. Processes whose tasks were observed are none of the others."""
    return for_each("other_processes", cells, _of_cell)


def _of_cell(cell: RawCell) -> pl.DataFrame | None:
    read = cell.tables["other_processes"]
    observed = cell.tables["tasks"]["pid"].unique()
    known = pl.col("pid").is_in(observed.implode()).fill_null(False)
    span_ns = pl.col("last_ns") - pl.col("first_ns")
    taken_off_ns = read.filter(known)["cpu_ns"].sum()
    cpu_ns = pl.col("cpu_ns") - pl.when(pl.col("pid").is_null()).then(taken_off_ns).otherwise(0)
    return read.filter(~known & (span_ns > 0)).select(
        "pid",
        "name",
        "user",
        cpus=cpu_ns / span_ns,
        children_cpus=pl.col("children_ns") / span_ns,
        status="status",
    )
