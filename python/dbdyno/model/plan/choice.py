"""A default that the planner chose, with the reason."""

from __future__ import annotations

from pydantic import Field

from dbdyno.model.plan.pacing import Strict


class Choice(Strict):
    """A default that the planner chose, printed with its reason before the run. The reason is in ``reason``
    as text, or it is the sentence ``says`` of the catalogue, in this ``case``. Its placeholders have the
    values in ``said``."""

    name: str
    value: str
    reason: str = ""
    says: str = ""
    case: str = ""
    said: dict[str, str | int | float | bool] = Field(default_factory=dict)
