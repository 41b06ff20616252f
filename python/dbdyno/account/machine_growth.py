"""Table ``machine_growth``: counters of the server's host and control groups, cut to the window."""

from __future__ import annotations

import polars as pl

from dbdyno.account.making import makes
from dbdyno.model.schema.tables import conform, schema

_OF_ONE_CPU = r"^cpu\d"


@makes("machine_growth")
def machine_growth(cut_levels: pl.DataFrame) -> pl.DataFrame:
    """Returns table ``machine_growth``: the host's counters, without those of single CPUs, and the throttled
    time of the server's groups."""
    origin, key = pl.col("origin"), pl.col("key")
    of_host = (origin == "host") & ~key.str.contains(_OF_ONE_CPU)
    of_group = (origin == "cgroup") & (pl.col("scope") == "server") & (key == "throttled_ns")
    rows = cut_levels.filter(of_host | of_group)
    return conform("machine_growth", rows.select(*schema("machine_growth")))
