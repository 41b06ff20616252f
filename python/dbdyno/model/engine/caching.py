"""The capability of an engine to read its own cache, the page cache of its files, and its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import polars as pl

from dbdyno.model.schema.data_source import Step
from dbdyno.model.sources.source import Status


class Processes(NamedTuple):
    """The server's processes on this host. ``status`` gives the reason if they are unknown."""

    roles: Mapping[int, str]  # role by pid, as in the table memory_processes
    main_pid: int | None  # the main process, which leads to the server's control group
    status: Status = "ok"
    detail: str = ""  # the reason and the remedy, if the status is not ok


class State(NamedTuple):
    """The outcome of a read. The status is ok if at least a part could be read."""

    status: Status = "ok"
    detail: str = ""  # what is unknown, why, and the remedy
    steps: tuple[Step, ...] = ()  # commands that make it known


class Caching(Protocol):
    """Reads where the pages of a server's data are cached."""

    def cached(self, phase: str, most_ns: int) -> Mapping[str, pl.DataFrame]:
        """Returns rows of the tables ``memory`` (scope ``server``) and ``memory_relations``.

        The rows include the page cache if the server's files are visible from here. The read takes about
        ``most_ns`` at most. Relations for which time ran out have the status ``lost`` and are read first the
        next time. A figure that may not be read is a row with a status. Raises :class:`TargetError` if the
        connection is lost.
        """

    def processes(self) -> Processes:
        """Returns the server's processes as they are now. Raises :class:`TargetError` if the connection is
        lost."""

    def state(self) -> State:
        """Returns the outcome of the latest read of the server's cache and of its files."""
