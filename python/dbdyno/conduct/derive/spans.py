"""An observation over time: its windows, the figures of a span of them, and two spans side by side.

What was read of an observation stays in memory for the next span.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from dbdyno import present
from dbdyno.account.load_profile import events_together
from dbdyno.account.making import make
from dbdyno.account.spans import Ordered, Pooled, Span
from dbdyno.conclude.catalogue import worded
from dbdyno.conclude.compare.spans import SpanFigures, compare_spans
from dbdyno.conduct.derive.derive import held, sources_of
from dbdyno.conduct.derive.rebuild import results_of
from dbdyno.conduct.derive.stored_environment import environment_of
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.plan.kinds import OBSERVATION, kind_of
from dbdyno.model.results.ledger_rows import TOGETHER, groups
from dbdyno.model.results.results import Query, Results
from dbdyno.model.results.span_comparison import SpanComparison
from dbdyno.model.schema.derived import sessions_in
from dbdyno.model.schema.tables import DERIVED, empty
from dbdyno.model.units import NS_PER_S
from dbdyno.store import Parts, Run
from dbdyno.store.listing import rebuild_cure

_SECONDS = "event_seconds"
_Read = Callable[[str], pl.DataFrame]


class Chosen(NamedTuple):
    """Whole windows, and their time in seconds since 1970."""

    span: Span
    start_s: float
    end_s: float


class ObservedTime:
    """An observation whose spans can be chosen. Times are in seconds since 1970."""

    def __init__(self, record: Run) -> None:
        """Raises :class:`UsageError` if the run is no observation or has no windows, and
        :class:`StoreError`."""
        if not kind_of(record.plan).among((OBSERVATION,)):
            raise UsageError(
                f"run {record.id} is no observation: it has no windows in time",
                f"its page is /run/{record.id}",
            )
        self._record = record
        self.whole_results, read = _of_parts(record) if record.info.status == "running" else _of_ended(record)
        windows = self.whole_results.tables["windows"].filter(pl.col("cell") != TOGETHER).sort("t0_ns")
        if windows.is_empty():
            raise UsageError(
                f"run {record.id} has no window yet"
                if record.info.status == "running"
                else f"run {record.id} has no windows: it ended before its first one",
                "wait for the first one, and open the page again"
                if record.info.status == "running"
                else "dbdyno observe measures again",
            )
        self._windows, self._read, self._lock = windows, read, threading.Lock()
        self._ordered = Ordered(windows, read)
        self._names = frozenset({*self.whole_results.tables, _SECONDS})
        info = self.whole_results.info
        begun_s = info.started.timestamp() - info.started_monotonic_ns / NS_PER_S
        self.starts_s, self.ends_s = (windows[n].to_numpy() / NS_PER_S + begun_s for n in ("t0_ns", "t1_ns"))
        self._pooled: OrderedDict[Span, Results] = OrderedDict()

    @property
    def whole(self) -> Chosen:
        return self._chosen(Span(0, len(self.starts_s)))

    def size(self) -> int:
        """Returns the bytes that are held in memory."""
        return self._ordered.size()

    def whole_once(self) -> Results:
        """Returns the results of all windows, to be drawn. Its tables are not held, as those of
        :meth:`results` are, and the ledger is that of all sessions together."""

        def read(table: str) -> pl.DataFrame:
            rows = self._read(table)
            return rows.filter(pl.col("scope") == "rung") if table == "ledger" else rows

        ordered, span = Ordered(self._windows, read), self.whole.span
        return self._results(Pooled(ordered, span, self._names, self._asking(span)))

    def _results(self, tables: Pooled) -> Results:
        base = self.whole_results
        return Results(base.info, base.plan, base.environment, tables, ())

    def chosen(self, start_s: float | None, end_s: float | None) -> Chosen:
        """Returns the windows between two times; None stands for the begin or the end of the observation.

        A window belongs to the span that has its middle; a shorter span is the window that it lies in.
        Raises :class:`UsageError` if there are none.
        """
        whole = self.whole
        start, end = whole.start_s if start_s is None else start_s, whole.end_s if end_s is None else end_s
        if end <= start:
            raise UsageError("the span ends before it begins", "from an earlier time to a later one")
        middles = (self.starts_s + self.ends_s) / 2
        first, last = (int(n) for n in np.searchsorted(middles, [start, end]))
        if first == last:
            first = int(np.searchsorted(self.ends_s, (start + end) / 2, side="right"))
            inside = first < len(middles) and self.starts_s[first] <= (start + end) / 2
            last = first + 1 if inside else first
        if first == last:
            known = present.span_times(self.whole_results, whole.start_s, whole.end_s)
            raise UsageError(
                f"nothing was measured from {present.span_times(self.whole_results, start, end)}",
                f"choose a time within the observation ({known}) in which there are windows",
            )
        return self._chosen(Span(first, last))

    def _chosen(self, span: Span) -> Chosen:
        return Chosen(span, float(self.starts_s[span.first]), float(self.ends_s[span.end - 1]))

    def results(self, chosen: Chosen) -> Results:
        """Returns the results of these windows alone; everything about all windows together is of them."""
        span = chosen.span
        with self._lock:
            if span not in self._pooled:
                tables = Pooled(self._ordered, span, self._names, self._asking(span))
                self._pooled[span] = self._results(tables)
                while len(self._pooled) > _POOLED:
                    self._pooled.popitem(last=False)
            return self._pooled[span]

    def compared(self, a: Chosen, b: Chosen) -> SpanComparison:
        """Returns B compared with A."""
        return compare_spans(self._figures(a), self._figures(b))

    def _figures(self, chosen: Chosen) -> SpanFigures:
        tables = self.results(chosen).tables
        profile, windows = tables["profile"], tables["windows"]
        (_, cells), *_ = groups(windows)
        all_cells = pl.col("cell") == TOGETHER
        usable = windows.filter(pl.col("cell").is_in([w["cell"] for w in cells])).select("cell", "wall_s")
        each = profile.filter(~all_cells).select("cell", "name", "total")
        return SpanFigures(
            events_together(cells, tables[_SECONDS]),
            tables["statements"].filter(all_cells),
            profile.filter(all_cells),
            tables["device_io"].filter(all_cells),
            float(usable["wall_s"].sum()),
            each.join(usable, on="cell", how="inner", maintain_order="left"),
        )

    def _asking(self, span: Span) -> Callable[[str, Query], pl.DataFrame]:
        cells = self._ordered.windows["cell"].slice(span.first, span.end - span.first)

        def ask(table: str, query: Query) -> pl.DataFrame:
            only = sessions_in(table) == "all"
            rows = (empty(table) if only else self._ordered.of(table, span)).lazy()
            if sessions_in(table) == "none":
                return query(rows).collect()
            parts, inside = self._record.parts, pl.col("cell").is_in(cells.implode())
            names = parts.of_cells(cells[0], cells[-1])
            return parts.ask(table, lambda more: query(pl.concat([rows, more.filter(inside)])), names)

        return ask


_POOLED = 4
"""Spans whose figures stay: the one that is shown, its baseline, and those that the reader goes back to."""


def _of_ended(record: Run) -> tuple[Results, _Read]:
    """Returns what was derived at the run's end, and a function that reads a table of it."""
    results = results_of(record, lambda _: None)

    def read(table: str) -> pl.DataFrame:
        if table == _SECONDS:
            return _read_parts(record.parts, table)
        stored = record.read_table(table) if table in DERIVED and sessions_in(table) != "all" else None
        return results.tables[table] if stored is None else stored

    return results, read


