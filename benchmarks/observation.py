"""Cost of observing: the same load with observers on and off, in turn."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from benchmarks.common import pairs, print_ratio
from dbdyno import drive, observe
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.model.engine.protocols import Load, Server, Target
from dbdyno.model.plan.plan import Cell, PlannedScript
from dbdyno.model.units import NS_PER_S

STATEMENT = "select relname from pg_class where oid = 1259"


def main(count: int, seconds: float) -> None:
    with open_server("postgres", Target(sessions=110)) as server:
        for sessions in (8, 100):
            run_load = pairs(
                count, _rate(server, sessions, seconds, on=True), _rate(server, sessions, seconds, on=False)
            )
            print_ratio(
                f"throughput observed against not, {sessions} sessions", run_load, "calls/s", ">= 0.99"
            )


def run_load(server: Server, load: Load, cell: Cell, *, on: bool) -> dict[str, pl.DataFrame]:
    """Runs ``load`` as ``cell`` and returns its tables. ``on``: with observers."""
    interrupt = Interrupt()
    drive.connect(load, interrupt)
    watch = observe.open_watch(server, load, observe.How(enabled=on))
    start_ns = load.now_ns() + 100_000_000
    t0_ns = start_ns + cell.settle_ns
    t1_ns = t0_ns + cell.measure_ns
    watch.start(t0_ns, t1_ns)
    drive.run(load, start_ns, t0_ns, t1_ns, interrupt, lambda: None)
    watch.stop()
    drive.finish(load)
    return drive.frames(load)


def _rate(server: Server, sessions: int, seconds: float, *, on: bool) -> Callable[[], float]:
    """Returns a function that measures calls per second of point-selects, which as the shortest calls are
    the worst case."""

    def rate() -> float:
        assert server.scripts
        workload = server.scripts.script([PlannedScript(name="point select", text=STATEMENT)])
        cell = Cell(
            id="b",
            workload=workload.name,
            variant="base",
            sessions=sessions,
            repeat=1,
            params={},
            settle_ns=NS_PER_S // 2,
            measure_ns=int(seconds * NS_PER_S),
        )
        done = run_load(server, server.load(workload, cell, None, False, None), cell, on=on)["sessions"]
        return float(sum(done["calls"] / (done["last_end_ns"] - done["first_start_ns"]))) * NS_PER_S

    return rate
