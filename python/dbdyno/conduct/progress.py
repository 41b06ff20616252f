"""Where a run stands: expected time against what has gone by."""

from __future__ import annotations

from collections.abc import Mapping

from dbdyno.conduct.cell import OnTick
from dbdyno.conduct.listeners import ProgressListener, Tick
from dbdyno.model.plan import Cell, Plan
from dbdyno.model.protocols import Progress
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import cell_expected_ns


class Progressing:
    """Turns a cell's ticks into ticks of the run."""

    def __init__(self, plan: Plan, teller: ProgressListener) -> None:
        self._plan, self._teller = plan, teller
        self._left_ns = self._expected(plan)
        expected_ns = plan.expected_ns if plan.adaptive is not None else 0
        self._to_come_ns = max(0, expected_ns - sum(self._left_ns.values()))  # at most, of an auto ladder

    @staticmethod
    def _expected(plan: Plan) -> dict[str, int]:
        return {c.id: cell_expected_ns(c, plan.call_target_ns, plan.cpus) for c in plan.cells}

    def grown(self, plan: Plan) -> None:
        """An auto ladder's plan has more cells."""
        more = {c: ns for c, ns in self._expected(plan).items() if c not in self._left_ns}
        self._plan = plan
        self._left_ns |= more
        self._to_come_ns = max(0, self._to_come_ns - sum(more.values()))

    def of(self, cell: Cell) -> OnTick:
        number = self._plan.cells.index(cell) + 1

        def on_tick(phase: str, elapsed_s: float, progress: Progress, shares: Mapping[str, float]) -> None:
            mine_ns = self._left_ns[cell.id] - elapsed_s * NS_PER_S
            others_ns = sum(ns for i, ns in self._left_ns.items() if i != cell.id)
            left_s = (max(0.0, mine_ns) + others_ns + self._to_come_ns) / NS_PER_S
            self._teller.tick(Tick(cell, number, phase, elapsed_s, Progress(*progress), shares, left_s))

        return on_tick

    def done(self, cell: Cell) -> None:
        self._left_ns[cell.id] = 0
