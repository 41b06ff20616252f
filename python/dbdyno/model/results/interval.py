"""What two snapshots say together.

Statuses of the rows of :class:`Interval`:

- ``ok``: over the whole interval
- ``new``: the object was made, or the statement first counted, in between: growth since then
- ``remade``: an object of this name was dropped in between, and this one made: growth since then
- ``reset``: growth since the counters were reset, a lower bound
- ``index dropped``: over the whole interval; index scans and blocks are those of the table's other indexes, a
  lower bound
- ``evicted``: the statement was dropped and counted anew: growth since then, a lower bound
- ``gone``: not there at the end; how much it grew is not known
- ``unread``: one of the snapshots could not read it: not known
- ``changed``: of settings, with ``value_was``
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
"""Statuses of rows whose growth is a lower bound, as counting began anew."""
STANDING = ("ok", "new", "remade", "index dropped", "partition dropped", *LOWER_BOUNDS)
"""Statuses of rows that are there at the end and were counted."""
ALL = "all databases"
"""In place of a database's name: the sums."""
CHECKPOINTS = ("checkpoints_timed", "checkpoints_requested")
ARCHIVE_FAILED = "wal_files_failed"
"""Counters of the whole server."""
PER_S = "_per_s"
"""Ending of the rate of a counter."""


class Reset(NamedTuple):
    what: str
    """statements, I/O, a database's name ..., else the table of the snapshot."""
    at_s: float | None
    """Seconds since 1970; NULL: not known, values fell."""
    how: Literal["reset", "objects", "fell"]
    """``objects``: single objects of this database only. ``fell``: seen by values that fell."""


@dataclass(frozen=True)
class Interval:
    """``tables``: as those of a snapshot; counters are growth, gauges are of the end and have their change as
    ``*_growth``; with ``status`` and ``seconds``, over which the row was counted."""

    first: SnapshotInfo
    last: SnapshotInfo
    seconds: float
    """By the server's clock."""
    tables: Mapping[str, pl.DataFrame]
    restarted: datetime | None
    """The server's last start, where it was in between."""
    resets: tuple[Reset, ...]
    evictions: int | None
    """Times that the server dropped rare statements; ``None``: unknown."""
    texts: pl.DataFrame
    own_transactions: int
    """Transactions of dbdyno's own: they are taken off commits."""


@dataclass(frozen=True)
class IntervalFigures:
    """What is said of an interval: shares, ratios, rates."""

    interval: Interval
    databases: pl.DataFrame
    """A row for each that was counted, most transactions first, then :data:`ALL`: counters with
    ``transactions`` and ``logical_reads``, each also per second, and ``hit_ratio``."""
    statements: pl.DataFrame
    """Executed ones, most time first: as table ``statements`` of a run, with ``plans`` and its squares."""
    relations: pl.DataFrame
    """Tables with their partitions summed under the topmost one (``partitions``: how many), most rows read
    first; ``name`` is qualified, ``rows_read`` by sequential and index scans together."""
    server: Mapping[str, tuple[int | None, float]]
    """Growth of each counter of the whole server, and its seconds."""
    large_scans: pl.DataFrame
    """The raw table of this name."""


@dataclass(frozen=True)
class TimeModel:
    """Where session time went in an interval: from the windows of runs and observations that lie in it."""

    runs: tuple[str, ...]
    windows: int
    covered_s: float
    """Part of :attr:`Interval.seconds`."""
    db_time_s: float
    parts: pl.DataFrame
    """``name`` (DB CPU | CPU WAIT | class/event), ``seconds`` with ``low`` and ``high``, ``share`` of DB
    time, ``waits`` and ``sleeps`` where traced, ``source``; the largest first. Of each window the ten largest
    are known."""


@dataclass(frozen=True)
class ObjectUse:
    """Tables and indexes that a measurement used, per call and per unit of work; most blocks first."""

    cell: str
    per: str
    """call, or of an observation: transaction."""
    work: str
    """Unit of work; empty: there is none, and ``*_per_work`` are NULL."""
    tables: pl.DataFrame
    """``name``; ``rows_read``, ``rows_written``, ``blocks``, ``blocks_read`` and ``scans`` per call;
    ``blocks_per_work``."""
    indexes: pl.DataFrame
    """The same; ``rows_read`` are entries, and none are written."""
