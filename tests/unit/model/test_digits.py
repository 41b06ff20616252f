"""Figures have three to four significant digits, by one formatter, whatever their size."""

import pytest

from dbdyno.model.units import format_apart, format_number, format_p, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00009676, "0.00009676"),
        (0.0000164, "0.00001640"),
        (4.4638, "4.464"),
        (20176.6, "20,177"),
        (9000.0, "9,000"),
        (0.0, "0"),
        (1e-20, "1.000e-20"),
        (3.2e16, "3.200e+16"),
        (float("inf"), "?"),
    ],
)
def test_a_number_of_any_size_has_four_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_small_figures_have_no_row_of_zeros() -> None:
    assert significant(6e-6) == "0.00000600"
    assert significant(0.00012) == "0.000120"


def test_two_figures_that_differ_do_not_look_the_same() -> None:
    assert format_apart(1.00000001, 1.00000002) == ("1.00000001", "1.00000002")
    assert format_apart(20176.6, 30176.6) == ("20,177", "30,177")
    assert format_apart(0.1 + 0.2, 0.3) == ("0.3000", "0.3000")


def test_a_p_value_has_two_digits() -> None:
    assert [format_p(p) for p in (0.0234, 1.2e-5, 1e-12, 1.0)] == ["0.023", "1.2e-05", "<1e-9", "1"]
