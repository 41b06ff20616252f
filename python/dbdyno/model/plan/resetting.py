"""The capability of an engine to restore a workload's data to the state after the preparation of its
tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.literals import Reset as Reset
from dbdyno.model.plan.pacing import Strict
from dbdyno.model.plan.table_making import Preparation

Cache = Literal["warm", "as-loaded", "dropped"]
"""The content of the caches afterwards: all tables and indexes as far as they fit, the pages that loading
left there, or none of their pages."""


class ResetKeys(Strict):
    """Keys of a recipe for restoring data."""

    reset: Reset | None = flagged(
        "reset",
        description="Before which measurements tables that dbdyno prepared are loaded again: each, block "
        "(each repeat, or each round of variants) or never; left out: each where calls change rows or "
        "caches are dropped.",
    )
    reset_cache: Cache = Field(
        default="warm",
        description="The caches after that: warm (all tables, as far as they fit), as-loaded, or dropped "
        "(none of their pages).",
    )


class PlannedReset(Strict):
    """The times at which data are restored, and the expected duration of each restoration."""

    when: Reset = "never"
    each_ns: int = 0


_CHANGES = re.compile(r"\b(insert|update|delete|merge|truncate|copy)\b", re.IGNORECASE)


def changes_rows(text: str) -> bool:
    """Returns whether a script may change rows. A script without a word of change counts as read-only,
    although its functions may change rows."""
    return _CHANGES.search(text) is not None


class DataSet(NamedTuple):
    """Tables that were prepared together and that a workload uses. ``rows`` is their number as prepared.
    ``written``: the workload may change them. ``unfinished``: their loading was interrupted. ``refused`` is
    the reason why they cannot be restored, or empty."""

    name: str
    tables: tuple[str, ...]
    rows: int
    written: bool
    unfinished: bool = False
    refused: str = ""


class CacheDrop(NamedTuple):
    """The result of dropping tables from the caches. ``left_share`` is the share of their pages that stayed
    in the server's cache. ``page_left_share`` is the same for the operating system's page cache, None if
    unknown. ``refused`` is the reason why the latter was not dropped, with the remedy; it is empty if it was
    dropped."""

    left_share: float
    page_left_share: float | None
    refused: str


class CacheWarming(NamedTuple):
    """The result of warming the caches. ``tables`` is the number of tables read. ``short`` describes what
    was left out, with the remedy; it is empty if nothing was."""

    tables: int
    short: str


class Resetting(Protocol):
    """Restores data of workloads, reads them into caches, and drops them from caches."""

    def data_sets(
        self, workload: str, params: Mapping[str, object], texts: Sequence[str]
    ) -> Sequence[DataSet]:
        """Returns the data sets that the workload uses, including those that do not exist yet but are loaded
        on demand. ``texts`` are its scripts, if it consists of scripts."""

    def begin(self, name: str, cache: Cache) -> Preparation:
        """Empties the tables of a data set and starts to load them as they were prepared. Indexes,
        privileges and settings of the user stay. If it is undone, the tables stay unfinished and are loaded
        again before their next use. Raises :class:`TargetError`, with the other session, if that holds a
        lock on them."""

    def check_dropping(self) -> None:
        """Raises :class:`UsageError` if tables cannot be dropped from the server's cache."""

    def warm(
        self, workload: str, params: Mapping[str, Any], sessions: int, texts: Sequence[str]
    ) -> CacheWarming:
        """Reads the tables of a workload with their indexes into the server's cache, as far as they fit.
        This also fills the page cache, unless the server bypasses it."""

    def cache_bytes(self, settings: Mapping[str, str]) -> int | None:
        """Returns the memory of the server's cache with these settings; ``None`` if they do not change it."""

    def drop_cache(self, name: str) -> CacheDrop:
        """Drops the tables of a data set from the caches."""
