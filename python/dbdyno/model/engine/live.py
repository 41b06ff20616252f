"""Live figures of a server beside those of a watch: the header, statements, and the engine's own screens.

A screen is data: columns with their explanation, and rows. The view knows nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dbdyno.model.plan.plan import Observation

Unit = Literal["text", "id", "count", "seconds", "bytes", "per_s", "bytes_per_s", "share"]


@dataclass(frozen=True)
class LiveColumn:
    """A column of a screen. ``width`` 0: the rest of the line. Columns of the highest ``rank`` are the first
    to be left out of a narrow terminal."""

    name: str  # key of the rows
    head: str
    explains: str
    unit: Unit = "text"
    width: int = 9
    rank: int = 0


@dataclass(frozen=True)
class LiveScreen:
    """A screen of the live view."""

    name: str  # one or two words for the list of screens
    explains: str
    columns: Sequence[LiveColumn]
    key: Sequence[str]  # columns that identify a row
    order: str  # column by which rows are sorted at first
    none: str  # the line that is shown if there are no rows
    detail: str = ""  # key of a long text, which is shown for a single row


@dataclass(frozen=True)
class LiveRows:
    """Rows of a screen. ``notes`` say what is missing, and the cure; ``partial``: rows may be hidden."""

    rows: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    partial: bool = False


@dataclass(frozen=True)
class LiveFigures:
    """Figures of the header. None is unknown."""

    transactions_per_s: float | None = None
    statements_per_s: float | None = None
    ours: bool = False  # whether the transactions of a watch's samples are among them
    sessions: int | None = None
    most_sessions: int | None = None
    active: int | None = None
    idle_in_transaction: int | None = None
    notes: Sequence[str] = ()  # why figures are unknown, with the cure


@dataclass(frozen=True)
class LiveStatement:
    text: str | None = None
    calls_per_s: float | None = None
    mean_ns: float | None = None


@dataclass(frozen=True)
class LiveRequest:
    """The open screen, and the sessions and statements whose texts it shows."""

    screen: str = ""
    pids: Sequence[int] = ()
    query_ids: Sequence[int] = ()


@dataclass(frozen=True)
class LiveAnswer:
    figures: LiveFigures = field(default_factory=LiveFigures)
    screen: str = ""
    rows: LiveRows = field(default_factory=LiveRows)
    texts: Mapping[int, str] = field(default_factory=dict)  # latest statement by pid
    statements: Mapping[int, LiveStatement] = field(default_factory=dict)  # by query id


class LiveReader(Protocol):
    def read(self, request: LiveRequest) -> LiveAnswer:
        """Reads the header's figures, and what the open screen shows. Raises :class:`TargetError` if the
        connection is lost."""


class LiveViewing(Protocol):
    """Reads for a live view by a connection of its own, so that a slow answer delays no measurement."""

    @property
    def screens(self) -> Sequence[LiveScreen]:
        """The engine's screens, in the order of their keys."""

    def opened(self, chosen: Observation) -> AbstractContextManager[LiveReader]:
        """Connects. Figures are of the ``chosen`` database, by default of all. Raises
        :class:`TargetError`."""
