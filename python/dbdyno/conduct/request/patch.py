"""Changes that options make to a recipe's experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from dbdyno.model.plan.plan import Experiment


@dataclass(frozen=True)
class Patch:
    """Changes to an experiment: only what the user gave. They win over the recipe."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the experiment; a table (``driver``, ``limits``, ``params``) has only the given keys."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Fields to set in every job of the experiment."""
    job_list: str | None = None
    """A file with jobs that replace the recipe's."""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values of parameters of commands; each of several values becomes a variant."""


_REPLACED = ("axes", "variants")
"""Tables that a patch replaces as a whole."""


def merged(base: Experiment, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``fields``; each table also has those keys of ``base`` that it does not set."""
    complete = dict(fields)
    for name, given in fields.items():
        if isinstance(given, dict) and name not in _REPLACED:
            table = getattr(base, name)
            kept = table.model_dump(exclude_none=True) if isinstance(table, BaseModel) else table or {}
            complete[name] = {**kept, **given}
    return complete
