"""A run from start to end: server, workload, cell after cell, each saved at once; ``rebuild`` follows."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from dbdyno import observe
from dbdyno.conduct import noise
from dbdyno.conduct.captures.trigger_checks import check_triggers
from dbdyno.conduct.context import RunContext
from dbdyno.conduct.derive.deriving import deriving, finish
from dbdyno.conduct.derive.rebuild import results_of
from dbdyno.conduct.ladder import Ladder
from dbdyno.conduct.measure.announcing import announcing
from dbdyno.conduct.measure.crew import Crew
from dbdyno.conduct.measure.memory_room import check_room
from dbdyno.conduct.measure.opening import environment_now
from dbdyno.conduct.measure.prepare import Preparation, check_capacity, fitted, with_shells
from dbdyno.conduct.measure.progress import ProgressListener, ending
from dbdyno.conduct.measure.resets import decided
from dbdyno.conduct.measure.restarts import with_restarts
from dbdyno.conduct.measure.servers import load_tables, with_servers
from dbdyno.conduct.measure.stage import Stage
from dbdyno.conduct.metrics.feed import feed_of
from dbdyno.engines import open_server
from dbdyno.lazy import ready
from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.store import FileJournal, Run


def run(
    plan: Plan, workload: Workload, context: RunContext[ProgressListener], *, all_variants: bool = False
) -> Run:
    """Executes ``plan``; every measured cell is saved before the next one begins.

    ``all_variants``: a variant that is not possible here is an error; else it is left out if others remain to
    compare.

    A fault after the first saved cell leaves a readable run with status "cut short" and the reason. An
    earlier one is raised (:class:`DbdynoError`, :class:`Interrupted`), and no run is left behind.
    """
    ready()
    store, crew = context.store, context.crew
    if crew is None and plan.experiment.cluster is not None:
        raise UsageError("this plan drives from a cluster, and none was opened", "crew=: of conduct.crew_of")
    target = replace(context.target, servers=plan.servers)
    if crew is not None:
        target = replace(target, make_load=crew.make_load)
    with open_server(plan.experiment.engine, target) as server, contextlib.ExitStack() as beside:
        context.interrupt.check()
        load_tables(server, plan, context.interrupt, context.listener)
        context.interrupt.check()
        plan = _feasible(server, plan, workload)
        record = store.create(plan, **context.labels)
        if context.turn is not None:
            context.turn.update(run=record.id)
        with (
            ending(record),
            announcing(context.listener, record) as listener,
            contextlib.closing(FileJournal(record.id)) as journal,
        ):
            _claim(server, plan, record, journal, listener)
            environment = _begin(server, plan, context.host, record, listener)
            for reason in observe.refused(server, observe.How.of(plan.experiment)):
                listener.noted(f"! {reason}")
            if crew is not None:
                _begin_drivers(crew, plan, listener)
            derived = beside.enter_context(deriving(record, server, soon=context.metrics is not None))
            feed = feed_of(context.metrics, environment, record, listener.noted)
            with Stage(server, plan, observe.topology(), journal, listener) as stage:
                stage.check(context.interrupt, all_variants=all_variants)
                if (known := with_servers(stage, environment)) is not environment:
                    environment = known
                    record.write_environment(environment)
                plan = stage.plan = with_shells(server, stage.plan, listener)
                record.write_plan(plan)
                restarts = any(stage.applied[v.name].restarts for v in plan.variants)
                if (words := noise.outlook(store, plan, environment, restarts=restarts)) is not None:
                    listener.noted(words)
                preparation = Preparation(
                    server, plan, environment, store, listener, context.interrupt, stage.use
                )
                Ladder(preparation, stage, record, derived, crew, feed).climb(workload, target)
        finish(derived, record, context.listener.preparing)
        feed.finish()
        if plan.experiment.noise is not None and (words := noise.remember(store, results_of(record))):
            context.listener.noted(words)
    return record


def _feasible(server: Server, plan: Plan, workload: Workload) -> Plan:
    """Returns the plan fitted to the server. Raises an error for anything impossible before a run is
    stored."""
    plan = with_restarts(server, decided(server, fitted(server, plan), workload))
    check_capacity(server, plan)
    check_room(server, plan, workload)
    observe.check_exact(server, observe.How.of(plan.experiment))
    check_triggers(server, plan.experiment)
    return plan


def _claim(server: Server, plan: Plan, record: Run, journal: FileJournal, listener: ProgressListener) -> None:
    server.claim(record.id)
    listener.planned(plan, record.id)
    if server.commands is not None:
        listener.preparing(server.commands.contain(journal))


def _begin(server: Server, plan: Plan, host: Host, record: Run, listener: ProgressListener) -> Environment:
    shortest_ns = min((c.measure_ns for c in plan.cells), default=None)
    environment = environment_now(server, plan, host, shortest_ns)
    record.write_environment(environment)
    listener.opened(environment)
    return environment


def _begin_drivers(crew: Crew, plan: Plan, listener: ProgressListener) -> None:
    crew.check_clocks(min((c.measure_ns for c in plan.cells), default=0))
    for line in filter(None, (crew.words(), crew.warning)):
        listener.noted(line)
