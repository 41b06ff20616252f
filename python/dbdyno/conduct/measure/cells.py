"""The order of measuring: cells one by one, or the phases of a repeat together."""

from __future__ import annotations

from collections.abc import Sequence

from dbdyno.conduct.measure.cell import Setting, Unit
from dbdyno.conduct.measure.measurement import Windows, measure
from dbdyno.conduct.measure.one_window import OneWindow
from dbdyno.conduct.measure.phased import Phases
from dbdyno.model.plan.plan import Cell
from dbdyno.model.results.raw import RawCell
from dbdyno.plan import whole


def measure_cells(setting: Setting, cells: Sequence[Cell], unit: Unit) -> list[RawCell]:
    """Measures one cell, or all phases of a repeat. Returns those that began. Raises what keeps the
    measurement from starting."""
    first, phased = cells[0], bool(cells[0].phase)
    log_calls = not phased and (setting.plan.experiment.log_calls or first.driver.rounds)
    driven = whole(cells) if phased else first
    load = setting.server.load(unit.workload, driven, unit.calibration, log_calls, None)
    windows: Windows = Phases(setting, load, cells, unit) if phased else OneWindow(setting, load, first, unit)
    return measure(setting, load, windows, cells)


def measure_cell(setting: Setting, cell: Cell, unit: Unit) -> RawCell:
    """Measures one cell that is no phase. Raises as :func:`measure_cells`."""
    (raw,) = measure_cells(setting, [cell], unit)
    return raw
