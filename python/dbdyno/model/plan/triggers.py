"""Triggers as a recipe defines them, and the actions of triggers that fired."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.plan.pacing import Strict


class TriggerSpec(Strict):
    """When something happens, gather detail: dbdyno help triggers has the conditions and the actions."""

    model_config = ConfigDict(populate_by_name=True)

    when: str
    """Condition: sessions in (10,20,30); cpu_wait > 30% and active >= 8 for 3s."""
    do: str | tuple[str, ...]
    """Actions: profile 10s, off-cpu 10s, trace 10s, snapshot, memory, exec COMMAND."""
    for_: str = Field(default="0s", alias="for")
    """For how long the condition must hold; also at its end."""
    cool_down: str = "30s"
    """After it has fired, it does not fire again for so long; of = and in, for the same value."""
    secrets: tuple[str, ...] = ()
    """Variables of the environment that exec hands to its commands though they hold what dbdyno connects
    by."""

    @property
    def actions(self) -> tuple[str, ...]:
        return (self.do,) if isinstance(self.do, str) else self.do


class TriggerKeys(Strict):
    """Keys of a recipe for triggers."""

    triggers: tuple[TriggerSpec, ...] = Field(default=(), max_length=100)
    """[[triggers]]: gather detail when a condition holds: when, do, for, cool_down, secrets."""
    trigger_actions: int = Field(default=10, ge=1, le=1000)
    """At most so many actions of triggers in a run."""
    trigger_budget: str = "256MB"
    """No action begins once so much was captured: 256MB, 1GB."""


FiredStatus = Literal["under way", "ok", "short", "failed", "over budget"]


class Fired(BaseModel):
    """One action of a trigger that fired, stored as ``triggers/NNNN.json`` of a run. Times are of
    CLOCK_MONOTONIC."""

    model_config = ConfigDict(frozen=True)

    number: int  # from 1, in the order of firing
    trigger: int  # from 1, in the order of the recipe
    condition: str
    matched: str  # "sessions = 10"; the condition itself where it has no exact values
    values: dict[str, float] = {}  # what was measured of the condition's figures
    at_ns: int  # when that was sampled
    noticed_ns: int  # when it was evaluated
    action: str
    status: FiredStatus = "under way"
    detail: str = ""  # why it failed or is short; what to do with what was captured
    from_ns: int | None = None
    to_ns: int | None = None
    size_bytes: int = 0
    capture: str | None = None  # id of a run below ``captures``
    lines: tuple[str, ...] = ()  # last ones of what a command wrote
