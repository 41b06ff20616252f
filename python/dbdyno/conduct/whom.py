"""Whether anybody is there whom the filter chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from dbdyno.conduct.looker import Looker, Names
from dbdyno.model.plan import Observation

_LISTED = 8


class Whom:
    """Tells when nobody matches, and when somebody does again."""

    def __init__(self, chosen: Observation, looker: Looker) -> None:
        self._chosen, self._looker = chosen, looker
        self._nobody = False

    def look(self, recent: Callable[[], Mapping[str, pl.DataFrame]], names: Names) -> None:
        tables = recent()
        asked = tables["sampler"].filter(pl.col("via").fill_null("sql") == "sql")
        if asked.filter(pl.col("status") == "ok").is_empty():
            return  # no answer yet
        sessions = tables["samples"].filter(pl.col("role") == "session")["session"].n_unique()
        if sessions == 0 and not self._nobody:
            self._looker.notice(f"{nobody(self._chosen)}: waiting for one{_there(names.frame())}")
        elif sessions and self._nobody:
            self._looker.notice(f"{sessions} {'session' if sessions == 1 else 'sessions'} now")
        self._nobody = sessions == 0


def words(chosen: Observation) -> str:
    """``user app, database prod``; empty: everybody."""
    named = (
        ("user", chosen.user),
        ("database", chosen.database),
        ("application", chosen.application),
        ("pid", ", ".join(map(str, chosen.pids))),
    )
    return ", ".join(f"{name} {value}" for name, value in named if value)


def nobody(chosen: Observation) -> str:
    """``no session matches user app``."""
    named = words(chosen)
    return f"no session matches {named}" if named else "nobody else is connected"


def _there(backends: pl.DataFrame) -> str:
    """Who is connected: `` (connected: app@prod x 12, ...)``."""
    clients = backends.filter(pl.col("kind") == "client backend")
    found = clients.group_by("user", "database").len().sort("len", descending=True)
    said = [f"{u}@{d} x {n}" for u, d, n in found.head(_LISTED).iter_rows() if u and d]
    return f" (connected: {', '.join(said)})" if said else ""
