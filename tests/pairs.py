"""Each pair of values of many parameters once, in place of the full product (Cohen et al. 1997, AETG)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairs(*of: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Returns rows of one value each, so that any two values of different parameters meet; always the same
    rows."""
    rows = list(product(*(range(len(values)) for values in of)))
    left = {pair for row in rows for pair in _met(row)}
    chosen = []
    while left:
        best = max(rows, key=lambda row: len(left & _met(row)))
        left -= _met(best)
        chosen.append(tuple(values[i] for values, i in zip(of, best, strict=True)))
    return chosen


def _met(row: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(row), 2))
