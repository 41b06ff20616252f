"""What every form of the report shares: series, percentages, the names of columns and work units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results import Results
from dbdyno.model.units import counted

UNKNOWN = "?"
_QUANTITIES = {
    "cpu_used": "CPU used",
    "cpu_used_machine": "CPU used, whole machine",
    "cpu_sessions": "CPU used by the sessions",
    "run_and_runq": "CPU and CPU WAIT",
    "db_time": "DB time",
    "work_per_call": "work per call",
}


class Series(NamedTuple):
    """One line in the charts: a ladder climbed with one workload under one variant."""

    workload: str
    variant: str
    label: str


def is_observation(results: Results) -> bool:
    """Whether an existing workload was observed: windows in time instead of rungs."""
    return results.plan.experiment.observation is not None


def series_of(results: Results) -> list[Series]:
    """The ladders of a run in the order of running; labels leave out what all have in common."""
    rungs = results.tables["rungs"]
    pairs = rungs.select("workload", "variant").unique(maintain_order=True).rows()
    single = len({workload for workload, _ in pairs}) == 1
    return [Series(w, v, v if single else f"{w}, {v}") for w, v in pairs]


def of_series(frame: pl.DataFrame, series: Series) -> pl.DataFrame:
    """The rows of ``frame`` that belong to ``series``."""
    return frame.filter((pl.col("workload") == series.workload) & (pl.col("variant") == series.variant))


def has_pool(rungs: pl.DataFrame) -> bool:
    """Whether a connection pooler stood in front of the server."""
    return "pool_queue_aas" in rungs.columns and rungs["pool_queue_aas"].null_count() < len(rungs)


def ladder(results: Results, series: Series) -> pl.DataFrame:
    """The rungs of one series, from few sessions to many."""
    return of_series(results.tables["rungs"], series).sort("sessions")


def work_short(results: Results, workload: str) -> str:
    """What a work unit is called in a heading: ``LIO``."""
    known = results.info.workloads.get(workload)
    return known.work_short if known else "work units"


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


def cpus_text(cpus: float) -> str:
    """``2 CPUs``, ``1 CPU``, ``1.5 CPUs``."""
    return counted(cpus, "CPU")


def quantity(name: str) -> str:
    """The name of a quantity of table witnesses."""
    return _QUANTITIES.get(name, name.replace("_", " "))


def difference(relative: float | None) -> str:
    """A relative difference in percent with its sign; empty: none."""
    return "" if relative is None else f"{100 * relative:+.1f} %"
