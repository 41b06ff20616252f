"""What an engine can do that brings a workload's data back to the state in which its tables were prepared."""

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
"""What is in the caches then: all tables and indexes, as far as they fit;
what loading left there; or none of them."""


class ResetKeys(Strict):
    """Keys of a recipe."""

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
    """When data are brought back, and how long it is expected to take each time."""

    when: Reset = "never"
    each_ns: int = 0


_CHANGES = re.compile(r"\b(insert|update|delete|merge|truncate|copy)\b", re.IGNORECASE)


def changes_rows(text: str) -> bool:
    """Whether a script may change rows: a text that says so nowhere changes none, unless by functions."""
    return _CHANGES.search(text) is not None


class DataSet(NamedTuple):
    """Tables that were prepared together, and that a workload uses. ``rows``: as prepared; ``written``: the
    workload may change them; ``unfinished``: loading them was broken off; ``refused``: why they cannot be
    brought back, empty: they can."""

    name: str
    tables: tuple[str, ...]
    rows: int
    written: bool
    unfinished: bool = False
    refused: str = ""


class CacheDrop(NamedTuple):
    """``left_share``: of the pages of tables and indexes, those still in the server's cache;
    ``page_left_share``: the same of the operating system's page cache, None: unknown; ``refused``: why that
    one was not dropped, with what would change it; empty: it was."""

    left_share: float
    page_left_share: float | None
    refused: str


class CacheWarming(NamedTuple):
    """``tables``: how many were read into the caches; ``short``: what was not done, with the cure; empty: all
    was."""

    tables: int
    short: str


class Resetting(Protocol):
    """Data of workloads, brought back, and read into caches."""

    def data_sets(
        self, workload: str, params: Mapping[str, object], texts: Sequence[str]
    ) -> Sequence[DataSet]:
        """Those that the workload uses, also ones that are not there yet but are loaded on demand. ``texts``:
        its scripts, where it was given as such."""

    def begin(self, name: str, cache: Cache) -> Preparation:
        """Empties the tables of a data set and begins to load them as they were prepared; indexes, rights and
        settings of the user's stay. Undone, they stay unfinished, and are loaded again when they are next
        needed. Raises :class:`TargetError` where another session holds a lock on them, and says which."""

    def check_dropping(self) -> None:
        """Raises :class:`UsageError` where tables cannot be dropped from the server's cache."""

    def warm(
        self, workload: str, params: Mapping[str, Any], sessions: int, texts: Sequence[str]
    ) -> CacheWarming:
        """Reads the tables of a workload with their indexes into the server's cache, as far as they fit, and
        so into the page cache, unless the server reads past it."""

    def cache_bytes(self, settings: Mapping[str, str]) -> int | None:
        """Memory that the server's cache takes with these settings; ``None``: they do not change it."""

    def drop_cache(self, name: str) -> CacheDrop:
        """Takes the tables of a data set out of the caches."""
