"""Executes jobs before the first measurement of a variant, to fill caches and raise clock frequencies."""

from __future__ import annotations

from collections.abc import Mapping

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.cell import Setting, Unit
from dbdyno.conduct.measure.cells import measure_cell
from dbdyno.model.plan.plan import Cell
from dbdyno.plan import ONCE_NS


class Warming(Companion):
    """Executes the jobs of each variant once as often as the plan asks for."""

    def __init__(self, setting: Setting, units: Mapping[str, Unit]) -> None:
        """``units`` has the unit of each variant."""
        self._setting, self._units = setting, units
        self._warm: set[str] = set()

    def before(self, cell: Cell) -> None:
        plan = self._setting.plan
        jobs, runs = len(plan.variant(cell.variant).jobs), plan.experiment.warmup or 0
        if not jobs or not runs or cell.variant in self._warm:
            return
        self._warm.add(cell.variant)
        bare = plan.experiment.model_copy(update={"observe": False, "log_calls": False})
        quiet = Setting(
            self._setting.server,
            plan.model_copy(update={"experiment": bare}),
            self._setting.interrupt,
            lambda _warm_up: self._setting.on_tick(cell),
        )
        changed = {"once": True, "runs": runs, "sessions": 1, "settle_ns": 0, "pacing": None, "think_ns": 0}
        warm_up = cell.model_copy(update=changed | {"measure_ns": ONCE_NS})
        measure_cell(quiet, warm_up, self._units[cell.variant])
        self._setting.interrupt.check()
