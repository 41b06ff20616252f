"""Compares durations of commands pair by pair within each repeat, with the same verdicts as for variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from dbdyno.conclude.compare.effects import effect, effect_of_pairs, start_up_factors, with_start_up, without
from dbdyno.conclude.compare.table import ALPHA, MARGIN, Judgement, careful_p, judge
from dbdyno.model.results.claim import Estimate
from dbdyno.model.results.comparison import Basis, Effect
from dbdyno.stats.estimates import positive_interval
from dbdyno.stats.significance import holm
from dbdyno.stats.two_groups import Moments

ENOUGH = 5
"""Repeats that can decide between up to seven commands."""
WITHIN: Basis = "within the window only"


class Took(NamedTuple):
    """Durations of a variant's measurements at one number of jobs at once, in ns."""

    of: Mapping[int, float]  # repeat -> mean
    executions: int
    sd: float | None  # of single executions
    error: float = 0.0  # ns by which every duration may be shorter because of a shell's start-up

    @property
    def means(self) -> list[float]:
        return list(self.of.values())

    @property
    def mean(self) -> float:
        return sum(self.of.values()) / len(self.of)

    @property
    def variance(self) -> float | None:
        """Variance of the mean of a single measurement, from its executions; None if unknown."""
        known = self.sd is not None and self.executions > 1
        return (self.sd or 0.0) ** 2 / self.executions if known else None


def between(over: Took, under: Took) -> Effect:
    """Returns the ratio of two mean durations over pairs of repeats: variants alternate, so drift affects
    both sides. With one measurement per side it comes from single executions; that is no interval of the
    effect, and it is labelled accordingly."""
    return with_start_up(_between(over, under), under.mean, over.mean, (under.error, over.error))


def _between(over: Took, under: Took) -> Effect:
    both = sorted(over.of.keys() & under.of.keys())
    if len(both) > 1:
        return effect_of_pairs([(under.of[r], over.of[r]) for r in both])
    # A single pair has no spread of its own: the spread of executions within it is a lower bound.
    errors = under.variance, over.variance
    if errors[0] is None or errors[1] is None:
        return without("one", under.means, over.means, None, n_baseline=1, n_variant=1)
    degrees = max(1.0, min(under.executions, over.executions) - 1.0)
    m = Moments(under.mean, over.mean, errors[0], errors[1], 0.0, degrees)
    return effect(m, None, WITHIN, None, n_baseline=1, n_variant=1)


def ratio(over: Took, under: Took, name: str, unit: str, alpha: float = ALPHA) -> Estimate:
    """Returns the ratio of two mean durations, without an interval if one side was executed once."""
    e = between(over, under)
    value = over.mean / under.mean if e.ratio is None else e.ratio
    if e.ratio is None or e.std_err is None or e.degrees is None:
        return Estimate(name, value, unit)
    low, high = positive_interval(e.ratio, e.std_err, e.degrees, alpha) or (None, None)
    if low is not None and high is not None and (over.error or under.error):
        factors = start_up_factors(under.mean, over.mean, (under.error, over.error))
        low, high = (None, None) if factors is None else (low * factors[0], high * factors[1])
    return Estimate(name, value, unit, low, high, "Student's t", e.std_err)


def verdict(over: Took, under: Took) -> Judgement:
    """Returns the verdict on a single ratio of durations."""
    e = between(over, under)
    return judge(e, careful_p(e), MARGIN, True)


class Faster(NamedTuple):
    fast: str
    slow: str
    times: Estimate  # duration of the slow command over that of the fast one
    judged: Judgement
    case: str
    repeats: int
    enough: int  # repeats that would decide


def against_fastest(
    durations: Mapping[str, Took], elsewhere: Sequence[Mapping[str, Took]] = ()
) -> Iterator[Faster]:
    """Yields the fastest command against each other one, judged as variants are compared.

    The fastest command is chosen by the same figures, so any pair might have been compared. Therefore the
    intervals of all pairs hold together at 1 - :data:`ALPHA` (Bonferroni). Verdicts are adjusted (Holm) for
    all pairs, with those ``elsewhere``, at other numbers of jobs at once, which a comparison also tests.
    """
    names = sorted(durations, key=lambda v: durations[v].mean)
    effects = {(f, s): between(durations[s], durations[f]) for f, s in combinations(names, 2)}
    others = [careful_p(between(b, a)) for at in elsewhere for a, b in combinations(at.values(), 2)]
    adjusted = holm([*map(careful_p, effects.values()), *others])
    family = sum(p is not None for p in adjusted) or 1
    for ((fast, slow), e), p in zip(effects.items(), adjusted, strict=False):
        if fast != names[0]:
            continue
        judged = judge(e, p, MARGIN, True, family)
        same = judged.verdict == "no difference"
        times = ratio(
            durations[slow], durations[fast], "speed", "times", ALPHA if same else ALPHA / len(effects)
        )
        enough = max(ENOUGH, e.n_baseline + (judged.further_repeats or 0))
        case = _case(e, times, judged, bool(durations[slow].error or durations[fast].error))
        yield Faster(fast, slow, times, judged, case, e.n_baseline, enough)


def _case(e: Effect, times: Estimate, judged: Judgement, shell: bool) -> str:
    if times.low is None:
        return "shell" if shell and e.degrees is not None else "unknown"
    if e.basis == WITHIN:
        return "single"
    if judged.verdict == "no difference":
        return "equal"
    if times.low <= 1:
        return "undecided"
    return "faster" if judged.verdict == "better" else "few"
