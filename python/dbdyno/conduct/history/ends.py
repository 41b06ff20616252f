"""Chooses the two snapshots at the ends of an interval: of one server, and near the wanted times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import UsageError
from dbdyno.store.snapshot_times import away, moment_wanted, nearest, usual_gap_s

NEAR = timedelta(hours=1)
"""A snapshot is near a wanted time within this, half of the interval, or the usual time between two."""
_Ends = tuple[SnapshotInfo, SnapshotInfo]


def ends(infos: Sequence[SnapshotInfo], wanted: tuple[str, str], now: datetime | None = None) -> _Ends:
    """Returns the snapshots for both words, in their order. ``infos`` are sorted from the oldest.

    A time means the nearest snapshot of the server that the other word names; of two times, those of the
    server with the nearest ones. Raises :class:`NoSuchSnapshot`, and :class:`UsageError` if no snapshot is
    near a time.
    """
    now = datetime.now(UTC) if now is None else now
    moments = [moment_wanted(word, infos, now) for word in wanted]
    first, last = (
        nearest(word, infos, now) if moment is None or not infos else None
        for word, moment in zip(wanted, moments, strict=True)
    )
    if first is not None and last is not None:
        return first, last
    named = first or last
    servers = series(infos) if named is None else [_of_server(infos, named)]
    pairs = [(first or _nearest(s, moments[0]), last or _nearest(s, moments[1])) for s in servers]
    at, (a, b) = min(enumerate(pairs), key=lambda pair: sum(_off(pair[1][0], pair[1][1], moments)))
    span = abs((moments[1] or b.taken) - (moments[0] or a.taken))
    limit = max(NEAR.total_seconds(), span.total_seconds() / 2, usual_gap_s(servers[at]))
    for word, moment, info, off in zip(wanted, moments, (a, b), _off(a, b, moments), strict=True):
        if moment is not None and off > limit:
            nearest_one = f"the nearest is {away(info, moment)}, {info.id}"
            raise UsageError(f"no snapshot near {word}; {nearest_one}", "dbdyno snapshot list")
    return a, b


def comparable(one: SnapshotInfo, other: SnapshotInfo) -> bool:
    """Returns whether both snapshots are of the same server and the same databases."""
    return (one.server, set(one.databases)) == (other.server, set(other.databases))


def series(infos: Sequence[SnapshotInfo]) -> list[list[SnapshotInfo]]:
    """Returns the snapshots of each server and its databases in the order of its clock, the newest series
    first."""
    groups: list[list[SnapshotInfo]] = []
    for info in reversed(infos):
        own = next((g for g in groups if comparable(g[0], info)), None)
        if own is None:
            groups.append([info])
        else:
            own.append(info)
    return [sorted(g, key=lambda i: i.server_time) for g in groups]


def _of_server(infos: Sequence[SnapshotInfo], named: SnapshotInfo) -> list[SnapshotInfo]:
    """Returns the other snapshots of a server; those of the same databases if there are any."""
    others = [i for i in infos if i.server == named.server and i.id != named.id]
    return [i for i in others if comparable(i, named)] or others or [named]


def _nearest(infos: Sequence[SnapshotInfo], moment: datetime | None) -> SnapshotInfo:
    assert moment is not None  # else the word names a snapshot
    return min(infos, key=lambda i: abs(i.taken - moment))


def _off(a: SnapshotInfo, b: SnapshotInfo, moments: Sequence[datetime | None]) -> list[float]:
    """Returns the distance in seconds of both snapshots from the wanted times; 0 without one."""
    pairs = zip((a, b), moments, strict=True)
    return [0.0 if m is None else abs((i.taken - m).total_seconds()) for i, m in pairs]
