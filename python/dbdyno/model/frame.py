"""A small table as a field of a model: JSON has its columns and their types."""

from __future__ import annotations

import math
from typing import Annotated, Any

import polars as pl
from pydantic import PlainSerializer, PlainValidator

_TYPES = {"f64": pl.Float64, "i64": pl.Int64, "str": pl.String, "bool": pl.Boolean}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def _written(frame: pl.DataFrame) -> dict[str, Any]:
    return {
        name: {"type": _NAMES[type(series.dtype)], "values": [_number(v) for v in series.to_list()]}
        for name, series in frame.to_dict().items()
    }


def _number(value: Any) -> Any:
    """JSON has no infinite numbers, and none that is none."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read(value: Any) -> pl.DataFrame:
    """Raises ValueError where it is none."""
    if isinstance(value, pl.DataFrame):
        return value
    try:
        return pl.DataFrame({name: _series(**column) for name, column in value.items()})
    except (AttributeError, KeyError, TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"no table: {error}") from error


def _series(type: str, values: list[Any]) -> pl.Series:  # the name in the file
    dtype = _TYPES[type]
    if dtype == pl.Float64:
        values = [None if v is None else float(v) for v in values]
    return pl.Series(values, dtype=dtype, strict=True)


Frame = Annotated[pl.DataFrame, PlainValidator(_read), PlainSerializer(_written)]
