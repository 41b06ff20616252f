"""Takes snapshots of a server: one now, or a series of one every ten minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from dbdyno.drive import Interrupt
from dbdyno.engines import open_server, product
from dbdyno.model.engine.protocols import Target
from dbdyno.model.engine.snapshot import Snapshot
from dbdyno.model.errors import (
    DbdynoError,
    NotAvailable,
    ServerBusy,
    ServerLost,
    StoreFull,
    TooFewConnections,
    Unreachable,
)
from dbdyno.store import SnapshotStore

_PASSING = (Unreachable, ServerLost, ServerBusy, TooFewConnections, StoreFull)
"""Errors that may be over by the next try."""
_LONGEST_PAUSE_S, _REST_S = 30.0, 1.0
_PRUNE_S = 3600.0


class SeriesListener(Protocol):
    """Follows the progress of a series."""

    def taken(self, snapshot: Snapshot) -> None: ...

    def failed(self, error: DbdynoError) -> None:
        """Reports a failed snapshot; the next one is tried as planned."""

    def waiting(self, until: datetime) -> None: ...


def take_snapshot(
    engine: str,
    target: Target,
    store: SnapshotStore,
    name: str | None = None,
    databases: Sequence[str] | None = None,
    every_s: float | None = None,
) -> Snapshot:
    """Takes a snapshot and stores it; returns it with its id.

    ``databases``: see :class:`dbdyno.model.engine.snapshot.Snapshotting`. Raises :class:`NotAvailable`,
    :class:`TargetError`, :class:`StoreError`; then nothing is stored.
    """
    with open_server(engine, target) as server:
        if server.snapshots is None:
            raise NotAvailable(
                f"dbdyno takes no snapshots of {product(engine)}", "dbdyno observe shows what it does"
            )
        snapshot = server.snapshots.snapshot(name, databases, store.known_texts())
    info = store.add(replace(snapshot, info=snapshot.info.model_copy(update={"every_s": every_s})))
    return replace(snapshot, info=info)


def take_series(
    take: Callable[[], Snapshot],
    store: SnapshotStore,
    every_s: float,
    interrupt: Interrupt,
    listener: SeriesListener,
    duration_s: float | None = None,
    keep: timedelta | None = None,
) -> None:
    """Takes a snapshot at each full ``every_s`` of the local day, and one at once unless the newest is of
    this interval.

    Ends after ``duration_s``. Removes snapshots older than ``keep``. Waits for an unavailable server or a
    full disk. Raises other errors of the first snapshot, and :class:`Interrupted`.
    """
    end_s = None if duration_s is None else time.monotonic() + duration_s
    due_s = _due_s(time.time(), every_s)
    if not any(i.every_s and i.taken.timestamp() > due_s - every_s for i in store.list()[-1:]):
        due_s -= every_s
    first, pruned_s = True, -math.inf  # the clock may have begun less than _PRUNE_S ago
    while _wait(due_s, end_s, every_s, interrupt):
        tried_s = time.time()
        if _try(take, listener, must=first):
            first, due_s = False, _due_s(time.time(), every_s)
            listener.waiting(datetime.fromtimestamp(due_s, UTC))
            if keep is not None and time.monotonic() - pruned_s > _PRUNE_S:
                pruned_s = time.monotonic()
                store.prune(keep)
        else:
            first, due_s = False, tried_s + min(_LONGEST_PAUSE_S, max(_REST_S, every_s / 10))


def _try(take: Callable[[], Snapshot], listener: SeriesListener, *, must: bool) -> bool:
    try:
        listener.taken(take())
    except DbdynoError as error:
        if must and not isinstance(error, _PASSING):
            raise
        listener.failed(error)
        return False
    return True


def _wait(due_s: float, end_s: float | None, every_s: float, interrupt: Interrupt) -> bool:
    """Waits until the due time; False if the series ends before. A clock that is set back extends the wait
    to at most ``every_s``."""
    latest_s = time.monotonic() + every_s
    while (left_s := min(due_s - time.time(), latest_s - time.monotonic())) > 0:
        if end_s is not None:
            if end_s <= time.monotonic():
                return False
            left_s = min(left_s, end_s - time.monotonic())
        interrupt.rest(min(left_s, _REST_S), time.sleep)
    return end_s is None or due_s <= time.time() or end_s > time.monotonic()


def _due_s(now_s: float, every_s: float) -> float:
    """Returns the next full multiple of ``every_s`` in the local day."""
    offset_s = datetime.fromtimestamp(now_s).astimezone().utcoffset()
    shift_s = 0.0 if offset_s is None else offset_s.total_seconds()
    return ((now_s + shift_s) // every_s + 1) * every_s - shift_s
