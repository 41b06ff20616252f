"""Loads whose truth is known in advance, as data (``truth.toml``)."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from dbdyno.model.truth import TruthCase


@cache
def cases() -> tuple[TruthCase, ...]:
    """In the order of running. Raises :class:`pydantic.ValidationError`."""
    text = resources.files(__name__).joinpath("truth.toml").read_text(encoding="utf-8")
    return tuple(TruthCase.model_validate(c) for c in tomllib.loads(text)["case"])
