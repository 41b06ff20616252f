"""Finds a snapshot by id, name, ``last``, or a date and time of the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from statistics import median

from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import NoSuchSnapshot, UsageError, did_you_mean
from dbdyno.model.units import NS_PER_S, parse_duration_ns

_BACK = re.compile(r"last(?:~(\d{1,6}))?")
_AGO = re.compile(r"(.+?)\s+ago")
_CLOCK = re.compile(r"(?:(today|yesterday|\d{4}-\d\d-\d\d)[ T]+)?(\d{1,2}:\d\d(?::\d\d)?)")
_CURE = "dbdyno snapshot list"


def nearest(wanted: str, infos: Sequence[SnapshotInfo], now: datetime) -> SnapshotInfo:
    """Returns the snapshot for ``wanted``; ``infos`` are sorted from the oldest.

    Raises :class:`NoSuchSnapshot` if there is none or it is ambiguous.
    """
    wanted = wanted.strip()
    if not infos:
        raise NoSuchSnapshot("there are no snapshots", "take one: dbdyno snapshot")
    if (back := _BACK.fullmatch(wanted)) is not None:
        return _back(int(back[1] or 0), infos)
    if exact := [i for i in infos if i.id == wanted]:
        return exact[0]
    if named := [i for i in infos if i.name == wanted]:
        return _only(f"{len(named)} snapshots are named {wanted!r}", named)
    if re.match(r"\d{8}(-|$)", wanted) and (starting := [i for i in infos if i.id.startswith(wanted)]):
        return _only(f"{len(starting)} snapshots begin with {wanted}", starting)
    if (moment := moment_of(wanted, now)) is not None:
        return min(infos, key=lambda i: abs(i.taken - moment))
    names = [i.name for i in infos if i.name]
    raise NoSuchSnapshot(
        f"no snapshot {wanted!r}; there are {_span(infos)}",
        f"{did_you_mean(wanted, [*names, *(i.id for i in infos[-10:])])}; {_CURE}, or a time such as 14:00",
    )


def moment_of(wanted: str, now: datetime) -> datetime | None:
    """Parses a time (UTC) in the time zone of this process; None if ``wanted`` is no time.

    A time of day without a date is that of today, or of yesterday if it is still to come.
    """
    wanted = wanted.strip()
    if (ago := _AGO.fullmatch(wanted)) is not None:
        try:
            return now - timedelta(seconds=parse_duration_ns(ago[1].replace(" ", "")) / NS_PER_S)
        except (UsageError, OverflowError):
            return None
    if (clock := _CLOCK.fullmatch(wanted)) is not None:
        return _at(clock[1], clock[2], now)
    try:
        return (
            datetime.fromisoformat(wanted).astimezone(UTC) if re.match(r"\d{4}-\d\d-\d\d", wanted) else None
        )
    except (ValueError, OverflowError):
        return None


def moment_wanted(wanted: str, infos: Sequence[SnapshotInfo], now: datetime) -> datetime | None:
    """Returns the time that ``wanted`` stands for; None if it is the id or name of a snapshot, or no time."""
    wanted = wanted.strip()
    begins = re.match(r"\d{8}(-|$)", wanted) is not None
    named = any(wanted in (i.id, i.name) or (begins and i.id.startswith(wanted)) for i in infos)
    return None if named else moment_of(wanted, now)


def remark(wanted: str, info: SnapshotInfo, infos: Sequence[SnapshotInfo], now: datetime) -> str | None:
    """Returns how far the nearest snapshot is from the wanted time, if unusually far; else None."""
    moment = moment_wanted(wanted, infos, now)
    if moment is None or abs((info.taken - moment).total_seconds()) <= max(60.0, usual_gap_s(infos)):
        return None
    when = f"{info.taken.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"the nearest snapshot to {wanted} was taken at {when}, {away(info, moment)}"


def usual_gap_s(infos: Sequence[SnapshotInfo]) -> float:
    """Returns the median time between consecutive snapshots, in seconds; 0 for fewer than two."""
    taken = sorted(i.taken for i in infos)
    return median([(b - a).total_seconds() for a, b in pairwise(taken)] or [0.0])


def away(info: SnapshotInfo, moment: datetime) -> str:
    """Returns the distance of a snapshot from a time: ``22 h later``."""
    side = "later" if info.taken > moment else "earlier"
    return f"{apart(abs((info.taken - moment).total_seconds()))} {side}"


def apart(seconds: float) -> str:
    """Returns a distance in time: ``45 s``, ``3.5 min``, ``22 h``, ``9 days``."""
    for unit, factor in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{round(seconds / factor, 1):g} {unit}"
    return f"{seconds:.0f} s"


def _at(day: str | None, clock: str, now: datetime) -> datetime | None:
    here = now.astimezone()
    try:
        at = time.fromisoformat(clock.rjust(8 if clock.count(":") == 2 else 5, "0"))
        on = here.date() if day in (None, "today") else _day(str(day), here.date())
        moment = datetime.combine(on, at).astimezone()
        if day is None and moment > here:
            moment = datetime.combine(on - timedelta(days=1), at).astimezone()
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _day(word: str, today: date) -> date:
    return today - timedelta(days=1) if word == "yesterday" else date.fromisoformat(word)


def _back(steps: int, infos: Sequence[SnapshotInfo]) -> SnapshotInfo:
    if steps >= len(infos):
        raise NoSuchSnapshot(f"no snapshot last~{steps}: there are {len(infos)}", _CURE)
    return infos[-1 - steps]


def _only(problem: str, infos: Sequence[SnapshotInfo]) -> SnapshotInfo:
    """Returns the only snapshot. Raises :class:`NoSuchSnapshot` with the problem if there are several."""
    if len(infos) == 1:
        return infos[0]
    shown = ", ".join(i.id for i in infos[-5:])
    raise NoSuchSnapshot(f"{problem}: {'... ' if len(infos) > 5 else ''}{shown}", "give the id of one")


def _span(infos: Sequence[SnapshotInfo]) -> str:
    first, last = (f"{i.taken.astimezone():%Y-%m-%d %H:%M}" for i in (infos[0], infos[-1]))
    return f"{len(infos):,} from {first} to {last}" if len(infos) > 1 else f"one, of {first}"
