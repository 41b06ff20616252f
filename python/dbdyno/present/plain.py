"""Values of the model as JSON has them."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import polars as pl


def plain(value: Any) -> Any:
    """Dataclasses and rows as dicts; what is not finite is ``None``."""
    if isinstance(value, pl.DataFrame):
        return plain(value.to_dicts())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
