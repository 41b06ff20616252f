"""Where a run stands: expected time against what has gone by."""

from __future__ import annotations

from collections.abc import Mapping

from dbdyno.conduct.cell import OnTick
from dbdyno.conduct.listeners import ProgressListener, Tick
from dbdyno.model.plan import Cell, Plan
from dbdyno.model.protocols import Clock, Progress
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import cell_expected_ns, deriving_ns


class Progressing:
    """Turns a cell's ticks into ticks of the run. What cells take beside settling and measuring is corrected
    by what those took that are done: a busy machine connects slowly."""

    def __init__(self, plan: Plan, teller: ProgressListener, clock: Clock) -> None:
        self._plan, self._teller, self._clock = plan, teller, clock
        self._left_ns = self._expected(plan)
        expected_ns = plan.expected_ns if plan.adaptive is not None else 0
        self._to_come_ns = max(0, expected_ns - sum(self._left_ns.values()))  # at most, of an auto ladder
        self._since_ns = clock.now_ns()
        self._beside_ns, self._beside_expected_ns = 0, 0  # of the cells that are done

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
        """Called where a cell begins: its time counts from here."""
        number = self._plan.cells.index(cell) + 1
        self._since_ns = self._clock.now_ns()

        def on_tick(phase: str, elapsed_s: float, progress: Progress, shares: Mapping[str, float]) -> None:
            left_s = self._left_s(cell, elapsed_s)
            self._teller.tick(Tick(cell, number, phase, elapsed_s, Progress(*progress), shares, left_s))

        return on_tick

    def _left_s(self, cell: Cell, elapsed_s: float) -> float:
        mine_ns = max(0.0, self._left_ns[cell.id] - elapsed_s * NS_PER_S)
        others = [c for c in self._plan.cells if c.id != cell.id and self._left_ns[c.id]]
        others_ns = sum(self._left_ns[c.id] for c in others) + self._more() * sum(
            self._beside(c, self._left_ns[c.id]) for c in others
        )
        return (mine_ns + others_ns + self._to_come_ns + deriving_ns(len(self._plan.cells))) / NS_PER_S

    def _more(self) -> float:
        """By which part of itself the time beside settling and measuring is longer than expected."""
        expected_ns = self._beside_expected_ns
        return max(0.0, self._beside_ns / expected_ns - 1) if expected_ns else 0.0

    @staticmethod
    def _beside(cell: Cell, ns: int) -> int:
        return max(0, ns - cell.settle_ns - cell.measure_ns)

    def done(self, cell: Cell) -> None:
        """Called where a cell is saved."""
        self._beside_ns += self._beside(cell, self._clock.now_ns() - self._since_ns)
        self._beside_expected_ns += self._beside(cell, self._left_ns[cell.id])
        self._left_ns[cell.id] = 0
