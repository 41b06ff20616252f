"""What a server's own processes are for, whatever an engine calls them. Each maps their names, as data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import polars as pl

ROLE = "helper:"
"""How the role of such a process begins; its name follows."""


class Helper(StrEnum):
    IO = "io"  # does I/O for sessions
    CHECKPOINT = "checkpoint"  # writes what has changed to the data files
    CLEANUP = "cleanup"  # removes what nobody sees any more


def named(column: str, kind: Helper, kinds: Mapping[str, Helper]) -> pl.Expr:
    """Whether ``column``, a role or the name in it, is that of a helper of this kind."""
    names = [name for name, its in kinds.items() if its is kind]
    return pl.col(column).str.strip_prefix(ROLE).is_in(names).fill_null(False)
