"""The loop that runs, phases and observations share: measure, complete, save, next."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from dbdyno.conduct.companion import Companion
from dbdyno.model.results.raw import RawCell
from dbdyno.store import Run

Measurements = Generator[Sequence[RawCell], None, None]
"""Measures as it goes on: each is a cell, a window, or the phases of one measurement."""


def save_each(measurements: Measurements, companions: Companion, record: Run) -> None:
    """Saves every cell before the next measurement begins. What has begun is ended, whatever happened."""
    with closing(measurements):
        for raws in measurements:
            for raw in companions.after(raws):
                record.write_cell(raw)
                companions.saved(raw)
