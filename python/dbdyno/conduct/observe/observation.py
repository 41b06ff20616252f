"""An observation from start to end: attaches to a server under other people's load, then window after
window."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any

from dbdyno import observe
from dbdyno.conduct.beside import LiveBeside
from dbdyno.conduct.captures.trigger_checks import check_triggers
from dbdyno.conduct.captures.triggers import Triggers
from dbdyno.conduct.companion import Companion, Companions
from dbdyno.conduct.context import RunContext
from dbdyno.conduct.derive.deriving import Deriving, deriving, finish
from dbdyno.conduct.measure.cell import clock_of
from dbdyno.conduct.measure.measurement_snapshots import MeasurementSnapshots
from dbdyno.conduct.measure.observed import Cost
from dbdyno.conduct.measure.opening import environment_now
from dbdyno.conduct.measure.others import OtherProcesses
from dbdyno.conduct.measure.progress import ObservationListener, ending
from dbdyno.conduct.measure.saving import save_each
from dbdyno.conduct.measure.second_counters import SecondCounters
from dbdyno.conduct.memory.measurement_memory import MeasurementMemory
from dbdyno.conduct.memory.memory_beside import MemoryBeside
from dbdyno.conduct.metrics.feed import Feed, feed_of
from dbdyno.conduct.observe.together import Together
from dbdyno.conduct.observe.windows import ObservationSetting, Windows
from dbdyno.conduct.request.request import cpus_reason, find_recipe
from dbdyno.drive import Interrupted
from dbdyno.engines import checked, open_server
from dbdyno.lazy import ready
from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.errors import TooFewConnections, UsageError
from dbdyno.model.plan.plan import Experiment, Observation, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.plan import OBSERVED, resolve_observation, window_of
from dbdyno.store import Run

CONNECTIONS = 3  # control, and the activity of two windows while one follows the other


@dataclass(frozen=True)
class Observed:
    """A stored observation and its cost."""

    record: Run
    cost: Cost
    derived: bool = True
    """False if not all windows were derived in time; the rest is derived when the run is first shown."""


def observation_of(overrides: Mapping[str, Any], recipe: str | None = None, **chosen: Any) -> Experiment:
    """Returns the experiment of an observation, alone or from a recipe's table ``observation``.

    ``overrides``: fields of Experiment; ``chosen``: fields of Observation. Both override the recipe;
    ``None`` leaves a field as it is. Raises :class:`UsageError` for a recipe that drives a load.
    """
    base = Experiment(name=OBSERVED.name, observation=Observation())
    if recipe is not None:
        base, _ = find_recipe(recipe)
        if base.observation is None:
            raise UsageError(f"recipe {recipe} drives a load", f"dbdyno run --recipe {quote(str(recipe))}")
    given = {k: v for k, v in chosen.items() if v not in (None, ())}
    fields = base.model_dump() | {k: v for k, v in overrides.items() if v is not None}
    return Experiment.model_validate(
        fields | {"engine": checked(fields["engine"]), "observation": fields["observation"] | given}
    )


def observation_plan(experiment: Experiment, host: Host) -> Plan:
    return resolve_observation(experiment, host.limits.usable_cpus, cpus_reason(host))


def observe_server(
    plan: Plan,
    context: RunContext[ObservationListener],
    together: Together | None = None,
    patience_s: float = math.inf,
) -> Observed:
    """Observes until the time is over or the user ends it. Every window is saved at its end, and derived
    while the next is in progress.

    A fault after the first saved window leaves a readable run with status "cut short" and the reason. An
    earlier one is raised (:class:`DbdynoError`, :class:`Interrupted`), and no run is left behind.
    ``together``: joins observations of other servers. ``patience_s``: limit of deriving the rest after the
    last window.
    """
    ready()
    target, listener, interrupt = context.target, context.listener, context.interrupt
    with open_server(plan.experiment.engine, target) as server:
        _check_capacity(server)
        observe.check_exact(server, observe.How.of(plan.experiment))
        check_triggers(server, plan.experiment)
        record = context.store.create(plan, workloads={OBSERVED.name: OBSERVED}, **context.labels)
        with contextlib.ExitStack() as beside:
            with ending(record):
                environment = _begin(server, plan, context.host, record, listener)
                derived = beside.enter_context(deriving(record, server, soon=context.metrics is not None))
                feed = feed_of(context.metrics, environment, record, listener.notice)
                setting = ObservationSetting(server, plan, clock_of(server), listener, interrupt)
                memory = MemoryBeside.of(plan.experiment.engine, target)
                beside.callback(memory.close)
                live = _live_of(server, plan)
                if live is not None:
                    beside.callback(live.close)
                main_pid = environment.server.main_pid
                companions = _companions(setting, record, derived, target, beside, main_pid, feed)
                windows = Windows(setting, companions, derived.tasks, memory, live, together)
                save_each(windows.all(), companions, record)
                companions.window_over()
                whole_time = windows.over or not plan.expected_ns
                if interrupt.stopping and not (whole_time and record.cells()):
                    raise Interrupted  # before the requested time was over
            cost = windows.costing.cost(derived.cpu_s())
            whole = finish(derived, record, listener.notice, patience_s)
            feed.finish()
    return Observed(record, cost, whole)


def _live_of(server: Server, plan: Plan) -> LiveBeside | None:
    if server.live is None:
        return None
    return LiveBeside(server.live, plan.experiment.observation or Observation())


def _begin(server: Server, plan: Plan, host: Host, record: Run, listener: ObservationListener) -> Environment:
    listener.planned(plan, record.id)
    window_ns = window_of(plan.experiment.observation or Observation())
    environment = environment_now(server, plan, host, window_ns)
    record.write_environment(environment)
    listener.opened(environment)
    return environment


def _companions(
    setting: ObservationSetting,
    record: Run,
    derived: Deriving,
    target: Target,
    beside: contextlib.ExitStack,
    main_pid: int | None,
    feed: Feed,
) -> Companion:
    """Returns the companions of each window; ``beside`` ends them."""
    server, plan, clock, listener = setting.server, setting.plan, setting.clock, setting.listener
    triggers = Triggers(server, plan, record, clock, listener.notice, lambda: target)
    return Companions(
        MeasurementMemory(server, plan, clock, observing=True),
        MeasurementSnapshots(server, plan, record, clock, observing=True),
        SecondCounters(server, plan, clock),
        OtherProcesses(server, plan, [main_pid], observing=True),
        beside.enter_context(triggers),
        Saved(derived, listener),
        feed,
    )


@dataclass(frozen=True)
class Saved(Companion):
    """Passes a saved window on to the derivation and the listener."""

    derived: Deriving
    listener: ObservationListener

    def saved(self, raw: RawCell) -> None:
        self.derived.more()
        self.listener.saved(raw)


def _check_capacity(server: Server) -> None:
    capacity = server.capacity()
    if capacity.free < CONNECTIONS - 1:
        raise TooFewConnections(
            f"observing needs {CONNECTIONS - 1} more connections, {capacity.free} are free: "
            f"{capacity.detail}",
            "observe as a superuser, or as a role that may use reserved connections",
        )
