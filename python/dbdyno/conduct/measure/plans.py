"""Asks the server for the plans of a measurement's statements, if its data have a size."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from dbdyno.conduct.companion import Companion
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.data_size import size_of
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import RawCell

TABLE = "script_plans"


class StatementPlans(Companion):
    """Asks for plans once the sessions have left; a lost server has none."""

    def __init__(self, server: Server, plan: Plan) -> None:
        self._server, self._plan = server, plan

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        last = raws[-1]
        cell, workload = last.meta.cell, last.meta.workload
        if self._server.planning is None or "scripts" not in last.tables or last.tables["scripts"].is_empty():
            return raws
        if size_of(workload, cell.params) is None:
            return raws
        with contextlib.suppress(TargetError):
            scripts = self._plan.variant(cell.variant).scripts
            shapes = self._server.planning.shapes(workload.name, cell.params, scripts)
            return [*raws[:-1], replace(last, tables={**last.tables, TABLE: shapes})]
        return raws
