"""From raw cells to everything that is shown: account -> conclude. No effects, no clock.

A part is what one cell, or a few, say by themselves; it is made once. What all parts say together follows
from their small tables, from sums and from answers about single cells: no cell is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dbdyno.account import window
from dbdyno.account.ledger import accounts, witnesses
from dbdyno.account.load_profile import profile, profile_total
from dbdyno.account.placement import placement
from dbdyno.account.rungs import rungs
from dbdyno.account.top_events import Seconds, seconds, top_events, top_events_total
from dbdyno.conclude.findings import findings
from dbdyno.conclude.findings.facts import Facts
from dbdyno.model.client_limit import judged
from dbdyno.model.environment import Environment
from dbdyno.model.plan import Plan
from dbdyno.model.raw import RawCell
from dbdyno.model.results import Results, RunInfo
from dbdyno.model.tables import DERIVED, empty
from dbdyno.model.workload import Workload

MANY_ROWS = 1_000_000
"""Cells are derived together up to so many samples: a few at a time cost less than each by itself."""

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Part:
    """What cells say by themselves."""

    tables: Tables  # those of DERIVED that are made cell by cell, and of CUT and OF_CELL; no samples
    facts: Facts
    seconds: dict[str, Seconds]  # by cell
    workloads: Mapping[str, Workload]


def derive(info: RunInfo, plan: Plan, environment: Environment, cells: Iterable[RawCell]) -> Results:
    """All derived tables and findings of a run, or of a part of its cells. ``cells`` is read once."""
    return conclude(info, plan, environment, [part_of(c, plan, environment) for c in batches(cells)])


def part_of(cells: Sequence[RawCell], plan: Plan, environment: Environment) -> Part:
    """With the answers that the checks will ask for: they are all put to these cells alone."""
    workloads = {c.meta.workload.name: c.meta.workload for c in cells}
    tables = window.cut_without_samples(cells)
    siblings = environment.host.siblings if environment.server.here else None
    tables["cores"] = window.cores_of(cells, tables["cut_levels"], siblings)
    tables |= accounts(tables, window.sample_chunks(cells))
    tables["witnesses"] = witnesses(tables, tables["ledger"])
    tables["rates"] = judged(tables, plan)
    tables["profile"] = profile(tables)
    found, facts = seconds(tables), Facts()
    tables["top_events"] = top_events(tables["windows"], found)
    findings(plan, environment, {**tables, "rungs": rungs(tables)}, workloads, facts)
    return Part(tables, facts, found, workloads)


def conclude(
    info: RunInfo,
    plan: Plan,
    environment: Environment,
    parts: Sequence[Part],
    load: Callable[[str], Tables] | None = None,
) -> Results:
    """What all parts say together. ``load``: the tables of a cell, where a part has only a few of them."""
    tables = _joined([p.tables for p in parts])
    facts = {cell: known for p in parts for cell, known in p.facts.items()}
    spent = {cell: found for p in parts for cell, found in p.seconds.items()}
    workloads = {**info.workloads, **{name: w for p in parts for name, w in p.workloads.items()}}
    tables["rungs"] = rungs(tables)
    tables["placed"], tables["placements"] = placement(tables["rounds"], environment.host.siblings)
    totals = {
        "profile": profile_total(tables["windows"], tables["profile"]),
        "top_events": top_events_total(tables["windows"], spent),
    }
    tables |= {name: pl.concat([tables[name], total]) for name, total in totals.items()}
    tables["wait_families"] = tables["wait_families"].unique(maintain_order=True)
    found = findings(plan, environment, tables, workloads, facts, load)
    shown = {name: tables.get(name, empty(name)) for name in DERIVED}
    shown["sources"] = _sources(environment, tables["cell_sources"])
    shown["histogram"] = tables["cell_histogram"]
    shown["wait_families"] = tables["wait_families"]
    return Results(info, plan, environment, shown, found)


def batches(cells: Iterable[RawCell]) -> Iterator[list[RawCell]]:
    """Those that are derived together; one that may be empty where there are no cells."""
    batch: list[RawCell] = []
    samples, full = 0, False
    for cell in cells:
        batch.append(cell)
        samples += cell.height("samples")
        if full := samples > MANY_ROWS:
            yield batch
            batch, samples = [], 0
    if batch or not full:
        yield batch


def _joined(parts: Sequence[Tables]) -> Tables:
    return dict(parts[0]) if len(parts) == 1 else {t: pl.concat([p[t] for p in parts]) for t in parts[0]}


def _sources(environment: Environment, of_cells: pl.DataFrame) -> pl.DataFrame:
    """Every witness in each state it was in, once: as the cells met it, else as the server announced it."""
    columns = ("name", "provenance", "status", "detail")
    met = of_cells.select(columns).unique(maintain_order=True)
    told = [s.model_dump() for s in environment.sources if s.name not in set(met["name"])]
    announced = pl.DataFrame(told, schema=met.schema) if told else met.clear()
    return pl.concat([met, announced.select(columns)])
