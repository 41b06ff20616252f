"""Compares two spans of an observation: the largest changes first. Pure.

An event's seconds have an interval of their own (sampling and task states), so their difference has one. A
statement's have none. The load varies from window to window: the windows of a span, divided into blocks, give
the interval of a ratio as snapshots do (:mod:`~dbdyno.conclude.compare.intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.compare.intervals import LEAST_BLOCKS, ratio_of
from dbdyno.model.results.span_comparison import SpanComparison
from dbdyno.model.units import NS_PER_S

MOST_BLOCKS = 12
"""Most blocks of a span: longer ones depend less on each other."""
_KEY = ("query_id", "user", "database", "toplevel")
_RATIO = "ratio"


class SpanFigures(NamedTuple):
    """The figures of a span that a comparison needs."""

    events: pl.DataFrame
    """Events together, with ``wall_s``."""
    statements: pl.DataFrame
    profile: pl.DataFrame
    """All windows together."""
    devices: pl.DataFrame
    wall_s: float
    """Measured time."""
    windows: pl.DataFrame
    """``name`` of the profile, ``total`` and ``wall_s`` of each window, in order."""


def compare_spans(a: SpanFigures, b: SpanFigures) -> SpanComparison:
    """Returns B compared with A, the baseline."""
    blocks = _blocks(a.windows), _blocks(b.windows)
    counts = tuple(max((len(v) for v in side.values()), default=0) for side in blocks)
    return SpanComparison(
        _events(a.events, b.events),
        _statements(a, b),
        _load(a.profile, b.profile, blocks),
        _devices(a.devices, b.devices),
        (counts[0], counts[1]),
        min(counts) >= LEAST_BLOCKS,
    )


def _both(a: pl.DataFrame, b: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return a.join(
        b, on=key, how="full", coalesce=True, suffix="_b", nulls_equal=True, maintain_order="left_right"
    )


# Events.


def _events(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    both = _both(_per_second(a), _per_second(b), ["name"])
    # What a span has no row of took no time in it; a span without any events is unknown.
    nothing = [pl.lit(0.0) if side.height else pl.lit(None, pl.Float64) for side in (a, b)]
    both = both.with_columns(pl.col("value").fill_null(nothing[0]), pl.col("value_b").fill_null(nothing[1]))
    change = pl.col("value_b") - pl.col("value")
    # The errors of both are independent. An event that one of them has no row of has no interval there.
    down = (pl.col("below_b").pow(2) + pl.col("above").pow(2)).sqrt()
    up = (pl.col("above_b").pow(2) + pl.col("below").pow(2)).sqrt()
    return both.select(
        "name", a="value", b="value_b", change=change, low=change - down, high=change + up
    ).sort(pl.col("change").abs(), descending=True, nulls_last=True, maintain_order=True)


def _per_second(events: pl.DataFrame) -> pl.DataFrame:
    known = events.filter(pl.col("name").is_not_null())
    value, wall = pl.col("seconds"), pl.col("wall_s")
    return known.select(
        "name",
        value=value / wall,
        below=(value - pl.col("low")) / wall,
        above=(pl.col("high") - value) / wall,
    )


# Statements.


def _statements(a: SpanFigures, b: SpanFigures) -> pl.DataFrame:
    sides = a.statements, b.statements
    sampled = any(side["db_time_s"].is_not_null().any() for side in sides)
    rated = [_rated(side.statements, sampled, side.wall_s) for side in (a, b)]
    both = _both(rated[0], rated[1], _KEY)
    both = both.rename({n: f"{n}_a" for n in ("time_per_s", "calls_per_s", "mean_ns")})
    for side, suffix in zip(sides, ("_a", "_b"), strict=True):
        if side.height and side["others"].null_count() == side.height:  # none is among all others
            both = both.with_columns(pl.col(f"time_per_s{suffix}").fill_null(0.0))
    return both.with_columns(
        change=pl.col("time_per_s_b") - pl.col("time_per_s_a"),
        time=pl.lit("DB time" if sampled else "execution time"),
    ).sort(pl.col("change").abs(), descending=True, nulls_last=True, maintain_order=True)


def _rated(statements: pl.DataFrame, sampled: bool, wall_s: float) -> pl.DataFrame:
    """DB time is from samples of whole windows; counters are over the time between their own reads."""
    counted_s = pl.when(pl.col("wall_s") > 0).then("wall_s")
    time = pl.col("db_time_s") / wall_s if sampled else pl.col("exec_ns") / NS_PER_S / counted_s
    return (
        statements.filter(pl.col("others").is_null())
        .select(
            *_KEY,
            time_per_s=time,
            calls_per_s=pl.col("calls") / counted_s,
            mean_ns=pl.when(pl.col("calls") > 0).then(pl.col("exec_ns") / pl.col("calls")),
        )
        .unique(_KEY, keep="first", maintain_order=True)
    )


# Load.

_Blocks = dict[str, list[float]]


def _load(a: pl.DataFrame, b: pl.DataFrame, blocks: tuple[_Blocks, _Blocks]) -> pl.DataFrame:
    both = _both(_figures(a), _figures(b), ["name", "unit"]).rename({"value": "a", "value_b": "b"})
    both = both.filter((pl.col("a").fill_null(0) != 0) | (pl.col("b").fill_null(0) != 0))
    rates = [n if unit != _RATIO else "" for n, unit in both.select("name", "unit").iter_rows()]
    ratios = [ratio_of(*(side.get(n, ()) for side in blocks)) for n in rates]
    ratios = [r if r and r.low < r.high else None for r in ratios]  # equal blocks tell no variation
    ends = {n: [None if r is None else getattr(r, n) for r in ratios] for n in ("low", "high")}
    ratio = pl.when((pl.col("a") > 0) & (pl.col("b") > 0)).then(pl.col("b") / pl.col("a"))
    both = both.with_columns(
        *(pl.Series(n, v, pl.Float64) for n, v in ends.items()), ratio=ratio
    ).with_columns(
        pl.when(pl.col("ratio").is_between("low", "high")).then(n).alias(n) for n in ("low", "high")
    )
    apart = pl.when(pl.col("ratio").is_not_null()).then(pl.col("ratio").log().abs()).otherwise(math.inf)
    known = pl.col("a").is_not_null() & pl.col("b").is_not_null()
    return both.sort(known, apart, descending=True, maintain_order=True)


def _figures(profile: pl.DataFrame) -> pl.DataFrame:
    value = pl.when(pl.col("unit") == _RATIO).then("total").otherwise("per_s")
    return profile.select("name", "unit", value=value)


def _blocks(windows: pl.DataFrame) -> _Blocks:
    """Returns rates per second by figure and block: consecutive windows, about equally many in each."""
    if windows.is_empty():
        return {}
    known = windows.drop_nulls("total")
    count = pl.len().over("name")
    place = pl.int_range(pl.len()).over("name") * pl.min_horizontal(count, MOST_BLOCKS) // count
    rates = (
        known.with_columns(block=place)
        .group_by("name", "block", maintain_order=True)
        .agg(rate=pl.col("total").sum() / pl.col("wall_s").sum())
    )
    by_name: dict[str, list[float]] = {}
    for name, rate in rates.select("name", "rate").iter_rows():
        by_name.setdefault(name, []).append(rate)
    return by_name


# Devices.

_OF_DEVICE = ("requests", "read_await_ns", "write_await_ns", "utilisation")


def _devices(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    both = _both(_used(a), _used(b), ["device"]).rename({n: f"{n}_a" for n in _OF_DEVICE})
    change = (pl.col("requests_b") - pl.col("requests_a")).abs()
    return both.sort(change, descending=True, nulls_last=True, maintain_order=True)


def _used(devices: pl.DataFrame) -> pl.DataFrame:
    rows: pl.DataFrame = devices.filter(pl.col("device").is_not_null() & pl.col("counted"))
    columns: dict[str, Any] = {"requests": pl.col("reads_per_s") + pl.col("writes_per_s")}
    return rows.select("device", **columns, **{n: pl.col(n) for n in _OF_DEVICE[1:]}).unique(
        "device", keep="first", maintain_order=True
    )
