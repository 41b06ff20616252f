"""Finds variants that differ only in a number of threads. They form an axis along which one job is sped
up."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Variant

_COUNTS = re.compile(r"thread|job|worker|proc|core|cpu|parallel|^(n|p|j|t)$", re.IGNORECASE)
"""Matches parameters of which a larger value means more parallelism. Variants of other parameters (a level,
a size) are only compared."""


class Axis(NamedTuple):
    name: str  # the parameter
    rest: str  # what its variants have in common: "level=9"
    points: tuple[tuple[float, str], ...]  # (its value, variant), by value


def axes_of(variants: Sequence[Variant], measured: Collection[str]) -> list[Axis]:
    """Returns the axes with at least two measured values."""
    known = [v for v in variants if v.name in measured]
    names = dict.fromkeys(n for v in known for n in v.params if _COUNTS.search(n))
    return [axis for name in names for axis in _along(name, known)]


def _along(name: str, variants: Sequence[Variant]) -> list[Axis]:
    points_by_rest: dict[tuple[str, tuple[str, ...]], list[tuple[float, str]]] = {}
    for v in variants:
        value = v.params.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            continue
        rest = ", ".join(f"{k}={x}" for k, x in sorted(v.params.items()) if k != name)
        points_by_rest.setdefault((rest, tuple(j.name for j in v.jobs)), []).append((float(value), v.name))
    return [
        Axis(name, rest, tuple(sorted(points)))
        for (rest, _), points in points_by_rest.items()
        if len({n for n, _ in points}) > 1
    ]


_PLURAL = re.compile(r"(thread|job|worker|processe?|proc|core|cpu)s$", re.IGNORECASE)
_SINGULAR = re.compile(r"(thread|job|worker|process|proc|core|cpu)$", re.IGNORECASE)


def counts_of(name: str) -> str:
    """Returns the plural noun that a parameter counts, such as ``workers``. It is ``threads`` for ``t`` or
    ``parallel``."""
    if match := _PLURAL.search(name):
        return match[0].lower()
    match = _SINGULAR.search(name)
    return "threads" if match is None else f"{match[0].lower()}{'es' if match[0].endswith('s') else 's'}"


def counted(name: str, value: float) -> str:
    """Returns a value with its noun: ``4 threads``, ``1 thread``; ``p=4`` if the name is not a plural."""
    if not name.endswith("s") or len(name) < 4:
        return f"{name}={value:g}"
    return f"{value:g} {name.removesuffix('s') if value == 1 and not name.endswith('ss') else name}"
