"""The result of a comparison: effects as ratios with intervals, claims with verdicts, and the accounts of
time that explain them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from dbdyno.model.plan.kinds import COMMANDS
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.cpu_profile import UNKNOWN
from dbdyno.model.text.nouns import unit_of
from dbdyno.model.units import format_amount, format_rate

Verdict = Literal["better", "worse", "equal", "no difference", "undecided"]
"""``equal``: every value of both sides is the same. ``no difference``: no difference above the margin."""

Basis = Literal["pairs", "samples", "ranks", "within the window only"]
"""The basis of an interval: repeats paired by block; two independent samples, by their means or by the order
of their values; or a single repeat."""

LEAST_REPEATS = 4
"""With fewer repeats no interval counts as tight, because the variance of two or three values is
uncertain."""


MARGIN = 0.02
"""Difference up to which variants do not differ, unless the user says otherwise."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Effect(Frozen):
    """Mean of the variant divided by the mean of the baseline. NULL means unknown; ``reason`` gives the
    cause."""

    ratio: float | None = None
    low: float | None = None
    """Lower end of the 95 % interval, which is computed for the ratio's logarithm."""
    high: float | None = None
    std_err: float | None = None
    """Standard error of the ratio, by the delta method."""
    p: float | None = None
    """Two-sided p of Student's t for equal means. It is below 0.05 exactly if the interval excludes 1."""
    p_difference: float | None = None
    """Two-sided p of the difference itself, for samples: by Student's t, or for files the larger of that and
    the permutation p. If few values are skewed it exceeds ``p``, which is that of the logarithm. A
    difference is decided only if both are small."""
    p_permutation: float | None = None
    """Two-sided p by permutation."""
    permutation: str = ""
    """The method of the permutation test: exact, Monte Carlo, normal approximation."""
    least_p: float | None = None
    """The smallest permutation p that this number of repeats can give."""
    n_baseline: int = 0
    n_variant: int = 0
    degrees: float | None = None
    """Degrees of freedom."""
    difference: float | None = None
    """Variant minus baseline, in the unit of the values. It has an interval if there is no ratio."""
    difference_low: float | None = None
    difference_high: float | None = None
    exact: bool = False
    """Every value within each side is the same, as with counts. There is no interval, and p is the
    probability that two equally likely values separate in this way."""
    basis: Basis = "samples"
    floored: bool = False
    """The repeats differ less than chance within their windows allows, so the interval is based on the
    latter."""
    reason: str = ""


class Contrast(Frozen):
    """One variant compared with another at one load, with its verdict."""

    workload: str
    sessions: int
    series: str = ""
    """The variant that both runs have; empty if variants of one run are compared."""
    baseline: str
    variant: str
    neighbours: bool = False
    """The two are adjacent in rank and neither is the baseline."""
    effect: Effect
    p_holm: float | None = None
    """``effect.p``, at least 2 ** (1 - n - m), adjusted for all claims of the table (Holm 1979)."""
    verdict: Verdict = "undecided"
    because: str = ""
    """In a few words, the reason for "undecided"."""
    further_repeats: int | None = None
    """The approximate number of further repeats of each side that would decide; NULL if decided or
    unknown."""
    note: str = ""


class Line(Frozen):
    """A variant at a rung, with its rank and its mean."""

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
    """All lines and contrasts of one quantity, which form one family of hypotheses."""

    metric: str
    title: str
    unit: str
    higher_is_better: bool
    lines: tuple[Line, ...]
    claims: tuple[Contrast, ...]


class Account(Frozen):
    """The contribution of one account of session time to the difference, in seconds per unit."""

    account: str
    detail: str | None = None
    inside: bool = False
    """The account lies within another account: it is shown but never added."""
    baseline_s: float
    variant_s: float
    difference_s: float
    low_s: float | None = None
    high_s: float | None = None
    share: float | None = None
    """Share of the total difference."""


