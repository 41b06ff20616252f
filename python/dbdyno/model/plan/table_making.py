"""The capability of an engine to create tables of workloads: the request, the loading, the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class TableOptions:
    """Options of creating a workload's tables.

    ``workers`` is the number of connections; 0 stands for one per CPU of this machine, at most 8.
    ``partition_method`` is range or hash. ``parameters`` are those of the workload besides ``scale``.
    ``on_demand``: existing tables of the same size are kept and others replaced, and parameters that do not
    concern tables are ignored.
    """

    scale: int = 1
    seed: int = 42
    workers: int = 0
    fillfactor: int = 100
    partitions: int = 0
    partition_method: str = "range"
    unlogged: bool = False
    foreign_keys: bool = False
    tablespace: str | None = None
    index_tablespace: str | None = None
    vacuum: bool = True
    replace: bool = False
    on_demand: bool = False
    parameters: Mapping[str, int | str | float | bool] = field(default_factory=dict)


class PreparedTable(NamedTuple):
    """A table that was loaded. ``loaded_bytes`` is the size as sent, ``size_bytes`` the size on disk with
    indexes. docs/loader.md explains ``checksum``."""

    name: str
    rows: int
    loaded_bytes: int
    size_bytes: int
    checksum: int


class Preparation(Protocol):
    """Tables that are being loaded."""

    rows: int
    """Total number of rows; 0 if the tables existed already."""
    workers: int

    def wait(self, timeout_s: float) -> bool:
        """Waits and returns whether loading is complete. Raises :class:`TargetError`, or the core's error."""

    def progress(self) -> tuple[str, int, int]:
        """Returns the current step, and the rows and bytes sent so far."""

    def finish(self) -> Sequence[PreparedTable]:
        """Marks the tables as complete and returns them."""

    def undo(self) -> Sequence[str]:
        """Ends the loading, removes the tables and returns their names."""


class Preparing(Protocol):
    """Creates tables of workloads that stay until they are dropped."""

    def preparable(self) -> Mapping[str, str]:
        """Returns the workloads that have such tables, with the tables' names."""

    def begin(self, workload: str, options: TableOptions) -> Preparation:
        """Creates the tables and starts to load them. Raises :class:`UsageError` if tables of the same names
        were not created by this method."""

    def drop(self, workload: str) -> Sequence[str]:
        """Removes the tables that :meth:`begin` created and returns their names. Raises :class:`UsageError`
        if they were not created by it."""
