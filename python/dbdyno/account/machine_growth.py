"""Table ``machine_growth``: counters of the server's host and control groups, cut to the window."""

from __future__ import annotations

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.schema.tables import conform, schema

_OF_ONE_CPU = r"^cpu\d"


@makes("machine_growth")
def machine_growth(cut_levels: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``machine_growth``, without the counters of single CPUs and of the driver's groups."""
    of_host = (pl.col("origin") == "host") & ~pl.col("key").str.contains(_OF_ONE_CPU)
    of_group = (pl.col("origin") == "cgroup") & (pl.col("scope") == "server")
    rows = cut_levels.filter(of_host | of_group)
    return conform("machine_growth", rows.select(*schema("machine_growth")))
