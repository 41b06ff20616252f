"""A recipe: TOML that describes an experiment.

No conditions, arithmetic or templates; unknown keys are errors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from dbdyno.model.errors import RecipeError
from dbdyno.model.nearest import did_you_mean
from dbdyno.model.plan import Experiment
from dbdyno.model.variant import VariantSpec


def parse_recipe(text: str, name: str) -> Experiment:
    """The experiment that ``text`` describes; ``name`` is its name where the text gives none.

    Raises :class:`RecipeError` with the line of a TOML error, or the nearest key of an unknown one.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise RecipeError(f"recipe {name}: {e}", "the format is TOML: key = value, texts in quotes") from e
    _known_keys(name, "", data, Experiment.model_fields)
    for variant, body in _tables(name, data.get("variants", {})):
        _known_keys(name, f"variants.{variant}.", body, VariantSpec.model_fields)
    try:
        return Experiment.model_validate({"name": name, **data})
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise RecipeError(f"recipe {name}: {where}: {first['msg']}", f"it says {first['input']!r}") from e


def _known_keys(name: str, prefix: str, body: Mapping[str, Any], known: Iterable[str]) -> None:
    known = set(known)
    for key in body:
        if key not in known:
            raise RecipeError(f"recipe {name}: unknown key {prefix}{key}", did_you_mean(key, known))


def _tables(name: str, variants: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(variants, dict) or not all(isinstance(v, dict) for v in variants.values()):
        raise RecipeError(
            f"recipe {name}: variants must be tables", "write [variants.NAME] and its keys below"
        )
    return variants.items()
