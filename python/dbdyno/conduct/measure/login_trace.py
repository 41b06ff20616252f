"""Traces sessions from their login on: installs the trace, shows catches while it waits, reads the log,
removes the trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from dbdyno.drive import Interrupt
from dbdyno.model.engine.login_tracing import Caught, LoginTrace, LoginTracing, TraceLog
from dbdyno.model.engine.protocols import Journal

_LOOK_S = 0.1


class Traced(NamedTuple):
    """The result of a login trace."""

    caught: tuple[Caught, ...]
    log: TraceLog
    removed: tuple[str, ...]


def trace_logins(
    tracing: LoginTracing,
    request: LoginTrace,
    journal: Journal,
    interrupt: Interrupt,
    on_catch: Callable[[Caught], None],
    duration_s: float | None = None,
    *,
    stay: bool = False,
) -> Traced:
    """Traces until the time is over or the user ends it. With ``stay`` it installs the trace and leaves it;
    otherwise it removes what it installed."""
    tracing.install(request, journal)
    known: dict[tuple[int, float], Caught] = {}
    if stay:
        return Traced((), tracing.log(()), ())
    until = None if duration_s is None else time.monotonic() + duration_s
    try:
        while not interrupt.stopping and (until is None or time.monotonic() < until):
            _look(tracing, known, on_catch)
            time.sleep(_LOOK_S)
        _look(tracing, known, on_catch)
        log = tracing.log(tuple(known.values()))
    finally:
        removed = tracing.remove(journal)
    return Traced(tuple(known.values()), log, tuple(removed))


def _look(
    tracing: LoginTracing, known: dict[tuple[int, float], Caught], on_catch: Callable[[Caught], None]
) -> None:
    """Reads new catches. Catches that were shown stay known even if the server has forgotten them."""
    for one in tracing.caught():
        key = (one.pid, one.at_s)
        if key not in known:
            on_catch(one)
        known[key] = one
