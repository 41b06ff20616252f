"""A figure over the runs, or over the snapshots, that a question names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbdyno.conduct.history.intervals import trend_of
from dbdyno.conduct.history.selection import select, shown_as, since_when
from dbdyno.conduct.history.trend import trend
from dbdyno.model.errors import UsageError
from dbdyno.model.results.trend import Trend
from dbdyno.store import SnapshotStore
from dbdyno.store.overview import Overview, overviews

OBJECTS = ("table", "index", "statement", "database", "server")
"""The objects, besides runs, that have figures: parts of a server, from snapshot to snapshot."""
_DEFAULT = "throughput"


@dataclass(frozen=True)
class TrendQuestion:
    """``objects``: the name of one object by its kind, of :data:`OBJECTS`; empty for runs. ``runs``:
    conditions, as of :func:`dbdyno.conduct.history.selection.select`."""

    figure: str | None = None
    sessions: int | None = None
    variant: str | None = None
    machine: str | None = None
    objects: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, Any] = field(default_factory=dict)


def stored_trend(root: Path, asked: TrendQuestion, say: Callable[[str], None]) -> Trend:
    """Returns the trend over the runs of the store ``root``, or over its snapshots if an object is asked for.

    Raises :class:`UsageError` if nothing matches.
    """
    if not asked.objects:
        return _of_runs(root, asked, say)
    if len(asked.objects) > 1:
        raise UsageError(f"--{' and --'.join(asked.objects)} exclude each other", "give one of them")
    ((kind, name),) = asked.objects.items()
    since, limit = asked.runs.get("since"), asked.runs["limit"]
    when = None if since is None else since_when(since)
    return trend_of(SnapshotStore(root), kind, name, asked.figure, when, limit)


def newest_workload(entries: Sequence[Overview], wanted: Mapping[str, Any]) -> str | None:
    """Returns the workload of the newest run that matches: the one of a trend that names none."""
    others = {k: v for k, v in wanted.items() if k not in ("workload", "limit")}
    matching = (o.outline.workload for o in reversed(select(entries, **others)))
    return next((w for w in matching if w not in ("", "observation")), None)


def _of_runs(root: Path, asked: TrendQuestion, say: Callable[[str], None]) -> Trend:
    entries = overviews(root)
    wanted = dict(asked.runs)
    if wanted.get("workload") is None:
        wanted["workload"] = newest_workload(entries, wanted)
    stored = sorted({o.outline.workload for o in entries} - {""})
    if wanted["workload"] and stored and not any(wanted["workload"] in shown_as(name) for name in stored):
        raise UsageError(
            f"no run of workload {wanted['workload']!r}",
            f"those stored are: {', '.join(shown_as(name)[-1] for name in stored)}",
        )
    chosen = [one.run for one in select(entries, **wanted)]
    return trend(chosen, asked.figure or _DEFAULT, asked.sessions, asked.variant, asked.machine, say)
