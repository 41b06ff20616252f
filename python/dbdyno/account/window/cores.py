"""Table ``cores``: threads and cores in use, from per-CPU figures and the topology."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from dbdyno.account.making import makes
from dbdyno.account.window.cells import key, middle
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.topology import (
    REGISTERS,
    CoreSeconds,
    Purr,
    PurrRead,
    cores_bracket,
    cores_met,
    purr_use,
)
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.rawtables import OF_CLIENT
from dbdyno.model.schema.tables import ByCell, Tables, rows
from dbdyno.model.units import NS_PER_S

Siblings = Sequence[Sequence[int]]
Row = dict[str, Any]

APART_NS = 100_000_000
"""Distance of reads of tasks from which on they belong to different passes: there is one pass per second."""
ENOUGH = 30
"""Least number of busy threads over all passes for an estimate of how they shared cores."""
_BUSY = re.compile(r"cpu(\d+)\.busy_ns")
_DRAWS = 1000
_SOURCE = "/proc/stat, CPU by CPU"


@makes("cores")
def cores(cells: Sequence[RawCell], tables: Tables, environment: Environment) -> pl.DataFrame:
    """Returns table ``cores``. The topology is unknown if the server is on another host."""
    siblings = environment.host.siblings if environment.server.here else None
    return cores_of(cells, tables["cut_levels"], siblings)


def cores_of(cells: Sequence[RawCell], levels: pl.DataFrame, siblings: Siblings | None) -> pl.DataFrame:
    """Returns table ``cores``, one row per cell. ``levels``: table ``cut_levels``; ``siblings``: CPUs of
    each core."""
    levels_by_cell = ByCell({"levels": levels.filter(pl.col("origin") == "host")})
    records = [key(c) | _cell(c, levels_by_cell.table("levels", c.id), siblings) for c in cells]
    return rows("cores", records)


def _cell(cell: RawCell, levels: pl.DataFrame, siblings: Siblings | None) -> Row:
    busy = _shares(levels)
    if not busy:
        return {"status": "off", "source": _SOURCE}
    threads = sum(busy.values())
    if siblings is None:
        return {"threads": threads, "status": "no topology", "source": _SOURCE}
    if (registers := _by_purr(levels, threads)) is not None:
        return registers
    bracket = cores_bracket(busy, siblings)
    ends = {"threads": threads, "low": bracket.low, "high": bracket.high}
    if bracket.cores is not None:
        return ends | {"cores": bracket.cores, "status": "ok", "source": f"{_SOURCE}; no SMT"}
    passes = cores_met(looks(cell), siblings)
    return ends | {"looks": len(passes), "status": "ok"} | _between(bracket, passes, busy, siblings)


def looks(cell: RawCell) -> list[set[int]]:
    """Returns for each pass over the tasks in the window the CPUs with a task in state R, running or ready
    to run. A ready task is on a CPU's queue, so that CPU is busy. dbdyno's own threads are left out, as
    the reader always runs. Processes other than the server's and the driver's are not seen."""
    tasks = cell.tables["tasks"].with_columns(middle().alias("at_ns"))
    others = (pl.col("role") != "dbdyno") & (pl.col("pid") < OF_CLIENT)
    inside = pl.col("at_ns").is_between(cell.meta.t0_ns - APART_NS, cell.meta.t1_ns + APART_NS)
    reads = tasks.filter(inside & (pl.col("status") == "ok") & others).sort("at_ns")
    number = (pl.col("at_ns").diff().fill_null(0) > APART_NS).cum_sum()
    by_pass: dict[int, set[int]] = {}
    for n, cpu, state in reads.select(number, "cpu", "state").iter_rows():
        busy = by_pass.setdefault(n, set())
        if state == "R" and cpu is not None:
            busy.add(cpu)
    return list(by_pass.values())


def _between(
    bracket: CoreSeconds, passes: Sequence[tuple[int, int]], busy: Mapping[int, float], siblings: Siblings
) -> Row:
    """Estimates cores inside the bracket by the ratio of cores to threads over all passes. With too few,
    threads count as independent, and the interval is the whole bracket."""
    pairs = np.array(passes, dtype=float).reshape(-1, 2)
    if pairs[:, 0].sum() < ENOUGH:
        idle = [np.prod([1 - busy.get(cpu, 0.0) for cpu in core]) for core in siblings]
        alone = float(len(idle) - sum(idle))
        return {"cores": _inside(alone, bracket), "source": f"{_SOURCE}; siblings taken for independent"}
    # A ratio of sums: a mean of ratios would give passes with one busy thread the weight of those with many.
    ratio = pairs[:, 1].sum() / pairs[:, 0].sum()
    # Percentile bootstrap over passes (Efron and Tibshirani 1993): threads within a pass are not independent.
    # The seed makes the result reproducible.
    drawn = np.random.default_rng(1).integers(0, len(pairs), (_DRAWS, len(pairs)))
    threads, cores = pairs[drawn, 0].sum(axis=1), pairs[drawn, 1].sum(axis=1)
    spread = np.quantile(cores[threads > 0] / threads[threads > 0], [0.025, 0.975])
    value, low, high = (_inside(float(r) * bracket.threads, bracket) for r in (ratio, spread[0], spread[1]))
    return {"cores": value, "low": low, "high": high, "source": f"{_SOURCE}; tasks met running together"}


def _inside(value: float, bracket: CoreSeconds) -> float:
    return min(max(value, bracket.low), bracket.high)


def _shares(levels: pl.DataFrame) -> dict[int, float]:
    """Returns the busy share of each CPU, 0 to 1. Ticks can exceed the wall time a little."""
    known = levels.filter(pl.col("key").str.contains(_BUSY.pattern) & pl.col("delta").is_not_null())
    return {
        int(_BUSY.fullmatch(k)[1]): min(1.0, delta / wall_ns)  # type: ignore[index]
        for k, delta, wall_ns in known.select("key", "delta", "wall_ns").iter_rows()
        if wall_ns
    }


def _by_purr(levels: pl.DataFrame, threads: float) -> Row | None:
    """Returns figures by POWER's PURR registers; None if there are none, or they do not separate idle
    time."""
    by_key = {r["key"]: r for r in levels.filter(pl.col("key").str.ends_with("_ticks")).to_dicts()}
    base = levels.filter(pl.col("key") == "timebase_hz")["last"].drop_nulls()
    cpus = sorted({int(k.removeprefix("cpu").partition(".")[0]) for k in by_key})
    wall = [r["wall_ns"] for r in by_key.values() if r["wall_ns"]]
    if not (len(base) and cpus and wall):
        return None

    def read(end: str, at_s: float) -> PurrRead:
        registers = {n: {r: by_key.get(f"cpu{n}.{r}_ticks", {}).get(end) for r in REGISTERS} for n in cpus}
        return PurrRead(at_s, int(base[0]), {n: Purr.of(v) for n, v in registers.items()})

    use = purr_use(read("first", 0.0), read("last", wall[0] / NS_PER_S))
    if use.cores is None:
        return None
    ends = {"cores": use.cores, "low": use.cores, "high": use.cores}
    return {"threads": threads, **ends, "status": "ok", "source": "PURR less its idle part"}
