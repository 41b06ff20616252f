"""The parts of a load that several drivers share, each as a specification of its own (docs/core.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.stats.apportion import apportioned


class Part(NamedTuple):
    """Sessions ``first`` to ``first + sessions - 1`` of ``of`` sessions."""

    first: int
    sessions: int
    of: int


def sessions_of(spec: Mapping[str, Any]) -> int:
    """Returns the number of sessions of a specification, which has a number or entries with counts."""
    sessions = spec["sessions"]
    return sessions if isinstance(sessions, int) else sum(entry.get("count", 1) for entry in sessions)


def parts(count: int, weights: Sequence[float]) -> list[Part]:
    """Returns a part for each weight; one whose weight is too small has no sessions."""
    sizes = apportioned(count, weights)
    return [Part(sum(sizes[:n]), size, count) for n, size in enumerate(sizes)]


def share_of(spec: Mapping[str, Any], part: Part, others: Sequence[Part]) -> dict[str, Any]:
    """Returns ``spec`` for the sessions of ``part``; ``others``: all parts, in order.

    Numbers that hold for the whole load are divided so that their sum stays the same. A session has the same
    random numbers as in an undivided load.
    """
    if spec.get("rounds"):
        raise UsageError("rounds need one driver", "leave out the rounds, or drive from one host")
    index = list(others).index(part)
    weights = [p.sessions for p in others]

    def portion(number: int) -> int:
        return apportioned(number, weights)[index]

    divided = dict(spec) | {"sessions": _sessions(spec["sessions"], part)}
    divided["first_session"] = spec.get("first_session", 0) + part.first
    if spec.get("threads") is not None:
        divided["threads"] = max(1, portion(spec["threads"]))
    if spec.get("shared_calls") is not None:
        divided["shared_calls"] = portion(spec["shared_calls"])
    if spec.get("log_calls"):
        divided["log_limit"] = portion(spec.get("log_limit", LOG_LIMIT))
    if spec.get("arrivals") is not None:
        own = {"first": part.first, "end": part.first + part.sessions, "of": part.of}
        divided["arrivals"] = {**spec["arrivals"], "part": own}
    if spec.get("scripts") is not None:
        first = spec["scripts"].get("first_client", 0) + part.first
        divided["scripts"] = {**spec["scripts"], "first_client": first}
    return divided


LOG_LIMIT = 1_000_000
"""The core's default."""


def _sessions(sessions: Any, part: Part) -> Any:
    """Returns the entries of the sessions of ``part``."""
    if isinstance(sessions, int):
        return part.sessions
    entries, at = [], 0
    for entry in sessions:
        count = entry.get("count", 1)
        inside = min(at + count, part.first + part.sessions) - max(at, part.first)
        if inside > 0:
            entries.append({**entry, "count": inside})
        at += count
    return entries
