"""Takes snapshots at the start and the end of each measurement and keeps them in the run.

They are taken outside of measurements: before the first session connects, and after the last has left.
Windows of an observation follow one another without a gap, so there a snapshot is taken while the next
window is in progress, as often as its cost allows: its duration, counted as if it had kept the server busy,
is at most :data:`COST` of the time since the previous one. The end of one window is the start of the next.

Counters of statements are read again with each snapshot: it is one transaction, and rarer than the ends of
windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import polars as pl

from dbdyno.account.growth import growth
from dbdyno.account.snapshot_figures import figures, used_per
from dbdyno.account.snapshots import interval
from dbdyno.account.table_scans import large_scans
from dbdyno.conduct.companion import Companion
from dbdyno.model.engine.protocols import Clock, Server
from dbdyno.model.engine.snapshot import Snapshot, SnapshotInfo
from dbdyno.model.errors import TargetError, UsageError
from dbdyno.model.plan.plan import Cell, Plan
from dbdyno.model.results.interval import ALL, IntervalFigures, ObjectUse
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.model.sources.source import Source
from dbdyno.model.units import format_ns
from dbdyno.store import Run, SnapshotStore

SOURCE = "snapshots"
COST = 0.01
"""Share of a CPU of the server that snapshots may take."""
_ROOM = 2
"""A snapshot beside a window needs this multiple of the last one's duration before the window ends."""
Phase = Literal["start", "end"]


class MeasurementSnapshots(Companion):
    """The snapshots of one run. A snapshot that cannot be taken is left out, and the data source has the
    reason."""

    def __init__(
        self, server: Server, plan: Plan, record: Run, clock: Clock, *, observing: bool = False
    ) -> None:
        self._clock, self._run, self._observing = clock, record.id, observing
        self._wanted = wanted(plan, server)
        self._taking = server.snapshots if self._wanted else None
        if self._taking is not None and observing:
            self._taking.keep_connection()
        self._supported = server.snapshots is not None
        self._store = SnapshotStore(record.path)
        self._known: set[int] = set()
        self._frames: dict[Phase, Snapshot] = {}  # of the current measurement
        self._scans: list[pl.DataFrame] = []  # between consecutive snapshots since the last measurement
        self._grown: dict[str, pl.DataFrame] = {}  # growth over the measurement
        self._taken_ns, self._took_ns = 0, 0
        self._samples = 0  # samples since the last snapshot; each is a transaction of dbdyno
        self._why = ""  # the error of the last snapshot

    def before(self, cell: Cell) -> None:
        self._take(cell.id, "start")

    def after(self, raws: Sequence[RawCell]) -> Sequence[RawCell]:
        """Adds the growth to the measurement: for phases to the last one. In an observation, :meth:`between`
        takes the snapshot at the end of a window, or :meth:`last` if none follows."""
        for raw in raws:  # samples are dbdyno's own transactions
            self._samples += raw.tables["sampler"].filter(pl.col("via").fill_null("sql") == "sql").height
        if not self._observing:
            self._take(raws[-1].id, "end")
        if not self._wanted and not self._supported:
            return raws
        return [self._with_source(raw, last=raw is raws[-1]) for raw in raws]

    def between(self, cell: Cell, left_ns: int) -> None:
        """Takes a snapshot if its cost allows."""
        since_ns = self._clock.now_ns() - self._taken_ns
        if self._took_ns <= COST * since_ns and _ROOM * self._took_ns <= left_ns:
            self._take(cell.id, "end")

    def last(self, cell: Cell) -> None:
        self._take(cell.id, "end")

    def _take(self, cell: str, phase: Phase) -> None:
        """Raises :class:`StoreError`."""
        if self._taking is None:
            return
        self._frames.pop(phase, None)
        self._grown = {}
        begun_ns = self._clock.now_ns()
        try:
            snapshot = self._taking.snapshot(None, None, self._known)
        except TargetError as error:
            self._why = error.message
            return
        own = dict(snapshot.info.own_before)
        if own and self._taken_ns:
            here = snapshot.info.databases[0]
            own[here] = own.get(here, 0) + self._samples
        if phase == "end" and "start" in self._frames:
            between = interval(self._frames["start"], snapshot)
            self._scans.append(large_scans(between))
            if not self._observing:  # in an observation, other users make the changes
                self._grown = {"growth": growth(between)}
        self._frames["start" if self._observing else phase] = snapshot  # the start of the next window
        added = {"run": self._run, "cell": cell, "phase": phase, "own_before": own}
        self._store.add(replace(snapshot, info=snapshot.info.model_copy(update=added)))
        self._known |= set(snapshot.texts["query_id"].drop_nulls())
        self._taken_ns, self._why, self._samples = self._clock.now_ns(), "", 0
        self._took_ns = self._taken_ns - begun_ns

    def _with_source(self, raw: RawCell, *, last: bool) -> RawCell:
        """Returns the cell with the row of this data source."""
        status, detail = self._status()
        source = Source(name=SOURCE, provenance=PROVENANCE, status=status, detail=detail)
        line = rows("sources", [source.model_dump()])
        tables = {**raw.tables, "sources": pl.concat([raw.tables["sources"], line])}
        return replace(raw, tables=tables | (self._grown | self._between() if last else {}))

    def _between(self) -> dict[str, pl.DataFrame]:
        """Returns the difference of two snapshots, computed once."""
        scans, self._scans = self._scans, []
        return {"large_scans": pl.concat(scans)} if scans else {}

    def _status(self) -> tuple[Literal["ok", "off", "not supported", "lost"], str]:
        if not self._supported:
            return "not supported", "this engine takes no snapshots"
        if not self._wanted:
            return "off", "switched off with --no-snapshots"
        if self._why:
            return "lost", self._why
        often = f"; one took {format_ns(self._took_ns)}" if self._took_ns else ""
        return "ok", f"dbdyno report RUN --sessions N, --window N{often}"


