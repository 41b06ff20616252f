"""A snapshot: what a server's statistics said at one moment, table by table.

The engine takes it, the room store keeps it, account makes the difference of two. Its tables:
:data:`dbdyno.model.schema.snapshot_tables.TABLES`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from dbdyno.model.schema.snapshot_tables import TABLES as TABLES
from dbdyno.model.schema.snapshot_tables import TEXTS as TEXTS
from dbdyno.model.schema.snapshot_tables import SnapshotTable as SnapshotTable

if TYPE_CHECKING:
    import polars as pl


class ServerCache(BaseModel):
    """The server's own cache of blocks, in bytes."""

    model_config = ConfigDict(frozen=True)

    cache_bytes: int
    block_bytes: int
    scan_bytes: int  # a sequential scan of a table larger than this does not fill the cache with it


class SnapshotInfo(BaseModel):
    """What stands in the list of snapshots. No credentials."""

    model_config = ConfigDict(frozen=True)

    id: str = ""  # YYYYMMDD-HHMMSS-xxxx of ``taken``, UTC; the store gives it
    name: str | None = None  # the user's: "before the release"
    taken: datetime  # UTC, the host's clock at the middle of reading
    server_time: datetime  # UTC, the server's clock then
    took_s: float
    engine: str
    server: str  # identity of the data directory: snapshots of different ones are not compared
    address: str  # host and port, or socket, without user or password
    version: str  # "18.4"
    version_num: int
    started: datetime | None  # when the server was started; None: not permitted
    standby: bool  # in recovery
    role: str  # that read it
    databases: tuple[str, ...]  # whose objects were read
    own_transactions: Mapping[
        str, int
    ] = {}  # by database, of taking it: the server counts them after the read
    own_before: Mapping[str, int] = {}  # the same, in what was read: since this process's snapshot before
    cache: ServerCache | None = None  # None: not known
    missing: Mapping[str, str] = {}  # table, or table.column -> why it is NULL or empty, with the cure
    run: str | None = None  # the run that took it; None: taken by itself
    cell: str | None = None  # the measurement of that run
    every_s: float | None = None  # one of a series that is taken so often; None: taken by hand
    phase: Literal["start", "end"] | None = None  # of it; the end of a window is the start of the next
    dbdyno: str = ""


@dataclass(frozen=True)
class Snapshot:
    """``tables``: by name of :data:`TABLES`, with exactly its columns; ``texts``: of statements that were not
    known yet (:data:`TEXTS`)."""

    info: SnapshotInfo
    tables: Mapping[str, pl.DataFrame]
    texts: pl.DataFrame


class Snapshotting(Protocol):
    """Statistics of objects, as they stand at one moment."""

    def keep_connection(self) -> None:
        """From now on the connection stays from one snapshot to the next: no process comes and goes."""

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        """Reads them without changing anything, with timeouts. ``databases``: whose objects, one connection
        each; None: those of the connected one; empty: of all that may be connected to. ``known``: query ids
        whose texts are not wanted. What may not be read is named in :attr:`SnapshotInfo.missing`. Raises
        :class:`TargetError` where the server is lost, or a database is not there."""
