"""Columns of a measurement's snapshots and resets.

The tables hold the growth of objects that a measurement left behind, the tables too large for the cache, and
the resets of the data before it.
"""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.raw import TABLES
from dbdyno.model.schema.table import Table

GROWTH_TABLES: tuple[Table, ...] = (
    Table("growth", (*CELL, *TABLES["growth"]), older=("grown",)),
    Table("resets", (*CELL, *TABLES["resets"]), older=("resets_done",)),
    Table("large_scans", (*CELL, *TABLES["large_scans"]), older=("large_scans_read",)),
)
"""The raw tables of all measurements in one."""
