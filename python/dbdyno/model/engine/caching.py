"""What an engine can say of its own cache, of the files that its relations are in, and of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import polars as pl

from dbdyno.model.schema.data_source import Step
from dbdyno.model.sources.source import Status


class Processes(NamedTuple):
    """The server's processes on this host; ``status`` says why there are none."""

    roles: Mapping[int, str]  # by process, as in the table memory_processes
    main_pid: int | None  # of its main process, by which its control group is found
    status: Status = "ok"
    detail: str = ""  # where the status is not ok: why, and the cure


class State(NamedTuple):
    """How far a read got; the status is ok where at least a part of it did."""

    status: Status = "ok"
    detail: str = ""  # what is not known, why, and the cure
    steps: tuple[Step, ...] = ()  # that would make it known


class Caching(Protocol):
    """Where the pages of a server's data are."""

    def cached(self, phase: str, most_ns: int) -> Mapping[str, pl.DataFrame]:
        """Rows of the tables ``memory`` (scope ``server``) and ``memory_relations``.

        With the page cache where the server's files can be looked at from here. ``most_ns``: about so long it
        may take; what there was no time for has the status ``lost``, and comes first the next time. What may
        not be read is a row with a status. Raises :class:`TargetError` where the server is lost.
        """

    def processes(self) -> Processes:
        """Who they are, now. Raises :class:`TargetError` where the server is lost."""

    def state(self) -> State:
        """The sources, as of the latest read of the server's cache and its files."""
