"""The story of a run: server -> workload -> cell after cell, each saved at once; ``rebuild`` follows."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dbdyno import __version__, observe
from dbdyno.account.ladder import just_measured
from dbdyno.conclude.catalogue import claim
from dbdyno.conduct.captures.triggers import Triggers
from dbdyno.conduct.derive.deriving import Deriving, deriving, finish
from dbdyno.conduct.hosts.hosts import check_reached, observed_target, other_client
from dbdyno.conduct.measure.cell import Beside, OnTick, Unit, clock_of
from dbdyno.conduct.measure.checks import DataChecks
from dbdyno.conduct.measure.conditions import before_run
from dbdyno.conduct.measure.crew import Crew, lost_by, with_hosts_left
from dbdyno.conduct.measure.measurement_snapshots import MeasurementSnapshots
from dbdyno.conduct.measure.memory_room import check_room
from dbdyno.conduct.measure.phased import checked, measured
from dbdyno.conduct.measure.plans import with_plans
from dbdyno.conduct.measure.prepare import Preparation, check_capacity, fitted, server_facts, with_shells
from dbdyno.conduct.measure.progress import Progressing, ProgressListener, ending
from dbdyno.conduct.measure.resets import Resets, decided
from dbdyno.conduct.measure.schedule import course_of
from dbdyno.conduct.measure.stage import Stage
from dbdyno.conduct.measure.warming import Warming
from dbdyno.conduct.memory.measurement_memory import MeasurementMemory
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.lazy import ready
from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.engine.protocols import Load, Target
from dbdyno.model.errors import ServerLost, UsageError
from dbdyno.model.plan.data_size import few_rows
from dbdyno.model.plan.plan import Cell, Plan, Workload
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.store import FileJournal, Run, RunStore


def run(
    plan: Plan,
    workload: Workload,
    host: Host,
    target: Target,
    store: RunStore,
    listener: ProgressListener,
    interrupt: Interrupt,
    labels: Mapping[str, Any] | None = None,
    *,
    crew: Crew | None = None,
    all_variants: bool = False,
) -> Run:
    """Executes ``plan``; every measured cell is saved before the next begins.

    Variants that cannot be had here are left out, if others remain to compare; not with ``all_variants``.

    A fault after the first saved cell leaves a readable run, status "cut short" with the reason; one
    before it is raised (:class:`DbdynoError`, :class:`Interrupted`), and no run is left behind.
    ``labels``: fields of :class:`dbdyno.model.results.results.Labels`. ``crew``: hosts that drive; None: this
    one.
    """
    ready()
    if crew is None and plan.experiment.cluster is not None:
        raise UsageError("this plan drives from a cluster, and none was opened", "crew=: of conduct.crew_of")
    target = target if crew is None else replace(target, make_load=crew.make_load)
    with open_server(plan.experiment.engine, target) as server, contextlib.ExitStack() as beside:
        plan = decided(server, fitted(server, plan), workload)
        check_capacity(server, plan)
        check_room(server, plan, workload)
        observe.check_exact(server, observe.How.of(plan.experiment))
        record = store.create(plan, **(labels or {}))
        with ending(record), contextlib.closing(FileJournal(record.id)) as journal:
            server.claim(record.id)
            listener.planned(plan, record.id)
            if server.commands is not None:
                listener.noted(server.commands.contain(journal))
            facts = server_facts(server, plan)
            check_reached(server, facts, min((c.measure_ns for c in plan.cells), default=None))
            environment = Environment(
                dbdyno=__version__,
                host=host,
                server=facts,
                client=other_client(server.machine),
                sources=tuple(server.sources()),
                conditions=before_run(server, facts),
            )
            record.write_environment(environment)
            listener.opened(environment)
            if crew is not None:
                crew.check_clocks(min((c.measure_ns for c in plan.cells), default=0))
                for line in filter(None, (crew.words(), crew.warning)):
                    listener.noted(line)
            derived = beside.enter_context(deriving(record, server))
            with Stage(server, plan, observe.topology(), journal, listener) as stage:
                plan = stage.plan = with_shells(server, stage.check(all_variants=all_variants), listener)
                record.write_plan(plan)
                made = Preparation(server, plan, environment, store, listener, interrupt)
                resets = Resets(server, plan, workload.name, listener, interrupt)
                resets.complete()
                units = made.units(workload, record)
                _warn(plan, units, listener)
                own = Triggers(
                    server, plan, record, clock_of(server), listener.noted,
                    lambda: observed_target(plan.experiment.engine, target.dsn, target.machine),
                )  # fmt: skip
                with own as triggers:
                    _climb(
                        stage, made, units, resets, record, environment, interrupt, derived, triggers, crew
                    )
        finish(derived, record, listener.preparing)
    return record


def _warn(plan: Plan, units: Mapping[str, Unit], listener: ProgressListener) -> None:
    """Before the first measurement: of what is surely another test than was meant."""
    for cell in sorted(plan.cells, key=lambda c: -c.sessions):
        few = few_rows(units[cell.variant].workload, cell.params, cell.sessions)
        if few is not None:
            said = {**few._asdict(), "sessions": cell.sessions}
            found = claim("hot-rows", said, case="before")
            listener.noted(f"! {found.text.removesuffix('.')}: {found.advice}")
            return


def _climb(
    stage: Stage,
    made: Preparation,
    units: dict[str, Unit],
    resets: Resets,
    record: Run,
    environment: Environment,
    interrupt: Interrupt,
    derived: Deriving,
    triggers: Triggers,
    crew: Crew | None,
) -> None:
    server, plan, listener = stage.server, stage.plan, stage.listener
    clock = clock_of(server)
    snapshots = MeasurementSnapshots(server, plan, record, clock)
    memory = MeasurementMemory(server, plan, clock)
    progress = Progressing(plan, listener, clock)

    def grew(grown: Plan) -> None:
        record.write_plan(grown)
        progress.grown(grown)

    def on_tick(cell: Cell) -> OnTick:
        return derived.resting_while_measured(progress.of(cell))

    def connected(load: Load) -> None:
        stage.connected(load)
        memory.machine("start")

    lost = lost_by(crew, server.listing)
    beside = Beside(connected, lambda: memory.machine("end"), triggers.look_at_load, lost)

    warm = Warming()
    course = course_of(plan, clock, grew)
    saved: set[str] = set()
    cool_down_s = parse_duration_ns(plan.experiment.cool_down) / NS_PER_S
    for cell in course.cells():
        if cell.id in saved:
            continue
        interrupt.rest(cool_down_s, clock.sleep)
        server.machine.revive()
        stage.enter(plan.variant(cell.variant))
        if (more := environment.with_conditions(stage.conditions)) != environment:
            environment = more
            record.write_environment(environment)
        warm(server, plan, cell, units[cell.variant], interrupt, on_tick(cell))
        resets.before(cell, loaded=made.tables(units[cell.variant].workload, cell.params))
        checks = DataChecks(server, units[cell.variant].workload, cell)
        memory.cache("start")
        snapshots.take(cell.id, "start")
        parts = [c for c in plan.cells if c.repeat == cell.repeat] if cell.phase else [cell]
        unit = units[cell.variant]
        raws = with_hosts_left(
            crew, listener, partial(measured, server, plan, parts, unit, interrupt, on_tick, beside)
        )
        for raw in raws:
            snapshots.sampled(raw)
        snapshots.take(raws[-1].id, "end")
        memory.cache("end")
        raws = checked(checks, [*raws[:-1], with_plans(raws[-1], server, plan)])
        stage.look()
        if record.info.applied != stage.applied:
            record.update_info(applied=stage.applied)
        for raw in raws:
            first, last = raw is raws[0], raw is raws[-1]
            raw = memory.noted(snapshots.noted(raw, last=last), first=first, last=last)
            record.write_cell(resets.noted(raw))
            saved.add(raw.id)
            derived.more()
            progress.done(raw.meta.cell)
            results = Results(record.info, plan, environment, just_measured(raw, plan), ())
            course.measured(results)
            listener.measured(results)
        _after(raws[-1], interrupt, crew, all_begun=len(raws) == len(parts))
    if course.stopped is not None:
        record.update_info(stopped=course.stopped)
        listener.noted(course.stopped)


def _after(raw: RawCell, interrupt: Interrupt, crew: Crew | None, *, all_begun: bool) -> None:
    interrupt.check()
    if crew is not None and crew.check():
        return
    early = raw.meta.t1_ns < raw.meta.t0_ns + raw.meta.cell.measure_ns
    if not all_begun or (raw.meta.status != "ok" and early):  # not: dbdyno itself was away for a while
        raise ServerLost(raw.meta.reason or "the measurement ended early", "see the server's log")
