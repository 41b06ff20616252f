"""Variance components against hand calculations, published quantiles and simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from dbdyno.stats.steps import correlated_noise
from dbdyno.stats.variance_components import Variance, excess, long_run, of_sum, pooled, successive


def test_pooled_and_successive_variances_are_those_worked_out_by_hand() -> None:
    groups = [[1.0, 3.0], [2.0, 4.0, 6.0], [9.0]]
    # Within: (1 + 1) + (4 + 0 + 4) = 10 over 1 + 2 degrees. Successive: (4 + 4 + 4) / 2 over 3 differences.
    assert pooled(groups) == Variance(pytest.approx(10 / 3), 3)  # type: ignore[arg-type]
    # Degrees: 2 * 3^2 / ((3 * 2 - 4) + (3 * 3 - 4)) = 18 / 7.
    assert successive(groups) == Variance(pytest.approx(2.0), pytest.approx(18 / 7))  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [[], [[]], [[1.0]], [[1.0], [2.0]]])
def test_without_two_values_in_a_group_nothing_is_known(groups: list[list[float]]) -> None:
    assert pooled(groups) is None
    assert successive(groups) is None
    assert long_run(groups) is None


def test_a_slow_drift_hardly_touches_successive_differences() -> None:
    noise = np.random.default_rng(1).normal(size=200)
    drifting = noise + np.linspace(0, 20, 200)
    steady, with_drift = (successive([x.tolist()]) for x in (noise, drifting))
    assert steady is not None
    assert with_drift is not None
    assert with_drift.value == pytest.approx(steady.value, rel=0.05)


def test_bounds_are_those_of_published_quantiles_of_chi_square() -> None:
    # 10 degrees: 3.247, 20.483 (2.5 % on each side), 6.179 (20 %); Abramowitz and Stegun, table 26.8.
    variance = Variance(1.0, 10)
    assert variance.upper(0.8) == pytest.approx(10 / 6.179, rel=1e-3)
    assert variance.interval95 == pytest.approx((10 / 20.483, 10 / 3.247), rel=1e-3)


def test_degrees_of_a_sum_are_satterthwaites() -> None:
    total = of_sum(Variance(2.0, 4), Variance(1.0, 8), Variance(-0.5, 8))
    assert total.value == 2.5
    assert total.degrees == pytest.approx(2.5**2 / (4 / 4 + 1 / 8 + 0.25 / 8))
    assert of_sum(Variance(1.0, 4), Variance(-2.0, 4)).value == 0.0


@pytest.mark.parametrize(("n", "m", "truth"), [(5, 12, 0.5), (2, 10, 2.0), (19, 100, 0.0)])
def test_the_interval_of_a_component_holds_its_truth_in_95_of_100(n: int, m: int, truth: float) -> None:
    chance, count, held = np.random.default_rng(2), 1_500, 0
    for _ in range(count):
        above = Variance((1 + truth) * chance.chisquare(n) / n, n)
        _, low, high = excess(above, Variance(chance.chisquare(m) / m, m))
        held += low <= truth <= high
    assert held / count > 0.95 - 3 * (0.95 * 0.05 / count) ** 0.5  # three standard errors


@pytest.mark.parametrize(("rho", "least", "most"), [(0.0, 0.93, 1.07), (0.5, 1.8, 3.3)])
def test_short_series_together_have_their_long_run_variance(rho: float, least: float, most: float) -> None:
    # (1 + rho) / (1 - rho): 1 and 3. Of ten values a series, later lags of a correlation cannot be seen.
    chance = np.random.default_rng(3)
    results = [long_run(correlated_noise(chance, 30, 10, rho).tolist()) for _ in range(50)]
    assert least < np.mean([r.variance.value for r in results if r is not None]) < most


def test_values_that_do_not_vary_have_no_variance() -> None:
    result = long_run([[1.0] * 10, [2.0] * 10])
    assert result is not None
    assert (result.variance.value, result.steps) == (0.0, 1.0)
