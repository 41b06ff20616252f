"""Prepares the first cell: room for the sessions, the workload's objects, the size of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dbdyno.conduct.measure.cell import Unit
from dbdyno.conduct.measure.presence import Presence
from dbdyno.conduct.measure.progress import ProgressListener
from dbdyno.conduct.measure.tables import make_tables
from dbdyno.drive import Interrupt
from dbdyno.model.engine.environment import Environment, ServerFacts
from dbdyno.model.engine.protocols import Server, needed
from dbdyno.model.errors import TooFewConnections, UsageError, naming
from dbdyno.model.plan.jobs import PlannedJob
from dbdyno.model.plan.plan import Calibration, Cell, Choice, Plan, Value, Variant, Workload
from dbdyno.model.plan.table_making import TableOptions
from dbdyno.model.units import NS_PER_S, counted, format_ns
from dbdyno.plan import capped, fewer_sessions, parse_bytes
from dbdyno.store import Run, RunStore

_HasParams = TypeVar("_HasParams", Variant, Cell)
EXTRA_CONNECTIONS = 3  # control, activity, calibration
_OTHERS, _OTHERS_SHARE = 2, 0.1
"""Connections left to others if the user gave no number of sessions: at least this many, or this share."""
_AS_ASKED, _AS_CHOSEN = (0.7, 1.4), (0.1, 2.0)
"""Ratios of a call's duration to its target within which the size of earlier runs is kept."""


def fitted(server: Server, plan: Plan) -> Plan:
    """Returns the plan fitted to the server. An auto ladder ends at the connections that other clients leave
    free, and a paced load has no more sessions unless the user asked for a number; every rung of another
    ladder must have its connections. Scripts on tables with a scale of their own take that scale."""
    plan = _with_simple_protocol(server, _with_scale_of_tables(server, plan))
    if server.commands is not None:
        return _room_for_commands(server, plan)
    capacity, sessions = server.capacity(), connections(plan)
    others = max(_OTHERS, round(_OTHERS_SHARE * capacity.free))
    most = capacity.free - EXTRA_CONNECTIONS
    room = max(min(1, most), most - others)
    if not 1 <= room < sessions:
        return plan
    left = f"{EXTRA_CONNECTIONS} are dbdyno's own, {most - room} are left for others"
    why = f"{capacity.free} connections are free, {left}: {capacity.detail}"
    if any(c.pacing is not None for c in plan.cells):
        return fewer_sessions(plan, room, why)
    return plan if plan.adaptive is None else capped(plan, room, why)


def _room_for_commands(server: Server, plan: Plan) -> Plan:
    """Ends an auto ladder of commands at the number of processes that may be started."""
    capacity = server.capacity()
    if plan.adaptive is None or capacity.free >= plan.top:
        return plan
    return capped(plan, max(1, capacity.free), f"{capacity.free} processes may be started: {capacity.detail}")


def _with_scale_of_tables(server: Server, plan: Plan) -> Plan:
    """Returns the plan with the scale of the tables, as pgbench does: another scale is reported and not
    used."""
    real = server.scripts and plan.scripts and server.scripts.scale(plan.scripts)
    if not real or all(v.params.get("scale", real[0]) == real[0] for v in plan.variants):
        return plan
    given = ", ".join(sorted({str(v.params["scale"]) for v in plan.variants if "scale" in v.params}))
    why = f"{real[1]}; scale {given} is not used"
    choice = Choice(name="scale", value=str(real[0]), reason=why)
    changed = {
        "variants": tuple(_with_scale(v, real[0]) for v in plan.variants),
        "cells": tuple(_with_scale(c, real[0]) for c in plan.cells),
        "choices": (*plan.choices, choice),
    }
    return plan.model_copy(update=changed).sealed()


