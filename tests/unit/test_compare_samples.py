"""Two samples: benchstat's published rows to all digits, and what has no answer."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats

from dbdyno.conclude.compare import compare_samples
from dbdyno.conclude.compare.effects import effect_of_pairs, effect_of_samples
from dbdyno.conclude.compare.table import careful_p, judge
from dbdyno.model.errors import UsageError
from dbdyno.present.compare import benchstat
from dbdyno.stats.estimates import students_quantile, students_tail
from dbdyno.stats.significance import EXACT, MONTE_CARLO, NORMAL, order_interval, rank_sum, signs

# benchstat's own test data, ns/op of ten runs each: its printed rows; intervals by scipy's
# ttest_ind on logarithms, which differ in the fourth digit: there the centre is the mean of logarithms.
JSON = (
    [1726, 1723, 1707, 1707, 1713, 1729, 1736, 1707, 1705, 1774],
    [1423, 1416, 1411, 1413, 1412, 1426, 1422, 1424, 1447, 1425],
)
GOB = (
    [3069, 3075, 3069, 3067, 3207, 3064, 3064, 3058, 3059, 3062],
    [3075, 3065, 3059, 3065, 3060, 3081, 3186, 3135, 3087, 3062],
)


def test_the_row_json_comes_out_to_all_printed_digits() -> None:
    made = compare_samples(*JSON)
    assert benchstat(made) == "1718 ± 1%  1422.5 ± 1%  -17.20% (p=0.000 n=10)"
    e = made.effect
    assert e.ratio == pytest.approx(0.825390, abs=1e-6)
    assert (e.low, e.high) == pytest.approx((0.817677, 0.833248), rel=2e-4)
    assert f"{e.p_permutation:.4e}" == "1.0825e-05" and e.permutation == EXACT
    assert (e.degrees, made.verdict) == (18, "better")  # ns: lower is better


def test_the_row_gob_with_ties_comes_out_to_all_printed_digits() -> None:
    made = compare_samples(*GOB)
    assert benchstat(made) == "3065.5 ± 0%  3070 ± 2%  ~ (p=0.446 n=10)"
    e = made.effect
    assert e.ratio == pytest.approx(1.002630, abs=1e-6)
    assert (e.low, e.high) == pytest.approx((0.989694, 1.015766), rel=3e-4)
    assert f"{e.p_permutation:.4f}" == "0.4461"
    assert made.verdict == "no difference" and made.further_repeats is None


def test_a_narrower_margin_leaves_gob_undecided_and_says_how_many_runs_more() -> None:
    made = compare_samples(*GOB, margin=0.01)
    assert made.verdict == "undecided"
    assert made.further_repeats is not None and 1 < made.further_repeats < 100
    n = 10 + made.further_repeats
    half = students_quantile(2 * n - 2) * (made.effect.std_err or 0) * math.sqrt(10 / n)
    assert abs(math.log(made.effect.ratio or 0)) + half <= math.log1p(
        0.01
    )  # so many would do, if nothing else changes


def test_quantiles_are_those_of_published_tables() -> None:
    """NIST/SEMATECH e-Handbook 1.3.6.7.2: upper 2.5 % and 0.5 %."""
    for degrees, quantile in ((1, 12.706), (4, 2.776), (9, 2.262), (18, 2.101), (100, 1.984)):
        assert round(students_quantile(degrees), 3) == quantile
    assert round(students_quantile(10, 0.01), 3) == 3.169
    for degrees, alpha in ((200, 0.05), (450, 0.0005), (999, 0.01)):
        assert students_tail(students_quantile(degrees, alpha), degrees) == pytest.approx(alpha, rel=1e-8)


def brute(a: Sequence[float], b: Sequence[float]) -> float:
    """Twice the smaller tail of the rank sum over all choices, counted one by one."""
    both = sorted([*a, *b])
    rank = {v: sum(i for i, x in enumerate(both, 1) if x == v) / both.count(v) for v in both}
    values = [rank[v] for v in (*a, *b)]
    observed = sum(values[: len(a)])
    sums = [sum(c) for c in itertools.combinations(values, len(a))]
    tails = [sum(s <= observed for s in sums), sum(s >= observed for s in sums)]
    return min(1.0, 2 * min(tails) / len(sums))


@pytest.mark.parametrize("seed", range(12))
def test_the_rank_sums_p_is_what_counting_all_choices_gives(seed: int) -> None:
    """Unequal sizes, many ties."""
    chance = random.Random(seed)
    a = [float(chance.randint(0, 6)) for _ in range(chance.randint(1, 7))]
    b = [float(chance.randint(1, 7)) for _ in range(chance.randint(1, 8))]
    test = rank_sum(a, b)
    assert test is not None and test.p == pytest.approx(brute(a, b), rel=1e-12)


@pytest.mark.parametrize("n", [3, 8])
def test_the_signs_p_is_what_counting_all_patterns_gives(n: int) -> None:
    differences = [1.5, -0.5, 2.0, 0.25, 3.0, -1.0, 0.5, 0.75][:n]
    observed = abs(sum(differences))
    patterns = list(itertools.product((-1, 1), repeat=n))
    count = sum(abs(sum(s * d for s, d in zip(p, differences, strict=True))) >= observed for p in patterns)
    test = signs(differences)
    assert test is not None and test.p == pytest.approx(count / 2**n) and test.least == 2 ** (1 - n)


def test_beyond_their_sizes_tests_say_that_they_are_not_exact() -> None:
    chance = random.Random(1)
    a, b = ([chance.gauss(m, 1) for _ in range(150)] for m in (0.0, 0.3))
    large, small = rank_sum(a, b), rank_sum(a[:100], b[:100])
    assert large is not None and small is not None
    assert (large.how, small.how) == (NORMAL, EXACT)
    many = signs([chance.gauss(0.2, 1) for _ in range(40)])
    assert many is not None and many.how == MONTE_CARLO and 0 < many.p < 1


def test_another_implementation_agrees() -> None:
    """scipy.stats: mannwhitneyu is exact where there are no ties; permutation_test twice the smaller tail."""
    chance = random.Random(2)
    for n, m in ((5, 9), (12, 4), (30, 30)):
        a, b = [chance.random() for _ in range(n)], [chance.random() + 0.1 for _ in range(m)]
        test = rank_sum(a, b)
        assert test is not None
        assert test.p == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue, rel=1e-9)
        e = effect_of_samples(a, b)
        assert stats.t.ppf(0.975, e.degrees) == pytest.approx(students_quantile(e.degrees or 1), rel=1e-9)
    a, b = [chance.gauss(0, 1) for _ in range(150)], [chance.gauss(0.2, 1) for _ in range(120)]
    normal = rank_sum(a, b)
    assert normal is not None
    assert normal.p == pytest.approx(stats.mannwhitneyu(a, b, method="asymptotic").pvalue, rel=1e-9)
    pairs = [(x + 50, x + 50 + chance.gauss(0.1, 0.2)) for x in a[:9]]
    t = stats.ttest_rel([math.log(y) for _, y in pairs], [math.log(x) for x, _ in pairs])
    e, ends = effect_of_pairs(pairs), t.confidence_interval()
    assert e.p == pytest.approx(t.pvalue, rel=0.02)
    assert (e.low, e.high) == pytest.approx((math.exp(ends.low), math.exp(ends.high)), rel=1e-4)


def test_a_large_effect_is_decided_at_three_repeats_and_a_small_one_is_not() -> None:
    """The first: measured calls a second of two settings."""
    large = effect_of_pairs([(433.0, 9450.0), (341.0, 8380.0), (366.0, 6800.0)])
    assert large.low is not None and 10 < large.low < 21.6 < (large.high or 0) < 40
    assert judge(large, 6 * (careful_p(large) or 1), 0.02, True, 6).verdict == "better"
    small = effect_of_pairs([(945.0, 1043.0), (940.0, 1032.0), (930.0, 1025.0)])
    assert small.low is not None and small.low > 1.09
    made = judge(small, careful_p(small), 0.02, True)
    assert (made.verdict, made.further_repeats) == ("undecided", 1)


def test_p_is_below_a_twentieth_just_where_the_interval_leaves_one_out() -> None:
    chance = random.Random(3)
    seen = set()
    for _ in range(200):
        pairs = [(x := 10 + chance.gauss(0, 1), x * chance.gauss(1.01, 0.02)) for _ in range(5)]
        for e in (effect_of_pairs(pairs), effect_of_samples([x for x, _ in pairs], [y for _, y in pairs])):
            assert e.low is not None and e.high is not None and e.p is not None
            clear = e.low > 1 or e.high < 1
            assert clear == (e.p < 0.05)
            seen.add(clear)
    assert seen == {True, False}


def test_pairs_cancel_what_drifts_from_block_to_block() -> None:
    drift = (100.0, 150.0, 80.0, 120.0, 60.0)
    pairs = [(d, d * r) for d, r in zip(drift, (1.049, 1.051, 1.05, 1.048, 1.052), strict=True)]
    together, apart = effect_of_pairs(pairs), effect_of_samples([x for x, _ in pairs], [y for _, y in pairs])
    assert together.low is not None and together.high is not None and apart.low is not None
    assert 1.04 < together.low < 1.05 < together.high < 1.06
    assert apart.low < 0.7


def test_few_values_of_large_spread_against_many_get_welchs_degrees() -> None:
    few, many = [90.0, 110.0, 100.0], [100.0 + 0.01 * n for n in range(30)]
    assert effect_of_samples(few, many).degrees == 2  # nearly all variance is that of three values
    assert effect_of_samples(few, [95.0, 100.0, 106.0]).degrees == 4


def test_what_has_no_answer_says_why() -> None:
    one = compare_samples([5.0], [6.0, 6.1])
    assert one.effect.low is None and "two values" in one.effect.reason and one.verdict == "undecided"
    same = compare_samples([5.0] * 4, [6.0] * 4)
    assert same.effect.p is None and "no spread" in same.effect.reason
    assert same.effect.p_permutation == pytest.approx(2 / 70)
    equal = compare_samples([5.0] * 4, [5.0] * 4)
    assert equal.effect.p_permutation is None and equal.verdict == "undecided"
    wide = compare_samples([0.001, 900.0], [5.0, 9000.0])
    assert wide.effect.low is None and "vary too much" in wide.effect.reason
    assert compare_samples([-3.0, 4.0, 2.0], [5.0, 6.0, 7.0]).effect.low is None  # the mean is above zero
    assert compare_samples([-1.0, -2.0], [1.0, 2.0]).effect.ratio is None
    zero = compare_samples([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    assert zero.median_change is None and "above zero" in zero.effect.reason
    for bad in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(UsageError):
            compare_samples(bad, [1.0, 2.0])


def test_ranks_around_the_median_are_benchstats() -> None:
    """From its algorithm's published results: of two gaps alike the lower is taken first."""
    assert order_interval(5)[:2] == (0, 5)  # five values cannot bound it from below
    assert order_interval(6)[:2] == (1, 6)
    assert order_interval(10) == (2, 9, 0.978515625)
    assert order_interval(11)[:2] == (2, 9)
    low, high, _ = order_interval(10_000)
    assert low + high == 10_001 and abs(low - 4902) <= 1  # (n - 1.96 sqrt(n)) / 2
