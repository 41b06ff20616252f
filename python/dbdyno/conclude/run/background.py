"""Concludes what else used the machine: processes and workers of the server, and a connection pooler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue.number_format import at_load
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import Case, Row, at, ids, known_aas, listed, of_cell
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.session_time import UNLABELLED
from dbdyno.model.sources.wait_families import CHECKPOINTS, STORAGE, Helper, families_of, named
from dbdyno.model.units import NS_PER_S, significant

HELPERS = 0.05
"""Share of the server's CPU time from which on its own processes are reported."""
WORKERS = 0.01
"""Share from which on parallel workers, and workers that do I/O for sessions, are reported."""
RAN, LIVED = 0.005, 0.1
"""CPUs used, or share of the window in existence, from which on a vacuum worker counts as active."""
GRAVE = 0.05
"""CPUs from which on the claim is a warning."""


@check("helpers")
def helpers(case: Case) -> Iterator[Claim]:
    """Yields the rung where the server's own processes took the largest share of its CPU time."""
    rungs = [r for _, rungs in case.rungs() for r in rungs if r["helpers_aas"] and r["run_aas"] is not None]
    shares = [(r["helpers_aas"] / (r["helpers_aas"] + r["run_aas"]), r) for r in rungs]
    share, rung = max(shares, key=lambda f: float(f[0]), default=(0.0, {}))
    if share >= HELPERS:
        place = "" if case.observed else f" {at_load(rung['sessions'])}"
        values = {"used": rung["helpers_aas"], "place": place, "share": share}
        yield claim("helpers", values, rung["helpers_aas"])


@check("io-workers")
def io_workers(case: Case) -> Iterator[Claim]:
    """Yields the CPU and block I/O of the I/O workers that sessions waited for."""
    candidates = [(_io(case, c["cell"]), c) for c in case.usable]
    yield from case.worst(
        "io-workers", [f for f in candidates if f[0]["used"] >= WORKERS and f[0]["waited"] > 0], "used"
    )


@of_cell
def _io(case: Case, cell: str) -> dict[str, Any]:
    """Returns CPU of the I/O workers, the sessions' waits for storage, and the workers' delay, in seconds per
    second."""
    families, kinds = families_of(case.tables), case.environment.server.helpers
    rows = case.accounts(cell, "helper").filter(named("who", Helper.IO, kinds))
    delays = account_rows(case.table("ledger", cell), "block_io", scope="helper")
    delay = known_aas(delays.filter(named("who", Helper.IO, kinds)))
    asleep = case.accounts(cell).filter(pl.col("account") == "sleep").drop_nulls("aas")
    return {
        "used": known_aas(rows.filter(pl.col("account") == "run")) or 0.0,
        "waited": sum(a for d, a in asleep.select("detail", "aas").rows() if families.of(d) in STORAGE),
        "device": "unknown (delay accounting is off)" if delay is None else f"{significant(delay)} s/s",
    }


@check("parallel-workers")
def parallel_workers(case: Case) -> Iterator[Claim]:
    """Yields the share of the sessions' accounts that belongs to their parallel workers."""
    candidates = []
    for cell in case.usable:
        run, others = _workers(case, cell["cell"])
        served = case.served(cell["cell"])
        if served and (share := (run + others) / served) > WORKERS:
            candidates.append(({"share": share, "run": run}, cell))
    yield from case.worst("parallel-workers", candidates, "share")


@of_cell
def _workers(case: Case, cell: str) -> tuple[float, float]:
    """Returns seconds per second of parallel workers on a CPU, and in all other states."""
    run, *others = (
        sum((r["aas"] for r in case.memo(cell, f"workers.{part}")), 0.0) for part in ("run", "runq", "sleep")
    )
    return run, sum(others)


@check("autovacuum")
def autovacuum(case: Case) -> Iterator[Claim]:
    candidates = [
        ({"run": run, "lived": lived, "used": f", using {significant(run)} CPUs" if run >= RAN else ""}, c)
        for c in case.usable
        for run, lived in _vacuum(case, c)
        if run >= RAN or lived >= LIVED
    ]
    yield from case.worst("autovacuum", candidates, "run", grave=GRAVE, case=case.kind)


@of_cell
def _vacuum(case: Case, cell: Row) -> list[tuple[float, float]]:
    kinds = case.environment.server.helpers
    workers = case.table("cut_tasks", cell["cell"]).filter(named("role", Helper.CLEANUP, kinds))
    if workers.is_empty():
        return []
    run = float((workers["run_ns"] / workers["over_ns"]).drop_nulls().sum())
    return [(run, min(1.0, float(workers["wall_ns"].max()) / NS_PER_S / cell["wall_s"]))]  # type: ignore[arg-type]


@check("checkpoint")
def checkpoints(case: Case) -> Iterator[Claim]:
    """Yields checkpoints that began within a window. One that the server skipped because nothing had changed
    cost its checkpointer nothing and is not counted."""
    candidates = []
    for cell in case.usable:
        n, cpus = _begun(case, cell["cell"])
        if n and (cpus is None or cpus >= RAN):
            used = "" if cpus is None else f"; the checkpointer used {significant(cpus)} CPUs"
            candidates.append(({"n": n, "cpus": cpus, "used": used}, cell))
    yield from case.worst("checkpoint", candidates, "n", by="cpus", grave=GRAVE, case=case.kind)


