"""Whether anybody is there whom the filter chose."""

from __future__ import annotations

import polars as pl

from dbdyno import observe
from dbdyno.conduct.observation_events import Names, ObservationListener
from dbdyno.model.plan import Observation
from dbdyno.model.protocols import Watch
from dbdyno.model.units import NS_PER_S

FAR_NS = 10 * NS_PER_S
_LISTED = 8


class Whom:
    """Tells when nobody matches, and when somebody does again."""

    def __init__(self, chosen: Observation, listener: ObservationListener) -> None:
        self._chosen, self._listener = chosen, listener
        self._nobody = False

    def look(self, watch: Watch, now_ns: int, names: Names) -> None:
        """Costs next to nothing while somebody is there."""
        if self._somebody(watch, now_ns):
            if self._nobody:
                self._listener.notice("matching sessions found")
            self._nobody = False
        elif not self._nobody:
            self._nobody = True
            self._listener.notice(f"{nobody(self._chosen)}: waiting for one{_there(names.frame())}")

    def _somebody(self, watch: Watch, now_ns: int) -> bool:
        """Also before the first answer; samples of very many sessions may be seconds apart."""
        if watch.latest():
            return True
        tables = observe.recent_frames(watch, now_ns - FAR_NS, ("samples", "sampler", "tasks"))
        asked = tables["sampler"].filter(pl.col("via").fill_null("sql") == "sql")
        if asked.filter(pl.col("status") == "ok").is_empty():
            return not self._nobody
        if not tables["samples"].filter(pl.col("role") == "session").is_empty():
            return True
        return not self._chosen.some and observe.brief_seen(tables["tasks"])


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
