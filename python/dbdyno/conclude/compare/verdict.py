"""Better, worse, no difference above the margin, or undecided; then how many more repeats would decide."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.comparison import Effect, Verdict
from dbdyno.stats.distributions import students_quantile

ALPHA = 0.05
ALPHA_STOPPED = 0.025
"""In a run that stopped when its intervals were tight: simulated, false differences are then 5 % at most."""
MARGIN = 0.02
MOST_REPEATS = 10_000


def careful_p(effect: Effect) -> float | None:
    """Student's p, but not below 2 ** (1 - n - m).

    So likely is it that a machine with two modes of equal chance (placement on CPUs makes such) shows one of
    them in all n repeats of one side and the other in all m of the other: hardly any spread, and no effect.
    Student's p knows of no modes; with two or three repeats that alone makes 12 to 20 % of false runs.
    """
    if effect.p is None:
        return None
    return max(effect.p, 2.0 ** (1 - effect.n_baseline - effect.n_variant))


class Judgement(NamedTuple):
    verdict: Verdict
    further_repeats: int | None
    note: str

    def fields(self) -> dict[str, Any]:
        return self._asdict()


def judge(
    effect: Effect,
    p_holm: float | None,
    margin: float,
    higher_is_better: bool,
    family: int = 1,
    alpha: float = ALPHA,
) -> Judgement:
    """The margin is asked first: a difference that is there but does not matter is none above the margin.

    ``family``: how many claims ``p_holm`` is adjusted for.
    """
    if effect.ratio is None or effect.low is None or effect.high is None:
        known = effect.ratio is not None and effect.std_err is not None
        return Judgement(
            "undecided", _further(effect, margin, alpha / family) if known else None, effect.reason
        )
    if effect.basis == "within the window only":
        return Judgement("undecided", None, sentence("verdict-note", case="window"))
    clear = effect.low > 1 or effect.high < 1
    if effect.low >= 1 - margin and effect.high <= 1 + margin:
        return Judgement("no difference", None, _small(effect) if clear else "")
    if clear and p_holm is not None and p_holm < alpha:
        better = (effect.ratio > 1) == higher_is_better
        return Judgement("better" if better else "worse", None, "")
    further = _further(effect, margin, alpha / family)
    return Judgement("undecided", further, _because(effect, family, alpha) if clear else "")


def _small(effect: Effect) -> str:
    return sentence("verdict-note", {"change": 100 * (effect.ratio or 1) - 100}, case="margin")


def _because(effect: Effect, family: int, alpha: float) -> str:
    """Why an interval that is clear of 1 is not enough."""
    careful = careful_p(effect) or 1.0
    if careful >= alpha / family > (effect.p or 1.0):
        return sentence("verdict-note", case="few")
    return sentence("verdict-note", {"others": family - 1}, case="family") if family > 1 else ""


def _further(effect: Effect, margin: float, alpha: float) -> int | None:
    """More repeats of each, if the ratio and its spread stay what they are. ``None``: more than 10,000."""
    n = min(effect.n_baseline, effect.n_variant)
    low, high = n, n + 1
    while not _decides(effect, high, margin, alpha):
        low, high = high, 2 * high
        if high > MOST_REPEATS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _decides(effect, middle, margin, alpha) else (middle, high)
    return high - n


def _decides(effect: Effect, repeats: int, margin: float, alpha: float) -> bool:
    assert effect.ratio is not None and effect.std_err is not None
    n = min(effect.n_baseline, effect.n_variant)
    std_err = effect.std_err * math.sqrt(n / repeats)
    degrees = repeats - 1 if effect.basis == "pairs" else 2 * repeats - 2
    away = abs(effect.ratio - 1)
    if away > std_err * students_quantile(degrees, alpha) and 2.0 ** (1 - 2 * repeats) < alpha:
        return True
    return away + std_err * students_quantile(degrees) <= margin