@of_cell
def _begun(case: Case, cell: str) -> tuple[int, float | None]:
    """Returns the number of checkpoints that began, and the checkpointer's CPU use."""
    kinds = case.environment.server.helpers
    levels = case.levels(cell, "engine")
    counted = levels.filter(pl.col("key").str.starts_with(CHECKPOINTS) & (pl.col("delta") > 0))
    checkpointer = named("who", Helper.CHECKPOINT, kinds) & (pl.col("account") == "run")
    return int(counted["delta"].sum()), known_aas(case.accounts(cell, "helper").filter(checkpointer))


@check("statistics-reset")
def resets(case: Case) -> Iterator[Claim]:
    """Yields a claim if counters decreased or their time of reset is newer."""
    reset_cells = [(names, c) for c in case.cells if (names := _reset(case, c["cell"]))]
    if reset_cells:
        names = [name for keys, _ in reset_cells for name in keys]
        yield claim(
            "statistics-reset",
            {
                "measurements": case.many(len(reset_cells)),
                "names": listed(names),
                "place": at(reset_cells[0][1], case),
            },
            float(len(reset_cells)),
            cells=ids([c for _, c in reset_cells]),
        )


@of_cell
def _reset(case: Case, cell: str) -> list[str]:
    """Returns the names of counters that were reset."""
    levels = case.levels(cell, "engine")
    keys = levels.filter(pl.col("status") == "reset")["key"].to_list()
    keys += case.table("cut_work", cell).filter(pl.col("status") == "reset")["name"].to_list()
    moved = pl.col("key").str.ends_with("_reset_s") & (pl.col("last") > pl.col("first"))
    return keys or ["as the server reports"] * bool(levels.filter(moved).height)


# -- a connection pooler: the queue for its server connections, the way through it, its own CPU --

QUEUE = "pool.queue"
WAY = 0.05
"""Share of the sessions' time from which on the time between client and server by way of the pooler is
reported."""
BUSY = 0.8
"""CPUs (with its run queue) from which on a pooler, which has one thread, is a limit itself."""
_OTHERS = (("run",), ("runq",), ("sleep", UNLABELLED), ("client",), ("unaccounted",))


@of_cell
def is_pooled(case: Case, cell: str) -> bool:
    return case.accounts(cell).filter(pl.col("account") == QUEUE).height > 0


def pooled(case: Case) -> list[Row]:
    """Returns the usable cells behind a pooler."""
    return [cell for cell in case.usable if is_pooled(case, cell["cell"])]


@check("pool-queue")
def pool_queue(case: Case) -> Iterator[Claim]:
    """Yields the rung where sessions queued for the largest share of their time, if that is their largest
    account."""
    queued_cells = [
        (f, c)
        for c in pooled(case)
        if (f := case.aas(c["cell"], QUEUE)) > max(case.aas(c["cell"], *o) for o in _OTHERS)
    ]
    if not queued_cells:
        return
    queued, cell = max(queued_cells, key=lambda f: f[0] / f[1]["sessions"])
    wall = case.wall(cell["cell"])
    row = case.accounts(cell["cell"]).filter(pl.col("account") == QUEUE).row(0, named=True)
    yield claim(
        "pool-queue",
        {
            "connection": _size(case, cell["cell"]),
            "queued": queued,
            "wall": wall,
            "place": at(cell, case),
            "share": queued / wall,
            "measurements": case.many(len(queued_cells)),
        },
        queued,
        low=row["low"],
        high=row["high"],
        cells=ids([c for _, c in queued_cells]),
    )


@check("pool-way")
def pool_way(case: Case) -> Iterator[Claim]:
    """Yields the time that is neither queue nor service nor client: the way to the pooler and back, and its
    own work."""
    candidates = []
    for c in pooled(case):
        wall = case.wall(c["cell"])
        if wall and abs(share := case.aas(c["cell"], "unaccounted") / wall) > WAY:
            candidates.append(({"share": share, "size": abs(share)} | _own(case, c["cell"]), c))
    yield from case.worst("pool-way", candidates, "share", by="size")


@check("pooler-busy")
def pooler_busy(case: Case) -> Iterator[Claim]:
    """Yields a pooler that is runnable nearly all the time: then it is the limit and not its pool."""
    candidates = [
        (own | {"runnable": sum(own.values())}, c) for c in pooled(case) for own in [_own(case, c["cell"])]
    ]
    yield from case.worst("pooler-busy", [f for f in candidates if f[0]["runnable"] > BUSY], "runnable")


@of_cell
def _size(case: Case, cell: str) -> str:
    sizes = case.levels(cell, "engine").filter(pl.col("key") == "pool_size")["last"].drop_nulls()
    if not len(sizes):
        return "a server connection of the pool"
    one = sizes[0] == 1
    return "the pool's only server connection" if one else f"one of {sizes[0]:.0f} server connections"


@of_cell
def _own(case: Case, cell: str) -> dict[str, float]:
    """Returns CPU and run-queue time of the pooler's process, in seconds per second."""
    pooler = case.accounts(cell, "beside").filter(pl.col("who") == "pooler")
    return {a: known_aas(pooler.filter(pl.col("account") == a)) or 0.0 for a in ("run", "runq")}
