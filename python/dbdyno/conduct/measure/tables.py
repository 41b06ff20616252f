"""Creates a workload's tables and waits for them; removes them again if the user or an error ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbdyno._core import DriverError
from dbdyno.drive.phases import STEP_S, Interrupt, translated
from dbdyno.model.engine.protocols import Server, needed
from dbdyno.model.errors import DbdynoError, Interrupted, reset
from dbdyno.model.plan.resetting import Cache
from dbdyno.model.plan.table_making import Preparation, PreparedTable, TableOptions


@dataclass(frozen=True)
class MadeTables:
    """The tables of a workload: ``new`` if they did not exist before; ``steps`` has seconds by step."""

    new: bool
    workers: int
    seconds: float
    steps: dict[str, float]
    tables: Sequence[PreparedTable]


Tick = Callable[[str, int, int, int, float], None]
"""Progress: the step, rows sent, rows in all, bytes sent, seconds."""


def make_tables(
    server: Server,
    workload: str,
    options: TableOptions,
    interrupt: Interrupt,
    tick: Tick,
    removed: Callable[[str], None],
) -> MadeTables:
    """Makes the tables. After Ctrl-C or an error, calls ``removed`` with the names of the removed tables."""
    begun = time.monotonic()
    making = needed(server.tables, "prepare tables").begin(workload, options)
    try:
        return _wait(making, interrupt, tick, begun)
    except BaseException as e:
        _undo(making, removed)
        if isinstance(e, DriverError):
            raise translated(e) from None
        raise


def bring_back(
    server: Server, name: str, cache: Cache, interrupt: Interrupt, tick: Tick, left: Callable[[str], None]
) -> MadeTables:
    """Loads the tables of a data set again. After Ctrl-C or an error they stay incomplete: ``left`` is
    called with a message."""
    begun = time.monotonic()
    making = needed(server.resetting, "bring data back").begin(name, cache)
    try:
        return _wait(making, interrupt, tick, begun)
    except BaseException as e:
        making.undo()
        left(f"the tables of {name} are unfinished: the next run that uses them loads them again")
        known = translated(e) if isinstance(e, DriverError) else e
        if isinstance(known, DbdynoError):
            raise type(known)(f"bringing back the data of {name}: {known.message}", known.cure) from None
        raise


def _wait(making: Preparation, interrupt: Interrupt, tick: Tick, begun: float) -> MadeTables:
    """Waits until they are complete. ``begun``: when they were requested, in seconds of the monotonic
    clock."""
    steps: dict[str, float] = {}
    last = begun
    while not making.wait(STEP_S):
        if interrupt.stopping:
            raise Interrupted
        step, rows, sent = making.progress()
        now = time.monotonic()
        steps[step], last = steps.get(step, 0.0) + now - last, now
        tick(step, rows, making.rows, sent, now - begun)
    tables = making.finish()
    return MadeTables(making.rows > 0, making.workers, time.monotonic() - begun, steps, tables)


def _undo(making: Preparation, removed: Callable[[str], None]) -> None:
    """Removes the tables, and reports it. A failed removal is only reported: the error that led here is the
    one to show."""
    reset()
    try:
        names = making.undo()
    except DbdynoError as e:
        words = " ".join(e.message.split())
        removed(f"what was made could not be removed, the next workload prepare replaces it: {words}")
        return
    if names:
        removed(f"removed: {', '.join(names)}")
