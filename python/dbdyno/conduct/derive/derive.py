"""From raw cells to everything that is shown: account -> conclude, and a stored run in the making.

A part is what one cell, or a few, say by themselves; it is made once. What all parts say together follows
from their small tables, from sums and from answers about single cells: no cell is looked at again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import polars as pl
from pydantic import TypeAdapter

from dbdyno.account import window
from dbdyno.account.chains import wait_chains, wait_chains_total
from dbdyno.account.cpu_profile import cpu_profile, cpu_profile_total
from dbdyno.account.executions import NAMES as EXECUTION_TABLES
from dbdyno.account.executions import executions, executions_total
from dbdyno.account.growth import NAMES as GROWTH_TABLES
from dbdyno.account.growth import left_behind
from dbdyno.account.hosts import hosts
from dbdyno.account.ladder import rungs
from dbdyno.account.ledger import accounts, cross_check
from dbdyno.account.load_profile import Seconds, profile, profile_total, seconds, top_events, top_events_total
from dbdyno.account.memory import NAMES as MEMORY_TABLES
from dbdyno.account.memory import growth_between, held
from dbdyno.account.off_cpu import sleep_profile, sleep_profile_total
from dbdyno.account.placement import placement
from dbdyno.account.plan_shapes import plan_shapes
from dbdyno.account.script_ledger import script_ledger, script_ledger_total
from dbdyno.account.script_statements import with_work
from dbdyno.account.scripts import NAMES as SCRIPT_TABLES
from dbdyno.account.scripts import scripts, scripts_total
from dbdyno.account.statement_ledger import statement_ledger, statement_ledger_total
from dbdyno.account.statements import statements, statements_total
from dbdyno.account.system_calls import system_call_sizes, system_calls, together
from dbdyno.account.wait_durations import wait_durations, wait_durations_total, wait_histogram
from dbdyno.conclude.catalogue import claim, worded
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.findings import asked, findings
from dbdyno.conclude.run.case import Facts, facts_of_json, facts_to_json
from dbdyno.conclude.scaled import scalings_of
from dbdyno.conclude.scaling.cpu_wait import observed
from dbdyno.conduct.derive.joined import Joined, Packed, pack
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.derive.stored_environment import environment_of
from dbdyno.conduct.measure.schedule import sought
from dbdyno.engines import code_areas, failure_kinds, wait_advice, wait_families
from dbdyno.model.engine.environment import Environment
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.raw import RawCell, labelled
from dbdyno.model.results.results import Conclusions, Results, RunInfo
from dbdyno.model.results.session_time import judged
from dbdyno.model.schema.derived import OF_SESSIONS, WHOLLY
from dbdyno.model.schema.tables import DERIVED, empty
from dbdyno.store import DamagedCell, Derived, Parts, Run

MANY_ROWS = 1_000_000
"""Cells are derived together up to so many samples: a few at a time cost less than each by itself."""

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Part:
    """What cells say by themselves."""

    tables: Mapping[str, pl.DataFrame]  # of DERIVED, CUT and OF_CELL what is made cell by cell; no samples
    facts: Facts
    seconds: dict[str, Seconds]  # by cell
    workloads: Mapping[str, Workload]


@on_polars_thread
def derive(
    info: RunInfo, plan: Plan, environment: Environment, cells: Iterable[RawCell], fired: Tables | None = None
) -> Results:
    """All derived tables and findings of a run, or of a part of its cells. ``cells`` is read once.
    ``fired``: tables of triggers."""
    parts = [part_of(c, plan, environment) for c in batches(cells)]
    made = conclude(info, plan, environment, parts, fired=fired)
    return replace(made, tables=dict(made.tables))


def part_of(cells: Sequence[RawCell], plan: Plan, environment: Environment) -> Part:
    """With the answers that the checks will ask for: they are all put to these cells alone."""
    workloads = {c.meta.workload.name: c.meta.workload for c in cells}
    tables = window.cut_without_samples(cells)
    siblings = environment.host.siblings if environment.server.here else None
    tables["cores"] = window.cores_of(cells, tables["cut_levels"], siblings)
    tables |= accounts(tables, window.sample_chunks(cells))
    tables["data_sources"] = cross_check(tables, tables["ledger"])
    tables["rates"] = judged(tables, plan)
    tables["over_time"] = window.over_time(cells)
    tables |= scripts(cells, tables["rates"], lambda: failure_kinds(environment.server.engine))
    tables["plan_shapes"] = plan_shapes(cells)
    tables |= executions(cells, plan)
    tables |= left_behind(cells) | held(cells) | {"hosts": hosts(cells)}
    tables["profile"] = profile(tables)
    tables["statement_ledger"] = statement_ledger(tables)
    tables["wait_histogram"] = wait_histogram(tables)
    tables["wait_durations"] = wait_durations(tables)
    tables["statements"] = statements(tables, plan.experiment.observation)
    tables |= cpu_profile(cells, tables, lambda: code_areas(environment.server.engine))
    tables |= sleep_profile(cells, tables, lambda: code_areas(environment.server.engine))
    tables |= {"system_calls": system_calls(tables), "system_call_sizes": system_call_sizes(tables)}
    tables["wait_chains"] = wait_chains(tables)
    found = seconds(tables)
    tables["top_events"] = top_events(tables["windows"], found)
    facts = asked(plan, environment, {**tables, "rungs": rungs(tables)}, workloads)
    return Part(tables, facts, found, workloads)


def conclude(
    info: RunInfo,
    plan: Plan,
    environment: Environment,
    parts: Sequence[Part],
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None,
    fired: Tables | None = None,
) -> Results:
    """What all parts say together. ``load``: the tables of a cell, where a part has only a few of them."""
    tables = Joined([p.tables for p in parts])
    tables.update(fired or {})
    tables["ledger"] = tables["ledger"]  # held: it takes longest to unpack, and is asked for often
    facts, spent = _merged(p.facts for p in parts), _merged(p.seconds for p in parts)
    workloads = _merged((info.workloads, *(p.workloads for p in parts)))
    tables["rungs"] = rungs(tables)
    tables["script_ledger"] = script_ledger(tables)  # texts of statements are kept once in a run
    tables["placed"], tables["placements"] = placement(tables["rounds"], environment.host.siblings)
    totals = {
        "profile": profile_total(tables["windows"], tables["profile"]),
        "top_events": top_events_total(tables["windows"], spent),
        "statements": statements_total(tables),
        "cpu_profile": cpu_profile_total(tables["windows"], tables["cpu_profile"]),
        "sleep_profile": sleep_profile_total(tables["windows"], tables["sleep_profile"]),
        **together(tables),
        "statement_ledger": statement_ledger_total(tables),
        **dict(zip(("wait_histogram", "wait_durations"), wait_durations_total(tables), strict=True)),
        "wait_chains": wait_chains_total(tables),
        **scripts_total(tables),
        "execution_rates": executions_total(tables),
        "script_ledger": script_ledger_total(tables),
        "memory_figures": growth_between(tables),
    }
    for name, total in totals.items():
        tables.append(name, total)
    tables["statement_texts"] = tables["statement_texts"].unique("query_id", maintain_order=True)
    tables["script_rates"] = with_work(tables)
    tables["wait_families"] = tables["wait_families"].unique(maintain_order=True)
    tables["wait_advice"] = wait_advice(environment.server.engine).table()
    found = findings(plan, environment, tables, workloads, facts, load)
    tables["sources"] = _sources(environment, tables["cell_sources"])
    tables["histogram"] = tables["cell_histogram"]
    tables.update({t: empty(t) for t in DERIVED if t not in tables and t not in WHOLLY})
    shown = tables.only((*DERIVED, "sources", "histogram", "wait_families"))
    return Results(info, worded(plan), environment, shown, found)


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


def _sources(environment: Environment, of_cells: pl.DataFrame) -> pl.DataFrame:
    """Every data source in each of its states, once: as the cells met it, else as the server announced it."""
    columns = ("name", "provenance", "status", "detail")
    met = of_cells.select(columns).unique(maintain_order=True)
    told = [s.model_dump() for s in environment.sources if s.name not in set(met["name"])]
    announced = pl.DataFrame(told, schema=met.schema) if told else met.clear()
    return pl.concat([met, announced.select(columns)])


# The derived tables of a stored run in the making: each cell is derived once, stored, and concluded from.

HELD = (
    *("windows", "rates", "ledger", "cores", "events", "profile", "top_events", "data_sources", "rounds"),
    *("cell_histogram", "cell_sources", "cell_errors", "cell_sessions", "wait_families", "over_time"),
    *("statements", "statement_texts", "wait_chains", "cpu_profile", "system_calls", "system_call_sizes"),
    *("sleep_profile", "statement_ledger", "wait_histogram", "wait_durations"),
    *SCRIPT_TABLES,
    "plan_shapes",
    *EXECUTION_TABLES,
    *GROWTH_TABLES,
    *MEMORY_TABLES,
    "hosts",
)
"""Tables of a part that conclusions are drawn from."""
TOGETHER = 64
"""So many cells become one part: a frame or a file takes room, however short it is."""
_TOGETHER_ROWS = 500_000
"""Or so many rows of single sessions."""
_T = TypeVar("_T")
_SECONDS = TypeAdapter(dict[str, Seconds])
_WORKLOADS = TypeAdapter(dict[str, Workload])


def _silent(_: str) -> None: ...


class Making:
    """For long runs it holds small tables, sums and facts; what sessions did one by one is in the store.

    Those tables are held as Parquet, 64 windows together: of 24 hours that takes 10 MB, as frames 350 MB.
    """

    def __init__(self, record: Run, parts: Parts | None = None, say: Callable[[str], None] = _silent) -> None:
        """``parts``: to be written there; else among the run's own. ``say`` is told of each cell."""
        self.record, self._say = record, say
        self._parts = record.parts if parts is None else parts
        self._packed: list[_Packed] = []
        self._recent: dict[str, Part] = {}  # by the name of the stored part
        self._rows = 0  # of single sessions, in those
        self._done: set[str] = set()
        self._damaged: list[DamagedCell] = []
        self._environment = environment_of(record)

    def resume(self) -> Making:
        """Takes what was derived before; where a part of it cannot be used, nothing of it is."""
        try:
            for part in map(_read, self._parts.read(HELD)):
                self._packed.append(_packed([_held(part)]))
                self._done |= set(part.tables["windows"]["cell"])
        except StoreError:
            self._packed, self._done = [], set()
            self._parts.clear()
        return self

    @on_polars_thread
    def more(self) -> None:
        """Derives the cells that are new, a few together where there are many. Raises :class:`StoreFull`."""
        for cells in batches(self._new()):
            if cells:
                part = part_of(cells, self.record.plan, self._environment)
                self._parts.write(cells[0].id, _stored(part), _document(part))
                self._hold(cells[0].id, part)

    @on_polars_thread
    def conclude(self, fired: Tables) -> Results:
        """What all cells say together, new ones too; as it is to be stored. ``fired``: tables of triggers."""
        self.more()
        record = Run(self.record.path)  # as it is by now
        held = [*_unpacked(self._packed), *self._recent.values()]
        held = held or [_held(part_of([], record.plan, self._environment))]
        made = conclude(record.info, record.plan, environment_of(record), held, self._load, fired)
        made = with_claims(made, self._damaged)
        return concluded(replace(made, tables=Derived(made.tables, record.parts)))

    def _new(self) -> Iterator[RawCell]:
        ids = self.record.cells()
        for number, cell_id in enumerate(ids, 1):
            if cell_id not in self._done:
                self._done.add(cell_id)
                yield from cells_of(self.record, self._damaged, [cell_id])
                self._say(f"{number} of {len(ids)}")

    def _hold(self, name: str, part: Part) -> None:
        self._done |= set(part.tables["windows"]["cell"])
        self._recent[name] = _held(part)
        self._rows += sum(part.tables[t].height for t in OF_SESSIONS)
        cells = sum(p.tables["windows"].height for p in self._recent.values())
        if cells >= TOGETHER or self._rows >= _TOGETHER_ROWS:
            self._pack()

    def _pack(self) -> None:
        """What is recent is held, and stored, as one."""
        recent = list(self._recent.values())
        self._packed.append(_packed(recent))
        if len(recent) > 1:
            self._parts.merge(list(self._recent), _document(_joined_parts(recent)))
        self._recent, self._rows = {}, 0

    def _load(self, cell_id: str) -> Mapping[str, pl.DataFrame]:
        """For a cell that has to be asked something new."""
        cells = list(cells_of(self.record, [], [cell_id]))
        return part_of(cells, self.record.plan, self._environment).tables


