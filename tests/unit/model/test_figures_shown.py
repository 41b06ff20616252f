"""Figures for a reader: units that suit, three or four digits, one and many."""

from __future__ import annotations

import pytest

from dbdyno import conduct
from dbdyno.cli.observe import cost_in_words
from dbdyno.cli.observe_view import number
from dbdyno.cli.screen import in_minutes
from dbdyno.model.units import counted, format_given, format_percent
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
