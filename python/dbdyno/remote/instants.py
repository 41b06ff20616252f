"""Converts times of another host's tables to our clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbdyno.model.schema.instants import instants
from dbdyno.model.schema.tables import CoreColumn
from dbdyno.stats import clocks


def ours(
    tables: Mapping[str, Mapping[str, CoreColumn]], mapping: clocks.Mapping
) -> dict[str, dict[str, CoreColumn]]:
    """Returns ``tables`` with all instants on our clock. Durations stay as they are."""
    return {
        table: {
            name: _map(column, mapping) if name in instants(table) else column
            for name, column in columns.items()
        }
        for table, columns in tables.items()
    }


def _map(column: CoreColumn, mapping: clocks.Mapping) -> CoreColumn:
    import numpy as np

    kind, payload, validity = column
    theirs: Any = np.frombuffer(payload, dtype="<i8")
    drifted = np.rint(mapping.drift * (theirs - mapping.first.at_ns)).astype("<i8")
    return kind, (theirs - mapping.first.ns - drifted).tobytes(), validity
