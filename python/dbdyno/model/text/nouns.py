"""Slots for the nouns of a kind of run in sentences and headings: ``{~calls}``, ``{~session_time:capital}``.

A kind (:mod:`dbdyno.model.plan.kinds`) provides the nouns. Code that writes sentences about a run does so
within ``with speaking_of(kind): ...``. Outside of it the nouns are those of databases.
"""

from __future__ import annotations

import re
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
        "server_processes": "the server's processes",
        "restart": "restart the server",
        "server": "the server",
        "server_and_driver": "server, driver",
        "background": "Background processes of the server",
        "activity_view": "the server's activity view",
        "sleep_and_client": ", sleep and client",
        "load_unit": "sessions",  # of a ladder that is analysed
        "short_at_once": "sess",  # where a column has no room
        "short_call_rate": "calls/s",
        "response_time_of_a_call": "response time of a call",
        "response": "response",  # where a column has no room
        "single": "session",  # of those that there are at a time
        "slot": "session",
        "stack_height": "the number of sessions",
        "time_of_tasks": "time of active sessions",
        "launcher": "the server's own processes",
        "helpers": "helpers",
        "driver": "driver",
        "engine": "server",
        "not_labelled": "no wait event",
        "top": "Top",  # 10 events
        "events": "events",
        "event": "event",
        "no_such_counter": "this kernel or server version does not offer it",
        "asleep_where": "the time asleep, or at the client,",
        "from_where": "from sending a call until the server is ready again, by the driver's clock",
        "memory_read": "processes while all sessions were connected and made no calls, caches after the last "
        "session had left",
        "process_owners": "sessions",
        "processes_of_server": "server processes",
        "task": "the session's task",
        "wall": "the session's wall time",
        "top_events": "top events",
        "labelled": ". A task that is runnable while its session bears the label of a wait, or of its "
        "client, is CPU WAIT: exact in all, split by label by the joint table",
        "client_on_top": ", the client on top",
    }
)
"""The nouns of runs on databases."""
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
        "server_processes": "the commands' processes",
        "restart": "run again",
        "server": "it",
        "server_and_driver": "commands, launcher",
        "background": "The launcher, and what prepares and verifies executions,",
        "activity_view": "the states of the tasks in /proc",
        "sleep_and_client": " and sleep",
        "load_unit": "jobs",
        "short_at_once": "jobs",
        "short_call_rate": "runs/s",
        "response_time_of_a_call": "duration",
        "response": "duration",
        "single": "job",
        "slot": "slot",
        "stack_height": "the number of tasks",
        "time_of_tasks": "time of the tasks",
        "launcher": "the launcher of the commands",
        "helpers": "launcher and aside",
        "driver": "dbdyno",
        "engine": "engine",
        "not_labelled": "running or runnable",
        "top": "The",
        "events": "largest parts of task time",
        "event": "part",
        "no_such_counter": "commands have none",
        "asleep_where": "the time asleep",
        "from_where": "from the start of a program to its end, by the launcher's clock",
        "memory_read": "processes before the first execution, caches after the last one",
        "process_owners": "tasks of the jobs",
        "processes_of_server": "the launcher, and what runs aside",
        "task": "each task",
        "wall": "the tasks' wall time",
        "top_events": "largest parts of task time",
        "labelled": "",
        "client_on_top": "",
    }
)
"""The nouns of runs of commands. A session is a slot that runs commands one after another, and time belongs
to the tasks of their processes."""

_NOUNS: ContextVar[Mapping[str, str]] = ContextVar("nouns", default=OF_SESSIONS)


@contextmanager
def nouns_of(nouns: Mapping[str, str]) -> Iterator[None]:
    """Uses these nouns within the context. Slots that are missing take those of databases."""
    token = _NOUNS.set({**OF_SESSIONS, **nouns})
    try:
        yield
    finally:
        _NOUNS.reset(token)


def noun(slot: str) -> str:
    """Returns the noun of a slot. Raises KeyError if there is no such slot."""
    return _NOUNS.get()[slot]


def capital(text: str) -> str:
    """Returns a text with a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def fill(template: str) -> str:
    """Returns the template with its slots for nouns filled; other braces stay. Raises KeyError if there is
    no such slot."""
    return _SLOT.sub(lambda slot: capital(noun(slot[1])) if slot[2] else noun(slot[1]), template)


_SLOT = re.compile(r"\{~(\w+)(:capital)?\}")


def unit_of(unit: str) -> str:
    """Returns ``calls/s`` with the kind of run's noun for calls; any other unit unchanged."""
    return f"{noun('calls')}/s" if unit == "calls/s" else unit


def at_once(number: str) -> str:
    """Returns ``8 sessions`` or ``1 session``, given the number as text."""
    return noun("one_at_once") if number == "1" else f"{number} {noun('at_once')}"
