"""The servers that variants name: what is known of them, and the same state after each start."""

from __future__ import annotations

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.stage import Stage
from dbdyno.model.plan.plan import Cell, Workload


class WarmStarts(Companion):
    """Brings a server that was started for a variant into the same state each time: the tables of the run
    are in its cache, and nothing is left to write."""

    def __init__(self, stage: Stage, workload: Workload) -> None:
        self._stage, self._workload = stage, workload

    def before(self, cell: Cell) -> None:
        stage = self._stage
        choosing, started = stage.server.choosing, stage.started
        stage.started = False
        if choosing is None or not started:
            return
        stage.listener.preparing(f"warming the server of {cell.variant}")
        resetting, plan = stage.server.resetting, stage.plan
        cold = plan.experiment.expect == "disk" or plan.experiment.reset_cache == "dropped"
        if resetting is not None and not cold:
            texts = [s.text for s in plan.variant(cell.variant).scripts]
            resetting.warm(self._workload.name, cell.params, plan.top, texts)
        choosing.flush()
