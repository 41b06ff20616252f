"""Divides a whole number into whole parts."""

from __future__ import annotations

from collections.abc import Sequence


def apportioned(count: int, weights: Sequence[float]) -> list[int]:
    """Divides ``count`` into whole parts in proportion to weights, by largest remainders; the first of
    equal ones wins."""
    total = sum(weights)
    exact = [count * weight / total for weight in weights]
    parts = [int(share) for share in exact]
    by_rest = sorted(range(len(parts)), key=lambda n: parts[n] - exact[n])
    for n in by_rest[: count - sum(parts)]:
        parts[n] += 1
    return parts
