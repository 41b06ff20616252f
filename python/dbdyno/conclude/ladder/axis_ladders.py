"""Ladders along an axis of the plan: one job with more and more threads, or jobs times threads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from dbdyno.model.plan.parallel_axes import Axis, axes_of, counts_of
from dbdyno.model.results.analyses import Ladder
from dbdyno.model.units import format_given

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results


def with_axes(results: Results, ladders: Sequence[Ladder]) -> tuple[Ladder, ...]:
    """``ladders`` that have several loads, and before them those along axes of the plan where variants are
    numbers of threads: throughput of one job by threads. Without such an axis ``ladders`` as they are."""
    made = [one for axis in axes_of(results.plan.variants, _own(ladders)) for one in _along(axis, ladders)]
    climbed = tuple(one for one in ladders if one.points["load"].n_unique() > 1)
    return (*made, *climbed) if made else tuple(ladders)


def _own(ladders: Sequence[Ladder]) -> dict[str, Ladder]:
    return {str(one.variant): one for one in ladders if one.points.height}


def _along(axis: Axis, ladders: Sequence[Ladder]) -> Iterator[Ladder]:
    """At the lowest number of jobs that all of them were measured at."""
    own = _own(ladders)
    mine = [(value, own[variant]) for value, variant in axis.points]
    common = set.intersection(*(set(one.points["load"]) for _, one in mine))
    if not common:
        return
    jobs = min(common)
    points = [
        one.points.filter(pl.col("load") == jobs).with_columns(load=pl.lit(value)) for value, one in mine
    ]
    rest = f", {axis.rest}" if axis.rest else ""
    at_once = "one job" if jobs == 1 else f"{format_given(jobs)} jobs"
    yield replace(
        mine[0][1],
        name=f"{mine[0][1].workload}, {at_once} by {axis.name}{rest}",
        points=pl.concat(points).sort("load", "repeat"),
        load_unit=counts_of(axis.name),
        variant=None,
        axis=axis.rest,
    )
