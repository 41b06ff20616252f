"""From raw cells to everything that is shown: account -> conclude. No effects, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from dbdyno.account import window
from dbdyno.account.ledger import accounts, witnesses
from dbdyno.account.load_profile import profile, profile_total
from dbdyno.account.placement import placement
from dbdyno.account.rungs import rungs
from dbdyno.account.top_events import top_events, top_events_total
from dbdyno.conclude.findings import findings
from dbdyno.model.client_limit import judged
from dbdyno.model.environment import Environment
from dbdyno.model.plan import Plan
from dbdyno.model.raw import RawCell
from dbdyno.model.results import Results, RunInfo
from dbdyno.model.tables import DERIVED, empty
from dbdyno.model.workload import Workload

MANY_ROWS = 1_000_000
"""Cells with more samples than this are cut apart from others, and their samples are not kept together: an
observation of hours has more than fit into memory. Only drift within a window is not looked for then."""

Tables = dict[str, pl.DataFrame]


def derive(info: RunInfo, plan: Plan, environment: Environment, cells: Iterable[RawCell]) -> Results:
    """All derived tables and findings of a run, or of a part of its cells. ``cells`` is read once."""
    workloads = dict(info.workloads)
    tables = _joined([_accounts(batch, workloads, environment) for batch in _batches(cells)])
    tables["rates"] = judged(tables, plan)
    tables["rungs"] = rungs(tables)
    placed = placement(tables["rounds"], environment.host.siblings)
    tables["placed"], tables["placements"] = placed
    tables["profile"] = pl.concat([profile(tables), profile_total(tables)])
    tables["top_events"] = pl.concat([top_events(tables), top_events_total(tables)])
    found = findings(plan, environment, tables, workloads)
    shown = {name: tables.get(name, empty(name)) for name in DERIVED}
    shown["sources"] = _sources(environment, tables["cell_sources"])
    shown["histogram"] = tables["cell_histogram"]
    shown["wait_families"] = tables["wait_families"].unique(maintain_order=True)
    return Results(info, plan, environment, shown, found)


def _accounts(cells: Sequence[RawCell], workloads: dict[str, Workload], environment: Environment) -> Tables:
    """The tables that are made cell by cell. Without samples where these are many."""
    workloads.update({c.meta.workload.name: c.meta.workload for c in cells})
    tables = window.cut(cells)
    siblings = environment.host.siblings if environment.server.here else None
    tables["cores"] = window.cores_of(cells, tables["cut_levels"], siblings)
    tables |= accounts(tables)
    tables["witnesses"] = witnesses(tables, tables["ledger"])
    if _samples(cells) > MANY_ROWS:
        tables["cut_samples"] = tables["cut_samples"].clear()
    return tables


def _batches(cells: Iterable[RawCell]) -> Iterator[list[RawCell]]:
    batch: list[RawCell] = []
    for cell in cells:
        batch.append(cell)
        if _samples(batch) > MANY_ROWS:
            yield batch
            batch = []
    yield batch


def _samples(cells: Sequence[RawCell]) -> int:
    return sum(c.tables["samples"].height for c in cells)


def _joined(parts: Sequence[Tables]) -> Tables:
    return parts[0] if len(parts) == 1 else {t: pl.concat([p[t] for p in parts]) for t in parts[0]}


def _sources(environment: Environment, of_cells: pl.DataFrame) -> pl.DataFrame:
    """Every witness in each state it was in, once: as the cells met it, else as the server announced it."""
    columns = ("name", "provenance", "status", "detail")
    met = of_cells.select(columns).unique(maintain_order=True)
    told = [s.model_dump() for s in environment.sources if s.name not in set(met["name"])]
    announced = pl.DataFrame(told, schema=met.schema) if told else met.clear()
    return pl.concat([met, announced.select(columns)])
