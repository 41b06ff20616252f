"""Executions before the first measurement of a variant: pages come into caches, clocks get up to speed."""

from __future__ import annotations

from dbdyno.conduct.measure.cell import OnTick, Unit, measure
from dbdyno.drive import Interrupt
from dbdyno.model.engine.protocols import Server
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.plan import ONCE_NS


class Warming:
    """Once for each variant of jobs: each of them so often as the plan says."""

    def __init__(self) -> None:
        self._warm: set[str] = set()

    def __call__(
        self, server: Server, plan: Plan, cell: Cell, unit: Unit, interrupt: Interrupt, on_tick: OnTick
    ) -> None:
        jobs, runs = len(plan.variant(cell.variant).jobs), plan.experiment.warmup or 0
        if not jobs or not runs or cell.variant in self._warm:
            return
        self._warm.add(cell.variant)
        changed = {"once": True, "runs": runs, "sessions": 1, "settle_ns": 0, "pacing": None, "think_ns": 0}
        bare = plan.experiment.model_copy(update={"observe": False, "log_calls": False})
        quiet = plan.model_copy(update={"experiment": bare})
        measure(
            server, quiet, cell.model_copy(update=changed | {"measure_ns": ONCE_NS}), unit, interrupt, on_tick
        )
        interrupt.check()