def _of_parts(record: Run) -> tuple[Results, _Read]:
    """Returns what was derived so far of a run that is going on, without conclusions."""
    derived, environment = frozenset(held()), environment_of(record)
    tables: dict[str, pl.DataFrame] = {}

    def read(table: str) -> pl.DataFrame:
        if table == "sources":
            return sources_of(environment, _read_parts(record.parts, "cell_sources"))
        rows = _read_parts(record.parts, table) if table in derived else empty(table)
        return next((frame for _, frame in make("end", {table: rows}, {}, only=table)), rows)

    for table in (*DERIVED, "sources", "wait_families"):
        if table == "windows" or not (table in derived or sessions_in(table) == "all"):
            tables[table] = read(table)
    known = _OnAccess(tables, frozenset({*tables, *derived}), read)
    return Results(record.info, worded(record.plan), environment, known, ()), read


class _OnAccess(Mapping[str, pl.DataFrame]):
    """Tables, some of which are read each time they are asked for."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], names: frozenset[str], read: _Read) -> None:
        self._tables, self._names, self._read = tables, names, read

    def __getitem__(self, table: str) -> pl.DataFrame:
        if table not in self._names:
            raise KeyError(table)
        return self._tables[table] if table in self._tables else self._read(table)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _read_parts(parts: Parts, table: str) -> pl.DataFrame:
    """Returns the rows of all parts. If some were merged meanwhile, they are read again: rows could be
    missing, or there twice."""
    failed = StoreError(f"the derived tables in {parts.path} are being replaced", "open the page again")
    for _ in range(_TRIES):
        before = parts.inodes()
        try:
            rows = pl.concat([empty(table), *(parts.read_one(n, [table])[table] for n in before)])
        except StoreError as error:
            failed = StoreError(error.message, error.cure or rebuild_cure(parts.run))
            continue
        if parts.inodes() == before:
            return rows
    raise failed


_TRIES = 3


class RecentObservations:
    """The observations that were looked at last, ready for the next span."""

    _MOST, _MOST_BYTES = 3, 192 << 20
    """Observations, and bytes of the tables of all but the last one."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[object, ObservedTime]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, record: Run) -> ObservedTime:
        """Returns the observation as it is now: one that is going on is read again when it has grown."""
        with self._lock:
            version, known = _version(record), self._known.pop(record.id, None)
            time = known[1] if known is not None and known[0] == version else ObservedTime(record)
            self._known[record.id] = (version, time)
            others = [t.size() for _, t in self._known.values()][:-1]
            while others and (len(others) >= self._MOST or sum(others) > self._MOST_BYTES):
                others.pop(0)
                self._known.popitem(last=False)
            return time


def _version(record: Run) -> object:
    """Returns a value that changes when more is derived or it is derived again."""
    stats = []
    for path in (record.path / "run.json", record.parts.path, record.path / "derived"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            stats.append((stat.st_ino, stat.st_mtime_ns))
    return tuple(stats)
