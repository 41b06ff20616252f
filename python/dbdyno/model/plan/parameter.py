"""A parameter of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Parameter(BaseModel):
    """A parameter of a workload, settable by ``--param name=value``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    doc: str
    type: Literal["int", "float", "choice", "bool"]
    default: str | int | float | bool
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    bytes: int | None = None  # of a size: memory that each 1 takes
    counts: tuple[int, str] | None = None  # of a size: how many of what there are for each 1
    rows: Rows | None = None


class Rows(BaseModel):
    """Marks a parameter as a number of rows, one of which each call changes. If there are fewer rows than
    sessions, sessions wait for each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    one: str  # noun: "warehouse"
    many: str  # and its plural
    having: Mapping[str, str] = {}  # so it is where other parameters have these values
    cure: str  # how to have {n} of them