class Why(Frozen):
    """Session time per unit of two variants, by account, with the largest change first."""

    workload: str
    sessions: int
    series: str = ""
    baseline: str
    variant: str
    unit: str
    """``call``, ``LIO`` or another unit."""
    repeats: int
    baseline_s: float
    variant_s: float
    difference_s: float
    accounts: tuple[Account, ...]
    renamed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Events that one side has under later names -> these. They are one account, under the earlier name."""


class CodeCost(Frozen):
    """CPU time of a function or module without its callees, per unit of work or call."""

    name: str
    module: str | None = None
    baseline_ns: float
    variant_ns: float
    difference_ns: float
    low_ns: float
    high_ns: float
    p_holm: float | None = None
    """p adjusted for all functions compared."""

    @property
    def title(self) -> str:
        """The name in a sentence; code without a name has its module's."""
        if self.name != UNKNOWN:
            return self.name
        return (
            "unknown code" if self.module in (None, UNKNOWN) else f"functions of {self.module} without a name"
        )


class CostChange(Frozen):
    """CPU time per unit of two loads, variants or runs, with the largest change first."""

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


class OperationCost(Frozen):
    """A cost of a call or a unit of work on both sides."""

    figure: str
    """Id of the figure, as in the table ``costs``."""
    background: bool = False
    """The share of the server's own processes."""
    unit: str
    baseline_mean: float
    variant_mean: float
    rare: bool = False
    """Less than one in a hundred calls on both sides, or a page in as many: no sentence names it."""
    contrast: Contrast
    """``better`` is less. The costs of one load, and their background's shares, are a family of hypotheses
    each; a figure that is a metric of the comparison, too, has the verdict of its table."""


class OperationCosts(Frozen):
    """The costs of a call, or a unit of work, of two sides at one load."""

    workload: str
    sessions: int
    series: str = ""
    baseline: str
    variant: str
    unit: str
    figures: tuple[OperationCost, ...]


class Difference(Frozen):
    """A property that differs between the two sides."""

    what: str
    baseline: str
    variant: str


_ANSWERS = (
    "rank",
    "restart-differences",
    "comparison-sees",
    "cost-change",
    "paced-capacities",
    "cache-placement",
    "cache-placement-load",
)
_LOST_PAIRS = "lost-pairs"


class Comparison(Frozen):
    kind: Literal["variants", "runs"]
    runs: tuple[str, ...]
    """Ids, starting with the baseline's."""
    run_kind: str = "database"
    """Kind of the compared runs (:mod:`dbdyno.model.plan.kinds`)."""
    baseline: str
    margin: float
    """A difference up to this share is irrelevant."""
    alpha: float = 0.05
    """An adjusted p below this shows a difference."""
    metrics: tuple[MetricTable, ...]
    """The first table determines the rank."""
    why: tuple[Why, ...] = ()
    costs: tuple[CostChange, ...] = ()
    """Differences of CPU profiles, if both sides have one."""
    operation_costs: tuple[OperationCosts, ...] = ()
    """The costs of a call on both sides, at each load."""
    differences: tuple[Difference, ...] = ()
    conclusions: tuple[Claim, ...] = ()
    """The answers (``rank``, ...) first, then the caveats."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def commands(self) -> bool:
        """Whether executions of commands are compared. This is a key of the JSON document."""
        return self.run_kind == COMMANDS

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> tuple[str, ...]:
        """The answer in sentences."""
        return tuple(c.text for c in self.conclusions if c.id in _ANSWERS)

    @property
    def lost_pairs(self) -> tuple[str, ...]:
        """Which pairs of repeats are left out, in sentences that stand below every table of ratios."""
        return tuple(c.text for c in self.conclusions if c.id == _LOST_PAIRS)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(c.text for c in self.conclusions if c.id not in (*_ANSWERS, _LOST_PAIRS))


class Summary(Frozen):
    """The median of a sample of numbers with its 95 % interval from order statistics."""

    n: int
    mean: float
    mean_low: float | None = None
    """95 % interval by Student's t, of the logarithm if the mean is positive. NULL with a single value or if
    it is too wide."""
    mean_high: float | None = None
    median: float
    low: float | None = None
    """NULL if the sample is too small for this bound."""
    high: float | None = None
    confidence: float | None = None


class Outlier(Frozen):
    """A value that does not fit the others of its sample."""

    sample: str
    value: float
    place: int
    """Position in the sample, from 1."""
    line: int | None = None
    """Line number in the sample's file."""
    moves_mean: float | None = None
    """Relative shift of the sample's mean by this value and the sample's other outliers."""


