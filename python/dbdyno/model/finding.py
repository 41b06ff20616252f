"""A finding: a claim with its number, interval, evidence and verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

GOOD_SCALING = 0.9
"""A rung scales while each session delivers at least this share of what a session of the lowest rung does."""


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str  # stable, kebab-case: "driver-starved"
    severity: Literal["good", "note", "warning", "invalid"]  # invalid: the figures of that rung can't be used
    claim: str  # one sentence in words, with its number
    value: float | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    evidence: str = ""  # which table and figures it rests on
    cure: str = ""  # what to do about it
    cells: tuple[str, ...] = ()  # cell ids it is about; empty: the whole run
