"""Where the pages of a running server and its machine are cached, read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from dbdyno.model.results.claim import Claim
from dbdyno.model.sources.source import Source

CELL: Final = "now"
NOW: Final = "now"
"""Cell and phase of its tables."""


@dataclass(frozen=True)
class MemoryNow:
    taken: datetime  # UTC
    took_s: float
    server: str
    """Product, version and address."""
    tables: Mapping[str, pl.DataFrame]  # the MEMORY_TABLES
    claims: tuple[Claim, ...]
    """The first claim is the answer."""
    sources: tuple[Source, ...] = ()
    """The sources that were read. If one is not ok, it has the reason and the remedy."""
