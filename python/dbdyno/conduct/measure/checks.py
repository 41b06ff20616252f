"""Checks after a measurement that its calls changed the data as they must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from dbdyno.conduct.companion import Companion
from dbdyno.conduct.measure.cell import Unit
from dbdyno.model.engine.checking import FAILED
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import Cell
from dbdyno.model.results.raw import RawCell

_SHOWN = 3


class DataChecks(Companion):
    """Counts rows before the sessions connect and checks them once the sessions have left."""

    def __init__(self, server: Server, units: Mapping[str, Unit]) -> None:
        """``units`` has the unit of each variant."""
        self._checking, self._units = server.checking, units
        self._before: Mapping[str, int] | None = None

    def before(self, cell: Cell) -> None:
        if self._checking is not None:
            self._before = self._checking.counts(self._units[cell.variant].workload.name)

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Checks the data. A check that fails, or cannot be made, invalidates all phases of the
        measurement."""
        if (reason := self._fault(raws)) is None:
            return raws
        fault = {"status": "invalid", "reason": reason}
        return [replace(raw, meta=raw.meta.model_copy(update=fault)) for raw in raws]

    def _fault(self, raws: Sequence[RawCell]) -> str | None:
        """Returns why the data are wrong; None if they are right, or if the measurement is invalid anyway.

        The loss of a server explains more than wrong data.
        """
        last = raws[-1]
        if self._checking is None or self._before is None or last.meta.status == "invalid":
            return None
        workload, params = last.meta.workload.name, last.meta.cell.params
        tables = {**last.tables, "scripts": pl.concat([raw.tables["scripts"] for raw in raws])}
        try:
            checks = self._checking.checks(workload, params, self._before, tables)
        except TargetError as e:
            return f"the data could not be checked: {e.message}" if last.meta.status == "ok" else None
        failed = [check.words for check in checks if not check.holds]
        more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        return FAILED + "; ".join(failed[:_SHOWN]) + more if failed else None
