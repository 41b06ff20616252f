"""From the core's columns to conforming polars frames."""

from __future__ import annotations

import polars as pl

from dbdyno.model.protocols import Watch
from dbdyno.model.tables import empty, from_core

TABLES = ("samples", "tasks", "cgroup", "host", "sampler")


def frames(watch: Watch) -> dict[str, pl.DataFrame]:
    """All tables of a watch; one it does not have is empty."""
    made = watch.tables()
    return {name: from_core(name, made[name]) if name in made else empty(name) for name in TABLES}
