"""The cells of a run, one after the other, with their companions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dbdyno.account.ladder import just_measured
from dbdyno.conclude.catalogue import claim
from dbdyno.conduct.captures.triggers import Triggers
from dbdyno.conduct.companion import Companion, Companions
from dbdyno.conduct.derive.deriving import Deriving
from dbdyno.conduct.hosts.hosts import observed_target
from dbdyno.conduct.measure.cell import OnTick, Setting, Unit, clock_of
from dbdyno.conduct.measure.cells import measure_cells
from dbdyno.conduct.measure.checks import DataChecks
from dbdyno.conduct.measure.crew import Crew, lost_by, with_hosts_left
from dbdyno.conduct.measure.failures import Failures
from dbdyno.conduct.measure.measurement_snapshots import MeasurementSnapshots
from dbdyno.conduct.measure.others import OtherProcesses
from dbdyno.conduct.measure.plans import StatementPlans
from dbdyno.conduct.measure.prepare import Preparation
from dbdyno.conduct.measure.progress import Progressing, ProgressListener
from dbdyno.conduct.measure.resets import Resets
from dbdyno.conduct.measure.restarts import Restarts
from dbdyno.conduct.measure.saving import Measurements, save_each
from dbdyno.conduct.measure.schedule import Course, course_of
from dbdyno.conduct.measure.second_counters import SecondCounters
from dbdyno.conduct.measure.servers import WarmStarts, first_of_servers
from dbdyno.conduct.measure.stage import Stage
from dbdyno.conduct.measure.warming import Warming
from dbdyno.conduct.memory.measurement_memory import MeasurementMemory
from dbdyno.conduct.metrics.feed import Feed
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.protocols import Load, Target
from dbdyno.model.errors import ServerLost, naming
from dbdyno.model.plan.data_size import few_rows
from dbdyno.model.plan.plan import Cell, Plan, Workload
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.store import Run


@dataclass(frozen=True)
class Ladder:
    """The cells of ``preparation.plan``, measured one after the other and saved in ``record``."""

    preparation: Preparation
    stage: Stage
    record: Run
    derived: Deriving
    crew: Crew | None
    feed: Feed

    def climb(self, workload: Workload, target: Target) -> None:
        """Prepares ``workload`` and measures all cells. ``target``: the server, for actions of triggers."""
        preparation, record = self.preparation, self.record
        server, plan, listener = preparation.server, preparation.plan, preparation.listener
        clock = clock_of(server)
        for variant in first_of_servers(plan):
            preparation.use(variant)
            resets = Resets(preparation, workload)
            with naming(variant.name if plan.servers else None):
                resets.complete()
        units = preparation.units(workload, record)
        _warn(plan, units, listener)
        progress = Progressing(plan, listener, clock)
        course = course_of(plan, clock, lambda grown: self._grew(grown, progress))

        def on_tick(cell: Cell) -> OnTick:
            return self.derived.resting_while_measured(progress.of(cell))

        def target_of_triggers() -> Target:
            if server.choosing is not None:
                return server.choosing.target()
            return observed_target(plan.experiment.engine, target.dsn, target.machine)

        bare = Setting(server, plan, preparation.interrupt, on_tick, lost=lost_by(self.crew, server.listing))
        with Triggers(server, plan, record, clock, listener.noted, target_of_triggers) as triggers:
            variants = Variants(self.stage, record, preparation.environment)
            saved = Saved(self.derived, progress, course, variants, listener)
            failures = Failures(plan)
            companions = Companions(
                variants,
                failures,
                Restarts(server, plan, listener),
                Warming(bare, units),
                resets,
                WarmStarts(self.stage, workload),
                DataChecks(server, units),
                StatementPlans(server, plan),
                MeasurementMemory(server, plan, clock),
                MeasurementSnapshots(server, plan, record, clock),
                SecondCounters(server, plan, clock),
                OtherProcesses(server, plan, [s.main_pid for s in preparation.environment.all_servers]),
                triggers,
                saved,
                self.feed,
            )
            setting = replace(bare, companions=companions)
            save_each(self._measurements(course, setting, units, failures), companions, record)
        if course.stopped is not None:
            record.update_info(stopped=course.stopped)
            listener.noted(f"stopped {course.stopped}")
        if failures.reason is not None:
            record.update_info(reason=failures.reason)

    def _grew(self, plan: Plan, progress: Progressing) -> None:
        self.record.write_plan(plan)
        progress.grown(plan)

    def _measurements(
        self, course: Course, setting: Setting, units: Mapping[str, Unit], failures: Failures
    ) -> Measurements:
        server, plan, interrupt = setting.server, setting.plan, setting.interrupt
        cool_down_s = parse_duration_ns(plan.experiment.cool_down) / NS_PER_S
        measured: set[str] = set()
        for cell in course.cells():
            if cell.id in measured:
                continue
            failures.check()
            interrupt.rest(cool_down_s, clock_of(server).sleep)
            server.machine.revive()
            named = cell.variant if plan.servers else None
            cells = [c for c in plan.cells if c.repeat == cell.repeat] if cell.phase else [cell]
            measure = partial(measure_cells, setting, cells, units[cell.variant])
            with naming(named):
                setting.companions.before(cell)
                raws = with_hosts_left(self.crew, self.preparation.listener, measure)
            measured |= {raw.id for raw in raws}
            yield raws
            interrupt.check()
            if self.crew is None or not self.crew.check():
                with naming(named):
                    _check_whole(raws, cells)


class Variants(Companion):
    """Configures the server for the variant of each cell, and records the conditions and applied settings."""

    def __init__(self, stage: Stage, record: Run, environment: Environment) -> None:
        self._stage, self.record, self.plan = stage, record, stage.plan
        self.environment = environment
        """The environment, with the conditions under the settings of each variant so far."""

    def before(self, cell: Cell) -> None:
        visit = cell.repeat if self.plan.order == "ladder" else cell.block
        self._stage.enter(self.plan.variant(cell.variant), visit)
        environment = self.environment.with_conditions(self._stage.conditions)
        if environment != self.environment:
            self.environment = environment
            self.record.write_environment(environment)

    def connected(self, load: Load) -> None:
        self._stage.connected(load)

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        self._stage.look()
        if self.record.info.applied != self._stage.applied:
            self.record.update_info(applied=self._stage.applied)
        return raws


@dataclass(frozen=True)
class Saved(Companion):
    """Passes a saved cell on to the derivation, the progress, the ladder's course and the listener."""

    derived: Deriving
    progress: Progressing
    course: Course
    variants: Variants
    listener: ProgressListener

    def saved(self, raw: RawCell) -> None:
        self.derived.more()
        self.progress.done(raw.meta.cell)
        record, plan = self.variants.record, self.variants.plan
        results = Results(record.info, plan, self.variants.environment, just_measured(raw, plan), ())
        self.course.measured(results)
        self.listener.measured(results)


def _warn(plan: Plan, units: Mapping[str, Unit], listener: ProgressListener) -> None:
    """Warns before the first measurement if the tables are so small that sessions wait for the same rows."""
    for cell in sorted(plan.cells, key=lambda c: -c.sessions):
        few = few_rows(units[cell.variant].workload, cell.params, cell.sessions)
        if few is not None:
            warning = claim("hot-rows", {**few._asdict(), "sessions": cell.sessions}, case="before")
            listener.noted(f"! {warning.text.removesuffix('.')}: {warning.advice}")
            return


def _check_whole(raws: Sequence[RawCell], cells: Sequence[Cell]) -> None:
    """Raises :class:`ServerLost` if the last cell ended early, unless dbdyno itself was away for a while."""
    meta = raws[-1].meta
    early = meta.t1_ns < meta.t0_ns + meta.cell.measure_ns
    if len(raws) < len(cells) or (meta.status != "ok" and early):
        raise ServerLost(meta.reason or "the measurement ended early", "see the server's log")
