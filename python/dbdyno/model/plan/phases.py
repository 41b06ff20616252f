"""Phases of a measurement, as a recipe defines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pydantic import ConfigDict, Field

from dbdyno.model.plan.pacing import Strict

if TYPE_CHECKING:
    from dbdyno.model.schema.tables import CoreColumn


@runtime_checkable
class Windowed(Protocol):
    """A load that can divide one measurement into windows."""

    def window_tables(self, window: int) -> Mapping[str, Mapping[str, CoreColumn]]:
        """Returns the tables of one window, counted from 0, like ``tables`` of a load but without
        counters."""


class PhaseSpec(Strict):
    """One part of a measurement: how long, and how many calls per second become due in it."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = ""
    """Shown with its figures: ramp, hold, spike, soak."""
    duration: str = ""
    """How long it lasts, at least 1s: 60s or 2min."""
    rate: float | str | None = None
    """Calls per second that become due; or from and to."""
    from_: float | str | None = Field(default=None, alias="from")
    """The rate at its begin; it changes evenly."""
    to: float | str | None = None
    """The rate at its end."""
