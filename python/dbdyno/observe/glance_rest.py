"""The machine in the latest seconds: CPUs, the server's own processes, what the watch itself costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from dbdyno.observe.watch import THREADS

Tables = Mapping[str, pl.DataFrame]
_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True)
class Machine:
    """CPUs in use; NULL or absent where not read."""

    cpus: int | None = None
    cpu: Mapping[str, float] = field(default_factory=dict)  # kind of time -> CPUs
    helpers: Mapping[str, float] = field(default_factory=dict)  # process of the server -> CPUs
    samplers: float | None = None  # our observing threads
    at_server: float | None = None  # the server's processes that answer them


def machine(recent: Tables) -> Machine:
    host = recent["host"].filter((pl.col("status") == "ok") & pl.col("value").is_not_null())
    tasks = recent["tasks"].filter((pl.col("status") == "ok") & pl.col("run_ns").is_not_null())
    cpus = host.filter(pl.col("key") == "cpus")["value"]
    ours = tasks.filter(pl.col("role") == "dbdyno")
    helpers = tasks.filter(pl.col("role").str.starts_with("helper:"))
    return Machine(
        cpus=int(cpus[-1]) if len(cpus) else None,
        cpu=_host(host),
        helpers={
            str(role[0]).removeprefix("helper:"): used
            for role, part in helpers.group_by("role", maintain_order=True)
            if (used := _cpus(part)) is not None
        },
        samplers=_cpus(ours.filter(pl.col("comm").str.starts_with(THREADS).fill_null(False))),
        at_server=_cpus(ours.filter(pl.col("pid") != os.getpid())),
    )


def _host(host: pl.DataFrame) -> dict[str, float]:
    """Growth over the time between the first and the last reading."""
    found = {}
    for kind in _CPU:
        rows = host.filter(pl.col("key") == f"cpu.{kind}_ns")
        if rows.height > 1 and (wall_ns := rows["after_ns"][-1] - rows["after_ns"][0]) > 0:
            found[kind] = (rows["value"][-1] - rows["value"][0]) / wall_ns
    return found


def _cpus(reads: pl.DataFrame) -> float | None:
    by_task = reads.group_by("pid", "tid", "start_ticks").agg(
        run=pl.col("run_ns").max() - pl.col("run_ns").min(),
        wall=pl.col("after_ns").max() - pl.col("after_ns").min(),
    )
    used = by_task.filter(pl.col("wall") > 0).select(pl.col("run") / pl.col("wall"))
    return float(used.sum().item()) if used.height else None
