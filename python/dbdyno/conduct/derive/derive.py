"""Derives everything that is shown from raw cells: account, then conclude; also for a run in progress.

A part is the result of one cell, or a few, and is made once. Conclusions over all parts follow from their
small tables, from sums, and from answers about single cells; no cell is read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import polars as pl
from pydantic import TypeAdapter

from dbdyno.account.ladder import rungs
from dbdyno.account.making import load_makers, made_at, make
from dbdyno.conclude.catalogue import claim, worded
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.findings import asked, findings
from dbdyno.conclude.noise_records import NoiseRecord, could_see
from dbdyno.conclude.reply import reply
from dbdyno.conclude.run.case import Facts, facts_of_json, facts_to_json
from dbdyno.conclude.scaled import doubted, scalings_of
from dbdyno.conclude.scaling.cpu_wait import observed
from dbdyno.conduct.derive.joined import Joined, Packed, pack
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.derive.stored_environment import environment_of
from dbdyno.conduct.measure.schedule import sought
from dbdyno.conduct.noise import known_beside
from dbdyno.engines import code_areas, failure_kinds, wait_advice, wait_families
from dbdyno.model.engine.environment import Environment, ServerFacts
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import RawCell, labelled
from dbdyno.model.results.results import Conclusions, Results, RunInfo
from dbdyno.model.schema.tables import DERIVED, REGISTERED, empty
from dbdyno.model.sources.code_areas import CodeAreas
from dbdyno.store import DamagedCell, Derived, Parts, Run

MANY_ROWS = 1_000_000
"""Cells are derived together up to this number of samples: a few at a time cost less than each alone."""

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Part:
    """The tables and facts of one cell or a few, without the others."""

    tables: Mapping[str, pl.DataFrame]  # those of DERIVED, CUT and OF_CELL made cell by cell; no samples
    facts: Facts
    workloads: Mapping[str, Workload]


@on_polars_thread
def derive(
    info: RunInfo, plan: Plan, environment: Environment, cells: Iterable[RawCell], fired: Tables | None = None
) -> Results:
    """Returns all derived tables and findings of a run or some of its cells. ``cells`` is read once;
    ``fired`` has the tables of triggers."""
    parts = [part_of(c, plan, environment) for c in batches(cells)]
    results = conclude(info, plan, environment, parts, fired=fired)
    return replace(results, tables=dict(results.tables))


def part_of(cells: Sequence[RawCell], plan: Plan, environment: Environment) -> Part:
    """Returns the part of these cells, with the answers that the checks will need: only these cells can give
    them."""
    workloads = {c.meta.workload.name: c.meta.workload for c in cells}
    given = _maker_values(plan, environment) | {"cells": cells}
    tables: Tables = {}
    for stage in ("cut", "cells"):
        for name, table in make(stage, tables, given):
            tables[name] = table
    facts = asked(plan, environment, {**tables, "rungs": rungs(tables)}, workloads)
    return Part(tables, facts, workloads)


def _maker_values(plan: Plan, environment: Environment) -> dict[str, Any]:
    """Returns the further arguments that makers of tables may have."""
    engine = environment.server.engine
    named = {"kinds": lambda: failure_kinds(engine), "areas": lambda: _areas(environment.server)}
    return {"plan": plan, "environment": environment, **named}


def _areas(server: ServerFacts) -> CodeAreas:
    """Returns the areas of the server's code. In a version without tests a function of the same name may
    belong to another part, so only source files say where it belongs."""
    known = code_areas(server.engine)
    return known.by_source() if server.doubt else known


def conclude(
    info: RunInfo,
    plan: Plan,
    environment: Environment,
    parts: Sequence[Part],
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None,
    fired: Tables | None = None,
) -> Results:
    """Returns what follows from all parts together. ``load`` returns the tables of a cell if its part holds
    only a few of them."""
    tables = Joined([p.tables for p in parts])
    tables.update(fired or {})
    tables["ledger"] = tables["ledger"]  # unpacked once: it takes longest, and is needed often
    facts = _merge(p.facts for p in parts)
    workloads = _merge((info.workloads, *(p.workloads for p in parts)))
    given = _maker_values(plan, environment)
    for name, table in make("run", tables, given):
        tables[name] = table
    for name, total in list(make("total", tables, given)):
        tables.append(name, total)
    for name, table in make("end", tables, given):
        tables[name] = table
    tables["wait_advice"] = wait_advice(environment.server.engine).table()
    claims = tuple(
        c.model_copy(update={"advice": c.advice.replace(" show RUN ", f" show {info.id} ")})
        for c in findings(plan, environment, tables, workloads, facts, load)
    )
    tables["sources"] = sources_of(environment, tables["cell_sources"])
    tables["histogram"] = tables["cell_histogram"]
    tables.update({t: empty(t) for t in DERIVED if t not in tables and REGISTERED[t].sessions != "all"})
    shown = tables.only((*DERIVED, "sources", "histogram", "wait_families"))
    return Results(info, worded(plan), environment, shown, claims)


def batches(cells: Iterable[RawCell]) -> Iterator[list[RawCell]]:
    """Yields the cells that are derived together; one empty batch if there are no cells."""
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


def sources_of(environment: Environment, of_cells: pl.DataFrame) -> pl.DataFrame:
    """Returns every data source in each of its states once: as the cells recorded it, else as the server
    announced it."""
    columns = ("name", "provenance", "status", "detail")
    met = of_cells.select(columns).unique(maintain_order=True)
    announced_rows = [s.model_dump() for s in environment.sources if s.name not in set(met["name"])]
    announced = pl.DataFrame(announced_rows, schema=met.schema) if announced_rows else met.clear()
    return pl.concat([met, announced.select(columns)])


# The derived tables of a run in progress: each cell is derived once and stored; conclusions use the parts.

load_makers()


def held() -> list[str]:
    """Returns the tables of a part that conclusions are drawn from, in the order of the records."""
    parts = made_at("cut") | made_at("cells")
    return [name for name, table in REGISTERED.items() if name in parts and table.sessions != "all"]


def _in_parts() -> list[str]:
    """Returns the tables that have only rows of single sessions or of stacks, which stay in the parts."""
    return [name for name, table in REGISTERED.items() if table.sessions == "all"]


TOGETHER = 64
"""This many cells become one part, since each frame or file has a fixed cost."""
_TOGETHER_ROWS = 500_000
"""Or this many rows of single sessions."""
_T = TypeVar("_T")
_WORKLOADS = TypeAdapter(dict[str, Workload])


def _silent(_: str) -> None: ...


class Making:
    """Holds small tables, sums and facts of a run in progress; rows of single sessions are in the store.

    These tables are held as Parquet, 64 windows together: for 24 hours they take 10 MB, as frames 350 MB.
    """

    def __init__(self, record: Run, parts: Parts | None = None, say: Callable[[str], None] = _silent) -> None:
        """``parts`` is the directory for parts, by default the run's own. ``say`` is called with each
        cell."""
        self.record, self._say = record, say
        self._parts = record.parts if parts is None else parts
        self._pack_parts: list[_Packed] = []
        self._recent: dict[str, Part] = {}  # by the name of the stored part
        self._rows = 0  # of single sessions, in the recent parts
        self._done: set[str] = set()
        self._damaged: list[DamagedCell] = []
        self._environment = environment_of(record)

    def resume(self) -> Making:
        """Reads what was derived before; if a part of it cannot be used, none of it is."""
        try:
            for part in map(_read, self._parts.read(held())):
                self._pack_parts.append(_pack_parts([_small_copy(part)]))
                self._done |= set(part.tables["windows"]["cell"])
        except StoreError:
            self._pack_parts, self._done = [], set()
            self._parts.clear()
        return self

    @on_polars_thread
    def more(self) -> None:
        """Derives new cells, several together if there are many. Raises :class:`StoreFull`."""
        for cells in batches(self._new()):
            if cells:
                part = part_of(cells, self.record.plan, self._environment)
                self._parts.write(cells[0].id, _stored(part), _document(part))
                self._hold(cells[0].id, part)

    @on_polars_thread
    def conclude(self, fired: Tables) -> Results:
        """Returns the results of all cells, including new ones, in the form to be stored. ``fired``: tables
        of triggers."""
        self.more()
        record = Run(self.record.path)  # in its present state
        held = [*_unpack_parts(self._pack_parts), *self._recent.values()]
        held = held or [_small_copy(part_of([], record.plan, self._environment))]
        results = conclude(record.info, record.plan, environment_of(record), held, self._load, fired)
        results = with_claims(results, self._damaged)
        results = replace(results, tables=Derived(results.tables, record.parts))
        return concluded(results, partial(known_beside, record))

    def _new(self) -> Iterator[RawCell]:
        ids = self.record.cells()
        for number, cell_id in enumerate(ids, 1):
            if cell_id not in self._done:
                self._done.add(cell_id)
                yield from cells_of(self.record, self._damaged, [cell_id])
                self._say(f"{number} of {len(ids)}")

    def _hold(self, name: str, part: Part) -> None:
        self._done |= set(part.tables["windows"]["cell"])
        self._recent[name] = _small_copy(part)
        self._rows += sum(part.tables[name].height for name, t in REGISTERED.items() if t.sessions != "none")
        cells = sum(p.tables["windows"].height for p in self._recent.values())
        if cells >= TOGETHER or self._rows >= _TOGETHER_ROWS:
            self._pack()

    def _pack(self) -> None:
        """Packs and stores the recent parts as one."""
        recent = list(self._recent.values())
        self._pack_parts.append(_pack_parts(recent))
        if len(recent) > 1:
            self._parts.merge(list(self._recent), _document(_joined_parts(recent)))
        self._recent, self._rows = {}, 0

    def _load(self, cell_id: str) -> Mapping[str, pl.DataFrame]:
        """Returns the tables of a cell, for a check that its part has no answer to."""
        cells = list(cells_of(self.record, [], [cell_id]))
        return part_of(cells, self.record.plan, self._environment).tables


class _Packed(NamedTuple):
    """Several parts as one, with their tables as Parquet."""

    tables: dict[str, bytes]
    rest: Part  # without tables


def _pack_parts(parts: Sequence[Part]) -> _Packed:
    part = _joined_parts(parts)
    return _Packed(pack(part.tables), replace(part, tables={}))


def _unpack_parts(packed: Sequence[_Packed]) -> list[Part]:
    """Returns all parts as one."""
    if not packed:
        return []
    return [_merged_parts(Packed([p.tables for p in packed]), [p.rest for p in packed])]


def keep(record: Run, results: Results) -> None:
    """Raises :class:`StoreError` if the store cannot be written."""
    drawn = Conclusions(
        scaling=results.scaling,
        answers=results.answers,
        reply=results.reply,
        comparison=results.comparison,
    )
    kept = results.tables.kept if isinstance(results.tables, Derived) else results.tables
    record.write_derived(kept, results.findings, drawn)


def with_claims(results: Results, damaged: Sequence[DamagedCell]) -> Results:
    """Returns the results with claims on damaged cells and on what an auto ladder found."""
    more = (*map(_damage, damaged), *doubted(sought(results.plan, results.tables), results))
    return replace(results, findings=(*more, *results.findings))


def concluded(results: Results, noise: Callable[[], Sequence[NoiseRecord]] = list) -> Results:
    """Returns the results with the scaling of their ladders, a comparison of their variants if there are
    several, and the reply to the question of the recipe. ``noise`` reads the records of the store."""
    results = replace(results, scaling=scalings_of(results), answers=observed(results))
    if len(results.plan.variants) > 1 and not results.plan.experiment.phases:
        with contextlib.suppress(UsageError):  # the run was cut short before a second variant was measured
            comparison = could_see(compare_variants(results), results, noise())
            results = replace(results, comparison=comparison)
    return replace(results, reply=reply(results))


def cells_of(record: Run, damaged: list[DamagedCell], ids: Sequence[str] | None = None) -> Iterator[RawCell]:
    """Yields the readable cells, one after the other."""
    engine = record.environment.server.engine
    return (labelled(cell, lambda: wait_families(engine)) for cell in record.each_cell(damaged, ids))


def _damage(damaged: DamagedCell) -> Claim:
    return claim("cell-damaged", {"measurement": damaged.id, "reason": damaged.reason}, cells=(damaged.id,))


def _stored(part: Part) -> Tables:
    return {name: part.tables[name] for name in (*held(), *_in_parts())}


def _small_copy(part: Part) -> Part:
    """Returns tables without rows of single sessions, copied so that nothing else stays in memory."""
    small = {name: part.tables[name] for name in held()}
    for name, table in small.items():
        if REGISTERED[name].sessions == "some":
            small[name] = table.filter(pl.col("who") != "session")
    return replace(part, tables={name: frame.clone() for name, frame in small.items()})


def _joined_parts(parts: Sequence[Part]) -> Part:
    return _merged_parts({name: pl.concat([p.tables[name] for p in parts]) for name in held()}, parts)


def _merged_parts(tables: Mapping[str, pl.DataFrame], parts: Sequence[Part]) -> Part:
    return Part(
        tables,
        _merge(p.facts for p in parts),
        _merge(p.workloads for p in parts),
    )


def _document(part: Part) -> dict[str, Any]:
    return {
        "facts": facts_to_json(part.facts),
        "workloads": _WORKLOADS.dump_python(dict(part.workloads), mode="json"),
    }


def _read(stored: tuple[Tables, Sequence[dict[str, Any]]]) -> Part:
    """Raises :class:`StoreError` if the part is damaged, or of other checks."""
    tables, documents = stored
    try:
        answers = [facts_of_json(d["facts"]) for d in documents]
        if None in answers:
            raise StoreError("derived by another version")
        workloads = [_WORKLOADS.validate_python(d["workloads"]) for d in documents]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"derived answers are damaged: {error}") from error
    return Part(tables, _merge(filter(None, answers)), _merge(workloads))


def _merge(parts: Iterable[Mapping[str, _T]]) -> dict[str, _T]:
    return {key: value for part in parts for key, value in part.items()}
