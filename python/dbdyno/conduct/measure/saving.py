"""The loop that runs, phases and observations share: measure, complete, save, next."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from dbdyno.conduct.companion import Companion
from dbdyno.model.results.raw import RawCell
from dbdyno.store import Run

Measurements = Generator[Sequence[RawCell], None, None]
"""Measures one after the other; yields a cell, a window, or the phases of one measurement."""


def save_each(measurements: Measurements, companions: Companion, record: Run) -> None:
    """Saves every cell before the next measurement begins. Ends the current measurement in any case."""
    with closing(measurements):
        for raws in measurements:
            for raw in companions.after(raws):
                record.write_cell(raw)
                companions.saved(raw)
