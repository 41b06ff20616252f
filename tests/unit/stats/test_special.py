"""Distribution functions and their inverses: against scipy, and where that is less exact, against mpmath.
Arguments are those of dbdyno's statistics, and beyond: small and large shapes, both tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from dbdyno.stats import laws, special

EXACT = 1e-12
SHAPES = (0.5, 1.0, 2.5, 7.0, 30.0, 123.25, 1e3, 54321.5)
TAILS = (1e-12, 1e-9, 1e-4, 0.003, 0.025, 0.1, 0.5, 0.9, 0.975, 0.9999)
AWAY = (-8.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 8.0)
"""Distances from the mean in standard deviations."""
DEGREES = (1, 2, 3, 4.5, 9, 29, 100, 999, 12345.6)


def close(ours: float, theirs: float, rel: float = EXACT) -> bool:
    return ours == pytest.approx(float(theirs), rel=rel, abs=1e-290)


def test_the_logarithm_of_the_gamma_function() -> None:
    x = np.array([1e-9, 0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 2.001, 10.0, 171.3, 1e6, 1e12])
    assert special.log_gamma(x) == pytest.approx(scipy.special.gammaln(x), rel=EXACT, abs=1e-15)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_upper_incomplete_gamma_function(shape: float) -> None:
    x = np.array([max(shape + z * math.sqrt(shape), 1e-3 * shape) for z in AWAY])
    assert special.gamma_above(shape, x) == pytest.approx(scipy.special.gammaincc(shape, x), rel=EXACT)


@pytest.mark.parametrize(("shape", "below"), list(product((0.5, 2.5, 30.0, 54321.5), TAILS)))
def test_the_inverse_of_the_lower_incomplete_gamma_function(shape: float, below: float) -> None:
    assert close(special.gamma_quantile(shape, below)[()], scipy.special.gammaincinv(shape, below))


@pytest.mark.parametrize(("a", "b"), list(product(SHAPES, SHAPES)))
def test_the_incomplete_beta_function(a: float, b: float) -> None:
    mean, deviation = a / (a + b), math.sqrt(a * b / (a + b + 1)) / (a + b)
    x = np.array([p for z in AWAY if 0 < (p := mean + z * deviation) < 1])
    ours, theirs = special.beta_below(a, b, x), scipy.special.betainc(a, b, x)
    assert ours == pytest.approx(theirs, rel=EXACT)


@pytest.mark.parametrize(
    ("a", "b"), list(product((1e-12, 1e-6, 1e-3, 0.05, 0.7), (1e-3, 0.5, 3.0, 14.0, 1e4)))
)
def test_the_incomplete_beta_function_near_an_end(a: float, b: float) -> None:
    """A fraction would need as many terms as the root of 1 / x is large: a million for the first of these."""
    x = np.array([2.0**-n for n in (40, 30, 20, 10, 5)])  # 1 - x is exact
    assert special.beta_below(a, b, x) == pytest.approx(scipy.special.betainc(a, b, x), rel=EXACT)
    ours, theirs = special.beta_below(b, a, 1 - x), scipy.special.betainc(b, a, 1 - x)
    assert ours == pytest.approx(theirs, rel=EXACT, abs=1e-290)


@pytest.mark.parametrize(
    ("degrees", "tail"), list(product(DEGREES, (1e-9, 1e-4, 0.003, 0.05, 0.3, 0.9, 0.999)))
)
def test_students_distribution(degrees: float, tail: float) -> None:
    t = -float(scipy.special.stdtrit(degrees, tail / 2))
    assert close(laws.students_tail(t, degrees), 2 * scipy.special.stdtr(degrees, -t))
    assert laws.students_tail(-t, degrees) == laws.students_tail(t, degrees)
    assert close(laws.students_quantile(tail, degrees), t)
    assert close(special.students_below(degrees, tail / 2)[()], -t)
    assert close(special.students_below(degrees, 1 - tail / 2)[()], t, rel=1e-15 / tail + EXACT)


def test_student_with_infinite_degrees_is_the_normal_distribution() -> None:
    assert close(laws.students_tail(3.0, math.inf), math.erfc(3 / math.sqrt(2)))
    assert close(laws.students_quantile(0.01, math.inf), scipy.stats.norm.isf(0.005))
    assert close(laws.students_tail(3.0, 1e15), math.erfc(3 / math.sqrt(2)))
    assert close(laws.students_quantile(0.01, 1e15), scipy.stats.norm.isf(0.005))


@pytest.mark.parametrize(("m", "n"), list(product(DEGREES, DEGREES)))
def test_fishers_distribution(m: float, n: float) -> None:
    for below in TAILS:
        assert close(laws.f_quantile(below, m, n), scipy.special.fdtri(m, n, below), rel=1e-11), below
    for f in (1e-3, 0.3, 1.0, 1.7, 12.0, 1e4):
        theirs = scipy.special.fdtrc(m, n, f)
        assert theirs < 1e-290 or close(laws.f_above(f, m, n), theirs)


@pytest.mark.parametrize(("degrees", "above"), list(product(DEGREES, TAILS)))
def test_chi_square(degrees: float, above: float) -> None:
    assert close(laws.chi_square_quantile(above, degrees), scipy.special.chdtri(degrees, above))


@pytest.mark.parametrize("n", [1, 2, 7, 40, 365, 1001])
def test_a_number_of_heads(n: int) -> None:
    """Against whole numbers of Python."""
    for few in {0, 1, n // 3, (n - 1) // 2, n - 1, n}:
        exact = sum(math.comb(n, k) for k in range(few + 1)) / 2**n
        assert close(laws.binomial_below(few, n, 0.5), exact)


@pytest.mark.parametrize(
    ("n", "p"), list(product((25.5, 400.0, 12345.6, 1e6, 4.2e8), (0.001, 0.05, 0.5, 0.9)))
)
def test_a_number_of_successes_for_a_probability(n: float, p: float) -> None:
    for share in (1e-6, 0.025, 0.5, 0.975):
        count = laws.binomial_count(share, n, p)
        if count > 0:
            assert close(laws.binomial_below(count, n, p), share, rel=1e-9)
        else:
            assert laws.binomial_below(0, n, p) >= share


@pytest.mark.parametrize(("degrees", "tail"), list(product((2, 4, 9, 49, 999), (1e-4, 0.01, 0.05))))
def test_the_power_of_a_t_test(degrees: int, tail: float) -> None:
    limit = laws.students_quantile(tail, degrees)
    for centre in (0.0, 0.3, 1.0, 2.8, 6.0, limit + 3):
        theirs = scipy.special.nctdtr(degrees, centre, limit)
        assert 1 - laws.noncentral_t_above(limit, degrees, centre) == pytest.approx(theirs, abs=EXACT)


@pytest.mark.parametrize(
    ("function", "arguments", "exact"),
    [
        (laws.students_tail, (40.0, 3.0), 3.4380680789158528283e-5),
        (laws.students_tail, (30.0, 120.0), 1.3274390318889853448e-57),
        (laws.noncentral_t_above, (2.5, 4.0, 1.0), 0.15188760024471309761),
        (laws.noncentral_t_above, (12.0, 9.0, 0.5), 1.6234377050551217637e-6),
        (laws.noncentral_t_above, (2.0, 999.0, 6.0), 0.99996785678070020404),
        (laws.noncentral_t_above, (2.9, 49.0, 2.8), 0.46754293280399900195),
        (laws.binomial_count, (0.025, 400.0, 0.05), 11.421157056241131651),
        (laws.binomial_count, (0.975, 12345.5, 0.001), 19.16087208751227731),
        (laws.binomial_count, (1e-6, 400.0, 0.5), 152.1810205676233975),
        (special.gamma_above, (1e6, 1005000.0), 2.9874901401146348544e-7),
        (special.gamma_above, (1e9, 1000150000.0), 1.0518945222554978495e-6),
        (special.gamma_above, (1e-7, 0.01), 4.0379288425473501701e-7),
    ],
)
def test_figures_of_mpmath(
    function: Callable[..., float], arguments: tuple[float, ...], exact: float
) -> None:
    """Computed with 40 digits, where scipy is less exact or has no such function."""
    assert close(function(*arguments), exact)


@pytest.mark.parametrize(
    ("function", "arguments", "value"),
    [
        (laws.students_tail, (0.0, 5.0), 1.0),
        (laws.students_tail, (math.inf, 5.0), 0.0),
        (laws.students_quantile, (1.0, 5.0), 0.0),
        (laws.students_quantile, (0.0, 5.0), math.inf),
        (laws.f_above, (0.0, 2.0, 3.0), 1.0),
        (laws.f_above, (-1.0, 2.0, 3.0), 1.0),
        (laws.f_above, (math.inf, 2.0, 3.0), 0.0),
        (laws.f_quantile, (0.0, 2.0, 3.0), 0.0),
        (laws.f_quantile, (1.0, 2.0, 3.0), math.inf),
        (laws.chi_square_quantile, (0.0, 2.0), math.inf),
        (laws.chi_square_quantile, (1.0, 2.0), 0.0),
        (laws.binomial_below, (-1.0, 5.0, 0.5), 0.0),
        (laws.binomial_below, (5.0, 5.0, 0.5), 1.0),
        (laws.binomial_count, (0.0, 50.0, 0.1), 0.0),
        (laws.binomial_count, (1e-6, 50.0, 0.1), 0.0),
        (laws.binomial_count, (1.0, 50.0, 0.1), 50.0),
        (laws.noncentral_t_above, (0.0, 5.0, 0.0), 0.5),
        (special.gamma_above, (2.0, 0.0), 1.0),
        (special.gamma_above, (2.0, math.inf), 0.0),
        (special.gamma_above, (0.0, 1.0), 0.0),
        (special.beta_below, (2.0, 3.0, 0.0), 0.0),
        (special.beta_below, (2.0, 3.0, 1.0), 1.0),
        (special.beta_below, (2.0, 0.0, 0.5), 0.0),
        (special.beta_below, (0.0, 2.0, 0.5), 1.0),
        (special.students_below, (3.0, 0.5), 0.0),
        (special.gamma_quantile, (3.0, 0.0), 0.0),
        (special.gamma_quantile, (3.0, 1.0), math.inf),
    ],
)
def test_ends_of_the_range(
    function: Callable[..., float], arguments: tuple[float, ...], value: float
) -> None:
    assert function(*arguments) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (laws.students_tail, (1.0, 5.0)),
        (laws.students_quantile, (0.05, 5.0)),
        (laws.f_above, (1.0, 2.0, 3.0)),
        (laws.f_quantile, (0.5, 2.0, 3.0)),
        (laws.chi_square_quantile, (0.5, 2.0)),
        (laws.binomial_below, (2.0, 5.0, 0.5)),
        (laws.binomial_count, (0.5, 50.0, 0.5)),
        (laws.noncentral_t_above, (1.0, 5.0, 1.0)),
        (special.gamma_above, (2.0, 1.0)),
        (special.gamma_quantile, (2.0, 0.5)),
        (special.beta_below, (2.0, 3.0, 0.5)),
        (special.students_below, (3.0, 0.3)),
    ],
)
def test_what_is_unknown_or_impossible_gives_no_number(
    function: Callable[..., float], arguments: tuple[float, ...]
) -> None:
    for place in range(len(arguments)):
        assert math.isnan(function(*(math.nan if n == place else v for n, v in enumerate(arguments))))
    assert math.isnan(function(*arguments[:-1], -0.5))


def test_arrays_are_broadcast() -> None:
    shapes, x = np.array([[1.0], [2.0]]), np.array([0.5, 1.0, 3.0])
    assert special.gamma_above(shapes, x) == pytest.approx(scipy.special.gammaincc(shapes, x), rel=EXACT)
    assert special.gamma_above(2.0, 1.0).shape == ()
    assert special.beta_below(1.0, np.ones((0, 3)), 0.5).shape == (0, 3)
    with pytest.raises(ValueError):
        special.gamma_above(np.ones(2), np.ones(3))


def test_functions_of_arrays_without_the_core() -> None:
    x = np.array([[-800.0, -40.0, 0.0], [1e-9, 5.0, 800.0]])
    assert special.logistic(x) == pytest.approx(scipy.special.expit(x), rel=EXACT)
    unlikely = np.array([[-1e4, -1e4 + 1, -np.inf], [3.0, 700.0, 710.0], [-np.inf, -np.inf, -np.inf]])
    theirs = scipy.special.logsumexp(unlikely, axis=1, keepdims=True)
    assert special.log_sum_exp(unlikely, axis=1) == pytest.approx(theirs, rel=EXACT)
    u = np.array([[1e-9, 0.025], [0.5, 1 - 1e-9]])
    assert special.normal_below(u) == pytest.approx(scipy.special.ndtri(u), rel=EXACT, abs=1e-16)


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (lambda x: x**3 - 2 * x - 5, 2.0, 3.0),  # Brent's first example
        (lambda x: math.exp(x) - 1e6, 0.0, 50.0),
        (lambda x: math.atan(x) - 1, -3.0, 90.0),
        (lambda x: 1.0 if x > math.pi else -1.0, 0.0, 10.0),
    ],
)
def test_a_root_is_that_of_scipy(function: Callable[[float], float], low: float, high: float) -> None:
    theirs = scipy.optimize.brentq(function, low, high, xtol=1e-14, rtol=1e-15)
    assert laws.find_root(function, low, high, 1e-14) == pytest.approx(theirs, abs=1e-13)


def test_an_error_of_the_function_ends_the_search() -> None:
    with pytest.raises(ZeroDivisionError):
        laws.find_root(lambda x: 1 / (x - 1), 0.0, 1.0, 1e-9)


@pytest.mark.parametrize(("t", "degrees", "centre"), [(6366.0, 1.0, 6370.0), (1200.0, 3.0, 1100.0)])
def test_far_from_the_centre_of_a_t_the_normal_part_is_left_out(
    t: float, degrees: float, centre: float
) -> None:
    theirs = 1 - scipy.special.nctdtr(degrees, centre, t)
    assert laws.noncentral_t_above(t, degrees, centre) == pytest.approx(theirs, abs=2 / centre)
    assert laws.noncentral_t_above(0.0, degrees, centre) == 1.0
