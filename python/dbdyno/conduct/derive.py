"""From raw cells to everything that is shown: window -> ledger -> analyze. No effects, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno import analyze, window
from dbdyno.ledger import accounts, witnesses
from dbdyno.model.environment import Environment
from dbdyno.model.plan import Plan
from dbdyno.model.raw import RawCell
from dbdyno.model.results import Results, RunInfo
from dbdyno.model.tables import DERIVED, empty


def derive(info: RunInfo, plan: Plan, environment: Environment, cells: Sequence[RawCell]) -> Results:
    """All derived tables and findings of a run, or of a part of its cells."""
    tables = window.cut(cells)
    tables |= accounts(tables)
    tables["witnesses"] = witnesses(tables, tables["ledger"])
    tables["rungs"] = analyze.rungs(tables)
    tables["profile"] = pl.concat([analyze.profile(tables), analyze.profile_total(tables)])
    tables["top_events"] = pl.concat([analyze.top_events(tables), analyze.top_events_total(tables)])
    workloads = {**info.workloads, **{c.meta.workload.name: c.meta.workload for c in cells}}
    found = analyze.findings(plan, environment, tables, workloads)
    shown = {name: tables.get(name, empty(name)) for name in DERIVED}
    shown["sources"] = _sources(environment, tables["cell_sources"])
    shown["histogram"] = tables["cell_histogram"]
    return Results(info, plan, environment, shown, found)


def _sources(environment: Environment, of_cells: pl.DataFrame) -> pl.DataFrame:
    """Every witness in each state it was in, once: as the cells met it, else as the server announced it."""
    columns = ("name", "provenance", "status", "detail")
    met = of_cells.select(columns).unique(maintain_order=True)
    told = [s.model_dump() for s in environment.sources if s.name not in set(met["name"])]
    announced = pl.DataFrame(told, schema=met.schema) if told else met.clear()
    return pl.concat([met, announced.select(columns)])
