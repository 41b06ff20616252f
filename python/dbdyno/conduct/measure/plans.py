"""How the server would execute the statements of a measurement whose data have a size."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.data_size import size_of
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.raw import RawCell

TABLE = "script_plans"


def with_plans(raw: RawCell, server: Server, plan: Plan) -> RawCell:
    """Asked once the sessions have left; where the server is lost there are none."""
    cell, workload = raw.meta.cell, raw.meta.workload
    if server.planning is None or "scripts" not in raw.tables or raw.tables["scripts"].is_empty():
        return raw
    if size_of(workload, cell.params) is None:
        return raw
    with contextlib.suppress(TargetError):
        found = server.planning.shapes(workload.name, cell.params, plan.variant(cell.variant).scripts)
        return replace(raw, tables={**raw.tables, TABLE: found})
    return raw
