"""The story of a run, on one screen: plan -> server -> calibrate -> cells, each saved at once -> report."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from dbdyno import __version__, observe, present
from dbdyno.account.ladder import just_measured
from dbdyno.conclude.answers import observed
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.scaling.scaled import scalings_of
from dbdyno.conduct.adaptive_results import sought
from dbdyno.conduct.cell import Unit, measure
from dbdyno.conduct.derive import derive
from dbdyno.conduct.listeners import ProgressListener
from dbdyno.conduct.marks import Presence, clock_of
from dbdyno.conduct.progress import Progressing
from dbdyno.conduct.run_status import ending
from dbdyno.conduct.schedule import course_of
from dbdyno.conduct.stage import Stage
from dbdyno.drive import Interrupt
from dbdyno.engines import helpers, open_server, product, wait_families
from dbdyno.model.claim import Claim
from dbdyno.model.environment import Environment, Host, ServerFacts
from dbdyno.model.errors import ServerLost, StoreError, TooFewConnections, UsageError
from dbdyno.model.plan import Plan
from dbdyno.model.protocols import Server, Target
from dbdyno.model.raw import RawCell, labelled
from dbdyno.model.results import Results
from dbdyno.model.tables import DERIVED, RAW
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.model.variant import Value
from dbdyno.model.wait_families import TABLE as FAMILIES
from dbdyno.model.workload import Workload
from dbdyno.plan import capped
from dbdyno.store import DamagedCell, FileJournal, Run, RunStore

EXTRA_CONNECTIONS = 3  # control, activity, calibration


def run(
    plan: Plan,
    workload: Workload,
    host: Host,
    target: Target,
    store: RunStore,
    teller: ProgressListener,
    interrupt: Interrupt,
) -> Run:
    """Executes ``plan``; every measured cell is saved before the next begins.

    A fault after the first saved cell leaves a readable run, status "cut short" with the reason; one
    before it is raised (:class:`DbdynoError`, :class:`Interrupted`), and no run is left behind.
    """
    with open_server(plan.experiment.engine, target) as server:
        plan = fitted(server, plan)
        check_capacity(server, plan)
        observe.check_witness(server, observe.How.of(plan.experiment))
        record = store.create(plan)
        with ending(record), contextlib.closing(FileJournal(record.id)) as journal:
            server.claim(record.id)
            teller.planned(plan, record.id)
            environment = Environment(
                dbdyno=__version__, host=host, server=_facts(server, plan), sources=tuple(server.sources())
            )
            record.write_environment(environment)
            teller.opened(environment)
            with Stage(server, plan, observe.topology(), journal, teller) as stage:
                stage.check()
                units = _prepare(server, plan, workload, record, teller, interrupt)
                _climb(server, plan, units, record, environment, stage, teller, interrupt)
    return record


def _facts(server: Server, plan: Plan) -> ServerFacts:
    """With what the clock costs, where a variant sets what times calls."""
    facts = server.facts()
    times = any("timing" in name for variant in plan.variants for name in variant.settings)
    return facts.model_copy(update={"clock": dict(server.clock_facts())}) if times else facts


def _prepare(
    server: Server,
    plan: Plan,
    workload: Workload,
    record: Run,
    teller: ProgressListener,
    interrupt: Interrupt,
) -> dict[str, Unit]:
    """A unit for each variant: objects made, call calibrated at one session, without the variant's limits and
    settings. Variants of the same parameters do the same work: they share the calibration."""
    if plan.script_text is not None:
        workload = server.script(plan.script_text, plan.experiment.script or "script")
    units: dict[str, Unit] = {}
    alike: dict[tuple[tuple[str, object], ...], Unit] = {}
    of_variants = {c.variant: c.params for c in plan.cells}
    several = len({tuple(sorted(p.items())) for p in of_variants.values()}) > 1
    for variant, params in of_variants.items():
        key = tuple(sorted(params.items()))
        if key not in alike:
            name = variant if several else "base"
            alike[key] = _unit(server, plan, workload, name, params, teller, interrupt)
        units[variant] = alike[key]
    calibrations = {f"{workload.name}/{v}": u.calibration for v, u in units.items() if u.calibration}
    record.update_info(workloads={workload.name: workload}, calibrations=calibrations)
    return units


def _unit(
    server: Server,
    plan: Plan,
    workload: Workload,
    variant: str,
    params: Mapping[str, Value],
    teller: ProgressListener,
    interrupt: Interrupt,
) -> Unit:
    interrupt.check()
    teller.preparing(f"{workload.name}, variant {variant}")
    server.prepare(workload, params, plan.top)
    if plan.call_target_ns is None:
        return Unit(workload, None)
    teller.preparing(f"calibrating a call of {workload.name} at one session")
    while True:
        interrupt.check()
        presence = Presence(server)
        calibration = server.calibrate(workload, params, plan.call_target_ns, _target_reason(plan))
        if not (away := presence.holes()):
            break
        teller.noted(f"{away[0].words} while a call was calibrated: calibrating again")
    teller.calibrated(variant, calibration)
    return Unit(workload, calibration)


def _climb(
    server: Server,
    plan: Plan,
    units: dict[str, Unit],
    record: Run,
    environment: Environment,
    stage: Stage,
    teller: ProgressListener,
    interrupt: Interrupt,
) -> None:
    clock = clock_of(server)
    progress = Progressing(plan, teller, clock)

    def grew(grown: Plan) -> None:
        record.write_plan(grown)
        progress.grown(grown)

    course = course_of(plan, clock, grew)
    cool_down_s = parse_duration_ns(plan.experiment.cool_down) / NS_PER_S
    for cell in course.cells():
        interrupt.rest(cool_down_s, clock.sleep)
        stage.enter(plan.variant(cell.variant))
        raw = measure(server, plan, cell, units[cell.variant], interrupt, progress.of(cell), stage.bind)
        stage.look()
        if record.info.applied != stage.applied:
            record.update_info(applied=stage.applied)
        record.write_cell(raw)
        progress.done(cell)
        results = Results(record.info, plan, environment, just_measured(raw, plan), ())
        course.measured(results)
        teller.measured(results)
        _after(raw, interrupt)
    if course.stopped is not None:
        record.update_info(stopped=course.stopped)
        teller.noted(course.stopped)


def _after(raw: RawCell, interrupt: Interrupt) -> None:
    interrupt.check()
    early = raw.meta.t1_ns < raw.meta.t0_ns + raw.meta.cell.measure_ns
    if raw.meta.status != "ok" and early:  # not: dbdyno itself was away for a while
        raise ServerLost(raw.meta.reason or "the measurement ended early", "see the server's log")


def _target_reason(plan: Plan) -> str:
    chosen = [c.reason for c in plan.choices if c.name == "call target"]
    return chosen[0] if chosen else "--call-target"


def fitted(server: Server, plan: Plan) -> Plan:
    """An auto ladder ends at what the server has room for; of others every rung must have its connections."""
    capacity, sessions = server.capacity(), connections(plan)
    room = capacity.free - EXTRA_CONNECTIONS
    if plan.adaptive is None or not 1 <= room < sessions:
        return plan
    return capped(plan, room, f"{capacity.free} connections are free: {capacity.detail}")


def check_capacity(server: Server, plan: Plan) -> None:
    """Raises :class:`TooFewConnections` before anything is started."""
    capacity, sessions = server.capacity(), connections(plan)
    needed = sessions + EXTRA_CONNECTIONS
    if capacity.free < needed:
        raise TooFewConnections(
            f"{sessions} sessions need {needed} connections (with {EXTRA_CONNECTIONS} of dbdyno's own), "
            f"{capacity.free} are free: {capacity.detail}",
            f"use at most {max(0, capacity.free - EXTRA_CONNECTIONS)} sessions, or raise the limit",
        )


def connections(plan: Plan) -> int:
    """How many the sessions take at the server: behind a pool no more than it has."""
    pools = [v.limits.pool for v in plan.variants] or [None]
    return max(min(plan.top, pool or plan.top) for pool in pools)


def results_of(record: Run) -> Results:
    """All that is shown of a stored run, as it was derived when the run ended. What of it is missing in an
    older one is derived now and kept, where the store can be written."""
    results = _read_derived(record)
    if results is None:
        return _concluded(derived_anew(record))
    with contextlib.suppress(StoreError):
        if (drawn := record.read_conclusions()) is not None:
            return replace(results, scaling=drawn.scaling, answers=drawn.answers, comparison=drawn.comparison)
    results = _concluded(results)
    with contextlib.suppress(StoreError):
        _keep(record, results)
    return results


def derived_of(record: Run) -> Results:
    """What was derived when the run ended, or, where that is not there, derived anew from the raw data:
    without fits and comparison."""
    return _read_derived(record) or derived_anew(record)


def _read_derived(record: Run) -> Results | None:
    with contextlib.suppress(StoreError):
        stored = None if record.info.status == "running" else record.read_derived()
        if stored is not None:
            stored[0].setdefault(FAMILIES, wait_families(record.environment.server.engine).table())
        if stored is not None and stored[0].keys() >= {*DERIVED, "sources", "histogram"}:
            return Results(record.info, record.plan, _environment(record), *stored)
    return None


def _keep(record: Run, results: Results) -> None:
    from dbdyno.model.conclusions import Conclusions

    drawn = Conclusions(scaling=results.scaling, answers=results.answers, comparison=results.comparison)
    record.write_derived(results.tables, results.findings, drawn)


def _concluded(results: Results) -> Results:
    """With what its ladders say of scaling, and its variants compared where there are several."""
    results = replace(results, scaling=scalings_of(results), answers=observed(results))
    if len(results.plan.variants) < 2:
        return results
    with contextlib.suppress(UsageError):  # cut short before a second variant was measured
        return replace(results, comparison=compare_variants(results))
    return results


def derived_anew(record: Run) -> Results:
    """Everything derived from the raw data of a stored run."""
    damaged: list[DamagedCell] = []
    known = wait_families(record.environment.server.engine)
    cells = (labelled(cell, known) for cell in record.each_cell(damaged))
    results = derive(record.info, record.plan, _environment(record), cells)
    found = (*(_damage(d) for d in damaged), *sought(record.plan, results.tables), *results.findings)
    return replace(results, findings=found)


def _environment(record: Run) -> Environment:
    """As it was stored; older runs lack the system's own name, and what its processes are for."""
    found = record.environment
    if found.server.product:
        return found
    engine = found.server.engine
    known = {"product": product(engine), "helpers": helpers(engine)}
    server = found.server.model_copy(update=known)
    return found.model_copy(update={"server": server})


def rebuild(record: Run) -> tuple[Results, Path]:
    """Windows, ledger, findings and report anew from raw data; the report's path."""
    results = _concluded(derived_anew(record))
    _keep(record, results)
    return results, present.write_html(results, record.path / "report.html")


def _damage(damaged: DamagedCell) -> Claim:
    return claim("cell-damaged", {"measurement": damaged.id, "reason": damaged.reason}, cells=(damaged.id,))


def raw_tables(record: Run) -> dict[str, pl.DataFrame]:
    """The raw tables of all readable cells of a run, each row with its cell's id."""
    cells, _ = record.read_cells()
    return {
        name: pl.concat([c.tables[name].insert_column(0, pl.lit(c.id).alias("cell")) for c in cells])
        for name in (RAW if cells else ())
    }
