"""A comparison as one JSON document with stable keys: docs/json.md says what each means."""

from __future__ import annotations

from typing import Any

from dbdyno.model.comparison import Comparison, SampleComparison

FORMAT = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""


def document(made: Comparison | SampleComparison) -> dict[str, Any]:
    """Unknown is ``None``."""
    return {"format": FORMAT, **made.model_dump(mode="json")}
