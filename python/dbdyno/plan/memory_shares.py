"""Sizes that a recipe gives relative to the machine: ``8% of memory``, or ``8% of memory, at most 2GB``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Choice, Experiment, Value, VariantSpec, Workload
from dbdyno.model.units import format_size

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*% of memory(?:,\s*at most (\d{1,15})\s*(MB|GB))?")
_UNITS = {"MB": 1 << 20, "GB": 1 << 30}
_FORM = 'write "8% of memory" or "8% of memory, at most 2GB"'


def share_bytes(name: str, text: Value, memory_bytes: int | None) -> int | None:
    """Returns the size of a share in bytes; ``None`` if ``text`` is not a share. ``memory_bytes`` is the
    machine's memory or the tightest limit. Raises :class:`UsageError` if that is unknown or the share is
    invalid."""
    if not isinstance(text, str) or "of memory" not in text:
        return None
    match = _SHARE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 100:
        raise UsageError(f"{name} = {text!r} is not a share of the memory", _FORM)
    if memory_bytes is None:
        raise UsageError(f"{name} = {text!r}: the memory of this machine is not known", "write a size")
    most = int(match[2]) * _UNITS[match[3]] if match[2] else memory_bytes
    return min(most, int(memory_bytes * float(match[1]) / 100))


def sized(
    experiment: Experiment, workload: Workload, memory_bytes: int | None, choices: list[Choice]
) -> Experiment:
    """Returns ``experiment`` with a size in place of every share of the memory. A setting gets MB, a
    parameter gets its own unit. Raises :class:`UsageError`."""
    reasons: dict[str, Choice] = {}

    def chosen(name: str, text: Value, value: Value) -> Value:
        why = f"{text}, of {format_size(memory_bytes or 0)}"
        reasons[f"{name}={value}"] = Choice(name=name, value=str(value), reason=why)
        return value

    def setting(name: str, text: Value) -> Value:
        size_bytes = share_bytes(name, text, memory_bytes)
        return text if size_bytes is None else chosen(name, text, f"{max(1, size_bytes >> 20)}MB")

    def parameter(name: str, text: Value) -> Value:
        size_bytes = share_bytes(name, text, memory_bytes)
        if size_bytes is None:
            return text
        known = workload.parameters.get(name)
        if known is None or known.bytes is None:
            raise UsageError(
                f"parameter {name} = {text!r}: its size in memory is not known", "write a number"
            )
        return chosen(name, text, max(int(known.minimum or 1), size_bytes // known.bytes))

    def resolved(spec: Experiment | VariantSpec) -> Mapping[str, object]:
        settings = {n: setting(n, v) for n, v in spec.settings.items()}
        return {"settings": settings, "params": {n: parameter(n, v) for n, v in spec.params.items()}}

    variants = {n: v.model_copy(update=resolved(v)) for n, v in experiment.variants.items()}
    whole = experiment.model_copy(update={**resolved(experiment), "variants": variants})
    choices.extend(reasons.values())
    return whole
