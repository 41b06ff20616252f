"""What a comparison says: effects as ratios with intervals, claims with verdicts, accounts behind them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field

from dbdyno.model.plan.kinds import COMMANDS
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.nouns import unit_of
from dbdyno.model.units import format_ns, format_rate

Verdict = Literal["better", "worse", "equal", "no difference", "undecided"]
"""``equal``: every value of both sides is the same; ``no difference``: none above the margin."""

Basis = Literal["pairs", "samples", "ranks", "within the window only"]
"""What an interval stands on: repeats paired by block; two independent samples, their means or the order of
their values; a single repeat."""

LEAST_REPEATS = 4
"""Before these many no interval is believed to be tight: the variance of two or three values says little."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Effect(Frozen):
    """Mean of the variant over mean of the baseline. NULL: unknown, ``reason`` says why."""

    ratio: float | None = None
    low: float | None = None
    """Lower end of the 95 % interval, which is one of the ratio's logarithm."""
    high: float | None = None
    std_err: float | None = None
    """Standard error of the ratio, by the delta method."""
    p: float | None = None
    """Two-sided, Student's t: both means are the same. Below 0.05 just where the interval leaves 1 out."""
    p_difference: float | None = None
    """Two-sided, of the difference itself, of samples: by Student's t, of files the larger of that and one by
    permutation. Where few values are skewed it is larger than ``p`` of the logarithm, and no difference is
    decided without it."""
    p_permutation: float | None = None
    """Two-sided, by permutation."""
    permutation: str = ""
    """How that one was made: exact, Monte Carlo, normal approximation."""
    least_p: float | None = None
    """The smallest that so few repeats could give by permutation."""
    n_baseline: int = 0
    n_variant: int = 0
    degrees: float | None = None
    """Degrees of freedom."""
    difference: float | None = None
    """Variant less baseline, in the unit of the values. Its interval is given where there is no ratio."""
    difference_low: float | None = None
    difference_high: float | None = None
    exact: bool = False
    """Every value of each side is the same, as of counts: no interval, and p is the chance that two equally
    likely values fall apart so."""
    basis: Basis = "samples"
    floored: bool = False
    """The repeats differ less than chance inside their windows allows: the interval stands on the latter."""
    reason: str = ""


class Contrast(Frozen):
    """One variant against another at one load, with its verdict."""

    workload: str
    sessions: int
    series: str = ""
    """The variant that both runs have; empty where variants of one run are compared."""
    baseline: str
    variant: str
    neighbours: bool = False
    """Next to each other in the rank, neither of them the baseline."""
    effect: Effect
    p_holm: float | None = None
    """``effect.p``, not below 2 ** (1 - n - m), adjusted for all claims of the table (Holm 1979)."""
    verdict: Verdict = "undecided"
    because: str = ""
    """In a word or two, why it is undecided although its interval excludes 1."""
    further_repeats: int | None = None
    """About so many more of each would decide; NULL: decided, or not known."""
    note: str = ""


class Line(Frozen):
    """A variant at a rung: its place in the rank and its own mean."""

    workload: str
    sessions: int
    series: str = ""
    variant: str
    rank: int
    repeats: int
    mean: float
    low: float | None = None
    """Student's 95 % interval over repeats."""
    high: float | None = None


class MetricTable(Frozen):
    """All lines and contrasts of one quantity: a family of claims of its own."""

    metric: str
    title: str
    unit: str
    higher_is_better: bool
    lines: tuple[Line, ...]
    claims: tuple[Contrast, ...]


class Account(Frozen):
    """What an account of session time contributes to the difference, in seconds per unit."""

    account: str
    detail: str | None = None
    inside: bool = False
    """It lies inside another account: shown beside, never added."""
    baseline_s: float
    variant_s: float
    difference_s: float
    low_s: float | None = None
    high_s: float | None = None
    share: float | None = None
    """Share of the whole difference."""


class Why(Frozen):
    """Session time per unit of one variant against another, account by account, the largest change first."""

    workload: str
    sessions: int
    series: str = ""
    baseline: str
    variant: str
    unit: str
    """``call``, ``LIO``, ..."""
    repeats: int
    baseline_s: float
    variant_s: float
    difference_s: float
    accounts: tuple[Account, ...]


class CodeCost(Frozen):
    """CPU time of a function or module, without callees, per unit of work or call."""

    name: str
    module: str | None = None
    baseline_ns: float
    variant_ns: float
    difference_ns: float
    low_ns: float
    high_ns: float
    p_holm: float | None = None
    """Adjusted for all functions that were compared."""


class CostChange(Frozen):
    """CPU time per unit of one load, variant or run against another; the largest change first."""

    workload: str
    sessions: int
    series: str = ""
    baseline: str
    variant: str
    unit: str
    baseline_ns: float
    variant_ns: float
    difference_ns: float
    functions: tuple[CodeCost, ...]
    modules: tuple[CodeCost, ...] = ()


