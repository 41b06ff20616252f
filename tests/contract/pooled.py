"""Cells through a real pooler, measured as a run does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbdyno.conduct.measure.cell import Setting, Unit
from dbdyno.conduct.measure.cells import measure_cell
from dbdyno.drive import Interrupt
from dbdyno.engines.postgres import PostgresServer
from dbdyno.model.engine.protocols import Pool, Undo
from dbdyno.model.plan.plan import Calibration, Cell, DriverSetup, Experiment, Plan, Workload
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import NS_PER_S


class Notes:
    """A journal in memory; ``seen`` keeps all notes."""

    def __init__(self) -> None:
        self.open: dict[str, Undo] = {}
        self.seen: list[Undo] = []

    def note(self, undo: Undo) -> None:
        self.open.setdefault(undo.key, undo)
        self.seen.append(undo)

    def forget(self, key: str) -> None:
        del self.open[key]


@contextmanager
def through(server: PostgresServer, pool: Pool) -> Iterator[Notes]:
    """Checks and sets up a pool as before a run, and puts everything back at the end."""
    notes = Notes()
    server.check_pool(pool)
    server.use_pool(pool, notes)
    try:
        yield notes
    finally:
        server.use_pool(None, notes)
    assert notes.open == {}


def cell_of(workload: Workload, pool: Pool, seconds: float = 2, **changes: Any) -> Cell:
    fixed: dict[str, Any] = {
        "id": f"0001-{workload.name}-base-s{pool.clients}-r1",
        "workload": workload.name,
        "variant": "base",
        "sessions": pool.clients,
        "repeat": 1,
        "params": {},
        "settle_ns": NS_PER_S // 2,
        "measure_ns": int(seconds * NS_PER_S),
        "driver": DriverSetup(protocol=pool.protocol),  # type: ignore[arg-type]
    }
    return Cell(**(fixed | changes))


def measure(
    server: PostgresServer, workload: Workload, cell: Cell, calibration: Calibration | None = None
) -> RawCell:
    experiment = Experiment(name="pooled", script="pooled.sql")
    plan = Plan(experiment=experiment, cpus=2, call_target_ns=None, cells=(cell,), expected_ns=0)
    return measure_cell(Setting(server, plan, Interrupt()), cell, Unit(workload, calibration))
