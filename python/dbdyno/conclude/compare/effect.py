"""From moments and a permutation test to an effect, and why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.comparison import Basis, Effect
from dbdyno.stats.fieller import Moments, interval
from dbdyno.stats.significance import Test

_ROUNDING = 1e-9


class Floor(NamedTuple):
    """Variances of the two means by what happens inside windows alone."""

    baseline: float
    variant: float


def effect(m: Moments, test: Test | None, basis: Basis, floor: Floor | None, **sizes: int) -> Effect:
    """The ratio with its interval; NULL with the reason where there is none."""
    known: dict[str, Any] = {"basis": basis, **sizes, **_tested(test)}
    if not (m.x > 0 and m.y > 0):
        return Effect(reason=no_interval("zero"), **known)
    wide = m if floor is None else m.floored(*floor)
    known |= {"ratio": m.ratio, "degrees": m.degrees, "floored": wide is not m}
    if _is_zero(wide.variance(m.ratio), m):
        return Effect(reason=no_interval("spread"), **known)
    known |= {"p": wide.p, "std_err": wide.std_err}
    ends = interval(wide)
    if ends is None:
        return Effect(reason=no_interval("unbounded"), **known)
    return Effect(low=ends[0], high=ends[1], **known)


def no_interval(case: str) -> str:
    """Why, by a case of the catalogue's entry."""
    return sentence("no-interval", case=case)


def without(
    case: str, baseline: Sequence[float], variant: Sequence[float], test: Test | None, **known: Any
) -> Effect:
    """The ratio and the permutation test alone, where there is one. ``case``: why there is no interval."""
    x, y = (math.fsum(side) / len(side) if side else 0.0 for side in (baseline, variant))
    return Effect(
        ratio=y / x if x > 0 and y > 0 else None, reason=no_interval(case), **_tested(test), **known
    )


def _tested(test: Test | None) -> dict[str, Any]:
    return {} if test is None else {"p_permutation": test.p, "permutation": test.how, "least_p": test.least}


def _is_zero(variance: float, m: Moments) -> bool:
    """Below what rounding leaves of a sum of squares."""
    return variance <= (_ROUNDING * max(m.x, m.y)) ** 2
