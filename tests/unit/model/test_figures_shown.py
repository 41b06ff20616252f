"""Figures for a reader: units that suit, three or four digits, one and many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dbdyno import conduct
from dbdyno.cli.observe import cost_in_words
from dbdyno.cli.observe_table import number
from dbdyno.cli.screen import in_minutes
from dbdyno.model.units import (
    between,
    counted,
    format_duration,
    format_given,
    format_ns,
    format_percent,
    format_rate,
)
from dbdyno.plan.trigger_conditions import value_words


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        (1, "session", "1 session"),
        (0, "call", "0 calls"),
        (2050, "session", "2,050 sessions"),
        (0.5, "CPU", "0.5 CPUs"),
        (2, "process", "2 processes"),
        (1, "process", "1 process"),
        (3, "query", "3 queries"),
        (3_000_000, "row", "3,000,000 rows"),
    ],
)
def test_a_noun_is_singular_or_plural_by_its_count(count: float, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.5"), (8.0, "8"), (12_500.0, "12,500"), (2e6, "2,000,000"), (0.1 + 0.2, "0.3")],
)
def test_a_given_value_is_shown_as_it_was_given(value: float, shown: str) -> None:
    assert format_given(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0004, "0.0 %"), (0.013, "1.3 %"), (0.097, "10 %"), (1.5, "150 %"), (float("nan"), "? %")],
)
def test_shares_have_one_decimal_at_most(share: float, shown: str) -> None:
    assert format_percent(share) == shown


def test_the_cost_of_observing_has_the_digits_of_other_shares() -> None:
    cost = conduct.Cost(here=0.01337, server=1.2345, samplers=0.00912)
    assert (
        cost_in_words(cost) == "observing cost 1.3 % of one CPU here (samplers 0.9 %) and 123 % at the server"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (0.0123, "0.012"), (0.8424, "0.842"), (10.56, "10.6"), (2050.4, "2,050")]
)
def test_the_live_view_rounds_as_the_reports_do(value: float, shown: str) -> None:
    assert number(value) == shown


def test_long_waits_are_hours_without_an_exponent() -> None:
    assert (in_minutes(120 * 3600e9), in_minutes(150e9), in_minutes(45e9)) == ("120 h", "2.5 min", "45 s")


def test_figures_of_triggers_choose_their_unit() -> None:
    assert value_words("response", 5.4e-6) == "response 5.40 us"


def test_a_figure_rounds_up_into_the_next_unit_without_a_fourth_digit() -> None:
    assert [format_ns(v) for v in (99.96e6, 100e6, 143e6)] == ["100 ms", "100 ms", "143 ms"]
    assert [format_ns(v) for v in (999_960, 999_400, 0.9996)] == ["1.00 ms", "999 us", "1.00 ns"]
    assert [format_ns(v) for v in (0.00126, -0.00126, 0.0004)] == ["1.26 ps", "-1.26 ps", "< 1 ps"]
    assert format_rate(999_700) == "1.00 M"


@given(some.floats(min_value=1e-3, max_value=1e15))
def test_a_time_has_at_most_three_digits_that_count(ns: float) -> None:
    text, unit = format_ns(ns).split()
    digits = text.replace(",", "").replace(".", "").lstrip("0")
    assert len(digits) == 3 or (unit == "s" and float(text.replace(",", "")) >= 1000)


def test_an_interval_has_its_unit_once() -> None:
    assert between(12.0, 12.1, "s") == "12.0 to 12.1 s"
    assert between(0.9, 12.1, "s") == "900 ms to 12.1 s"
    assert between(0.0851, 0.26, "of CPU time") == "8.5 to 26 % of CPU time"
    assert between(0.2351, 0.2352, "s/s") == "0.235 s/s"
    assert between(5.4e-6, 6e-6, "CPU seconds/LIO") == "5.40 to 6.00 us of CPU/LIO"


def test_a_long_duration_has_two_units() -> None:
    shown = [format_duration(s * 1e9) for s in (15.4, 177, 3900, 7200)]
    assert shown == ["15.4 s", "2 min 57 s", "1 h 5 min", "2 h"]
