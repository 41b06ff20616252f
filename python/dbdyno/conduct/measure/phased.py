"""Phases: one measurement of the driver, cut into windows.

The reads of the server at the end of one phase are those at the start of the next. Each phase has its own
observers, opened shortly before the previous phase ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import polars as pl

from dbdyno import drive, observe
from dbdyno.conduct.measure.cell import (
    NOTHING,
    Mark,
    Schedule,
    Setting,
    Unit,
    last_answer_ns,
    note_progress,
    read_mark,
    statement_tables,
    verdict,
)
from dbdyno.conduct.measure.measurement import Span
from dbdyno.conduct.measure.presence import Presence
from dbdyno.model.engine.protocols import Load, Progress, Watch, needed
from dbdyno.model.errors import HostLost, TargetError
from dbdyno.model.plan.phases import Windowed
from dbdyno.model.plan.plan import Cell, cpus_under
from dbdyno.model.results.raw import CellMeta, RawCell
from dbdyno.model.schema.tables import RAW, empty, raw, rows
from dbdyno.plan import whole

OPENED_NS = 700_000_000
"""Observers of a phase are opened this time before it, or twice the time that opening the first ones took."""
LATE = "the phase before was too short to open the observers of this one beside it"


@dataclass
class _Phase(Span):
    first: Mark = NOTHING
    last: Mark = NOTHING
    progress: list[dict[str, int]] = field(default_factory=list)


class Phases:
    """See :class:`dbdyno.conduct.measure.measurement.Windows`."""

    def __init__(self, setting: Setting, load: Load, cells: Sequence[Cell], unit: Unit) -> None:
        self._setting, self._server, self._load, self._unit = setting, setting.server, load, unit
        self._cut = needed(load if isinstance(load, Windowed) else None, "measure in phases")
        self._presence = Presence(setting.server)
        self._whole = whole(cells)
        self._all = [_Phase(cell) for cell in cells]
        self._at = -1  # index of the current phase; -1 before the first
        self._opened = 0
        self._lead_ns = OPENED_NS
        self._lost: str | None = None  # the error of a server that no longer answered

    def connecting(self) -> None:
        """Reads nothing: counters of the whole measurement would belong to no phase."""

    def open(self) -> Schedule:
        watch = self._watch()
        self._schedule = Schedule.ahead(self._load, self._whole)
        begun_ns, t0_ns = self._schedule.start_ns, self._schedule.t0_ns
        for phase in self._all:
            phase.begun_ns, phase.t0_ns, phase.t1_ns = begun_ns, t0_ns, t0_ns + phase.cell.measure_ns
            begun_ns = t0_ns = phase.t1_ns
        first = self._all[0]
        first.watch = watch
        watch.start(first.t0_ns, first.t1_ns)
        return self._schedule

    def look(self, now_ns: int) -> Span:
        while self._at + 1 < len(self._all) and now_ns >= self._all[self._at + 1].t0_ns:
            self._enter(self._at + 1, now_ns)
        phase = self._all[max(0, self._at)]
        if now_ns >= phase.t1_ns - self._lead_ns:
            self._open_next(self._at + 1)
        if now_ns >= phase.t1_ns and phase is self._all[-1] and phase.last is NOTHING:
            self._end(now_ns)
        return phase

    def driver(self, now_ns: int) -> Progress:
        return self._driver(now_ns)

    def broken_off(self) -> None:
        self._end(self._load.now_ns())

    def host_lost(self, error: HostLost) -> int:
        raise error

    def stop(self) -> None:
        for phase in self._all:
            phase.watch.stop()

    def over(self, now_ns: int) -> None:
        self._over_ns = now_ns

    def leave(self) -> None:
        drive.finish(self._load)

    def cells(self, end_ns: int) -> list[RawCell]:
        begun = [n for n, p in enumerate(self._all) if p.t0_ns < end_ns or n == 0]
        return [self._cell(n, end_ns) for n in begun]

    # -- while it goes on ---------------------------------------------------------------------------
    def _watch(self) -> Watch:
        """Returns observers that are still to be started."""
        begun_ns = self._load.now_ns()
        how = observe.How.of(self._setting.plan.experiment)
        watch = observe.open_watch(self._server, self._load, how)
        self._lead_ns = max(self._lead_ns, 2 * (self._load.now_ns() - begun_ns))
        return watch

    def _open_next(self, number: int) -> None:
        """Opens the observers of a phase, once."""
        if number <= self._opened or number >= len(self._all) or self._lost:
            return
        self._opened, phase = number, self._all[number]
        with suppress(TargetError):  # the sessions will notice the loss
            watch = self._watch()
            if self._load.now_ns() >= phase.t0_ns:
                watch.stop()
            else:
                watch.start(phase.t0_ns, phase.t1_ns)
                phase.watch = watch

    def _enter(self, number: int, now_ns: int) -> None:
        if number > 0:
            self._end(now_ns)
            self._all[number - 1].watch.stop()
            self._all[number].first = self._all[number - 1].last.renamed("t0")
        else:
            self._all[0].first = self._mark("t0")
        self._at = number
        self._driver(now_ns, always=True)

    def _end(self, now_ns: int) -> None:
        """Ends the current phase, now or at its planned end."""
        if self._at >= 0:
            self._driver(now_ns, always=True)
            self._all[self._at].last = self._mark("t1")

    def _mark(self, name: str) -> Mark:
        if not self._setting.plan.experiment.observe or self._lost:
            return NOTHING
        mark = read_mark(self._server, name, statements=True)
        self._lost = mark.lost or mark.refused
        return mark

    def _driver(self, now_ns: int, *, always: bool = False) -> Progress:
        return note_progress(self._load, self._all[max(0, self._at)].progress, now_ns, always=always)

    # -- what was measured --------------------------------------------------------------------------
    def _cell(self, number: int, end_ns: int) -> RawCell:
        """Returns the cell of a phase. ``end_ns`` is the end of the whole measurement."""
        phase, plan, start_ns = self._all[number], self._setting.plan, self._schedule.start_ns
        tables = self._tables(number, phase)
        end_ns = min(end_ns, phase.t1_ns)
        lost_ns = last_answer_ns(tables["sessions"], phase.t0_ns) if self._lost else None
        if end_ns < phase.t1_ns and lost_ns is not None:
            end_ns = min(end_ns, lost_ns)
        at = Schedule(start_ns, phase.t0_ns, phase.t1_ns)
        status, reason = verdict(at, end_ns, tables["sessions"], self._lost, self._setting.interrupt)
        if (away := self._presence.away(phase.t0_ns, phase.t1_ns)) is not None:
            status, reason = "invalid", away
        last = number + 1 == len(self._all)
        meta = CellMeta(
            cell=phase.cell,
            workload=self._unit.workload,
            calibration=self._unit.calibration,
            start_ns=start_ns,
            t0_ns=phase.t0_ns,
            t1_ns=end_ns,
            end_ns=self._over_ns if last else min(self._over_ns, phase.t1_ns),
            driver_threads=len(self._load.threads()),
            usable_cpus=cpus_under(plan.variant(phase.cell.variant).limits, plan.cpus),
            status=status,
            reason=reason,
            wait_families=self._server.wait_families,
        )
        return RawCell(meta, {name: tables.get(name, empty(raw(name))) for name in RAW})

    def _tables(self, number: int, phase: _Phase) -> dict[str, pl.DataFrame]:
        tables = {**drive.window_frames(self._cut, number), **observe.frames(phase.watch)}
        if number > 0:  # the sessions connect only once
            never = (pl.lit(None, pl.Int64).alias(name) for name in ("connect_ns", "prepare_ns"))
            tables["sessions"] = tables["sessions"].with_columns(never)
        marks = (phase.first, phase.last)
        tables["counters"] = pl.concat([empty("counters"), *(m.counters for m in marks)])
        tables["backends"] = pl.concat([empty("backends"), *(m.backends for m in marks)])
        tables["host"] = pl.concat([tables.get("host", empty("host")), *(m.host for m in marks)])
        tables["progress"] = rows("progress", phase.progress)
        tables |= statement_tables(self._server, phase.first.statements, phase.last.statements)
        tables["sources"] = observe.sources(
            self._server,
            {n: tables.get(n, empty(raw(n))) for n in RAW},
            enabled=self._setting.plan.experiment.observe,
            reported=observe.WatchState.by(phase.watch),
        )
        if isinstance(phase.watch, observe.NoWatch):
            unseen = pl.col("status") == "not here"
            tables["sources"] = tables["sources"].with_columns(
                status=pl.when(unseen).then(pl.lit("lost")).otherwise("status"),
                detail=pl.when(unseen).then(pl.lit(self._lost or LATE)).otherwise("detail"),
            )
        return tables
