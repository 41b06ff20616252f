"""Table ``cores``: how many threads and how many cores were in use, from per-CPU figures and the topology."""

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
"""Reads of tasks that lie further apart belong to different looks: one is made each second."""
ENOUGH = 30
"""Threads that must have been met busy, all looks together, for the looks to say how they shared cores."""
_BUSY = re.compile(r"cpu(\d+)\.busy_ns")
_DRAWS = 1000
_SOURCE = "/proc/stat, CPU by CPU"


@makes("cores")
def cores(cells: Sequence[RawCell], tables: Tables, environment: Environment) -> pl.DataFrame:
    """Table ``cores``; without the topology where the server is on another host."""
    siblings = environment.host.siblings if environment.server.here else None
    return cores_of(cells, tables["cut_levels"], siblings)


def cores_of(cells: Sequence[RawCell], levels: pl.DataFrame, siblings: Siblings | None) -> pl.DataFrame:
    """Table ``cores``, one row a cell. ``levels``: table ``cut_levels``; ``siblings``: CPUs of each core."""
    mine = ByCell({"levels": levels.filter(pl.col("origin") == "host")})
    found = [key(c) | _cell(c, mine.table("levels", c.id), siblings) for c in cells]
    return rows("cores", found)


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
    met = cores_met(looks(cell), siblings)
    return ends | {"looks": len(met), "status": "ok"} | _between(bracket, met, busy, siblings)


def looks(cell: RawCell) -> list[set[int]]:
    """Per look at the tasks inside the window: CPUs with a task that was running or ready to (state R).

    Ready ones are on a CPU's queue, so that CPU is busy. dbdyno's own threads are left out: whoever reads is
    always running. Other people's processes are not seen.
    """
    tasks = cell.tables["tasks"].with_columns(middle().alias("at_ns"))
    others = (pl.col("role") != "dbdyno") & (pl.col("pid") < OF_CLIENT)
    inside = pl.col("at_ns").is_between(cell.meta.t0_ns - APART_NS, cell.meta.t1_ns + APART_NS)
    reads = tasks.filter(inside & (pl.col("status") == "ok") & others).sort("at_ns")
    number = (pl.col("at_ns").diff().fill_null(0) > APART_NS).cum_sum()
    found: dict[int, set[int]] = {}
    for n, cpu, state in reads.select(number, "cpu", "state").iter_rows():
        busy = found.setdefault(n, set())
        if state == "R" and cpu is not None:
            busy.add(cpu)
    return list(found.values())


def _between(
    bracket: CoreSeconds, met: Sequence[tuple[int, int]], busy: Mapping[int, float], siblings: Siblings
) -> Row:
    """An estimate inside the bracket: cores to threads as the looks met them; with too few looks as if
    threads were busy independently of each other, with the whole bracket for its interval."""
    pairs = np.array(met, dtype=float).reshape(-1, 2)
    if pairs[:, 0].sum() < ENOUGH:
        idle = [np.prod([1 - busy.get(cpu, 0.0) for cpu in core]) for core in siblings]
        alone = float(len(idle) - sum(idle))
        return {"cores": _inside(alone, bracket), "source": f"{_SOURCE}; siblings taken for independent"}
    ratio = pairs[:, 1].sum() / pairs[:, 0].sum()
    drawn = np.random.default_rng(1).integers(0, len(pairs), (_DRAWS, len(pairs)))
    threads, cores = pairs[drawn, 0].sum(axis=1), pairs[drawn, 1].sum(axis=1)
    spread = np.quantile(cores[threads > 0] / threads[threads > 0], [0.025, 0.975])
    value, low, high = (_inside(float(r) * bracket.threads, bracket) for r in (ratio, spread[0], spread[1]))
    return {"cores": value, "low": low, "high": high, "source": f"{_SOURCE}; tasks met running together"}


def _inside(value: float, bracket: CoreSeconds) -> float:
    return min(max(value, bracket.low), bracket.high)


def _shares(levels: pl.DataFrame) -> dict[int, float]:
    """Busy share of each CPU, 0..1; ticks can make it a little more."""
    known = levels.filter(pl.col("key").str.contains(_BUSY.pattern) & pl.col("delta").is_not_null())
    return {
        int(_BUSY.fullmatch(k)[1]): min(1.0, delta / wall_ns)  # type: ignore[index]
        for k, delta, wall_ns in known.select("key", "delta", "wall_ns").iter_rows()
        if wall_ns
    }


def _by_purr(levels: pl.DataFrame, threads: float) -> Row | None:
    """By POWER's registers; ``None``: there are none, or they do not tell what is idle."""
    told = {r["key"]: r for r in levels.filter(pl.col("key").str.ends_with("_ticks")).to_dicts()}
    base = levels.filter(pl.col("key") == "timebase_hz")["last"].drop_nulls()
    cpus = sorted({int(k.removeprefix("cpu").partition(".")[0]) for k in told})
    wall = [r["wall_ns"] for r in told.values() if r["wall_ns"]]
    if not (len(base) and cpus and wall):
        return None

    def read(end: str, at_s: float) -> PurrRead:
        found = {n: {r: told.get(f"cpu{n}.{r}_ticks", {}).get(end) for r in REGISTERS} for n in cpus}
        return PurrRead(at_s, int(base[0]), {n: Purr.of(v) for n, v in found.items()})

    use = purr_use(read("first", 0.0), read("last", wall[0] / NS_PER_S))
    if use.cores is None:
        return None
    ends = {"cores": use.cores, "low": use.cores, "high": use.cores}
    return {"threads": threads, **ends, "status": "ok", "source": "PURR less its idle part"}