PROVENANCE = "the server's statistics of databases, tables, indexes and statements, before and after"


def wanted(plan: Plan, server: Server) -> bool:
    """Returns whether snapshots are taken: by default yes, except of a simulated server."""
    chosen = plan.experiment.snapshots
    return server.world is None if chosen is None else chosen


# Reading them.


def measured(record: Run, cell: str) -> tuple[IntervalFigures, Sequence[str], Sequence[str]]:
    """Returns the server's statistics over a measurement, the measurements that its snapshots cover, and
    notes on both. Raises :class:`UsageError` without snapshots."""
    store, cells = SnapshotStore(record.path), record.cells()
    place = cells.index(cell)
    placed = [(_place(i, cells), i) for i in store.list()]
    before = [(p, i) for p, i in placed if p is not None and p <= place]
    after = [(p, i) for p, i in placed if p is not None and p > place]
    if not before or not after:
        raise UsageError(f"measurement {cell} has no snapshots{_why(record, cell)}", "dbdyno run --snapshots")
    (start, a), (end, b) = before[-1], after[0]
    covered = cells[start:end]
    infos = [i for _, i in placed]
    between = infos[infos.index(a) + 1 : infos.index(b)]
    notes = []
    if len(covered) > 1:
        notes = [
            f"Snapshots were taken as often as their cost allows: this covers {covered[0]} to {covered[-1]}."
        ]
    return figures(interval(store.read(a), store.read(b), between)), covered, notes


def object_use(record: Run, results: Results, cell: str | None) -> ObjectUse:
    """Returns the use of objects in ``cell``, by default the cell with the most sessions or the last window.
    Raises :class:`UsageError`."""
    windows = results.tables["windows"].filter(pl.col("status") != "invalid").sort("sessions", "t0_ns")
    if cell is None and windows.is_empty():
        raise UsageError("the run has no usable measurement", "dbdyno show RUN --claims")
    cell = cell or str(windows["cell"][-1])
    interval_figures, covered, _ = measured(record, cell)
    calls = sum(record.read_cell(c).tables["sessions"]["calls_total"].sum() for c in covered)
    if not calls:
        transactions = interval_figures.databases.filter(pl.col("database") == ALL)["transactions"].sum()
        return ObjectUse(
            cell, "transaction", "", *used_per(interval_figures, float(max(transactions, 1)), None)
        )
    meta = record.read_cell(cell).meta
    rungs = results.tables["rungs"]
    same_rungs = rungs.filter(
        (pl.col("variant") == meta.cell.variant) & (pl.col("sessions") == meta.cell.sessions)
    )
    each = same_rungs["work_per_call"].drop_nulls()
    work = calls * each[0] if len(each) else None
    return ObjectUse(
        cell,
        "call",
        meta.workload.work_short if work else "",
        *used_per(interval_figures, float(calls), work),
    )


def _place(info: SnapshotInfo, cells: Sequence[str]) -> int | None:
    """Returns the number of measurements that were complete; None for a measurement that was not saved."""
    if info.cell not in cells:
        return len(cells) if info.phase == "start" else None
    return cells.index(info.cell) + (info.phase == "end")


def _why(record: Run, cell: str) -> str:
    lines = record.read_cell(cell).tables["sources"].filter(pl.col("name") == SOURCE)
    if lines.is_empty():
        return ": the run is of an earlier version"
    return f": {lines['status'][0]}, {lines['detail'][0]}" if lines["status"][0] != "ok" else ""
