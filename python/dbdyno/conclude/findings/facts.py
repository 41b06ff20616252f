"""What the checks ask of one cell alone, answered once and kept.

The checks of a run look at all of its cells. Of a long observation only the answers are kept for that: a
window's own tables are there when it is derived, and not when all of them are concluded from.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from dbdyno.conclude.findings.context import Case

VERSION = 2
"""Of the questions: answers to others are no answers."""

Facts = dict[str, dict[str, Any]]
"""Cell -> question -> answer, as JSON holds it."""

_Ask = TypeVar("_Ask", bound=Callable[..., Any])


def of_cell(ask: _Ask) -> _Ask:
    """A question of a check, ``ask(case, cell, ...)``: it looks at tables of that cell and at nothing else.

    ``cell`` is an id, or a row of ``windows``; further arguments are texts. What it returns is annotated.
    """
    name = f"{ask.__module__.rpartition('.')[2]}.{ask.__name__}"

    @functools.wraps(ask)
    def asked(case: Case, cell: Any, *more: str, **named: str) -> Any:
        known = case.facts.setdefault(cell if isinstance(cell, str) else cell["cell"], {})
        key = ":".join((name, *more, *named.values()))
        if key not in known:
            known[key] = _type_of(ask).dump_python(ask(case, cell, *more, **named), mode="json")
        return _type_of(ask).validate_python(known[key])

    return cast("_Ask", asked)


@functools.cache
def _type_of(ask: Callable[..., Any]) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(ask)["return"])


def to_json(facts: Facts) -> dict[str, Any]:
    """An answer that JSON has no number for is left out: it is asked again."""
    kept = {cell: {k: v for k, v in known.items() if _finite(v)} for cell, known in facts.items()}
    return {"version": VERSION, "cells": kept}


def of_json(content: Any) -> Facts | None:
    """``None``: they answer other questions. Raises ValueError where they are damaged."""
    if not isinstance(content, dict) or not isinstance(content.get("cells"), dict):
        raise ValueError("no facts")
    if not all(isinstance(known, dict) for known in content["cells"].values()):
        raise ValueError("no facts")
    return dict(content["cells"]) if content.get("version") == VERSION else None


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_finite, parts))
