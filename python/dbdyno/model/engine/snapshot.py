"""A snapshot: a server's statistics at one moment, as tables.

An engine takes a snapshot, the room ``store`` keeps it, and ``account`` subtracts two. Its tables are
:data:`dbdyno.model.schema.snapshot_tables.TABLES`.
"""

from __future__ import annotations

import re
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

SINCE = ": since version "
"""Precedes the first version of a server that counts a figure, in the reason why it is missing."""


class ServerCache(BaseModel):
    """The server's own cache of blocks, in bytes."""

    model_config = ConfigDict(frozen=True)

    cache_bytes: int
    block_bytes: int
    scan_bytes: int  # a sequential scan of a larger table reuses a few blocks instead of filling the cache


class SnapshotInfo(BaseModel):
    """The entry of a snapshot in the list of snapshots. It contains no credentials."""

    model_config = ConfigDict(frozen=True)

    id: str = ""  # YYYYMMDD-HHMMSS-xxxx from ``taken`` in UTC, assigned by the store
    name: str | None = None  # chosen by the user: "before the release"
    taken: datetime  # UTC, the host's clock at the middle of reading
    server_time: datetime  # UTC, the server's clock at the same moment
    took_s: float
    engine: str
    server: str  # identity of the data directory: snapshots of different ones are not compared
    address: str  # host and port, or socket, without user or password
    version: str  # "18.4"
    version_num: int
    started: datetime | None  # start time of the server; None if not permitted
    standby: bool  # in recovery
    role: str  # the database role that read it
    databases: tuple[str, ...]  # the databases whose objects were read
    own_transactions: Mapping[
        str, int
    ] = {}  # transactions of taking the snapshot, by database; the server counts them after the read
    # own transactions in these figures, since this process's previous snapshot
    own_before: Mapping[str, int] = {}
    cache: ServerCache | None = None  # None if unknown
    missing: Mapping[str, str] = {}  # by table or table.column: why it is NULL or empty, with the remedy
    run: str | None = None  # the run that took it; None if it was taken by itself
    cell: str | None = None  # the measurement within that run
    every_s: float | None = None  # interval of the series that it belongs to; None if taken by hand
    # of the measurement; the end of a window is the start of the next
    phase: Literal["start", "end"] | None = None
    dbdyno: str = ""

    @property
    def major(self) -> str:
        """The major version of the server; in another one the same statement may have another id."""
        number = re.match(r"\d+", self.version)
        return number[0] if number else self.version


@dataclass(frozen=True)
class Snapshot:
    """``tables`` holds a frame for each name in :data:`TABLES`, with exactly its columns. ``texts`` holds
    the texts of statements that were not known yet (:data:`TEXTS`)."""

    info: SnapshotInfo
    tables: Mapping[str, pl.DataFrame]
    texts: pl.DataFrame


class Snapshotting(Protocol):
    """Reads statistics of database objects as they are at one moment."""

    def keep_connection(self) -> None:
        """Keeps one connection open across snapshots, so that no server process starts or ends between
        them."""

    def snapshot(self, name: str | None, databases: Sequence[str] | None, known: Container[int]) -> Snapshot:
        """Reads the statistics with timeouts and without changing anything.

        Reads the objects of the given ``databases`` with one connection each, of the connected database if
        it is None, and of all databases that permit a connection if it is empty. ``known`` lists query ids
        whose texts are not needed. :attr:`SnapshotInfo.missing` names the parts that may not be read. Raises
        :class:`TargetError` if the connection is lost or a database does not exist.
        """