def _with_simple_protocol(server: Server, plan: Plan) -> Plan:
    """Sends simple queries if the server accepts some statement only so and the user chose no protocol.

    All such variants change together, since they are compared.
    """
    specs = plan.experiment.variants
    free = [v for v in plan.variants if v.name not in specs or specs[v.name].driver.protocol is None]
    if server.scripts is None or not plan.scripts or plan.experiment.driver.protocol is not None:
        return plan
    reasons = (server.scripts.needs_simple(v.scripts, v) for v in free)
    why = next((reason for reason in reasons if reason is not None), None)
    if why is None:
        return plan
    names = {v.name for v in free}
    choice = Choice(name="protocol", value="simple", reason=why)
    changed = {
        "variants": tuple(_simple(v) if v.name in names else v for v in plan.variants),
        "cells": tuple(_simple(c) if c.variant in names else c for c in plan.cells),
        "choices": (*plan.choices, choice),
    }
    return plan.model_copy(update=changed).sealed()


def _simple(of: _HasParams) -> _HasParams:
    return of.model_copy(update={"driver": of.driver.model_copy(update={"protocol": "simple"})})


def _with_scale(of: _HasParams, scale: int) -> _HasParams:
    return of.model_copy(update={"params": {**of.params, "scale": scale}})


def with_shells(server: Server, plan: Plan, listener: ProgressListener) -> Plan:
    """Returns the plan with the start-up time of its jobs' shells, measured now. It is part of the plan
    because the driver and the derivation both subtract it from durations."""
    shells = sorted({j.shell for v in plan.variants for j in v.jobs} - {"none"})
    if not shells:
        return plan
    starts = {s: needed(server.commands, "run commands").shell_start(s) for s in shells}
    for shell, start in starts.items():
        listener.noted(
            f"{shell} takes {format_ns(start.least_ns)} to start, usually up to {format_ns(start.usual_ns)}: "
            f"{format_ns(start.least_ns)} are taken off"
        )

    def known(job: PlannedJob) -> PlannedJob:
        start = starts.get(job.shell)
        if start is None:
            return job
        error_ns = start.usual_ns - start.least_ns
        return job.model_copy(update={"shell_ns": start.least_ns, "shell_error_ns": error_ns})

    variants = (v.model_copy(update={"jobs": tuple(map(known, v.jobs))}) for v in plan.variants)
    return plan.model_copy(update={"variants": tuple(variants)}).sealed()


def check_capacity(server: Server, plan: Plan) -> None:
    """Raises :class:`TooFewConnections` before anything is started."""
    capacity, sessions = server.capacity(), connections(plan)
    if server.commands is not None:
        if capacity.free < sessions:
            cure = f"use at most {counted(capacity.free, 'session')}, or raise the limit"
            why = f"{sessions} sessions need as many processes at least, {capacity.free} may be started"
            raise TooFewConnections(f"{why}: {capacity.detail}", cure)
        return
    needed = sessions + EXTRA_CONNECTIONS
    if capacity.free < needed:
        room = capacity.free - EXTRA_CONNECTIONS
        cure = f"use at most {counted(room, 'session')}" if room > 0 else "end other connections"
        raise TooFewConnections(
            f"{sessions} sessions need {needed} connections (with {EXTRA_CONNECTIONS} of dbdyno's own), "
            f"{capacity.free} are free: {capacity.detail}",
            f"{cure}, or raise the limit",
        )


def connections(plan: Plan) -> int:
    """Returns the number of connections that the sessions take at the server; behind a pool at most its
    size."""
    pools = [v.limits.pool for v in plan.variants] or [None]
    return max(min(plan.top, pool or plan.top) for pool in pools)


