"""Ladders along an axis of the plan: one job with more and more threads, or jobs times threads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.model.analyses import Ladder
from dbdyno.model.parallel_axes import Axis, axes_of

if TYPE_CHECKING:
    from dbdyno.model.results import Results


def with_axes(results: Results, ladders: Sequence[Ladder]) -> tuple[Ladder, ...]:
    """``ladders`` that have several loads, and those along axes of the plan where variants are numbers of
    threads: throughput of one job by threads. Without such an axis ``ladders`` as they are."""
    own = {str(one.variant): one for one in ladders if one.points.height}
    made = [one for axis in axes_of(results.plan.variants, own) for one in _along(axis, own)]
    climbed = tuple(one for one in ladders if one.points["load"].n_unique() > 1)
    return (*made, *climbed) if made else tuple(ladders)


def _along(axis: Axis, ladders: dict[str, Ladder]) -> Iterator[Ladder]:
    """At the lowest number of jobs that all of them were measured at."""
    mine = [(value, ladders[variant]) for value, variant in axis.points]
    common = set.intersection(*(set(one.points["load"]) for _, one in mine))
    if not common:
        return
    jobs = min(common)
    points = [
        one.points.filter(pl.col("load") == jobs).with_columns(load=pl.lit(value)) for value, one in mine
    ]
    first = mine[0][1]
    rest = f", {axis.rest}" if axis.rest else ""
    at_once = "one job" if jobs == 1 else f"{jobs:g} jobs"
    unit = axis.name if axis.name.endswith("s") else f"{axis.name}s"
    yield replace(
        first,
        name=f"{first.workload}, {at_once} by {axis.name}{rest}",
        points=pl.concat(points).sort("load", "repeat"),
        load_unit=unit,
    )
