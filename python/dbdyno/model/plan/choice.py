"""What the planner chose by itself, and why."""

from __future__ import annotations

from pydantic import Field

from dbdyno.model.plan.pacing import Strict


class Choice(Strict):
    """A default that the planner chose, and why: printed before the run. ``says``: the reason's sentence
    in the catalogue, in this case and with these values, in place of one in words."""

    name: str
    value: str
    reason: str = ""
    says: str = ""
    case: str = ""
    said: dict[str, str | int | float | bool] = Field(default_factory=dict)