@dataclass(frozen=True)
class Preparation:
    """Prepares what a run needs before its first cell."""

    server: Server
    plan: Plan
    environment: Environment
    store: RunStore
    listener: ProgressListener
    interrupt: Interrupt
    use: Callable[[Variant], None] = lambda _variant: None
    """Puts the server of a variant in use, if variants name servers."""

    def units(self, workload: Workload, record: Run) -> dict[str, Unit]:
        """Returns a unit for each variant: creates its objects and calibrates its call at one session,
        without the variant's limits and settings. Variants with the same parameters do the same work and
        share the calibration: that of the baseline if it is one of them, else of the first."""
        plan = self.plan
        if plan.jobs:
            return self._jobs(workload, record)
        units: dict[str, Unit] = {}
        alike: dict[tuple[tuple[str, object], ...], Unit] = {}
        of_variants = {c.variant: c.params for c in plan.cells}
        several = len({tuple(sorted(p.items())) for p in of_variants.values()}) > 1
        loaded: set[str | None] = set()
        baseline = plan.experiment.baseline
        for variant, params in sorted(of_variants.items(), key=lambda v: v[0] != baseline):
            setup = plan.variant(variant)
            self.use(setup)
            with naming(variant if plan.servers else None):
                if plan.scripts:
                    own = needed(self.server.scripts, "run scripts")
                    units[variant] = Unit(own.script(setup.scripts, setup, workload.name), None)
                    continue
                key = tuple(sorted(params.items()))
                if setup.server not in loaded:  # only the first size: others are loaded before measurements
                    loaded.add(setup.server)
                    self.tables(workload, params)
                if key not in alike:
                    server = self.environment.server_of(variant)
                    alike[key] = self._unit(workload, variant if several else "base", params, server)
                else:
                    self._prepare(workload, params, variant)
                units[variant] = alike[key]
        units = {variant: units[variant] for variant in of_variants}
        if plan.scripts:
            workload = next(iter(units.values())).workload
        calibrations = {f"{workload.name}/{v}": u.calibration for v, u in units.items() if u.calibration}
        record.update_info(workloads={workload.name: workload}, calibrations=calibrations)
        return units

    def _jobs(self, workload: Workload, record: Run) -> dict[str, Unit]:
        """Runs the set-up of each variant, then checks its jobs, whose input the set-up may create."""
        server, units = needed(self.server.commands, "run commands"), dict[str, Unit]()
        keep = self.plan.experiment.keep_output
        kept = 0 if keep is None else parse_bytes(keep, "--keep-output")
        for variant in self.plan.variants:
            self.interrupt.check()
            self.stage_of(variant)
            jobs = [_with_file_size(j) for j in variant.jobs]
            units[variant.name] = Unit(server.jobs(jobs, variant, workload.name, kept), None)
        record.update_info(workloads={workload.name: workload})
        return units

    def stage_of(self, variant: Variant) -> None:
        """Runs its set-up."""
        if variant.setup:
            self.listener.preparing(f"set-up of {variant.name}: {variant.setup[0]}")
            first = variant.jobs[0]
            needed(self.server.commands, "run commands").aside(variant.setup, first.directory, first.env)

    def _unit(
        self, workload: Workload, variant: str, params: Mapping[str, Value], server: ServerFacts
    ) -> Unit:
        self._prepare(workload, params, variant)
        if self.plan.call_target_ns is None:
            return Unit(workload, None)
        self.listener.preparing(f"calibrating a call of {workload.name} at one session")
        key = self._key(workload, params, server)
        calibration = self._as_before(workload, params, key)
        if calibration is None:
            calibration = self._calibrated(workload, params, None)
            self.store.remember_call_size(key, calibration.size)
        self.listener.calibrated(variant, calibration, workload.work_short)
        return Unit(workload, calibration)

    def _prepare(self, workload: Workload, params: Mapping[str, Value], variant: str) -> None:
        self.interrupt.check()
        whose = f" for variant {variant}" if len(self.plan.variants) > 1 else ""
        self.listener.preparing(f"preparing {workload.name}{whose}")
        self.server.prepare(workload, params, self.plan.top)

    def tables(self, workload: Workload, params: Mapping[str, Value]) -> bool:
        """Loads the tables of the workload unless they exist in that size. Returns whether it loaded them."""
        making = self.server.tables
        if making is None or workload.name not in making.preparable():
            return False
        options = TableOptions(scale=int(params.get("scale", 1)), on_demand=True, parameters=params)
        reports = self._loading, self.listener.noted
        result = make_tables(self.server, workload.name, options, self.interrupt, *reports)
        if result.new:
            rows = sum(t.rows for t in result.tables)
            self.listener.noted(
                f"{workload.name}: loaded {counted(rows, 'row')} in {format_ns(result.seconds * NS_PER_S)}"
            )
        return result.new

    def _loading(self, step: str, rows: int, total: int, sent: int, seconds: float) -> None:  # noqa: ARG002
        self.listener.preparing(f"{step}: {rows:,} of {total:,} rows")

    def _as_before(self, workload: Workload, params: Mapping[str, Value], key: str) -> Calibration | None:
        """Returns the calibration of earlier runs, so that the runs can be compared; None if there is none,
        or if its calls now take too long or too short a time."""
        experiment = self.plan.experiment
        size = None if experiment.recalibrate else self.store.call_size(key)
        if size is None:
            return None
        earlier = self._calibrated(workload, params, size)
        least, most = _AS_ASKED if experiment.call_target is not None else _AS_CHOSEN
        if least <= earlier.measured_ns / earlier.target_ns <= most:
            return earlier
        took, target = format_ns(earlier.measured_ns), format_ns(earlier.target_ns)
        self.listener.preparing(
            f"a call of earlier runs takes {took}, the target is {target}: calibrating anew"
        )
        return None

    def _calibrated(self, workload: Workload, params: Mapping[str, Value], size: int | None) -> Calibration:
        calibrate = needed(self.server.calibrating, "calibrate calls").calibrate
        while True:
            self.interrupt.check()
            presence = Presence(self.server)
            target_ns, reason = self.plan.call_target_ns or 0, _target_reason(self.plan)
            calibration = calibrate(workload, params, target_ns, reason, size)
            if not (away := presence.holes()):
                return calibration
            self.listener.noted(f"{away[0].words} while a call was calibrated: calibrating again")

    def _key(self, workload: Workload, params: Mapping[str, Value], server: ServerFacts) -> str:
        """Returns the key of calls of one size: the machine, without the server's version and settings,
        which are what runs compare."""
        cpu = self.environment.host.cpu
        machine = f"{cpu.model}, {cpu.logical} CPUs" if server.here else server.where.split(", database")[0]
        given = [f"{k}={v}" for k, v in sorted(params.items())]
        chosen = "paced" if any(c.pacing for c in self.plan.cells) else "default"
        target = self.plan.experiment.call_target or chosen
        return " | ".join([server.engine, workload.name, *given, target, machine])


