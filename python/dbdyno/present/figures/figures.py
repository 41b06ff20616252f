"""What every form of the report shares: series, windows in time, percentages, names of columns and units."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import polars as pl

from dbdyno.model.plan.kinds import DRIVEN, SERVED, current_kind, kind_of
from dbdyno.model.results.claim import Estimate
from dbdyno.model.text.nouns import at_once, fill
from dbdyno.model.units import NS_PER_S, counted, format_given, format_number
from dbdyno.present.document.document import UNKNOWN, Cell

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results

_QUANTITIES = {
    "cpu_used": "CPU used",
    "cpu_used_machine": "CPU used, whole machine",
    "cpu_sessions": "CPU used by the {~owners}",
    "run_and_runq": "CPU and CPU WAIT",
    "db_time": "{~db_time}",
    "work_per_call": "work per {~call}",
}


_OF_SERVERS = {"run_and_runq", "db_time", "work_per_call"}
"""Quantities that only sessions of a server have."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """The second ones by their first, which stand in the order of their first pair."""
    groups: dict[K, list[T]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


class Series(NamedTuple):
    """One line in the charts: a ladder climbed with one workload under one variant."""

    workload: str
    variant: str
    label: str


def is_observation(results: Results) -> bool:
    """Returns whether dbdyno made no load: the run has windows in time instead of rungs."""
    return not kind_of(results.plan).among((DRIVEN,))


def series_of(results: Results) -> list[Series]:
    """The ladders of a run, variants in the order of the plan; labels leave out what all have in common."""
    rungs = results.tables["rungs"]
    order = {v.name: n for n, v in enumerate(results.plan.variants)}
    pairs = rungs.select("workload", "variant").unique(maintain_order=True).rows()
    met = list(dict.fromkeys(w for w, _ in pairs))
    pairs.sort(key=lambda p: (met.index(p[0]), order.get(p[1], len(order))))
    single = len({workload for workload, _ in pairs}) == 1
    return [Series(w, v, v if single else f"{w}, {v}") for w, v in pairs]


def of_series(frame: pl.DataFrame, series: Series) -> pl.DataFrame:
    """The rows of ``frame`` that belong to ``series``."""
    return frame.filter((pl.col("workload") == series.workload) & (pl.col("variant") == series.variant))


class Load(NamedTuple):
    """What grows from measurement to measurement: a column, and its words on an axis."""

    column: str
    title: str


SESSIONS = Load("sessions", "{~at_once}")


def is_paced(results: Results) -> bool:
    """Whether calls became due at a rate."""
    rungs = results.tables["rungs"]
    return "rate_per_s" in rungs.columns and rungs["rate_per_s"].null_count() < len(rungs)


def one_variant(results: Results) -> bool:
    return bool(results.tables["rungs"]["variant"].n_unique() == 1)


def load_of(results: Results) -> Load:
    """Sessions; the rate of calls where it was set and the number of sessions is one."""
    by_rate = is_paced(results) and results.tables["rungs"]["sessions"].n_unique() == 1
    return Load("rate_per_s", "calls due per second") if by_rate else SESSIONS


def load_text(load: Load, value: float) -> str:
    """``8 sessions``, ``500 calls/s due``."""
    return at_once(f"{round(value):,}") if load == SESSIONS else f"{format_given(value)} calls/s due"


def by_load(results: Results, frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with the column of :func:`load_of`; its rows are of cells."""
    column = load_of(results).column
    if column in frame.columns:
        return frame
    known = results.tables["windows"].select("cell", column)
    return frame.join(known, on="cell", how="left", maintain_order="left")


def has_pool(rungs: pl.DataFrame) -> bool:
    """Whether a connection pooler stood in front of the server."""
    return "pool_queue_aas" in rungs.columns and rungs["pool_queue_aas"].null_count() < len(rungs)


def ladder(results: Results, series: Series) -> pl.DataFrame:
    """The rungs of one series, from few sessions to many."""
    return of_series(results.tables["rungs"], series).sort("sessions", "rate_per_s")


def work_short(results: Results, workload: str) -> str:
    """What a work unit is called in a heading: ``LIO``."""
    known = results.info.workloads.get(workload)
    return known.work_short if known else "work units"


def throughput_work(results: Results, workload: str) -> str:
    """The work unit that throughput counts; none: calls, because they differ in what they do."""
    known = results.info.workloads.get(workload)
    return "" if known and not known.work_constant else work_short(results, workload)


def usable_cpus(results: Results) -> float | None:
    """CPUs the server may use, where its main process is seen on this host; elsewhere unknown, not ours."""
    environment = results.environment
    seen = environment.server.here and environment.server.main_pid is not None
    return environment.host.limits.usable_cpus if seen else None


