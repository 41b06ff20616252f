"""The snapshots of days: what happened between any two of them, and the load over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import polars as pl

from dbdyno import present
from dbdyno.account.snapshot_figures import databases, figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.snapshots import snapshots as concluding
from dbdyno.conduct.history.ends import ends
from dbdyno.conduct.history.intervals import time_model
from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import UsageError
from dbdyno.model.results.interval import ALL, PER_S, IntervalFigures, LoadPoint
from dbdyno.model.text.nouns import capital
from dbdyno.present.document.document import Document
from dbdyno.store import SnapshotStore
from dbdyno.store.snapshot_times import remark

MOST = 500
"""Most snapshots that are read for the load over time; of more, every second, third ... is."""
_TABLES = ("databases", "resets")


def load_over_time(store: SnapshotStore, infos: Sequence[SnapshotInfo]) -> list[LoadPoint]:
    """Returns the load between consecutive snapshots of one series."""
    step = -(-len(infos) // MOST)
    chosen = [*infos[:-1:step], infos[-1]]
    places = {info.id: n for n, info in enumerate(infos)}
    points, before = [], None
    for after in store.each([i.id for i in chosen], _TABLES):
        if before is not None and after.info.server_time > before.info.server_time:
            skipped = infos[places[before.info.id] + 1 : places[after.info.id]]
            whole = databases(interval(before, after, skipped)).filter(pl.col("database") == ALL).to_dicts()
            row = whole[0] if whole else {}
            rates = row.get(f"transactions{PER_S}"), row.get(f"active_ns{PER_S}")
            points.append(LoadPoint(before.info.server_time, after.info.server_time, *rates, True))
        before = after
    return points


def interval_page(root: Path, store: SnapshotStore, first: SnapshotInfo, last: SnapshotInfo) -> Document:
    """Returns the report between two snapshots. Raises :class:`UsageError`, :class:`StoreError`."""
    interval_figures, notes = between(store, (first.id, last.id))
    time = time_model(root, first, last)
    unused = concluding.unused(interval_figures)
    claims = concluding.claims(interval_figures)
    return present.interval(interval_figures, claims, unused, notes=notes, time=time)


def between(
    snapshots: SnapshotStore, wanted: tuple[str, str], now: datetime | None = None
) -> tuple[IntervalFigures, list[str]]:
    """Returns what happened between the two snapshots, and remarks on the choice.

    The earlier snapshot comes first, whatever the order of ``wanted``. Raises UsageError, NoSuchSnapshot,
    StoreError.
    """
    now = datetime.now(UTC) if now is None else now
    infos = snapshots.list()
    chosen = [*ends(infos, wanted, now)]
    choices = [remark(w, i, infos, now) for w, i in zip(wanted, chosen, strict=True)]
    notes = [f"{capital(t)}." for t in choices if t]
    ids = [i.id for i in infos]
    if ids.index(chosen[0].id) > ids.index(chosen[1].id):
        chosen.reverse()
        notes.append("They were given in the other order: this is from the earlier to the later one.")
    a, b = chosen
    if a.id == b.id:
        raise UsageError(
            f"{wanted[0]} and {wanted[1]} are the same snapshot, {a.id}", "name two: dbdyno snapshot list"
        )
    others = [i for i in infos[ids.index(a.id) + 1 : ids.index(b.id)] if i.server == a.server]
    back = [x for x, y in pairwise([a, *others, b]) if y.server_time < x.server_time]
    if back:
        notes.append(f"The clock was set back after snapshot {back[0].id}: rates are over too short a time.")
    return figures(interval(snapshots.read(a), snapshots.read(b), others)), notes