def _with_file_size(job: PlannedJob) -> PlannedJob:
    """Returns the job with the size of its file. A file that the command itself writes is measured after
    each execution. Raises :class:`UsageError`."""
    path = Path(job.directory or "", job.work_file or "")
    later = "{session}" in str(path) or (not path.exists() and path.parent.is_dir())
    if job.work_file is None or later:
        return job
    try:
        size = path.stat().st_size
    except OSError as e:
        raise UsageError(
            f"job {job.name}: the work is the size of {job.work_file}: {(e.strerror or str(e)).lower()}",
            "name a file that is there before the first measurement; --setup may make it",
        ) from None
    if not size:
        raise UsageError(f"job {job.name}: {job.work_file} is empty", "work of 0 bytes has no rate")
    return job.model_copy(update={"work": float(size)})


def _target_reason(plan: Plan) -> str:
    chosen = [c.reason for c in plan.choices if c.name == "call target"]
    return chosen[0] if chosen else "--call-target"


def server_facts(server: Server, plan: Plan) -> ServerFacts:
    """Returns the server's facts, with the cost of reading its clock if a variant changes the timing of
    calls."""
    facts = server.facts()
    times = any("timing" in name for variant in plan.variants for name in variant.settings)
    if not times or server.settings is None:
        return facts
    return facts.model_copy(update={"clock": dict(server.settings.clock_facts())})
