"""Table ``bounds``: what throughput cannot exceed, from the lowest load of each ladder.

N sessions make at most N / (R + Z) calls per second, with response time and think time of a session that
waits for no other; and CPUs at most as many as fit into them at the CPU time of a call (Denning, Buzen 1978,
Computing Surveys 10, 225-261). Other resources, locks and devices among them, get no bound: the ledger has
the time in which sessions waited for them, not the time in which they served one at a time.
"""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dbdyno.account.ladder import states_of_best
from dbdyno.account.making import makes
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.server_cpus import server_cpus
from dbdyno.model.schema.tables import ByCell, Tables, rows
from dbdyno.model.units import NS_PER_S
from dbdyno.stats.estimates import Mean

STALE_S = 0.02
"""Largest error of a session's CPU time from both of its reads, which are up to a tick of 10 ms late."""
UNSTEADY = 0.02
"""Least relative error of one repeat, of which the variation between repeats is unknown."""

Row = dict[str, Any]


@makes("bounds", reads=("rungs",), stage="run")
def bounds(tables: Tables, plan: Plan, environment: Environment) -> pl.DataFrame:
    """Returns a row for each rung of a ladder. Paced load has none: its throughput is what was asked for."""
    records: list[Row] = []
    ladders = tables["rungs"].filter(pl.col("rate_per_s").is_null() & (pl.col("sessions") > 0))
    figures = tables["rates"].filter(pl.col("scope") == "rung")
    parts = ByCell({"rates": figures})
    for (workload, variant), rungs in ladders.group_by("workload", "variant", maintain_order=True):
        usable = rungs.filter(~pl.col("status").is_in(LEFT_OUT) & (pl.col("calls_per_s") > 0))
        if usable.height < 2 or plan.experiment.phases:
            continue
        lowest = usable.sort("sessions").row(0, named=True)
        of_load = (pl.col("workload") == workload) & (pl.col("variant") == variant)
        cells = tables["windows"].filter(of_load & (pl.col("sessions") == lowest["sessions"]))
        ids = list(states_of_best(parts, cells))
        wall_s = float(cells.filter(pl.col("cell").is_in(ids))["wall_s"].sum())
        chance = _chance(lowest["calls"])
        demand = _between(_mean(parts, ids, "cpu_per_call_ns"), _stale(lowest, wall_s), chance)
        alone = _between(_mean(parts, ids, "calls_per_s"), 0.0, chance)
        cpus = server_cpus(plan, str(variant), environment)
        records += [
            _row(rung, lowest["sessions"], alone, demand, cpus and cpus.cpus)
            for rung in rungs.iter_rows(named=True)
        ]
    return rows("bounds", records)


_Ends = tuple[float, float, float]
"""Value, lower and upper end."""


def _mean(parts: ByCell, cells: list[str], name: str) -> Mean:
    rates = (parts.table("rates", cell) for cell in cells)
    values = (v for r in rates for v in r.filter(pl.col("name") == name)["value"].to_list())
    return Mean.of(v for v in values if v is not None)


def _stale(rung: Row, wall_s: float) -> float:
    """Returns the relative error of CPU time from reads that are late."""
    used_s = (rung["run_aas"] or 0.0) * wall_s
    return STALE_S * rung["sessions"] / used_s if used_s else UNSTEADY


def _chance(calls: int) -> float:
    """Returns the relative error (95 %) of a mean over calls whose times vary by as much as the mean, as
    exponential ones do."""
    return max(UNSTEADY, 2 / math.sqrt(calls)) if calls else UNSTEADY


def _between(mean: Mean, stale: float, chance: float) -> _Ends | None:
    """Returns a mean with Student's interval over repeats, of one repeat with the error by ``chance``; at
    least as wide as the relative error ``stale``. None if it is unknown."""
    if not mean.n or mean.value <= 0:
        return None
    low, high = mean.positive95 or (mean.value, mean.value)
    factor = 1 + max(stale, chance if mean.n == 1 else 0.0)
    return mean.value, min(low, mean.value / factor), max(high, mean.value * factor)


def _row(rung: Row, lowest: int, alone: _Ends | None, demand: _Ends | None, cpus: float | None) -> Row:
    row: Row = {n: rung[n] for n in ("workload", "variant", "sessions", "calls_per_s")}
    row |= {
        "from_sessions": lowest,
        "cpus": cpus,
        "verdict": "unknown",
        "status": "ok",
        "source": "driver, os tasks",
    }
    if alone is not None:  # by Little's law R + Z = sessions / throughput
        names = ("waitless_per_s", "waitless_low", "waitless_high")
        row |= {n: v * rung["sessions"] / lowest for n, v in zip(names, alone, strict=True)}
    if demand is not None:
        value, low, high = demand
        ends = {"cpu_limit_per_s": value, "cpu_limit_low": high, "cpu_limit_high": low}
        row["cpu_demand_ns"] = value
        row |= {n: cpus * NS_PER_S / ns for n, ns in ends.items()} if cpus is not None else {}
    known = [n for n in ("waitless", "cpu_limit") if row.get(f"{n}_per_s") is not None]
    if not known:
        return row | {"status": "off"}
    row["bound_per_s"] = min(row[f"{n}_per_s"] for n in known)
    if rung["calls_per_s"] is None or rung["status"] in LEFT_OUT:
        return row | {"status": "no usable measurement"}
    if lowest > 1:
        # Sessions may already wait for each other at the lowest load: one alone could be faster.
        known = [n for n in known if n == "cpu_limit"]
    if not known:
        return row | {"status": "one session was not measured"}
    # A session's span ends with a call: it may lack a part of one.
    edge = rung["sessions"] * rung["repeats"] / max(1, rung["calls"])
    least = min(
        rung["calls_per_s_low"] or rung["calls_per_s"] / (1 + _chance(rung["calls"])),
        rung["calls_per_s"] / (1 + edge),
    )
    above = least > min(row[f"{n}_high"] for n in known)
    return row | {"verdict": "above" if above else "within"}
