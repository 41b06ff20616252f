"""Repeats for a difference against published sample sizes, and the budget's own identities."""

from __future__ import annotations

import math

import pytest

from dbdyno.stats.noise_budget import Budget
from dbdyno.stats.power import least_shift, power, repeats_for
from dbdyno.stats.variance_components import Variance

SURE = 1e9
BUDGET = Budget(
    cell=Variance(1e-4, SURE),
    cell_s=10.0,
    second=Variance(5e-4, SURE),
    steps_s=1.0,
    overhead_s=2.0,
    starts=Variance(5e-4, SURE),
    per_start=5,
    restart_s=1.0,
)
"""A measurement varies by 1 %, half of it by its seconds. Starts add 4.8e-4, which is 2.2 %."""


@pytest.mark.parametrize(("shift", "published"), [(0.5, 34), (0.8, 15), (0.2, 199)])
def test_repeats_are_the_sample_sizes_of_the_paired_t_test(shift: float, published: int) -> None:
    # G*Power 3.1 and R's power.t.test(type = "paired") at 5 %, 80 %.
    assert repeats_for(shift, 0.05, 0.8, 4) == published


def test_the_least_shift_has_the_power_that_was_wanted() -> None:
    assert power(least_shift(12, 0.05, 0.8), 12, 0.05) == pytest.approx(0.8, abs=1e-4)
    assert power(0.0, 12, 0.05) == pytest.approx(0.025, abs=1e-6)  # in the one direction
    assert power(100.0, 4, 0.05) == 1.0


def test_a_difference_that_takes_too_many_repeats_has_no_plan() -> None:
    assert repeats_for(0.001, 0.05, 0.8, 4) is None
    assert repeats_for(0.0, 0.05, 0.8, 4) is None
    assert BUDGET.plan(1e-5, 0.05, 4) is None


def test_longer_measurements_average_out_what_their_seconds_explain_and_no_more() -> None:
    assert BUDGET.variance(10.0).value == pytest.approx(1e-4)
    assert BUDGET.variance(5.0).value == pytest.approx(1.5e-4)
    assert BUDGET.variance(60.0).value == pytest.approx(5e-5 + 5e-4 / 60)


def test_a_measurement_with_a_restart_has_the_variance_of_starts_too() -> None:
    assert BUDGET.start_variance == pytest.approx(4.8e-4)
    assert BUDGET.variance(10.0, restarts=True).value == pytest.approx(1e-4 + 4.8e-4)
    assert BUDGET.floor == pytest.approx(math.expm1(1.959964 * math.sqrt(2 * 4.8e-4)), rel=1e-4)


def test_no_variance_is_below_that_of_its_seconds() -> None:
    lucky = BUDGET._replace(cell=Variance(1e-6, SURE))
    assert lucky.variance(10.0).value == pytest.approx(5e-5)


def test_the_plan_is_the_fastest_of_all_lengths() -> None:
    plan = BUDGET.plan(0.02, 0.05, 4)
    assert plan is not None
    for length_s in BUDGET.lengths():
        shift = math.log(1.02) / (math.sqrt(2) * BUDGET.deviation(length_s))
        repeats = repeats_for(shift, 0.05, 0.8, 4)
        assert repeats is not None
        assert plan.time_s <= 2 * repeats * (length_s + 2.0) + 1e-9
    assert plan.repeats >= 4


def test_lengths_last_five_autocorrelation_times() -> None:
    assert min(BUDGET._replace(steps_s=3.0).lengths()) == 15.0
    assert BUDGET._replace(steps_s=100.0).lengths() == [60.0]


def test_without_its_seconds_no_shorter_measurement_is_planned() -> None:
    unknown = BUDGET._replace(second=Variance(0.0, 1.0), cell_s=12.0)
    assert min(unknown.lengths()) == 12.0


def test_the_least_difference_is_the_inverse_of_the_plan() -> None:
    plan = BUDGET.plan(0.02, 0.05, 4)
    assert plan is not None
    assert BUDGET.least_difference(plan.repeats, plan.length_s, 0.05) <= 0.02
    assert BUDGET.least_difference(plan.repeats - 1, plan.length_s, 0.05) > 0.02 or plan.repeats == 4


def test_few_degrees_make_a_plan_careful() -> None:
    few = BUDGET._replace(cell=Variance(1e-4, 4))
    assert few.least_difference(8, 10.0, 0.05) > 1.3 * BUDGET.least_difference(8, 10.0, 0.05)


@pytest.mark.parametrize("budget", [BUDGET, BUDGET._replace(starts=None)])
def test_a_budget_is_stored_and_read_without_a_change(budget: Budget) -> None:
    assert Budget.of_row(budget.as_row()) == budget
