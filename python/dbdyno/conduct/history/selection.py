"""Chooses stored runs by what they are: workload, name, tags, target, status, time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from dbdyno.conduct.history.rows import run_row
from dbdyno.model.errors import UsageError
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.store.overview import Overview


def select(
    entries: Sequence[Overview],
    *,
    workload: str | None = None,
    name: str | None = None,
    tags: Sequence[str] = (),
    target: str | None = None,
    status: str | None = None,
    since: str | None = None,
    limit: int | None = None,
    words: str | None = None,
) -> list[Overview]:
    """Returns the runs that meet all conditions, oldest first. ``words`` must all be in the texts of a run's
    row. Raises :class:`UsageError` if ``since`` is not a time."""
    start = None if since is None else since_when(since)
    wanted = (words or "").casefold().split()
    matching = [
        one
        for one in entries
        if (workload is None or workload in shown_as(one.outline.workload))
        and (name is None or fnmatchcase(one.run.document["name"], name))
        and set(tags) <= set(one.run.document["tags"])
        and (target is None or target.casefold() in one.outline.target.casefold())
        and (status is None or one.run.status == status)
        and (start is None or one.run.started >= start)
        and (not wanted or all(word in text for text in [run_row(one).text()] for word in wanted))
    ]
    return matching if limit is None else matching[-limit:]


def shown_as(workload: str) -> tuple[str, ...]:
    """Returns the names of a workload: its own, and the one without a suffix that run ids and titles have
    for scripts."""
    return workload, Path(workload).stem


def since_when(text: str) -> datetime:
    """Reads a duration before now, or a date with or without a time of day, in local time unless it has a
    zone."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d.*", text.strip()):
        try:
            return datetime.fromisoformat(text.strip()).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"--since {text}: no date", "write it as 2026-11-01, or 7d") from error
    return datetime.now(UTC) - age(text)


def age(text: str) -> timedelta:
    """Reads how long ago something may be: ``7d``, ``12h``. Raises :class:`UsageError`."""
    check_has_unit(text)
    try:
        return timedelta(seconds=parse_duration_ns(text) / NS_PER_S)
    except OverflowError as error:
        raise UsageError(f"too long a time: {text}", "write a number and a unit: 30d, 12h") from error


def check_has_unit(age: str) -> None:
    """Raises :class:`UsageError` for a bare number other than 0: it would mean seconds, and ages are days."""
    if re.fullmatch(r"[\d.]*[1-9][\d.]*", age.strip()):
        raise UsageError(f"{age}: a time without a unit", f"write {age.strip()}d for days, or h, min, s")