def percent(part: float | None, whole: float | None = 1.0, digits: int = 0) -> str:
    """``part`` of ``whole`` in percent without the sign; unknown is ``?``."""
    if part is None or not whole:
        return UNKNOWN
    text = f"{100 * part / whole:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def ends(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95 % interval of calls/s over them, which holds 1; ``None`` with one repeat."""
    low, high, value = (row.get(f"calls_per_s{end}") for end in ("_low", "_high", ""))
    return None if low is None or high is None or not value else (low / value, high / value)


def half_width(ends: tuple[float, float] | None) -> float | None:
    """Half of an interval whose ends are over the figure itself."""
    return None if ends is None else (ends[1] - ends[0]) / 2


def plus_minus(ends: tuple[float, float] | None) -> Cell:
    """``1.2 %``; ``-45 +82 %`` where the ends, over the figure itself, are not as far to both sides."""
    half = half_width(ends)
    if ends is None or half is None:
        return Cell("")
    below, above = 1 - ends[0], ends[1] - 1
    if above - below >= 0.05:
        return Cell(f"-{percent(below)} +{percent(above)} %", half)
    return Cell(f"{percent(half, digits=1 if half < 0.1 else 0)} %", half)


def cpus_text(cpus: float) -> str:
    """``2 CPUs``, ``1 CPU``, ``1.5 CPUs``."""
    return counted(cpus, "CPU")


def quantity(name: str) -> str:
    """The name of a quantity of table data_sources."""
    return fill(_QUANTITIES.get(name, name.replace("_", " ")))


def has_quantity(name: str) -> bool:
    """Returns whether the present kind of run has this quantity."""
    return name not in _OF_SERVERS or current_kind().among((SERVED,))


def difference(relative: float | None) -> str:
    """A relative difference in percent with its sign; empty: none."""
    return "" if relative is None else f"{100 * relative:+.1f} %"


def number(value: float | None, digits: int = 4) -> str:
    """Four significant digits, thousands parted; of whole numbers no more than they have."""
    return UNKNOWN if value is None else format_number(value, digits)


def interval(e: Estimate, digits: int = 4) -> str:
    """``33.1 .. 39.2``, ``at least 33.1``; empty: none."""
    low, high = (v if v is not None and math.isfinite(v) else None for v in (e.low, e.high))
    if low is not None and high is not None:
        return f"{number(low, digits)} .. {number(high, digits)}"
    if low is not None:
        return f"at least {number(low, digits)}"
    return "" if high is None else f"at most {number(high, digits)}"


# When the windows of an observation were: stretches to draw, and the gaps between them.

MAX_STRETCHES = 120
"""More windows are drawn in stretches of several, weighted by their length."""
GAP_S = 1.0
"""What is shorter lies between two reads and is no gap."""


def clock(results: Results, at_ns: int) -> str:
    """The wall-clock time (UTC) of a monotonic one: ``10:45:31``."""
    info = results.info
    at = info.started + timedelta(microseconds=(at_ns - info.started_monotonic_ns) / 1000)
    return f"{at:%H:%M:%S}"


def windows(results: Results) -> pl.DataFrame:
    """The windows in time: start_s and end_s since the first began; new: a gap lies before it."""
    frame = results.tables["windows"].sort("t0_ns")
    first = frame["t0_ns"].min()
    return frame.with_columns(
        start_s=((pl.col("t0_ns") - first) / NS_PER_S).round(3),
        end_s=((pl.col("t1_ns") - first) / NS_PER_S).round(3),
    ).with_columns(new=(pl.col("start_s") - pl.col("end_s").shift(1) > GAP_S).fill_null(False))


def stretches(results: Results) -> pl.DataFrame:
    """Every window with the stretch it is drawn in: cell, place, weight, start_s, end_s, clock.

    No stretch reaches over a gap.
    """
    frame = windows(results)
    size = -(-len(frame) // MAX_STRETCHES) or 1
    part = pl.col("new").cum_sum()
    number = part * len(frame) + pl.int_range(pl.len()).over(part) // size
    clocks = [clock(results, t) for t in frame["t0_ns"].to_list()]
    return frame.select(
        "cell", place=number.cast(pl.Int64), weight="wall_s", start_s="start_s", end_s="end_s",
        clock=pl.Series(clocks, dtype=pl.String),
    )  # fmt: skip


def gaps(results: Results) -> list[dict[str, Any]]:
    """Between which seconds nothing was measured."""
    frame = windows(results)
    before = frame.select(end=pl.col("end_s").shift(1), start="start_s", new="new", reason="reason")
    return [
        {"start_s": end, "end_s": start, "what": reason or "nothing was measured"}
        for end, start, new, reason in before.rows()
        if new
    ]
