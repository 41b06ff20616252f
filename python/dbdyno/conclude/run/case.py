"""The input of the checks: a run's tables, recorded facts of single cells, and names of places.

Checks of a run read all of its cells. A question about a single cell is answered once and recorded
(:func:`of_cell`), because a window's own tables exist when it is derived, and no longer when claims are made
from all windows of a long observation.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

import polars as pl
from pydantic import TypeAdapter

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue.number_format import load as load_words
from dbdyno.conclude.catalogue.number_format import rate_of_load as rate_words
from dbdyno.conclude.ladder.ladders import figures_of, ladders_of
from dbdyno.model.results.analyses import Ladder
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import ALL, account_rows, top_level
from dbdyno.model.results.session_time import UNLABELLED, hidden, is_limit
from dbdyno.model.schema.tables import ByCell, empty, known_sum
from dbdyno.model.text.nouns import noun

if TYPE_CHECKING:
    from dbdyno.model.engine.environment import Environment
    from dbdyno.model.plan.plan import Plan, Workload

Row = dict[str, Any]
Found = Sequence[tuple[Mapping[str, Any], Row]]
"""Candidates of a check: the values of its sentence, and the cell."""

# -- answers about single cells --

VERSION = 7
"""Version of the questions. Facts of another version are ignored."""

Facts = dict[str, dict[str, Any]]
"""Answers as JSON holds them: cell -> question -> answer."""

_PLAIN = (float, bool, str)
"""Types that JSON returns unchanged."""
_Ask = TypeVar("_Ask", bound=Callable[..., Any])


def of_cell(ask: _Ask) -> _Ask:
    """Records the answers of a check's question ``ask(case, cell, ...)``, which may read tables of that cell
    only. ``cell`` is an id or a row of ``windows``; further arguments are strings. The return annotation
    decides how an answer is converted to JSON and back."""
    name = f"{ask.__module__.rpartition('.')[2]}.{ask.__name__}"

    @functools.wraps(ask)
    def asked(case: Case, cell: Any, *more: str, **named: str) -> Any:
        known = case.facts.setdefault(cell if isinstance(cell, str) else cell["cell"], {})
        key = sys.intern(":".join((name, *more, *named.values()))) if more or named else name
        if key not in known:
            known[key] = _type_of(ask).dump_python(ask(case, cell, *more, **named), mode="json")
        value = known[key]
        plain = not value or type(value) in _PLAIN
        return value if plain else _type_of(ask).validator.validate_python(value)

    return cast("_Ask", asked)


@functools.cache
def _type_of(ask: Callable[..., Any]) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(ask)["return"])


def facts_to_json(facts: Facts) -> dict[str, Any]:
    """Returns facts as JSON. An answer without a finite number is left out, so it is asked again."""
    kept = {cell: {k: v for k, v in known.items() if _finite(v)} for cell, known in facts.items()}
    return {"version": VERSION, "cells": kept}


def facts_of_json(content: Any) -> Facts | None:
    """Returns stored facts; None if they are of another version. Raises ValueError if they are damaged."""
    if not isinstance(content, dict) or not isinstance(content.get("cells"), dict):
        raise ValueError("no facts")
    if not all(isinstance(known, dict) for known in content["cells"].values()):
        raise ValueError("no facts")
    return dict(content["cells"]) if content.get("version") == VERSION else None


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_finite, parts))


# -- the case --

OF_MEMO = ("account", "detail", "aas", "low", "high", "source")
SESSION_LEDGER = "session_ledger"
"""The name under which checks read the ledger's rows of single sessions."""