class _Packed(NamedTuple):
    """Parts as one, their tables as Parquet."""

    tables: dict[str, bytes]
    rest: Part  # without tables


def _packed(parts: Sequence[Part]) -> _Packed:
    part = _joined_parts(parts)
    return _Packed(pack(part.tables), replace(part, tables={}))


def _unpacked(packed: Sequence[_Packed]) -> list[Part]:
    """All as one part."""
    if not packed:
        return []
    return [_merged_parts(Packed([p.tables for p in packed]), [p.rest for p in packed])]


def keep(record: Run, results: Results) -> None:
    """Raises :class:`StoreError` where the store cannot be written."""
    drawn = Conclusions(scaling=results.scaling, answers=results.answers, comparison=results.comparison)
    kept = results.tables.kept if isinstance(results.tables, Derived) else results.tables
    record.write_derived(kept, results.findings, drawn)


def with_claims(results: Results, damaged: Sequence[DamagedCell]) -> Results:
    """With what is damaged, and what an auto ladder found."""
    more = (*map(_damage, damaged), *sought(results.plan, results.tables))
    return replace(results, findings=(*more, *results.findings))


def concluded(results: Results) -> Results:
    """With what its ladders say of scaling, and its variants compared where there are several."""
    results = replace(results, scaling=scalings_of(results), answers=observed(results))
    if len(results.plan.variants) < 2 or results.plan.experiment.phases:
        return results
    with contextlib.suppress(UsageError):  # cut short before a second variant was measured
        return replace(results, comparison=compare_variants(results))
    return results


