"""Makes ladders along an axis of the plan: one job with more and more threads, or jobs times threads.
Pure."""

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
    """Returns ladders along axes of the plan whose variants are numbers of threads (throughput of one job
    by threads), then those of ``ladders`` with several loads. Without such an axis it returns all
    ``ladders``."""
    new = [
        one
        for axis in axes_of(results.plan.variants, _by_variant(ladders))
        for one in _ladders_along(axis, ladders)
    ]
    with_several_loads = tuple(one for one in ladders if one.points["load"].n_unique() > 1)
    return (*new, *with_several_loads) if new else tuple(ladders)


def _by_variant(ladders: Sequence[Ladder]) -> dict[str, Ladder]:
    return {str(one.variant): one for one in ladders if one.points.height}


def _ladders_along(axis: Axis, ladders: Sequence[Ladder]) -> Iterator[Ladder]:
    """Yields the ladder along an axis, at the lowest number of jobs at which all its variants were
    measured."""
    ladder_of = _by_variant(ladders)
    rungs = [(value, ladder_of[variant]) for value, variant in axis.points]
    common = set.intersection(*(set(one.points["load"]) for _, one in rungs))
    if not common:
        return
    jobs = min(common)
    points = [
        one.points.filter(pl.col("load") == jobs).with_columns(load=pl.lit(value)) for value, one in rungs
    ]
    rest = f", {axis.rest}" if axis.rest else ""
    at_once = "one job" if jobs == 1 else f"{format_given(jobs)} jobs"
    yield replace(
        rungs[0][1],
        name=f"{rungs[0][1].workload}, {at_once} by {axis.name}{rest}",
        points=pl.concat(points).sort("load", "repeat"),
        load_unit=counts_of(axis.name),
        variant=None,
        axis=axis.rest,
    )
