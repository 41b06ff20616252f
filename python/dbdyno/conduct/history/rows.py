"""A run as a row of a list, in texts and in values to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dbdyno.model.units import format_ns
from dbdyno.store.overview import Overview

_MOST_SESSIONS = 3  # numbers of sessions; if there are more, only the first and the last are shown


class RunRow(NamedTuple):
    """Texts are empty, and values None, where a run has none."""

    id: str
    name: str
    started: str
    """In local time: ``2026-01-02 10:00``."""
    started_s: float
    """Seconds since 1970."""
    workload: str
    server: str
    """Engine and version."""
    target: str
    sessions: str
    """``1,2,4`` or ``1-64``."""
    most_sessions: int | None
    peak: str
    peak_calls_per_s: float | None
    status: str
    reason: str
    tags: Sequence[str]
    note: str
    lasted: str
    lasted_s: float | None
    group: str
    """The id that runs observed together share."""
    variants: int
    """That can be compared with each other."""

    def text(self) -> str:
        """Returns all texts of the row, in lower case, to search in."""
        texts = [self.id, self.name, self.started, self.workload, self.server, self.target, self.sessions]
        texts += [self.peak, self.status, self.reason, *self.tags, self.note, self.lasted, self.group]
        return "\n".join(texts).casefold()


def run_row(one: Overview) -> RunRow:
    run, outline = one.run, one.outline
    sessions = ",".join(map(str, outline.sessions))
    if len(outline.sessions) > _MOST_SESSIONS:
        sessions = f"{outline.sessions[0]}-{outline.sessions[-1]}"
    lasted_s = (run.ended - run.started).total_seconds() if run.ended else None
    return RunRow(
        run.id,
        run.document["name"],
        f"{run.started.astimezone():%Y-%m-%d %H:%M}",
        run.started.timestamp(),
        outline.workload,
        outline.server,
        outline.target,
        sessions,
        max(outline.sessions, default=None),
        outline.peak,
        outline.peak_calls_per_s,
        run.status,
        run.reason or "",
        tuple(run.document["tags"]),
        run.document["note"],
        "" if lasted_s is None else format_ns(lasted_s * 1e9),
        lasted_s,
        str(run.document["group"] or ""),
        outline.variants,
    )
