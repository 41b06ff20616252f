"""A claim: one conclusion with its figure, its evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# A figure with its interval.


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval. ``low`` or ``high`` is ``None`` if it is unbounded on that side."""

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    method: str = ""
    """profile likelihood | bootstrap of repeats | Student's t | ...; empty if there is no interval."""
    std_err: float | None = None
    note: str = ""
    """A remark such as "at its bound"."""

    def over(self, by: float, name: str, unit: str) -> Estimate:
        """Returns the estimate divided by an exact number."""
        low, high, error = (None if v is None else v / by for v in (self.low, self.high, self.std_err))
        return Estimate(name, self.value / by, unit, low, high, self.method, error, self.note)


Severity = Literal["good", "note", "warning", "invalid"]
"""``invalid``: the figures of these measurements cannot be used."""


_RENAMED = {"witnesses-used": "data-sources-used"}
"""Ids of claims in runs of older versions, with their present ids."""


class Claim(BaseModel):
    model_config = ConfigDict(frozen=True, validate_by_name=True, serialize_by_alias=True)

    id: str  # stable, kebab-case: "driver-starved"; the catalogue explains it
    text: str  # the sentence, with its number
    severity: Severity = "note"
    subject: str = ""  # the subject, if there are several: "lio, variant base"
    value: Estimate | None = None
    evidence: str = ""  # the table and figures that support it
    advice: str = ""  # the recommended action
    cells: tuple[str, ...] = ()  # the measurements concerned; empty for the whole run
    case: str = ""  # the sentence's key within its entry, if the entry has several
    slots: dict[str, Any] = Field(default={}, alias="said")  # values of the sentence's slots
    about: str = ""  # throughput, time, quality, source; or something else
    short: str = ""  # a few words for a list of warnings
    pieces: tuple[tuple[str, str], ...] = ()  # the sentence by slots, each with its name; "" between them

    @model_validator(mode="before")
    @classmethod
    def _of_older_runs(cls, record: Any) -> Any:
        """Converts a record of an older version, which has ``claim``, ``cure`` and a figure in separate
        keys. A figure that is not finite is stored as null."""
        if not isinstance(record, dict):
            return record
        if "claim" in record and "text" not in record:
            kept = ("id", "severity", "evidence", "cells")
            figure = {"name": record.get("id", ""), **{k: record.get(k) for k in ("value", "low", "high")}}
            figure["unit"] = record.get("unit", "")
            record = {k: record[k] for k in kept if k in record} | {
                "text": record["claim"],
                "advice": record.get("cure", ""),
                "value": figure,
            }
        if record.get("id") in _RENAMED:
            record = {**record, "id": _RENAMED[record["id"]]}
        figure = record.get("value")
        if isinstance(figure, dict) and figure.get("value") is None:
            record = {**record, "value": None}
        return record


DISTURBED = "disturbed"
"""Id of the claim about loads at which others took much of the CPUs. Figures that rest on them are marked,
and sentences about them say so."""


def disturbed_cells(claims: Iterable[Claim]) -> set[str]:
    """Returns the measurements at which others took much of the CPUs."""
    return {cell for c in claims if c.id == DISTURBED for cell in c.cells}
