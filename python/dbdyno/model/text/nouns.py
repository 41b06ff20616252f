"""Slots for the nouns of a kind of run in sentences and headings: ``{~calls}``, ``{~session_time:capital}``.

A kind (:mod:`dbdyno.model.plan.kinds`) gives the nouns, and whoever makes sentences about a run says which:
``with nouns_of(kind.nouns): ...``. Outside of it the nouns are those of databases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

OF_SESSIONS: Mapping[str, str] = MappingProxyType(
    {
        "call": "call",
        "calls": "calls",
        "a_call": "a call",
        "response_time": "response time",
        "response_times": "response times",
        "session_time": "session time",
        "db_time": "DB time",
        "db_cpu": "DB CPU",
        "tasks": "sessions",  # who has the time
        "owners": "sessions",  # whose processes and tasks they are
        "slots": "sessions",  # what calls come from, one after the other
        "at_once": "sessions",  # how many there are at a time
        "one_at_once": "1 session",
        "at": "at",  # 8 sessions
        "wait_event": "wait event",
        "wait_events": "wait events",
        "waits": "waits",
        "server_cpu": "server CPU",
        "client_cpu_of_a_call": "client CPU of a call",
        "client": "the client",
        "or_shorter_calls": " or a shorter --call-target",
        "server_processes": "the server's processes",
        "restart": "restart the server",
        "server": "the server",
        "server_and_driver": "server, driver",
        "background": "Background processes of the server",
        "activity_view": "the server's activity view",
        "sleep_and_client": ", sleep and client",
    }
)
"""The nouns of databases."""
OF_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "call": "execution",
        "calls": "executions",
        "a_call": "an execution",
        "response_time": "duration",
        "response_times": "durations",
        "session_time": "task time",
        "db_time": "task time",
        "db_cpu": "CPU",
        "tasks": "tasks",
        "owners": "commands",
        "slots": "slots",
        "at_once": "jobs at once",
        "one_at_once": "one job at a time",
        "at": "with",
        "wait_event": "reason of sleep",
        "wait_events": "reasons of sleep",
        "waits": "reasons of sleep",
        "server_cpu": "CPU",
        "client_cpu_of_a_call": "dbdyno's CPU",
        "client": "dbdyno itself",
        "or_shorter_calls": "",
        "server_processes": "the commands' processes",
        "restart": "run again",
        "server": "it",
        "server_and_driver": "commands, launcher",
        "background": "The launcher, and what prepares and verifies executions,",
        "activity_view": "the states of the tasks in /proc",
        "sleep_and_client": " and sleep",
    }
)
"""The nouns of commands: a session is a slot that runs them one after another, and the tasks of their
processes have the time."""

_NOUNS: ContextVar[Mapping[str, str]] = ContextVar("nouns", default=OF_SESSIONS)


@contextmanager
def nouns_of(nouns: Mapping[str, str]) -> Iterator[None]:
    """Makes sentences with these nouns; slots that are missing have those of databases."""
    token = _NOUNS.set({**OF_SESSIONS, **nouns})
    try:
        yield
    finally:
        _NOUNS.reset(token)


def noun(slot: str) -> str:
    """Returns the noun of a slot. Raises KeyError if there is no such slot."""
    return _NOUNS.get()[slot]


def unit_of(unit: str) -> str:
    """``calls/s`` as the kind of run calls it; any other unit as it is."""
    return f"{noun('calls')}/s" if unit == "calls/s" else unit


def at_once(number: str) -> str:
    """``8 sessions``, ``1 session``, by the number as text."""
    return noun("one_at_once") if number == "1" else f"{number} {noun('at_once')}"
