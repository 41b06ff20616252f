"""Restarts of the server between groups of measurements, whose differences show what a start changes."""

from __future__ import annotations

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.progress import ProgressListener
from dbdyno.model.engine.protocols import Server, needed
from dbdyno.model.plan.plan import Cell, Plan


def with_restarts(server: Server, plan: Plan) -> Plan:
    """Returns the plan, without restarts if dbdyno did not start the server: all measurements are then on one
    start."""
    noise = plan.experiment.noise
    if noise is None or not noise.restarts or server.facts().embedded:
        return plan
    one = noise.model_copy(update={"restarts": 0, "per_start": max(1, len(plan.cells))})
    experiment = plan.experiment.model_copy(update={"noise": one})
    return plan.model_copy(update={"experiment": experiment}).sealed()


class Restarts(Companion):
    """Restarts the server before the first measurement of each group but the first."""

    def __init__(self, server: Server, plan: Plan, listener: ProgressListener) -> None:
        self._server, self._listener = server, listener
        self._noise, self._start = plan.experiment.noise, 0

    def before(self, cell: Cell) -> None:
        if self._noise is None or not self._noise.restarts:
            return
        start = (cell.repeat - 1) // self._noise.per_start
        if start != self._start:
            self._listener.preparing(f"restart {start} of {self._noise.restarts} of the server")
            needed(self._server.settings, "be restarted").restart()
            self._start = start
