"""Before the first cell: room for the sessions, the workload's objects, the size of a call."""

from __future__ import annotations

from collections.abc import Mapping

from dbdyno.conduct.cell import Presence, Unit
from dbdyno.conduct.progress import ProgressListener
from dbdyno.drive import Interrupt
from dbdyno.model.environment import ServerFacts
from dbdyno.model.errors import TooFewConnections
from dbdyno.model.plan import Plan, Value, Workload
from dbdyno.model.protocols import Server, needed
from dbdyno.plan import capped
from dbdyno.store import Run

EXTRA_CONNECTIONS = 3  # control, activity, calibration


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


def prepare(
    server: Server,
    plan: Plan,
    workload: Workload,
    record: Run,
    listener: ProgressListener,
    interrupt: Interrupt,
) -> dict[str, Unit]:
    """A unit for each variant: objects made, call calibrated at one session, without the variant's limits and
    settings. Variants of the same parameters do the same work: they share the calibration."""
    if plan.script_text is not None:
        workload = needed(server.scripts, "run scripts").script(
            plan.script_text, plan.experiment.script or "script"
        )
    units: dict[str, Unit] = {}
    alike: dict[tuple[tuple[str, object], ...], Unit] = {}
    of_variants = {c.variant: c.params for c in plan.cells}
    several = len({tuple(sorted(p.items())) for p in of_variants.values()}) > 1
    for variant, params in of_variants.items():
        key = tuple(sorted(params.items()))
        if key not in alike:
            name = variant if several else "base"
            alike[key] = _unit(server, plan, workload, name, params, listener, interrupt)
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
    listener: ProgressListener,
    interrupt: Interrupt,
) -> Unit:
    interrupt.check()
    listener.preparing(f"{workload.name}, variant {variant}")
    server.prepare(workload, params, plan.top)
    if plan.call_target_ns is None:
        return Unit(workload, None)
    listener.preparing(f"calibrating a call of {workload.name} at one session")
    while True:
        interrupt.check()
        presence = Presence(server)
        calibration = needed(server.calibrating, "calibrate calls").calibrate(
            workload, params, plan.call_target_ns, _target_reason(plan)
        )
        if not (away := presence.holes()):
            break
        listener.noted(f"{away[0].words} while a call was calibrated: calibrating again")
    listener.calibrated(variant, calibration)
    return Unit(workload, calibration)


def _target_reason(plan: Plan) -> str:
    chosen = [c.reason for c in plan.choices if c.name == "call target"]
    return chosen[0] if chosen else "--call-target"


def server_facts(server: Server, plan: Plan) -> ServerFacts:
    """With what the clock costs, where a variant sets what times calls."""
    facts = server.facts()
    times = any("timing" in name for variant in plan.variants for name in variant.settings)
    if not times or server.settings is None:
        return facts
    return facts.model_copy(update={"clock": dict(server.settings.clock_facts())})
