"""Tracing of sessions from their login on, once a role has a given number of sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from dbdyno.model.engine.protocols import Journal, Undo

What = Literal["statements", "plans"]


@dataclass(frozen=True)
class LoginTrace:
    """A request to trace logins. ``counts`` are the numbers of the role's sessions, the new one included, at
    which its login is traced."""

    role: str
    counts: tuple[int, ...]
    what: What = "statements"
    slower_ms: int = 0  # the least duration of a logged statement
    settings: Mapping[str, str] = field(default_factory=dict)  # further settings of a traced session
    most: int = 100  # maximum number of sessions to trace


class TracePlan(NamedTuple):
    """The actions that a request leads to. ``exact``: the server itself decides at each login; otherwise
    dbdyno polls ten times a second. ``remarks``: what the user should know before."""

    statements: Sequence[str]
    exact: bool
    remarks: Sequence[str]


class Caught(NamedTuple):
    """A traced session. ``at_s`` is its login in seconds since 1970 by the server's clock. ``sessions``
    counts the role's sessions including this one."""

    at_s: float
    pid: int
    sessions: int
    role: str
    client: str
    connected: bool  # whether it is still connected


class TraceLog(NamedTuple):
    """Lines of the server's log. ``where`` names the log. ``lines`` has the lines of the requested processes
    by pid. ``why`` gives the reason if the log cannot be read, with the remedy. ``find`` is a command that
    finds the lines."""

    where: str
    lines: Mapping[int, Sequence[str]]
    why: str
    find: str


class LoginTracing(Protocol):
    """Traces logins to the connected database only."""

    def plan(self, request: LoginTrace) -> TracePlan:
        """Returns the plan of a request and changes nothing. Raises :class:`UsageError` if the request is
        impossible, :class:`NotPrivileged`, and :class:`ServerBusy` if tracing is already installed."""

    def install(self, request: LoginTrace, journal: Journal) -> None:
        """Installs the trace as planned. This connection polls for logins from now on."""

    def caught(self) -> Sequence[Caught]:
        """Returns all traced sessions so far, in order of login. If the server does not decide itself, this
        call polls: it has to be made ten times a second."""

    def installed(self) -> str | None:
        """Describes the installed trace in words; None if there is none."""

    def log(self, caught: Sequence[Caught]) -> TraceLog:
        """Reads the lines that these sessions wrote to the server's log."""

    def remove(self, journal: Journal | None = None, *, watched: bool = True) -> Sequence[str]:
        """Removes the trace and describes the removed parts; empty if there was none. ``watched`` also
        removes a trace that another process polls for."""

    def put_back(self, undo: Undo) -> str | None:
        """Removes the trace of a killed process and describes it; None if the entry belongs to another
        database."""