def cells_of(record: Run, damaged: list[DamagedCell], ids: Sequence[str] | None = None) -> Iterator[RawCell]:
    """Those that can be read, one after the other."""
    engine = record.environment.server.engine
    return (labelled(cell, lambda: wait_families(engine)) for cell in record.each_cell(damaged, ids))


def _damage(damaged: DamagedCell) -> Claim:
    return claim("cell-damaged", {"measurement": damaged.id, "reason": damaged.reason}, cells=(damaged.id,))


def _stored(part: Part) -> Tables:
    return {name: part.tables[name] for name in (*HELD, *WHOLLY)}


def _held(part: Part) -> Part:
    """Without rows of single sessions; copies, so that nothing else is kept in memory."""
    small = {name: part.tables[name] for name in HELD}
    for name in set(OF_SESSIONS) - set(WHOLLY):
        small[name] = small[name].filter(pl.col("who") != "session")
    return replace(part, tables={name: frame.clone() for name, frame in small.items()})


def _joined_parts(parts: Sequence[Part]) -> Part:
    return _merged_parts({name: pl.concat([p.tables[name] for p in parts]) for name in HELD}, parts)


def _merged_parts(tables: Mapping[str, pl.DataFrame], parts: Sequence[Part]) -> Part:
    return Part(
        tables,
        _merged(p.facts for p in parts),
        _merged(p.seconds for p in parts),
        _merged(p.workloads for p in parts),
    )


def _document(part: Part) -> dict[str, Any]:
    return {
        "facts": facts_to_json(part.facts),
        "seconds": _SECONDS.dump_python(part.seconds, mode="json"),
        "workloads": _WORKLOADS.dump_python(dict(part.workloads), mode="json"),
    }


def _read(stored: tuple[Tables, Sequence[dict[str, Any]]]) -> Part:
    """Raises :class:`StoreError`: it answers other questions, or is damaged."""
    tables, documents = stored
    try:
        answers = [facts_of_json(d["facts"]) for d in documents]
        if None in answers:
            raise StoreError("derived by another version")
        found = [_SECONDS.validate_python(d["seconds"]) for d in documents]
        workloads = [_WORKLOADS.validate_python(d["workloads"]) for d in documents]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"derived answers are damaged: {error}") from error
    return Part(tables, _merged(filter(None, answers)), _merged(found), _merged(workloads))


def _merged(parts: Iterable[Mapping[str, _T]]) -> dict[str, _T]:
    return {key: value for part in parts for key, value in part.items()}