class SampleComparison(Frozen):
    """Two samples of numbers compared by the ratio of means and by the ratio of medians, as benchstat
    does."""

    baseline: str
    variant: str
    of_baseline: Summary
    of_variant: Summary
    median_change: float | None = None
    """Relative change: -0.172 is -17.2 %. NULL if the baseline's median is 0."""
    higher_is_better: bool = False
    margin: float
    effect: Effect
    """The ratio of the means."""
    verdict: Verdict = "undecided"
    """The verdict from the means."""
    because: str = ""
    further_repeats: int | None = None
    note: str = ""
    by_ranks: Effect | None = None
    """The typical ratio (Hodges and Lehmann) with interval and p of the rank test; NULL if no value
    varies."""
    rank_verdict: Verdict | None = None
    without_outliers: Effect | None = None
    """The ratio of the means without outliers; NULL if there are no outliers."""
    outliers: tuple[Outlier, ...] = ()
    conclusions: tuple[Claim, ...] = ()
    """Caveats."""


@dataclass(frozen=True)
class Tightness:
    """Whether a run may stop because every interval is as tight as requested."""

    done: bool
    widest: float | None
    """The widest relative half-width; NULL if one is still unknown."""
    where: str
    """The variant and sessions with the widest interval."""
    repeats: int
    """The smallest number of usable repeats among variants and rungs."""


def verdict_text(verdict: str, margin: float, because: str = "") -> str:
    """Returns the verdict in words: ``no difference above 2 %``, ``undecided: 3 repeats``."""
    if verdict == "no difference":
        return f"no difference above {100 * margin:g} %"
    return f"{verdict}: {because}" if because else verdict


_SMALL_RATIO = 0.1


def ratio_text(effect: Effect, ratio: float) -> str:
    """Returns a ratio, or an end of its interval, rounded to two digits of the interval's half width. Small
    ones, and those without an interval, have three significant digits."""
    if ratio and not 1e-3 <= ratio < 1e6:
        return f"{ratio:.3g}"
    if effect.low is None or effect.high is None or 0 < ratio < _SMALL_RATIO:
        return f"{ratio:.{max(0, 2 - math.floor(math.log10(ratio)))}f}" if ratio else "0"
    half = (effect.high - effect.low) / 2
    nearest = 0.0 if effect.low <= 1 <= effect.high else min(abs(effect.low - 1), abs(effect.high - 1))
    most = (
        max(3, 1 - math.floor(math.log10(nearest))) if nearest else 3
    )  # enough decimals to show a bound that differs from 1
    decimals = most if half <= 0 else max(1 if half >= 10 else 2, min(most, 1 - math.floor(math.log10(half))))
    return f"{ratio:.{decimals}f}"


def interval_text(effect: Effect) -> str:
    """Returns the ends of a ratio's interval: ``0.89 to 0.94``; empty without one."""
    if effect.low is None or effect.high is None:
        return ""
    return f"{ratio_text(effect, effect.low)} to {ratio_text(effect, effect.high)}"


def in_brackets(effect: Effect) -> str:
    """Returns what goes behind a ratio: `` (0.89 to 0.94)``; empty without an interval."""
    ends = interval_text(effect)
    return f" ({ends})" if ends else ""


AMOUNTS = ("ns", "bytes", "")
"""Units of what is an amount and no rate; counts have none."""


def value_text(unit: str, value: float) -> str:
    """Returns a figure with its unit: ``6.21 M LIO/s``, ``1.23 ms``."""
    return format_amount(value, unit) if unit in AMOUNTS else f"{format_rate(value)} {unit_of(unit)}"
