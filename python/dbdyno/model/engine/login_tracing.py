"""Sessions of one role that are traced from their login on, when the role has so many sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Journal, Undo

What = Literal["statements", "plans"]


@dataclass(frozen=True)
class LoginTrace:
    """What is wanted. ``counts``: sessions of the role, with the one that logs in."""

    role: str
    counts: tuple[int, ...]
    what: What = "statements"
    slower_ms: int = 0  # statements that take at least so long
    settings: Mapping[str, str] = field(default_factory=dict)  # of a caught session, besides
    most: int = 100  # sessions to be caught in all


class TracePlan(NamedTuple):
    """What will be done. ``exact``: the server itself decides at each login; else it is looked at from here
    ten times a second. ``remarks``: what to know before."""

    statements: Sequence[str]
    exact: bool
    remarks: Sequence[str]


class Caught(NamedTuple):
    """A session. ``at_s``: seconds since 1970 by the server's clock; ``sessions``: of its role, with it."""

    at_s: float
    pid: int
    sessions: int
    role: str
    client: str
    there: bool  # still connected


class TraceLog(NamedTuple):
    """``where``: the log; ``lines``: by process, of those that were asked for; ``why``: they could not be
    read, with what would change it; ``find``: a command that finds them."""

    where: str
    lines: Mapping[int, Sequence[str]]
    why: str
    find: str


class LoginTracing(Protocol):
    """All of the connected database alone."""

    def plan(self, wish: LoginTrace) -> TracePlan:
        """Changes nothing. Raises :class:`UsageError` for a wish that cannot be, :class:`NotPrivileged`, and
        :class:`ServerBusy` where it is installed already."""

    def install(self, wish: LoginTrace, journal: Journal) -> None:
        """As planned. From now on this connection watches over it."""

    def caught(self) -> Sequence[Caught]:
        """All so far, in their order. What is not decided inside the server is decided now: ask ten times a
        second."""

    def installed(self) -> str | None:
        """In words; None: it is not."""

    def log(self, caught: Sequence[Caught]) -> TraceLog:
        """What they wrote to the server's log."""

    def remove(self, journal: Journal | None = None, *, watched: bool = True) -> Sequence[str]:
        """What was removed, in words; nothing: there was none. ``watched``: also what another process
        watches over."""

    def put_back(self, undo: Undo) -> str | None:
        """Removes what a killed process left; None: it is not this database's."""
