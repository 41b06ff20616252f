"""Phases: one measurement of the driver, cut into windows.

What the server is asked at the end of one phase is the beginning of the next. Each phase has observers of its
own, opened shortly before the phase before ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from dbdyno import drive, observe
from dbdyno.conduct.measure.cell import (
    NOTHING,
    Beside,
    Mark,
    OnTick,
    Schedule,
    Unit,
    last_answer_ns,
    measure,
    read_mark,
    statement_tables,
    verdict,
)
from dbdyno.conduct.measure.checks import DataChecks
from dbdyno.conduct.measure.presence import Presence
from dbdyno.model.engine.protocols import Load, Progress, Server, Watch, needed
from dbdyno.model.errors import TargetError
from dbdyno.model.plan.phases import Windowed
from dbdyno.model.plan.plan import Cell, Plan, cpus_under
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.schema.tables import RAW, empty, rows
from dbdyno.model.units import NS_PER_S
from dbdyno.plan import whole

OPENED_NS = 700_000_000
"""So long before a phase its observers are opened, or twice as long as the first ones took."""
LATE = "the phase before was too short to open the observers of this one beside it"


@dataclass
class _Phase:
    cell: Cell
    t0_ns: int = 0
    t1_ns: int = 0
    watch: Watch = field(default_factory=observe.NoWatch)
    first: Mark = NOTHING
    last: Mark = NOTHING
    progress: list[dict[str, int]] = field(default_factory=list)


class Phases:
    """The phases of one measurement, while it goes on."""

    def __init__(self, server: Server, plan: Plan, load: Load, cells: Sequence[Cell]) -> None:
        self._server, self._load, self._plan = server, load, plan
        self.all = [_Phase(cell) for cell in cells]
        self._at = -1  # the phase under way; before the first
        self._opened = 0
        self._lead_ns = OPENED_NS
        self.lost: str | None = None  # the error of a server that no longer answered

    def watched(self) -> Watch:
        """Observers that are to be started."""
        begun_ns = self._load.now_ns()
        watch = observe.open_watch(self._server, self._load, observe.How.of(self._plan.experiment))
        self._lead_ns = max(self._lead_ns, 2 * (self._load.now_ns() - begun_ns))
        return watch

    def schedule(self, t0_ns: int, first: Watch) -> None:
        """From when on; ``first``: the observers of the first phase."""
        for phase in self.all:
            phase.t0_ns, phase.t1_ns = t0_ns, t0_ns + phase.cell.measure_ns
            t0_ns = phase.t1_ns
        self.all[0].watch = first
        first.start(self.all[0].t0_ns, self.all[0].t1_ns)

    def _open(self, number: int) -> None:
        """The observers of a phase, once."""
        if number <= self._opened or number >= len(self.all) or self.lost:
            return
        self._opened, phase = number, self.all[number]
        with suppress(TargetError):  # the sessions will find that it is gone
            watch = self.watched()
            if self._load.now_ns() >= phase.t0_ns:
                watch.stop()
            else:
                watch.start(phase.t0_ns, phase.t1_ns)
                phase.watch = watch

    def look(self, now_ns: int) -> _Phase:
        """Goes on to the phase of this instant; the one that is under way."""
        while self._at + 1 < len(self.all) and now_ns >= self.all[self._at + 1].t0_ns:
            self._enter(self._at + 1, now_ns)
        under_way = self.all[max(0, self._at)]
        if now_ns >= under_way.t1_ns - self._lead_ns:
            self._open(self._at + 1)
        if now_ns >= under_way.t1_ns and under_way is self.all[-1] and under_way.last is NOTHING:
            self.end(now_ns)
        return under_way

    def _enter(self, number: int, now_ns: int) -> None:
        if number > 0:
            self.end(now_ns)
            self.all[number - 1].watch.stop()
            self.all[number].first = self.all[number - 1].last.renamed("t0")
        else:
            self.all[0].first = self._mark("t0")
        self._at = number
        self.driver(now_ns, always=True)

    def end(self, now_ns: int) -> None:
        """The phase under way ends, here or where it was to end."""
        if self._at >= 0:
            self.driver(now_ns, always=True)
            self.all[self._at].last = self._mark("t1")

    def _mark(self, phase: str) -> Mark:
        if not self._plan.experiment.observe or self.lost:
            return NOTHING
        mark = read_mark(self._server, phase, statements=True)
        self.lost = mark.lost or mark.refused
        return mark

    def driver(self, now_ns: int, *, always: bool = False) -> Progress:
        """How far the driver is, noted each second."""
        found, under_way = Progress(*self._load.progress()), self.all[max(0, self._at)]
        noted = under_way.progress
        if always or not noted or now_ns - noted[-1]["at_ns"] >= NS_PER_S:
            noted.append({"at_ns": now_ns, **dict(zip(found._fields[:4], found, strict=False))})
        return found

    def stop(self) -> None:
        """All observers."""
        for phase in self.all:
            phase.watch.stop()


def measured(
    server: Server,
    plan: Plan,
    cells: Sequence[Cell],
    unit: Unit,
    interrupt: drive.Interrupt,
    on_tick: Callable[[Cell], OnTick],
    beside: Beside,
) -> list[RawCell]:
    """One cell, or all phases of a repeat that began. ``on_tick`` is given the phase that begins.

    Raises what keeps the measurement from starting.
    """
    if not cells[0].phase:
        return [measure(server, plan, cells[0], unit, interrupt, on_tick(cells[0]), beside)]
    load = server.load(unit.workload, whole(cells), unit.calibration, False, None)
    cut = needed(load if isinstance(load, Windowed) else None, "measure in phases")
    presence = Presence(server)
    tick = on_tick(cells[0])
    try:
        tick("connecting", 0.0, Progress(0, 0, 0, 0), {})
        drive.connect(load, interrupt)
        beside.connected(load)
        phases = Phases(server, plan, load, cells)
        first = phases.watched()
        clock = Schedule.ahead(load, whole(cells))
        phases.schedule(clock.t0_ns, first)
        try:
            end_ns = _run(load, phases, clock, interrupt, on_tick, beside)
        finally:
            beside.live(None, load)
            phases.stop()
        tick("closing", 0.0, load.progress(), {})
        over_ns = load.now_ns()
        beside.leaving()
        drive.finish(load)
    except BaseException:
        load.abort()
        raise
    made = _Made(server, plan, unit, load, cut, phases, presence, clock.start_ns, over_ns)
    begun = [n for n, p in enumerate(phases.all) if p.t0_ns < end_ns or n == 0]
    return [made.cell(n, end_ns, interrupt) for n in begun]


def _run(
    load: Load,
    phases: Phases,
    clock: Schedule,
    interrupt: drive.Interrupt,
    on_tick: Callable[[Cell], OnTick],
    beside: Beside,
) -> int:
    """From the barrier to the end of the last session; the end of the measurement as it came to be."""
    shown: dict[str, Any] = {"cell": None, "tick": None}
    due = drive.asking(load)

    def tick() -> None:
        now_ns = load.now_ns()
        phase = phases.look(now_ns)
        if shown["cell"] is not phase.cell:
            shown.update(cell=phase.cell, tick=on_tick(phase.cell))
        settled = now_ns < phase.t0_ns
        if phase.t0_ns <= now_ns < phase.t1_ns:
            beside.live(phase.watch, load)
        words = "settling" if settled else "measuring" if now_ns < phase.t1_ns else "last calls"
        since_ns = now_ns - (clock.start_ns if phase is phases.all[0] else phase.t0_ns)
        if due(now_ns):
            shown["tick"](words, since_ns / NS_PER_S, phases.driver(now_ns), phase.watch.latest())

    end_ns = drive.run(load, clock.start_ns, clock.t0_ns, clock.t1_ns, interrupt, tick)
    if end_ns < clock.t1_ns:
        phases.end(load.now_ns())
    return end_ns


@dataclass(frozen=True)
class _Made:
    """Cells from what was measured."""

    server: Server
    plan: Plan
    unit: Unit
    load: Load
    cut: Windowed  # the same
    phases: Phases
    presence: Presence
    start_ns: int
    over_ns: int  # all sessions had ended

    def cell(self, number: int, end_ns: int, interrupt: drive.Interrupt) -> RawCell:
        """``end_ns``: of the whole measurement."""
        phase = self.phases.all[number]
        tables = self._tables(number, phase)
        end_ns = min(end_ns, phase.t1_ns)
        lost_ns = last_answer_ns(tables["sessions"], phase.t0_ns) if self.phases.lost else None
        if end_ns < phase.t1_ns and lost_ns is not None:
            end_ns = min(end_ns, lost_ns)
        clock = Schedule(self.start_ns, phase.t0_ns, phase.t1_ns)
        status, reason = verdict(clock, end_ns, tables["sessions"], self.phases.lost, interrupt)
        if away := self.presence.holes(phase.t0_ns, phase.t1_ns):
            status, reason = "invalid", max(away, key=lambda h: h.stopped_ns + h.suspended_ns).words
        meta = CellMeta(
            cell=phase.cell,
            workload=self.unit.workload,
            calibration=self.unit.calibration,
            start_ns=self.start_ns,
            t0_ns=phase.t0_ns,
            t1_ns=end_ns,
            end_ns=min(self.over_ns, phase.t1_ns) if number + 1 < len(self.phases.all) else self.over_ns,
            driver_threads=len(self.load.threads()),
            usable_cpus=cpus_under(self.plan.variant(phase.cell.variant).limits, self.plan.cpus),
            status=status,
            reason=reason,
            wait_families=self.server.wait_families,
        )
        return RawCell(meta, {name: tables.get(name, empty(name)) for name in RAW})

    def _tables(self, number: int, phase: _Phase) -> dict[str, pl.DataFrame]:
        tables = {**drive.window_frames(self.cut, number), **observe.frames(phase.watch)}
        if number > 0:  # the sessions were connected once
            never = (pl.lit(None, pl.Int64).alias(name) for name in ("connect_ns", "prepare_ns"))
            tables["sessions"] = tables["sessions"].with_columns(never)
        marks = (phase.first, phase.last)
        tables["counters"] = pl.concat([empty("counters"), *(m.counters for m in marks)])
        tables["backends"] = pl.concat([empty("backends"), *(m.backends for m in marks)])
        tables["host"] = pl.concat([tables.get("host", empty("host")), *(m.host for m in marks)])
        tables["progress"] = rows("progress", phase.progress)
        tables |= statement_tables(self.server, phase.first.statements, phase.last.statements)
        tables["sources"] = observe.sources(
            self.server,
            {n: tables.get(n, empty(n)) for n in RAW},
            enabled=self.plan.experiment.observe,
            reported=observe.WatchState.by(phase.watch),
        )
        if isinstance(phase.watch, observe.NoWatch):
            unseen = pl.col("status") == "not here"
            tables["sources"] = tables["sources"].with_columns(
                status=pl.when(unseen).then(pl.lit("lost")).otherwise("status"),
                detail=pl.when(unseen).then(pl.lit(self.phases.lost or LATE)).otherwise("detail"),
            )
        return tables


def checked(checks: DataChecks, raws: Sequence[RawCell]) -> list[RawCell]:
    """The data checks of a measurement, which are about all its phases together."""
    last = raws[-1]
    calls = pl.concat([r.tables["scripts"] for r in raws])
    together = checks.of(replace(last, tables={**last.tables, "scripts": calls}))
    if together.meta.status == last.meta.status:
        return list(raws)
    fault = {"status": together.meta.status, "reason": together.meta.reason}
    return [replace(r, meta=r.meta.model_copy(update=fault)) for r in raws]
