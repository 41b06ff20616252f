"""Sessions traced from their login on: install, wait while catches are shown, read the log, remove."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from dbdyno.drive import Interrupt
from dbdyno.model.engine.login_tracing import Caught, LoginTrace, LoginTracing, TraceLog
from dbdyno.model.engine.protocols import Journal

_LOOK_S = 0.1


class Traced(NamedTuple):
    """What came of it."""

    caught: tuple[Caught, ...]
    log: TraceLog
    removed: tuple[str, ...]


def trace_logins(
    tracing: LoginTracing,
    wish: LoginTrace,
    journal: Journal,
    interrupt: Interrupt,
    on_catch: Callable[[Caught], None],
    duration_s: float | None = None,
    *,
    stay: bool = False,
) -> Traced:
    """Until the time is over, or an end is asked for. ``stay``: it is installed and left; in any other case
    what was installed is removed."""
    tracing.install(wish, journal)
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
    """Those that were shown stay known, also where the server has forgotten them."""
    for one in tracing.caught():
        key = (one.pid, one.at_s)
        if key not in known:
            on_catch(one)
        known[key] = one