@dataclass(frozen=True)
class Case:
    plan: Plan
    environment: Environment
    tables: Mapping[str, pl.DataFrame]
    workloads: Mapping[str, Workload]
    facts: Facts = field(default_factory=dict)
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None
    """Derives tables of a cell that are not in ``tables``; not needed for recorded facts."""

    @cached_property
    def _accounts(self) -> dict[tuple[str, str], pl.DataFrame]:
        return {}

    @cached_property
    def _memos(self) -> dict[str, list[Row]]:
        return {}

    @cached_property
    def _parts(self) -> dict[str, ByCell]:
        """Tables divided by cell, once requested."""
        return {}

    @property
    def observed(self) -> bool:
        """Whether this is an existing workload: cells are windows, without rungs and without a driver."""
        return self.plan.experiment.observation is not None

    @property
    def chosen(self) -> bool:
        """Whether this is an observation of selected sessions only."""
        return self.plan.experiment.observes_some

    @property
    def kind(self) -> str:
        """The case of sentences that differ: ``observed`` or ``run``."""
        return "observed" if self.observed else "run"

    def worst(
        self,
        id: str,
        candidates: Found,
        value: str,
        *,
        by: str = "",
        grave: float | None = None,
        **options: Any,
    ) -> Iterator[Claim]:
        """Yields one claim about the cells ``candidates``, with the values and the place of the one with the
        largest ``by``; nothing without candidates. ``value`` names the sentence's value that is the claim's;
        ``by`` defaults to it. From ``grave`` of ``by`` on the claim is a warning."""
        by = by or value
        if candidates:
            values, cell = max(candidates, key=lambda f: f[0][by] or 0.0)
            if grave is not None and (values[by] or 0.0) >= grave:
                options["severity"] = "warning"
            values = {"place": at(cell, self), "measurements": self.many(len(candidates)), **values}
            yield claim(id, values, float(values[value]), cells=ids([c for _, c in candidates]), **options)

    def many(self, n: int) -> str:
        """Formats a count of cells: ``3 measurements``, in an observation ``3 windows``."""
        return many(n, "window" if self.observed else "measurement")

    def table(self, name: str, cell: str) -> pl.DataFrame:
        """Returns the rows of a cell in a table by cell."""
        if name == SESSION_LEDGER:
            ledger = self._rows("ledger", cell) if self.load is None else self.load(cell)["ledger"]
            return ledger.filter(pl.col("who") == "session")
        if self.load is not None and name not in self.tables:
            return self.load(cell).get(name, empty(name))
        return self._rows(name, cell)

    def _rows(self, name: str, cell: str) -> pl.DataFrame:
        """Returns the rows of a cell. With ``load`` only few cells are read, so the table is filtered instead
        of divided by cell."""
        if self.load is None:
            if name not in self._parts:
                self._parts[name] = ByCell({name: self.tables.get(name, empty(name))})
            return self._parts[name].table(name, cell)
        table = self.tables.get(name, empty(name))
        return table.filter(pl.col("cell") == cell) if table.height else table

    def levels(self, cell: str, origin: str) -> pl.DataFrame:
        """Returns the rows of ``cut_levels`` of a cell and origin."""
        return self.table("cut_levels", cell).filter(pl.col("origin") == origin)

    @cached_property
    def cells(self) -> list[Row]:
        """The windows, in the order in which they ran."""
        return self.tables["windows"].to_dicts()

    @cached_property
    def valid(self) -> list[Row]:
        """Valid cells, including those limited by the client: their counts per call are correct."""
        return [c for c in self.cells if c["status"] != "invalid"]

    @cached_property
    def usable(self) -> list[Row]:
        """Valid cells that were not limited by the client."""
        return [c for c in self.valid if not is_limit(self.figures(c["cell"]))]

    @of_cell
    def figures(self, cell: str) -> dict[str, float | None]:
        """Returns the rung's rates of a cell, by name."""
        return dict(figures_of(self._rows("rates", cell)))

    def accounts(self, cell: str, scope: str = "rung") -> pl.DataFrame:
        """Returns the ledger's rows of a cell's rung without parts of others; with scope ``memo`` its
        memos."""
        if (cell, scope) not in self._accounts:
            rung = pl.col("who") == "rung" if scope == "memo" else ALL
            of_scope = (pl.col("scope") == scope) & rung
            self._accounts[cell, scope] = top_level(self._rows("ledger", cell), of_scope)
        return self._accounts[cell, scope]

    def memo(self, cell: str, account: str) -> list[Row]:
        """Returns known memos of the rung under that account."""
        if cell not in self._memos:
            known = self.accounts(cell, "memo").filter(pl.col("aas").is_not_null())
            self._memos[cell] = known.select(OF_MEMO).to_dicts()
        return [row for row in self._memos[cell] if row["account"] == account]

    @of_cell
    def wall(self, cell: str) -> float:
        """Returns session time in seconds per second, that is the mean number of sessions."""
        return float(sum(row["aas"] for row in self.memo(cell, "wall")))

    @of_cell
    def aas(self, cell: str, *accounts: str, scope: str = "rung") -> float:
        """Returns the sum of the known rows under these accounts."""
        return known_aas(account_rows(self._rows("ledger", cell), *accounts, scope=scope)) or 0.0

    @of_cell
    def known(self, cell: str, account: str) -> float | None:
        """Returns the sum of the rung's known rows of an account; None without any."""
        return known_aas(account_rows(self._rows("ledger", cell), account))

    @of_cell
    def served(self, cell: str) -> float:
        """Returns session time except sleep at the client, in seconds per second; 0 if unknown."""
        if hidden(self.accounts(cell)):
            return 0.0
        return self.aas(cell, "run", "runq", "sleep", UNLABELLED)

    def rungs(self) -> Iterator[tuple[str, list[Row]]]:
        """Yields the name (empty if there is only one ladder) and the usable rungs, by load, of each workload
        and variant."""
        from dbdyno.model.results.raw import LEFT_OUT  # loads the models of runs

        for name, rows in self._all_rungs:
            yield name, [r for r in rows if r["status"] not in LEFT_OUT]

    def limited(self, ladder: str) -> list[Row]:
        """Returns rungs of a ladder that the client limited."""
        matching = (rows for name, rows in self._all_rungs if name == ladder)
        return [r for rows in matching for r in rows if r["status"] == "client"]

    @property
    def unmeasured(self) -> list[str]:
        """The variants of which nothing was measured, where something was of others."""
        return self.plan.unmeasured(set(self.tables["rungs"]["variant"]))

    @cached_property
    def _all_rungs(self) -> list[tuple[str, list[Row]]]:
        by_load = self.tables["rungs"].sort("sessions", "rate_per_s", maintain_order=True)
        keys = self.tables["rungs"].select("workload", "variant").rows()
        first: dict[tuple[str, str], list[Row]] = {key: [] for key in keys}
        for row in by_load.to_dicts():
            first[row["workload"], row["variant"]].append(row)
        named = len(first) > 1 or bool(self.unmeasured)
        return [(f"{w}, variant {v}" if named else "", rows) for (w, v), rows in first.items()]

    @cached_property
    def rates(self) -> Mapping[str, float | None]:
        """Calls per second that were to become due, by cell."""
        return {c["cell"]: c["rate_per_s"] for c in self.cells}

    @cached_property
    def ladders(self) -> Mapping[tuple[str, str], Ladder]:
        """Ladders by workload and variant."""
        return {(str(one.workload), str(one.variant)): one for one in ladders_of(self)}


