"""From the core's columns to conforming polars frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from dbdyno.model.data_sources import TRACED
from dbdyno.model.protocols import Watch
from dbdyno.model.tables import CoreColumn, empty, from_core

TABLES = ("samples", "tasks", "cgroup", "host", "sampler", *TRACED)


def frames(watch: Watch) -> dict[str, pl.DataFrame]:
    """All tables of a watch; one it does not have is empty."""
    return _frames(watch.tables())


def recent_frames(watch: Watch, since_ns: int, names: Sequence[str] = TABLES) -> dict[str, pl.DataFrame]:
    """The same, or some of them, with what was read since then only."""
    return _frames(watch.recent(since_ns), names)


def _frames(
    made: Mapping[str, Mapping[str, CoreColumn]], names: Sequence[str] = TABLES
) -> dict[str, pl.DataFrame]:
    return {name: from_core(name, made[name]) if name in made else empty(name) for name in names}
