"""Figures of paced load: calls that became due, that were begun, and the backlog.

Response times begin when a call was due. A call that was due in the window and not begun at its end is
included with the time that it had waited; it would have taken longer, so that a percentile among such
calls is a lower bound. Dropped calls are not included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.account.window.cells import for_each
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.quantiles import FEW
from dbdyno.model.schema.tables import known_quantiles_ns
from dbdyno.model.units import NS_PER_S

Figure = tuple[str, str, float | None, str, str]
BY_CHANCE = 10
"""Delay of the first call, in mean distances between calls, from which on it waited behind older calls."""
_COUNTS = (
    "arrivals",
    "begun",
    "late",
    "late_driver",
    "dropped",
    "over_limit",
    "backlog_end",
    "backlog_max",
)
_SERVICE = {"service_p50_ns": 0.50, "service_p95_ns": 0.95, "service_p99_ns": 0.99}
_SOURCE = "driver"


def is_paced(cell: RawCell) -> bool:
    return "pace" in cell.tables and cell.tables["pace"].height > 0


def is_phase(cell: RawCell) -> bool:
    return is_paced(cell) and cell.tables["pace"]["backlog_begin"].null_count() == 0


def histograms(cells: Sequence[RawCell]) -> pl.DataFrame:
    """Returns table ``cell_histogram``: response times, with those of calls that were due and not begun."""
    return for_each("cell_histogram", cells, _histogram)


def _histogram(cell: RawCell) -> pl.DataFrame:
    ended = cell.tables["histogram"]
    if not is_paced(cell) or "backlog_histogram" not in cell.tables:
        return ended
    both = pl.concat([ended, cell.tables["backlog_histogram"]])
    return both.group_by("low_ns", "high_ns").agg(pl.col("count").sum()).sort("low_ns")


def longest_ns(cell: RawCell) -> float | None:
    """Returns the longest wait of a call that was due and not begun; None if there is none."""
    if not is_paced(cell) or not cell.tables["pace"]["backlog_age_max_ns"].sum():
        return None
    return float(cell.tables["pace"].select(pl.col("backlog_age_max_ns").max()).item())


def span_ns(cell: RawCell) -> float:
    """Returns the time in which the calls that became due in the window were worked on: the window, less
    the time that older calls took of it, and extended by the last calls if a backlog remained."""
    meta, sessions, pace = cell.meta, cell.tables["sessions"], cell.tables["pace"]
    began, ended = meta.t0_ns, meta.t1_ns
    if is_phase(cell):  # calls belong to the phase in which they end
        return float(ended - began)
    arrivals = int(pace["arrivals"].sum())
    first = sessions["first_start_ns"].drop_nulls()
    if arrivals and len(first):
        gap_ns = (meta.t1_ns - meta.t0_ns) / arrivals
        least = min(first.to_list())
        began = least if least - meta.t0_ns > BY_CHANCE * gap_ns else began
    last = sessions["last_end_ns"].drop_nulls().to_list()
    if last and pace["backlog_end"].sum():
        ended = max(ended, sum(last) / len(last))
    return float(ended - began)


def figures(cell: RawCell) -> Iterator[Figure]:
    """Yields the rates of the rung that only paced load has."""
    if not is_paced(cell):
        return
    pace, wall_ns = cell.tables["pace"], cell.meta.t1_ns - cell.meta.t0_ns
    sums = {name: _sum(pace, name) for name in _COUNTS}
    offered, begun = sums["arrivals"] or 0.0, sums["begun"] or 0.0
    none = "no call became due"
    yield "offered_per_s", "1/s", NS_PER_S * offered / wall_ns if wall_ns > 0 else None, none, _SOURCE
    for name, value in sums.items():
        yield name, "calls", value, "no latency limit" if name == "over_limit" else "ok", _SOURCE
    for name, column in (("lag_mean_ns", "lag_sum_ns"), ("driver_lag_mean_ns", "driver_lag_sum_ns")):
        total = _sum(pace, column) or 0.0
        yield name, "ns", total / begun if begun else None, "no call began", _SOURCE
    for name in ("lag_max_ns", "driver_lag_max_ns", "backlog_age_max_ns"):
        yield name, "ns", float(pace.select(pl.col(name).max()).item()), "ok", _SOURCE
    yield from _service(cell)
    yield from _carried(cell)


def _carried(cell: RawCell) -> Iterator[Figure]:
    """Yields for phases: the backlog of the previous phase, and the time until nothing waited."""
    if not is_phase(cell):
        return
    begin, idle_ns = cell.tables["pace"].select("backlog_begin", "idle_ns").sum().row(0)
    yield "backlog_begin", "calls", float(begin), "ok", _SOURCE
    drained = (idle_ns - cell.meta.t0_ns) / NS_PER_S if idle_ns else None
    yield "drained_s", "s", drained, "calls waited to the end", _SOURCE


def _service(cell: RawCell) -> Iterator[Figure]:
    """Yields service times from the actual start of calls, over calls that ended well."""
    none = "no call ended well"
    service, calls = cell.tables["service"], float(cell.tables["sessions"]["calls"].sum())
    total = float(service["in_call_ns"].sum())
    yield "service_mean_ns", "ns", total / calls if calls else None, none, _SOURCE
    values = known_quantiles_ns(cell.tables["service_histogram"], list(_SERVICE.values()))
    longest = service.select(pl.col("max_ns").max()).item()
    for name, value in zip(_SERVICE, values, strict=True):
        yield (
            name,
            "ns",
            value if value is None or longest is None else min(value, float(longest)),
            FEW if calls else none,
            _SOURCE,
        )


def _sum(pace: pl.DataFrame, name: str) -> float | None:
    known = pace[name].drop_nulls()
    return float(known.sum()) if len(known) else None
