"""Are the data after a measurement what its calls must have made of them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dbdyno.model.engine.checking import FAILED
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.plan import Cell, Workload
from dbdyno.model.results.raw import RawCell

_SHOWN = 3


class DataChecks:
    """Checks of one measurement; made before its sessions connect."""

    def __init__(self, server: Server, workload: Workload, cell: Cell) -> None:
        self._server, self._name, self._cell = server, workload.name, cell
        checking = server.checking
        self._before: Mapping[str, int] | None = None if checking is None else checking.counts(self._name)

    def of(self, raw: RawCell) -> RawCell:
        """``raw``, made invalid by a check that failed or could not be made. Where the server was lost, that
        says more: there is nothing to check."""
        checking = self._server.checking
        if checking is None or self._before is None or raw.meta.status == "invalid":
            return raw
        try:
            found = checking.checks(self._name, self._cell.params, self._before, raw.tables)
        except TargetError as e:
            why = f"the data could not be checked: {e.message}"
            return _invalid(raw, why) if raw.meta.status == "ok" else raw
        failed = [c.words for c in found if not c.holds]
        more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        return _invalid(raw, FAILED + "; ".join(failed[:_SHOWN]) + more) if failed else raw


def _invalid(raw: RawCell, reason: str) -> RawCell:
    return replace(raw, meta=raw.meta.model_copy(update={"status": "invalid", "reason": reason}))
