"""When a run has repeated enough: every interval tight, or its budget used up."""

from __future__ import annotations

import polars as pl

from dbdyno.conclude.compare import tight_enough
from dbdyno.model.plan import Cell, Plan
from dbdyno.model.results import Results
from dbdyno.model.units import format_ns, parse_duration_ns
from dbdyno.plan import until_share

_LOOKED_AT = ("windows", "rates")


class Repeats:
    """Asked before each cell whether it is still wanted. ``clock_ns`` at the run's start and now."""

    def __init__(self, plan: Plan, start_ns: int) -> None:
        self.plan = plan  # of an auto ladder: set anew when it has more cells
        self._start_ns = start_ns
        self._share = until_share(plan.experiment)
        budget = plan.experiment.budget
        self._budget_ns = None if budget is None else parse_duration_ns(budget)
        self._tables: list[dict[str, pl.DataFrame]] = []
        self._repeat = 1
        self._began_ns = start_ns
        self._longest_ns = 0

    def measured(self, results: Results) -> None:
        """Results of one cell."""
        self._tables.append({name: results.tables[name] for name in _LOOKED_AT})

    def enough(self, cell: Cell, now_ns: int) -> str | None:
        """Why the run may end before ``cell``; None: it goes on. Looks only where a repeat begins."""
        if cell.repeat == self._repeat:
            return None
        self._longest_ns = max(self._longest_ns, now_ns - self._began_ns)
        done, self._repeat, self._began_ns = self._repeat, cell.repeat, now_ns
        return self._tight(done) or self._late(done, now_ns)

    def _tight(self, done: int) -> str | None:
        if self._share is None:
            return None
        tables = {name: pl.concat([t[name] for t in self._tables]) for name in _LOOKED_AT}
        found = tight_enough(tables, self.plan, self._share)
        if not found.done:
            return None
        return (
            f"after {done} of {self._all()} repeats every interval is within {self._share:.3g} to each side"
        )

    def _late(self, done: int, now_ns: int) -> str | None:
        """A repeat takes as long as the longest so far."""
        if self._budget_ns is None or now_ns + self._longest_ns <= self._start_ns + self._budget_ns:
            return None
        return f"after {done} of {self._all()} repeats: another would end after the budget of " + format_ns(
            self._budget_ns
        )

    def _all(self) -> int:
        rule = self.plan.adaptive
        return max(c.repeat for c in self.plan.cells) if rule is None else rule.repeats
