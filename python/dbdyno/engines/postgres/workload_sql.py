"""This engine's half of a workload: ``workloads/NAME/half.toml`` and the SQL files beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import gcd
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.errors import UsageError, did_you_mean

SCHEMA = "dbdyno"
RANGE_ROWS = 64
_FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"
_GOLDEN = 0.6180339887498949  # of all fractions the one whose multiples spread most evenly


class Objects(BaseModel):
    """What a workload needs in our schema. ``own_name``: where each session may have its own.

    A table has one row a block, and ``blocks_parameter`` says how many."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["table", "function"]
    name: str
    own_name: str | None = None
    build: tuple[str, ...]  # in one transaction
    after: tuple[str, ...] = ()  # outside
    blocks_parameter: str = "blocks"
    in_cache: bool = True  # refused where it would not stay in the database's cache

    def name_for(self, session: int, params: Mapping[str, Any]) -> str:
        """The object that a session uses."""
        if self.own_name is not None and params.get("tables") == "own":
            return self.own_name.format(session=session)
        return self.name

    def names(self, sessions: int, params: Mapping[str, Any]) -> list[str]:
        """All objects that so many sessions use, in order, each once."""
        return list(dict.fromkeys(self.name_for(n, params) for n in range(sessions)))


class Changing(BaseModel):
    """What differs where ``parameter`` is above 0: the call changes rows, of objects of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameter: str
    call: str
    name: str
    own_name: str | None = None
    after: tuple[str, ...]


class Half(BaseModel):
    """``half.toml``; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    call: str
    size_unit: str
    size_start: int
    size_parameter: str | None = None  # whose value a call's size is, where that is not calibrated
    size_power: str | None = None  # to the power of whose value
    work: Literal["lio", "size"]
    read_only: bool
    session: dict[str, str] = Field(default_factory=dict)
    objects: Objects
    changing: Changing | None = None

    def with_params(self, params: Mapping[str, Any]) -> Half:
        """As it is with these parameters."""
        changing = self.changing
        if changing is None or not params.get(changing.parameter):
            return self
        other = {"name": changing.name, "own_name": changing.own_name, "after": changing.after}
        objects = self.objects.model_copy(update=other)
        return self.model_copy(update={"call": changing.call, "read_only": False, "objects": objects})

    def all_objects(self) -> list[Objects]:
        """With whatever parameters."""
        changing = self.changing
        return [self.objects, *([self.with_params({changing.parameter: 1}).objects] if changing else [])]


@cache
def half(name: str) -> Half:
    """Raises :class:`UsageError` where this engine does not know the workload."""
    file = _FOLDER / name / "half.toml"
    if not file.is_file():
        raise UsageError(f"PostgreSQL has no workload {name!r}", did_you_mean(name, names()))
    return Half.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def names() -> list[str]:
    """All workloads of this engine."""
    return sorted(d.name for d in _FOLDER.iterdir() if (d / "half.toml").is_file())


def sql(
    workload: str, file: str, object_name: str, blocks: int, params: Mapping[str, Any] | None = None
) -> str:
    """A workload's statement for one object. ``params`` (checked by their types) may stand in it by name."""
    span = max(1, blocks - RANGE_ROWS + 1)
    values = {
        **(params or {}),
        "table": f"{SCHEMA}.{object_name}",
        "blocks": blocks,
        "span": span,
        "stride": stride(span),
    }
    text = (_FOLDER / workload / file).read_text(encoding="utf-8")
    return re.sub(r"\$\{(\w+)\}", lambda m: str(values[m[1]]), text).strip()


def stride(span: int) -> int:
    """A step through 0..span-1 that visits each once and jumps widely: coprime, near the golden section.

    >>> sorted(n * stride(10) % 10 for n in range(10)) == list(range(10))
    True
    """
    near = max(1, round(span * _GOLDEN))
    return next((s for s in range(near, 2 * span + 2) if gcd(s, span) == 1), 1)