def where(cell: Row, case: Case) -> str:
    """Names a cell: ``8 sessions``, with variant and repeat if there are several; in an observation ``window
    3``."""
    if case.observed:
        return f"window {cell['repeat']}"
    if case.plan.experiment.phases:
        again = f", repeat {cell['repeat']}" if case.plan.experiment.repeats > 1 else ""
        return f"phase {cell['variant']}{again}"
    rate = case.rates.get(cell["cell"])
    text = load_words(cell["sessions"]) if rate is None else rate_words(rate)
    if rate is not None and not case.plan.by_rate:
        text += f" and {load_words(cell['sessions'])}"
    if len({c["variant"] for c in case.cells}) > 1:
        text += f" ({cell['variant']})"
    if case.plan.experiment.repeats > 1:
        text += f", repeat {cell['repeat']}"
    return text


def at(cell: Row, case: Case) -> str:
    """Names a cell with its preposition: ``at 8 sessions``, ``in window 3``, ``in phase spike``."""
    within = case.observed or case.plan.experiment.phases
    return f"{'in' if within else noun('at')} {where(cell, case)}"


def listed(items: list[str], most: int = 4) -> str:
    shown = list(dict.fromkeys(items))
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {rest} more" if rest > 0 else "")


def ids(cells: list[Row]) -> tuple[str, ...]:
    return tuple(c["cell"] for c in cells)


def many(n: int, noun: str) -> str:
    """Formats a count: ``1 window``, ``3 windows``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def known_aas(rows: pl.DataFrame) -> float | None:
    """Returns the sum of the known seconds per second of the ledger's rows; None if none is known."""
    return known_sum(rows["aas"])
