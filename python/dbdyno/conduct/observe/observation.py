"""The story of an observation: attach to a server under somebody else's load, window after window."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any

from dbdyno import __version__, observe
from dbdyno.conduct.captures.triggers import Triggers
from dbdyno.conduct.derive.deriving import deriving, finish
from dbdyno.conduct.hosts.hosts import check_reached, other_client
from dbdyno.conduct.measure.cell import clock_of
from dbdyno.conduct.measure.conditions import before_run
from dbdyno.conduct.measure.measurement_snapshots import MeasurementSnapshots
from dbdyno.conduct.measure.observed import Cost
from dbdyno.conduct.measure.progress import ObservationListener, ending
from dbdyno.conduct.memory.measurement_memory import MeasurementMemory
from dbdyno.conduct.memory.memory_beside import MemoryBeside
from dbdyno.conduct.observe.together import Together
from dbdyno.conduct.observe.windows import Windows
from dbdyno.conduct.request.request import cpus_reason, find_recipe
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.engines import checked, open_server
from dbdyno.lazy import ready
from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.errors import TooFewConnections, UsageError
from dbdyno.model.plan.plan import Experiment, Observation, Plan
from dbdyno.plan import OBSERVED, resolve_observation, window_of
from dbdyno.store import Run, RunStore

CONNECTIONS = 3  # control, and the activity of two windows while one follows the other


@dataclass(frozen=True)
class Observed:
    """A stored observation, and what it cost."""

    record: Run
    cost: Cost
    derived: bool = True
    """False: not all windows were derived in time; the rest is when the run is shown first."""


def observation_of(overrides: Mapping[str, Any], recipe: str | None = None, **chosen: Any) -> Experiment:
    """The experiment of an observation, alone or from a recipe's table ``observation``.

    ``overrides``: fields of Experiment; ``chosen``: of Observation. Both win over the recipe, and ``None``
    leaves it as it is. Raises :class:`UsageError` for a recipe that drives a load.
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
    host: Host,
    target: Target,
    store: RunStore,
    listener: ObservationListener,
    interrupt: Interrupt,
    labels: Mapping[str, Any] | None = None,
    together: Together | None = None,
    patience_s: float = math.inf,
) -> Observed:
    """Observes until the time is over or an end is asked for; every window is saved as soon as it is over,
    and derived while the next one is under way.

    A fault after the first saved window leaves a readable run, status "cut short" with the reason; one
    before it is raised (:class:`DbdynoError`, :class:`Interrupted`), and no run is left behind.
    ``labels``: fields of :class:`dbdyno.model.results.results.Labels`. ``together``: with other servers.
    ``patience_s``: so long it derives what is left after the last window.
    """
    ready()
    with open_server(plan.experiment.engine, target) as server:
        _check_capacity(server)
        observe.check_exact(server, observe.How.of(plan.experiment))
        record = store.create(plan, workloads={OBSERVED.name: OBSERVED}, **(labels or {}))
        with contextlib.ExitStack() as beside:
            with ending(record):
                listener.planned(plan, record.id)
                facts = server.facts()
                check_reached(server, facts, window_of(plan.experiment.observation or Observation()))
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
                derived = beside.enter_context(deriving(record, server))
                clock = clock_of(server)
                snapshots = MeasurementSnapshots(server, plan, record, clock, observing=True)
                memory = MeasurementMemory(server, plan, clock)
                live = MemoryBeside.of(plan.experiment.engine, target)
                beside.callback(live.close)
                triggers = beside.enter_context(
                    Triggers(server, plan, record, clock, listener.notice, lambda: target)
                )
                windows = Windows(
                    server,
                    plan,
                    clock,
                    listener,
                    interrupt,
                    derived.tasks,
                    snapshots,
                    live,
                    triggers,
                    together,
                )
                for raw in windows.all():
                    snapshots.sampled(raw)
                    memory.beside(raw.meta.t1_ns - raw.meta.t0_ns)
                    record.write_cell(memory.noted(snapshots.noted(raw)))
                    derived.more()
                    listener.saved(raw)
                triggers.pause()
                if interrupt.stopping and (plan.expected_ns or not record.cells()):
                    raise Interrupted  # before the time asked for was over
            cost = windows.costing.cost(derived.cpu_s())
            whole = finish(derived, record, listener.notice, patience_s)
    return Observed(record, cost, whole)


def _check_capacity(server: Server) -> None:
    capacity = server.capacity()
    if capacity.free < CONNECTIONS - 1:
        raise TooFewConnections(
            f"observing needs {CONNECTIONS - 1} more connections, {capacity.free} are free: "
            f"{capacity.detail}",
            "observe as a superuser, or as a role that may use reserved connections",
        )
