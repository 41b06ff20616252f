"""Holds what every report shares: series, windows in time, percentages, names of columns and units."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import polars as pl

from dbdyno.model.plan.kinds import DRIVEN, SERVED, current_kind, kind_of
from dbdyno.model.results.analyses import Machine
from dbdyno.model.results.claim import Estimate, disturbed_cells
from dbdyno.model.text.nouns import at_once, fill
from dbdyno.model.units import NS_PER_S, counted, format_given, format_number, whole_second
from dbdyno.present.document.document import UNKNOWN, Cell

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results
    from dbdyno.model.results.server_cpus import ServerCpus

_QUANTITIES = {
    "cpu_used": "CPU used",
    "cpu_used_machine": "CPU used, whole machine",
    "cpu_sessions": "CPU used by the {~owners}",
    "run_and_runq": "CPU and CPU WAIT",
    "db_time": "{~db_time}",
    "work_per_call": "work per {~call}",
}


_SERVER_QUANTITIES = {"run_and_runq", "db_time", "work_per_call"}
"""Quantities that only sessions of a server have."""
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Groups the second items of pairs by their first, in the order of each first appearance."""
    groups: dict[K, list[T]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


class Series(NamedTuple):
    """One line in the charts: a ladder of one workload and one variant."""

    workload: str
    variant: str
    label: str


def is_observation(results: Results) -> bool:
    """Returns whether dbdyno made no load: the run has windows in time instead of rungs."""
    return not kind_of(results.plan).among((DRIVEN,))


def series_of(results: Results) -> list[Series]:
    """Returns the ladders of a run, variants in the order of the plan; labels omit a workload that all
    share."""
    rungs = results.tables["rungs"]
    order = {v.name: n for n, v in enumerate(results.plan.variants)}
    pairs = rungs.select("workload", "variant").unique(maintain_order=True).rows()
    workloads = list(dict.fromkeys(w for w, _ in pairs))
    pairs.sort(key=lambda p: (workloads.index(p[0]), order.get(p[1], len(order))))
    single = len({workload for workload, _ in pairs}) == 1
    return [Series(w, v, v if single else f"{w}, {v}") for w, v in pairs]


def of_series(frame: pl.DataFrame, series: Series) -> pl.DataFrame:
    """Returns the rows of ``frame`` that belong to ``series``."""
    return frame.filter((pl.col("workload") == series.workload) & (pl.col("variant") == series.variant))


class Load(NamedTuple):
    """The variable that grows from measurement to measurement: a column, and the title of its axis."""

    column: str
    title: str


SESSIONS = Load("sessions", "{~at_once}")


def is_paced(results: Results) -> bool:
    """Returns whether calls became due at a rate."""
    rungs = results.tables["rungs"]
    return "rate_per_s" in rungs.columns and rungs["rate_per_s"].null_count() < len(rungs)


def one_variant(results: Results) -> bool:
    return bool(results.tables["rungs"]["variant"].n_unique() == 1)


def unmeasured(results: Results) -> list[str]:
    """Returns the variants of which nothing was measured, where something was of others."""
    return results.plan.unmeasured(set(results.tables["rungs"]["variant"]))


def load_of(results: Results) -> Load:
    """Returns the load axis: the rate of calls if it was set and the number of sessions is constant, else
    sessions."""
    by_rate = is_paced(results) and results.tables["rungs"]["sessions"].n_unique() == 1
    return Load("rate_per_s", "calls due per second") if by_rate else SESSIONS


def load_text(load: Load, value: float) -> str:
    """Returns ``8 sessions`` or ``500 calls/s due``."""
    return at_once(f"{round(value):,}") if load == SESSIONS else f"{format_given(value)} calls/s due"


def by_load(results: Results, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns ``frame``, whose rows are of cells, with the column of :func:`load_of`."""
    column = load_of(results).column
    if column in frame.columns:
        return frame
    known = results.tables["windows"].select("cell", column)
    return frame.join(known, on="cell", how="left", maintain_order="left")


def has_pool(rungs: pl.DataFrame) -> bool:
    """Returns whether a connection pooler was in front of the server."""
    return "pool_queue_aas" in rungs.columns and rungs["pool_queue_aas"].null_count() < len(rungs)


def ladder(results: Results, series: Series) -> pl.DataFrame:
    """Returns the rungs of one series, from few sessions to many."""
    return of_series(results.tables["rungs"], series).sort("sessions", "rate_per_s")


def disturbed_loads(results: Results, series: Series) -> set[int]:
    """Returns the numbers of sessions of a ladder at which others took much of the CPUs."""
    disturbed = pl.col("cell").is_in(disturbed_cells(results.findings))
    return set(of_series(results.tables["windows"].filter(disturbed), series)["sessions"])


def work_short(results: Results, workload: str) -> str:
    """Returns the short name of a work unit for a heading: ``LIO``."""
    known = results.info.workloads.get(workload)
    return known.work_short if known else "work units"


def throughput_work(results: Results, workload: str) -> str:
    """Returns the work unit that throughput counts; empty if calls differ in work, so that calls are
    counted."""
    known = results.info.workloads.get(workload)
    return "" if known and not known.work_constant else work_short(results, workload)


def limits_of_cpus(results: Results, series: Sequence[Series] = ()) -> list[ServerCpus]:
    """Returns the different numbers of CPUs that the server may use under the variants of these series
    (none: of all), the fewest first; empty if they are unknown."""
    from dbdyno.model.results.server_cpus import server_cpus  # a ladder of a file needs no run's models

    variants = [s.variant for s in series or series_of(results)] or ["base"]
    known = {server_cpus(results.plan, v, results.environment) for v in variants}
    return sorted(k for k in known if k is not None)


def usable_cpus(results: Results, series: Sequence[Series] = ()) -> float | None:
    """Returns the CPUs that the server may use under the variants of these series (none: of all); None if
    they are unknown or differ."""
    cpus = {k.cpus for k in limits_of_cpus(results, series)}
    return cpus.pop() if len(cpus) == 1 else None


def percent(part: float | None, whole: float | None = 1.0, digits: int = 0) -> str:
    """Returns ``part`` of ``whole`` in percent without the sign, or ``?`` if it is unknown."""
    if part is None or not whole:
        return UNKNOWN
    text = f"{100 * part / whole:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def ends(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Returns the 95 % interval of calls/s divided by calls/s; None with one repeat."""
    low, high, value = (row.get(f"calls_per_s{end}") for end in ("_low", "_high", ""))
    return None if low is None or high is None or not value else (low / value, high / value)


def half_width(ends: tuple[float, float] | None) -> float | None:
    """Returns half of an interval whose ends are relative to the figure."""
    return None if ends is None else (ends[1] - ends[0]) / 2


def plus_minus(ends: tuple[float, float] | None) -> Cell:
    """Returns ``1.2 %``, or ``-45 +82 %`` if the interval, relative to the figure, is clearly asymmetric.
    The latter is no single number: media with numbers have the same text."""
    half = half_width(ends)
    if ends is None or half is None:
        return Cell("")
    below, above = 1 - ends[0], ends[1] - 1
    if above - below >= 0.05:
        return Cell(f"-{percent(below)} +{percent(above)} %")
    return Cell(f"{percent(half, digits=1 if half < 0.1 else 0)} %", half)


def cpus_text(cpus: float) -> str:
    """Returns ``2 CPUs``, ``1 CPU`` or ``1.5 CPUs``."""
    return counted(cpus, "CPU")


def machine_counts(machine: Machine, thread: str) -> list[str]:
    """Returns ``8 cores`` and ``16 CPUs`` (or what a hardware ``thread`` is called), or ``quota of 1.5
    CPUs``, to which no cores belong."""
    if machine.quota and machine.cpus is not None:
        return [f"quota of {cpus_text(machine.cpus)}"]
    return [counted(n, what) for n, what in ((machine.cores, "core"), (machine.cpus, thread)) if n]


def quantity(name: str) -> str:
    """Returns the name of a quantity of table data_sources."""
    return fill(_QUANTITIES.get(name, name.replace("_", " ")))


def has_quantity(name: str) -> bool:
    """Returns whether the present kind of run has this quantity."""
    return name not in _SERVER_QUANTITIES or current_kind().among((SERVED,))


def difference(relative: float | None) -> str:
    """Returns a relative difference in percent with its sign; empty for None."""
    return "" if relative is None else f"{100 * relative:+.1f} %"


def number(value: float | None, digits: int = 4) -> str:
    """Returns four significant digits with separated thousands; ``?`` for None."""
    return UNKNOWN if value is None else format_number(value, digits)


def interval(e: Estimate, digits: int = 4) -> str:
    """Returns ``33.1 .. 39.2`` or ``at least 33.1``; empty if no end is known."""
    low, high = (v if v is not None and math.isfinite(v) else None for v in (e.low, e.high))
    if low is not None and high is not None:
        return f"{number(low, digits)} .. {number(high, digits)}"
    if low is not None:
        return f"at least {number(low, digits)}"
    return "" if high is None else f"at most {number(high, digits)}"


# Windows of an observation in time: stretches to draw, and the gaps between them.

MAX_STRETCHES = 120
"""Most stretches that are drawn; more windows are merged, weighted by their length."""
GAP_S = 1.0
"""Shortest gap. A shorter pause between windows is the time between two reads."""


def local(results: Results, at_ns: int) -> datetime:
    """Returns the wall-clock time of a monotonic time, in the time zone of the machine that shows it.

    The zone's offset is that at the start of the run, so that a change of the clocks neither opens a gap nor
    repeats an hour.
    """
    start = results.info.started.astimezone()
    return start + timedelta(microseconds=(at_ns - results.info.started_monotonic_ns) / 1000)


def moment(results: Results, at_ns: int) -> datetime:
    """Returns :func:`local` as it is shown: to the second."""
    return shown_moment(results, local(results, at_ns).timestamp())


def shown_moment(results: Results, seconds: float) -> datetime:
    """Returns a time in seconds since 1970 as :func:`moment` does."""
    return datetime.fromtimestamp(whole_second(seconds), results.info.started.astimezone().tzinfo)


def zone(results: Results) -> str:
    """Returns the name of the time zone of :func:`local`: ``UTC`` or ``CET``."""
    return results.info.started.astimezone().tzname() or ""


def clock(results: Results, at_ns: int) -> str:
    """Returns the wall-clock time of a monotonic time: ``10:45:31``."""
    return f"{moment(results, at_ns):%H:%M:%S}"


def windows(results: Results) -> pl.DataFrame:
    """Returns the windows in time order with start_s, end_s and new.

    start_s and end_s are seconds since the first window began. new: a gap lies before the window.
    """
    frame = results.tables["windows"].sort("t0_ns")
    first = frame["t0_ns"].min()
    return frame.with_columns(
        start_s=((pl.col("t0_ns") - first) / NS_PER_S).round(3),
        end_s=((pl.col("t1_ns") - first) / NS_PER_S).round(3),
    ).with_columns(new=(pl.col("start_s") - pl.col("end_s").shift(1) > GAP_S).fill_null(False))


def stretches(results: Results) -> pl.DataFrame:
    """Returns every window with the stretch in which it is drawn: cell, place, weight, t0_ns, t1_ns.

    No stretch spans a gap.
    """
    frame = windows(results)
    size = -(-len(frame) // MAX_STRETCHES) or 1
    part = pl.col("new").cum_sum()
    number = part * len(frame) + pl.int_range(pl.len()).over(part) // size
    return frame.select("cell", "t0_ns", "t1_ns", place=number.cast(pl.Int64), weight="wall_s")


def gaps(results: Results) -> list[dict[str, Any]]:
    """Returns the gaps between windows, and after the last one: t0_ns, t1_ns, and the reason why nothing was
    measured."""
    frame = windows(results)
    before = frame.select(end=pl.col("t1_ns").shift(1), start="t0_ns", new="new", reason="reason")
    missing = [
        {"t0_ns": end, "t1_ns": start, "what": reason or _NOTHING}
        for end, start, new, reason in before.rows()
        if new
    ]
    ended = results.info.ended
    if ended is not None and frame.height:
        last, longest_s = (float(frame[c].max()) for c in ("t1_ns", "wall_s"))  # type: ignore[arg-type]
        after_s = (ended - results.info.started).total_seconds()
        ended_ns = results.info.started_monotonic_ns + round(after_s * NS_PER_S)
        if ended_ns - last > NS_PER_S * max(_LONGEST_END_S, longest_s):
            missing.append({"t0_ns": last, "t1_ns": ended_ns, "what": _NOTHING})
    return missing


_NOTHING = "nothing was measured"
_LONGEST_END_S = 5.0
"""Longest time from the last window to the end of a run that went as planned: the observers are closed."""