class Difference(Frozen):
    """Something that is not the same on both sides."""

    what: str
    baseline: str
    variant: str


_ANSWERS = ("rank", "paced-capacities", "cache-placement", "cache-placement-load")


class Comparison(Frozen):
    kind: Literal["variants", "runs"]
    runs: tuple[str, ...]
    """Ids; the baseline's first."""
    run_kind: str = "database"
    """Kind of the runs that are compared (:mod:`dbdyno.model.plan.kinds`)."""
    baseline: str
    margin: float
    """A difference up to this share does not matter."""
    alpha: float = 0.05
    """Below it an adjusted p tells a difference."""
    metrics: tuple[MetricTable, ...]
    """The first is the one that ranks."""
    why: tuple[Why, ...] = ()
    costs: tuple[CostChange, ...] = ()
    """From CPU profiles, where both sides have one."""
    differences: tuple[Difference, ...] = ()
    conclusions: tuple[Claim, ...] = ()
    """The answers (``rank``, ...), then what to bear in mind."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def commands(self) -> bool:
        """Whether executions of commands are compared: a key of the JSON document."""
        return self.run_kind == COMMANDS

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> tuple[str, ...]:
        """The answer in words."""
        return tuple(c.text for c in self.conclusions if c.id in _ANSWERS)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(c.text for c in self.conclusions if c.id not in _ANSWERS)


class Summary(Frozen):
    """The median of a sample of numbers, with the order-statistic interval that holds it with 95 %."""

    n: int
    mean: float
    mean_low: float | None = None
    """95 % interval, Student's of the logarithm where the mean is above 0. NULL: one value, or too wide."""
    mean_high: float | None = None
    median: float
    low: float | None = None
    """NULL: so few values cannot bound it."""
    high: float | None = None
    confidence: float | None = None


class Outlier(Frozen):
    """A value that does not fit the others of its sample."""

    sample: str
    value: float
    place: int
    """In the order of the sample, from 1."""
    line: int | None = None
    """In its file."""
    moves_mean: float | None = None
    """By so much, relative, it and the sample's other outliers move the sample's mean."""


class SampleComparison(Frozen):
    """Two samples of numbers: the ratio of means, the ratio by ranks (medians), benchstat's figures."""

    baseline: str
    variant: str
    of_baseline: Summary
    of_variant: Summary
    median_change: float | None = None
    """Relative: -0.172 is -17.2 %; NULL: the baseline's median is 0."""
    higher_is_better: bool = False
    margin: float
    effect: Effect
    """The ratio of the means."""
    verdict: Verdict = "undecided"
    """By the means."""
    because: str = ""
    further_repeats: int | None = None
    note: str = ""
    by_ranks: Effect | None = None
    """The typical ratio (Hodges and Lehmann), with the rank test's interval and p; NULL: nothing varies."""
    rank_verdict: Verdict | None = None
    without_outliers: Effect | None = None
    """The ratio of the means without the outliers; NULL: there are none."""
    outliers: tuple[Outlier, ...] = ()
    conclusions: tuple[Claim, ...] = ()
    """What to bear in mind."""


@dataclass(frozen=True)
class Tightness:
    """Whether a run may stop: every interval is as tight as was asked for."""

    done: bool
    widest: float | None
    """The widest relative half-width; NULL: one is not known yet."""
    where: str
    """Where that is: variant and sessions."""
    repeats: int
    """The least number of usable repeats of any variant and rung."""


def verdict_text(verdict: str, margin: float, because: str = "") -> str:
    """``no difference above 2 %``; ``undecided: 3 repeats``."""
    if verdict == "no difference":
        return f"no difference above {100 * margin:g} %"
    return f"{verdict}: {because}" if because else verdict


def ratio_text(effect: Effect, ratio: float) -> str:
    """A ratio, or an end of its interval, rounded to two digits of the interval's half width."""
    if ratio and not 1e-3 <= ratio < 1e6:
        return f"{ratio:.3g}"
    if effect.low is None or effect.high is None:
        return f"{ratio:.2f}"
    half = (effect.high - effect.low) / 2
    nearest = 0.0 if effect.low <= 1 <= effect.high else min(abs(effect.low - 1), abs(effect.high - 1))
    most = (
        max(3, 1 - math.floor(math.log10(nearest))) if nearest else 3
    )  # what differs from 1 is seen to do so
    decimals = most if half <= 0 else max(1 if half >= 10 else 2, min(most, 1 - math.floor(math.log10(half))))
    return f"{ratio:.{decimals}f}"


def value_text(unit: str, value: float) -> str:
    """A figure with its unit: ``6.21 M LIO/s``, ``1.23 ms``."""
    return format_ns(value) if unit == "ns" else f"{format_rate(value)} {unit_of(unit)}".rstrip()
