"""What an engine can do that makes tables of workloads: the wish, the tables in the making, the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class TableWish:
    """How a workload's tables are to be made. ``workers``: connections; 0: one for each CPU
    of this machine, at most 8. ``partition_method``: range or hash. ``parameters``: of the workload, besides
    ``scale``. ``on_demand``: tables of the same size stay however they were made, others are replaced, and
    parameters that say nothing about tables are passed over."""

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
    """``loaded_bytes``: as sent; ``size_bytes``: on disk, with indexes; ``checksum``: see docs/loader.md."""

    name: str
    rows: int
    loaded_bytes: int
    size_bytes: int
    checksum: int


class Preparation(Protocol):
    """Tables in the making."""

    rows: int
    """How many there will be; 0: they were there already."""
    workers: int

    def wait(self, timeout_s: float) -> bool:
        """True when all is done. Raises :class:`TargetError`, or the core's error."""

    def progress(self) -> tuple[str, int, int]:
        """What is done now, rows and bytes sent."""

    def finish(self) -> Sequence[PreparedTable]:
        """The tables, marked as complete."""

    def undo(self) -> Sequence[str]:
        """Ends what is under way and removes what was made. Returns the names of the tables."""


class Preparing(Protocol):
    """Tables of workloads that are made once and stay."""

    def preparable(self) -> Mapping[str, str]:
        """Workloads that have such tables: the names of these."""

    def begin(self, workload: str, wish: TableWish) -> Preparation:
        """Creates the tables and begins to load them. Raises :class:`UsageError` where tables of the same
        names were made otherwise."""

    def drop(self, workload: str) -> Sequence[str]:
        """Removes the tables that :meth:`begin` made; their names. Raises :class:`UsageError` where they were
        made otherwise."""
