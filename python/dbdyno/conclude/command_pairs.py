"""Durations of commands, pair by pair: compared within each repeat, judged as variants are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from dbdyno.conclude.compare.effects import effect, effect_of_pairs, without
from dbdyno.conclude.compare.table import ALPHA, careful_p, judge
from dbdyno.model.claim import Estimate
from dbdyno.model.comparison import Basis, Effect
from dbdyno.stats.estimates import positive_interval
from dbdyno.stats.two_groups import Moments

ENOUGH = 5
"""Repeats that can decide between up to seven commands."""
WITHIN: Basis = "within the window only"


class Took(NamedTuple):
    """What a variant's measurements at a number of jobs at once took, in ns."""

    of: Mapping[int, float]  # repeat -> mean
    executions: int
    sd: float | None  # of single executions
    error: float = 0.0  # by the start-up of a shell each may be so much shorter, the same of all

    @property
    def means(self) -> list[float]:
        return list(self.of.values())

    @property
    def mean(self) -> float:
        return sum(self.of.values()) / len(self.of)

    @property
    def variance(self) -> float | None:
        """Of the mean of a single measurement, by its executions."""
        known = self.sd is not None and self.executions > 1
        return (self.sd or 0.0) ** 2 / self.executions if known else None


def between(over: Took, under: Took) -> Effect:
    """Ratio of two mean durations by pairs of repeats: variants alternate, so drift is on both sides. Of one
    measurement each by single executions: that is no interval of the effect, and it is labelled so."""
    both = sorted(over.of.keys() & under.of.keys())
    if len(both) > 1:
        return effect_of_pairs([(under.of[r], over.of[r]) for r in both])
    errors = under.variance, over.variance
    if errors[0] is None or errors[1] is None:
        return without("one", under.means, over.means, None, n_baseline=1, n_variant=1)
    degrees = max(1.0, min(under.executions, over.executions) - 1.0)
    m = Moments(under.mean, over.mean, errors[0], errors[1], 0.0, degrees)
    return effect(m, None, WITHIN, None, n_baseline=1, n_variant=1)


def ratio(over: Took, under: Took, name: str, unit: str) -> Estimate:
    """Without an interval where a side was executed once."""
    return _widened(_estimate(between(over, under), over.mean / under.mean, name, unit), over, under)


def _estimate(e: Effect, value: float, name: str, unit: str, alpha: float = ALPHA) -> Estimate:
    """``value``: where the effect has no ratio."""
    if e.ratio is None or e.std_err is None or e.degrees is None:
        return Estimate(name, value if e.ratio is None else e.ratio, unit)
    low, high = positive_interval(e.ratio, e.std_err, e.degrees, alpha) or (None, None)
    return Estimate(name, e.ratio, unit, low, high, "Student's t", e.std_err)


def _widened(found: Estimate, over: Took, under: Took) -> Estimate:
    """With what the start-up of shells may have taken beyond what was taken off, at either end."""
    if found.low is None or found.high is None or not (over.error or under.error):
        return found
    if under.error >= under.mean or over.error >= over.mean:
        return replace(found, low=None, high=None)
    ends = [
        (over.mean - a) / (under.mean - b) / (over.mean / under.mean)
        for a, b in {(0.0, 0.0), (over.error, under.error), (over.error, 0.0), (0.0, under.error)}
        if over.error != under.error or a == b  # one shell: the same error on both sides
    ]
    return replace(found, low=found.low * min(ends), high=found.high * max(ends))


class Faster(NamedTuple):
    fast: str
    slow: str
    times: Estimate  # duration of the slow one by that of the fast one
    case: str
    repeats: int
    enough: int  # repeats that would decide


def against_fastest(found: Mapping[str, Took]) -> Iterator[Faster]:
    """The fastest against each other one, judged as variants are compared.

    Which is the fastest is seen in the same figures, so any pair might have been the one compared: the
    intervals of all pairs hold together at 1 - :data:`ALPHA` (Bonferroni).
    """
    fast, *others = sorted(found, key=lambda v: found[v].mean)
    pairs = math.comb(len(found), 2)
    for slow in others:
        e = between(found[slow], found[fast])
        p = careful_p(e)
        judged = judge(e, None if p is None else p * pairs, 0.0, True, pairs)
        plain = _estimate(e, found[slow].mean / found[fast].mean, "speed", "times", ALPHA / pairs)
        times = _widened(plain, found[slow], found[fast])
        enough = max(ENOUGH, e.n_baseline + (judged.further_repeats or 0))
        case = _case(e, times, judged.verdict == "better")
        if plain.low is not None and times.low is None:
            case = "shell"
        yield Faster(fast, slow, times, case, e.n_baseline, enough)


def _case(e: Effect, times: Estimate, faster: bool) -> str:
    if times.low is None:
        return "unknown"
    if e.basis == WITHIN:
        return "single"
    return "faster" if faster and times.low > 1 else "few" if times.low > 1 else "equal"
