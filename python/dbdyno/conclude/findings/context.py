"""What the checks look at, and how they say numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from dbdyno.conclude.findings.facts import Facts, of_cell
from dbdyno.model.environment import Environment
from dbdyno.model.ledger_rows import account_rows, top_level
from dbdyno.model.plan import Plan, Workload
from dbdyno.model.raw import LEFT_OUT
from dbdyno.model.session_time import UNLABELLED, hidden, is_limit
from dbdyno.model.tables import ByCell, empty

Row = dict[str, Any]
_OF_CELL = (
    *("rates", "ledger", "cut_levels", "cut_tasks", "cut_work", "cut_sampler", "served", "profile"),
    *("cell_progress", "cell_sessions", "cell_sampler", "top_events"),
)
SESSION_LEDGER = "session_ledger"
"""The rows of single sessions in the ledger."""


@dataclass(frozen=True)
class Case:
    plan: Plan
    environment: Environment
    tables: Mapping[str, pl.DataFrame]
    workloads: Mapping[str, Workload]
    facts: Facts = field(default_factory=dict)
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None
    """Tables of a cell that are not among ``tables``; what is in ``facts`` needs none."""

    @cached_property
    def _parts(self) -> ByCell:
        return ByCell({name: self.tables.get(name, empty(name)) for name in _OF_CELL})

    @property
    def observed(self) -> bool:
        """An existing workload: cells are windows, there are no rungs and no driver."""
        return self.plan.experiment.observation is not None

    @property
    def chosen(self) -> bool:
        """An observation of some sessions only."""
        asked = self.plan.experiment.observation
        return asked is not None and asked.some

    def many(self, n: int) -> str:
        """``3 measurements``; of an observation ``3 windows``."""
        return many(n, "window" if self.observed else "measurement")

    def table(self, name: str, cell: str) -> pl.DataFrame:
        """The rows of one of the tables by cell."""
        if name == SESSION_LEDGER:
            mine = self._parts.table("ledger", cell) if self.load is None else self.load(cell)["ledger"]
            return mine.filter(pl.col("who") == "session")
        if self.load is not None and name not in self.tables:
            return self.load(cell).get(name, empty(name))
        return self._parts.table(name, cell)

    def levels(self, cell: str, origin: str) -> pl.DataFrame:
        """The rows of ``cut_levels`` of a cell and origin."""
        return self.table("cut_levels", cell).filter(pl.col("origin") == origin)

    def cells(self) -> list[Row]:
        """The windows, in the order of running."""
        return self._cells

    @cached_property
    def _cells(self) -> list[Row]:
        return self.tables["windows"].to_dicts()

    def usable(self) -> list[Row]:
        """Without those that were limited by the client."""
        return self._usable

    @cached_property
    def _usable(self) -> list[Row]:
        windows = (c for c in self.cells() if c["status"] != "invalid")
        return [c for c in windows if not is_limit(self.figures(c["cell"]))]

    @of_cell
    def figures(self, cell: str) -> dict[str, float | None]:
        """The rung's rates of a cell, by name."""
        rates = self._parts.table("rates", cell).filter(pl.col("scope") == "rung")
        return dict(rates.select("name", "value").rows())

    def accounts(self, cell: str, scope: str = "rung") -> pl.DataFrame:
        """The ledger's rows of a cell's rung, without parts of others; with scope ``memo`` its memos."""
        mine = top_level(self._parts.table("ledger", cell)).filter(pl.col("scope") == scope)
        return mine.filter(pl.col("who") == "rung") if scope == "memo" else mine

    @of_cell
    def memo(self, cell: str, account: str) -> list[Row]:
        """Known memos of the rung under that account."""
        mine = self.accounts(cell, "memo")
        return mine.filter((pl.col("account") == account) & pl.col("aas").is_not_null()).to_dicts()

    @of_cell
    def wall(self, cell: str) -> float:
        """Session time, in seconds per second: how many sessions there were."""
        return float(sum(row["aas"] for row in self.memo(cell, "wall")))

    @of_cell
    def aas(self, cell: str, *accounts: str, scope: str = "rung") -> float:
        """Sum of the known rows under these accounts."""
        mine = account_rows(self._parts.table("ledger", cell), *accounts, scope=scope)
        return float(mine["aas"].drop_nulls().sum())

    @of_cell
    def known(self, cell: str, account: str) -> float | None:
        """Sum of the rung's known rows of an account; None: there are none."""
        mine = account_rows(self._parts.table("ledger", cell), account)["aas"].drop_nulls()
        return float(mine.sum()) if len(mine) else None

    @of_cell
    def served(self, cell: str) -> float:
        """Session time that is not sleep at the client, in seconds per second; 0 where it is unknown."""
        if hidden(self.accounts(cell)):
            return 0.0
        return self.aas(cell, "run", "runq", "sleep", UNLABELLED)

    def limited(self, ladder: str) -> list[Row]:
        """Rungs of a ladder that the client limited."""
        found = (part for name, part in self._ladders() if name == ladder)
        return [r for part in found for r in part.filter(pl.col("status") == "client").to_dicts()]

    def ladders(self) -> Iterator[tuple[str, list[Row]]]:
        """(what it is called where there are several, usable rungs) of each workload and variant."""
        for name, part in self._ladders():
            yield name, part.filter(~pl.col("status").is_in(LEFT_OUT)).to_dicts()

    def _ladders(self) -> Iterator[tuple[str, pl.DataFrame]]:
        rungs = self.tables["rungs"]
        parts = rungs.partition_by("workload", "variant", maintain_order=True)
        for part in parts:
            row = part.row(0, named=True)
            name = f"{row['workload']}, variant {row['variant']}" if len(parts) > 1 else ""
            yield name, part

    def work_short(self, workload: str) -> str:
        known = self.workloads.get(workload)
        return known.work_short if known else "work"


def where(cell: Row, case: Case) -> str:
    """``8 sessions``, with variant and repeat where there are several; of an observation ``window 3``."""
    if case.observed:
        return f"window {cell['repeat']}"
    text = sessions(cell["sessions"])
    if len({c["variant"] for c in case.cells()}) > 1:
        text += f" ({cell['variant']})"
    if case.plan.experiment.repeats > 1:
        text += f", repeat {cell['repeat']}"
    return text


def at(cell: Row, case: Case) -> str:
    """``at 8 sessions``, ``in window 3``."""
    return f"{'in' if case.observed else 'at'} {where(cell, case)}"


def sessions(n: int) -> str:
    return "1 session" if n == 1 else f"{n} sessions"


def percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.5 else f"{round(value, 1) + 0.0:.1f} %"  # no -0.0


def listed(items: list[str], most: int = 4) -> str:
    shown = list(dict.fromkeys(items))
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def ids(cells: list[Row]) -> tuple[str, ...]:
    return tuple(c["cell"] for c in cells)


def sentence(text: str) -> str:
    """With a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def many(n: int, noun: str) -> str:
    """``1 window``, ``3 windows``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
