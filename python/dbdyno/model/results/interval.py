"""The interval between two snapshots.

Statuses of the rows of :class:`Interval`:

- ``ok``: the figures cover the whole interval
- ``new``: the object was created, or the statement first counted, within the interval: growth since then
- ``remade``: an object of this name was dropped and created again within the interval: growth since then
- ``reset``: growth since the counters were reset, a lower bound
- ``index dropped``: the figures cover the whole interval; index scans and blocks are those of the table's
  other indexes, a lower bound
- ``evicted``: the statement was evicted and counted again: growth since then, a lower bound
- ``gone``: the object does not exist at the end; its growth is unknown
- ``unread``: one of the snapshots could not read the object; its growth is unknown
- ``changed``: a setting has another value; ``value_was`` is the former one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import polars as pl

    from dbdyno.model.engine.snapshot import SnapshotInfo

LOWER_BOUNDS = ("reset", "evicted")
"""Statuses of rows whose growth is a lower bound because counting restarted."""
STANDING = ("ok", "new", "remade", "index dropped", "partition dropped", *LOWER_BOUNDS)
"""Statuses of rows that exist at the end and were counted."""
ALL = "all databases"
"""Stands in place of a database's name for the sums."""
CHECKPOINTS = ("checkpoints_timed", "checkpoints_requested")
ARCHIVE_FAILED = "wal_files_failed"
"""Counters of the whole server."""
PER_S = "_per_s"
"""Suffix of a counter's rate."""


class Reset(NamedTuple):
    what: str
    """statements, I/O, a database's name, or else the table of the snapshot."""
    at_s: float | None
    """Seconds since 1970; NULL if unknown, because only a decrease of values showed the reset."""
    how: Literal["reset", "objects", "fell"]
    """``objects``: single objects of this database only. ``fell``: detected by values that decreased."""


class LoadPoint(NamedTuple):
    """The load of all databases between two snapshots."""

    start: datetime
    """By the server's clock."""
    end: datetime
    transactions_per_s: float | None
    active_ns_per_s: float | None
    """DB time per second, by the server's clock."""
    reported: bool
    """True if the interval of the report contains it."""


@dataclass(frozen=True)
class Interval:
    """The difference of two snapshots. ``tables`` are those of a snapshot. Counters hold the growth; gauges
    hold the value at the end, and their change in ``*_growth``. ``status`` and ``seconds`` describe the time
    over which the row was counted."""

    first: SnapshotInfo
    last: SnapshotInfo
    seconds: float
    """Measured by the server's clock."""
    tables: Mapping[str, pl.DataFrame]
    restarted: datetime | None
    """The server's last start, if it lies within the interval."""
    resets: tuple[Reset, ...]
    evictions: int | None
    """Number of times that the server evicted rarely used statements; ``None`` if unknown."""
    texts: pl.DataFrame
    own_transactions: int
    """Transactions of dbdyno itself, which are subtracted from the commits."""


@dataclass(frozen=True)
class IntervalFigures:
    """Figures derived from an interval: shares, ratios, rates."""

    interval: Interval
    databases: pl.DataFrame
    """One row per counted database, most transactions first, then :data:`ALL`. It has the counters with
    ``transactions`` and ``logical_reads``, each also per second, and ``hit_ratio``."""
    statements: pl.DataFrame
    """The executed statements, most time first, with the columns of a run's table ``statements`` and the
    plans with their sums of squares."""
    relations: pl.DataFrame
    """Tables, most rows read first. Partitions are summed under the topmost table and counted in
    ``partitions``. ``name`` is qualified; ``rows_read`` includes sequential and index scans."""
    server: Mapping[str, tuple[int | None, float]]
    """Growth of each counter of the whole server, and the seconds over which it was counted."""
    large_scans: pl.DataFrame
    """The raw table ``large_scans``."""


@dataclass(frozen=True)
class TimeModel:
    """Session time of an interval by activity, from the windows of runs and observations within it."""

    runs: tuple[str, ...]
    windows: int
    covered_s: float
    """The part of :attr:`Interval.seconds` that these windows cover."""
    db_time_s: float
    parts: pl.DataFrame
    """``name`` (DB CPU | CPU WAIT | class/event), ``seconds`` with ``low`` and ``high``, ``share`` of DB
    time, ``waits`` and ``sleeps`` if traced, ``source``, with the largest first. Only the ten largest parts
    of each window are known."""


@dataclass(frozen=True)
class ObjectUse:
    """Tables and indexes that a measurement used, per call and per unit of work, with most blocks first."""

    cell: str
    per: str
    """``call``, or ``transaction`` for an observation."""
    work: str
    """Unit of work. If it is empty there is none, and ``*_per_work`` are NULL."""
    tables: pl.DataFrame
    """``name``; ``rows_read``, ``rows_written``, ``blocks``, ``blocks_read`` and ``scans`` per call;
    ``blocks_per_work``."""
    indexes: pl.DataFrame
    """The same columns as ``tables``. ``rows_read`` counts index entries, and there are no writes."""
