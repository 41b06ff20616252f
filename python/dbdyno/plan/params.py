"""Workload parameters: ``k=v`` texts and recipe values to typed values, defaults filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan import Parameter, Workload

Value = str | int | float | bool


def parse_params(texts: Iterable[str]) -> dict[str, Value]:
    """``["tables=own"]`` -> ``{"tables": "own"}``. Raises :class:`UsageError`."""
    params: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--param {text}: not of the form name=value", "for example --param tables=own")
        params[name.strip()] = value.strip()
    return params


def typed(workload: Workload, given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of ``workload``: those given, checked and typed, the rest at their defaults."""
    for name in given:
        if name not in workload.parameters:
            raise UsageError(
                f"workload {workload.name} has no parameter {name!r}", did_you_mean(name, workload.parameters)
            )
    return {n: _typed(n, p, given.get(n, p.default)) for n, p in workload.parameters.items()}


def _typed(name: str, parameter: Parameter, value: Value) -> Value:
    try:
        result = _CONVERT[parameter.type](value)
    except (ValueError, KeyError) as e:
        raise UsageError(f"parameter {name}: {value!r} is not of type {parameter.type}", parameter.doc) from e
    if parameter.choices and result not in parameter.choices:
        raise UsageError(
            f"parameter {name}: {value!r} is none of {', '.join(parameter.choices)}",
            did_you_mean(str(value), parameter.choices),
        )
    if parameter.minimum is not None and isinstance(result, int | float) and result < parameter.minimum:
        raise UsageError(f"parameter {name}: {value} is less than {parameter.minimum:g}", parameter.doc)
    if parameter.maximum is not None and isinstance(result, int | float) and result > parameter.maximum:
        raise UsageError(f"parameter {name}: {value} is more than {parameter.maximum:,.12g}", parameter.doc)
    return result


def _bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    return {
        "true": True,
        "on": True,
        "yes": True,
        "1": True,
        "false": False,
        "off": False,
        "no": False,
        "0": False,
    }[str(value).lower()]


def _int(value: Value) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    return int(value)


_CONVERT: dict[str, Callable[[Any], Value]] = {"int": _int, "float": float, "choice": str, "bool": _bool}
