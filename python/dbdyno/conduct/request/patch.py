"""What options change of a recipe's experiment."""

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
    """Of the experiment; of a table (``driver``, ``limits``, ``params``) only the keys that were given."""
    job: Mapping[str, Any] = field(default_factory=dict)
    """Of every job that the experiment has."""
    job_list: str | None = None
    """File with jobs in place of the recipe's."""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Of parameters of commands; of several values each is a variant."""


_REPLACED = ("axes", "variants")
"""Tables that a patch holds whole."""


def merged(base: Experiment, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields, each table with the keys of the base that they leave."""
    found = dict(fields)
    for name, given in fields.items():
        if isinstance(given, dict) and name not in _REPLACED:
            table = getattr(base, name)
            kept = table.model_dump(exclude_none=True) if isinstance(table, BaseModel) else table or {}
            found[name] = {**kept, **given}
    return found
