"""Tails and tests against published tables, and the false alarms that they promise."""

import random

import numpy as np
import pytest
import scipy

from dbdyno.stats.autocorrelation import durbin_watson
from dbdyno.stats.estimates import Mean, chi_square_tail, students_quantile, students_tail
from dbdyno.stats.significance import FALSE_ALARMS, unequal, welch


@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (7, 3.499), (12, 3.055), (30, 2.750)],
)
def test_students_tail_is_the_tables(degrees: int, t: float):
    """Two-sided 1 % points: NIST/SEMATECH e-Handbook, 1.3.6.7.2, column 0.995."""
    assert students_tail(t, degrees) == pytest.approx(0.01, rel=0.001)
    assert students_tail(-t, degrees) == students_tail(t, degrees)
    assert students_tail(0.0, degrees) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("degrees", "x"), [(1, 6.635), (2, 9.210), (3, 11.345), (10, 23.209), (50, 76.154), (100, 135.807)]
)
def test_chi_squares_tail_is_the_tables(degrees: int, x: float):
    """Upper 1 % points: NIST/SEMATECH e-Handbook, 1.3.6.7.4."""
    assert chi_square_tail(x, degrees) == pytest.approx(0.01, rel=0.03)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 50, 999, 2000])
def test_chi_squares_tail_is_scipys_near_and_far(degrees: int):
    for x in (0.0, 1e-9, 0.3 * degrees, degrees, 1.2 * degrees, 3.0 * degrees, 1500.0, 1e6, float("inf")):
        assert chi_square_tail(x, degrees) == pytest.approx(
            scipy.stats.chi2.sf(x, degrees), rel=1e-9, abs=1e-300
        )


def test_intervals_lie_within_what_is_possible():
    """Widths by scipy's t and the delta method; published t of 1 degree: 12.706."""
    wide = Mean.of([0.2, 5.0]).positive95
    assert wide is None, "from 0 to a million"
    low, high = Mean.of([90.0, 110.0]).positive95
    assert low * high == pytest.approx(100.0**2) and high / 100 == pytest.approx(
        np.exp(12.706 * 10 / 100), rel=1e-4
    )
    for values in ([0.69, 0.02, 0.99], [0.01, 0.9], [0.5, 0.5001]):
        mean = Mean.of(values)
        low, high = mean.share95
        assert 0 <= low < mean.value < high <= 1
    assert Mean.of([0.0, 0.0]).share95 == (0.0, 0.0) and Mean.of([0.0, 0.0]).positive95 == (0.0, 0.0)
    close = [1000.0, 1001.0, 999.5]
    assert Mean.of(close).positive95 == pytest.approx(Mean.of(close).interval95, rel=1e-5)


def test_welchs_test_gives_the_worked_example():
    """Means 20.6 and 25.8, squared deviations 19.2 and 24.8, n = 5: t = 5.2 / sqrt(0.96 + 1.24) = 3.506 at
    7.87 degrees of freedom, of which 7 count: a little beyond the 1 % point of the table, 3.499."""
    change = welch([18, 24, 20, 21, 20], [22, 28, 26, 28, 25])
    assert change is not None
    assert change.relative == pytest.approx(25.8 / 20.6 - 1)
    assert 0.0098 < change.p < 0.01


def test_too_few_values_are_no_test():
    assert welch([1, 2], [5, 6, 7]) is None


def test_whole_events_cannot_be_surer_than_their_count():
    """3, 3, 3 and 4, 4, 4 have no spread of their own."""
    sure, unsure = welch([3] * 3, [4] * 3), welch([3] * 3, [4] * 3, least_variance=1.0)
    assert sure is not None
    assert unsure is not None
    assert sure.p == 0.0
    assert unsure.p > 0.4


def test_steady_series_drift_no_more_often_than_promised():
    rng = random.Random(1)
    alarms = 0
    for _ in range(4000):
        series = [rng.gauss(100, 5) for _ in range(10)]
        change = welch(series[:5], series[5:])
        alarms += change is not None and change.p < FALSE_ALARMS
    assert alarms / 4000 <= FALSE_ALARMS * 1.3, "binomial error of 4,000 trials: 0.16 %"


def test_equal_sessions_differ_no_more_often_than_promised():
    rng = random.Random(2)
    alarms = sum(
        unequal([rng.gauss(10, 0.5) for _ in range(8)], [0.25] * 8) < FALSE_ALARMS for _ in range(4000)
    )
    assert alarms / 4000 <= FALSE_ALARMS * 1.4
    assert unequal([10, 10, 10, 14], [0.25] * 4) < 1e-6


def test_the_quantiles_kept_at_hand_are_those_of_scipy():
    for degrees in range(1, 40):
        assert students_quantile(degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), rel=1e-11)
    assert students_quantile(float("inf")) == pytest.approx(1.959963984540054)
    with pytest.raises(ValueError):
        students_quantile(0)


@pytest.mark.parametrize(("loads", "climbs"), [(6, 1), (6, 3), (40, 1)])
def test_independent_residuals_are_correlated_as_often_as_promised(loads: int, climbs: int):
    """Only neighbours of one climb are compared. 2,000 trials: binomial error 0.5 %."""
    repeat = np.repeat(np.arange(climbs), loads)
    load = np.tile(np.arange(1.0, loads + 1), climbs)
    basis = np.linalg.qr(np.column_stack([np.ones_like(load), load]))[0]
    errors = np.random.default_rng(4).normal(size=(2000, len(load)))
    left = errors - (errors @ basis) @ basis.T
    result = [durbin_watson(row, basis, np.diff(repeat) == 0)[1] for row in left]
    assert 0.03 <= np.mean(np.array(result) < 0.05) <= 0.07
