"""How a comparison words ratios, and the differences of scripts."""

from __future__ import annotations

import pytest

from dbdyno.conclude.compare.comparisons import _differences, _flat
from dbdyno.model.results.comparison import Effect, ratio_text

_LONE = Effect(ratio=1.0, n_baseline=1, n_variant=1)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(404.657, "405"), (1.0, "1.00"), (0.3419, "0.342"), (0.00262, "0.00262"), (0.000869, "0.000869")],
)  # fmt: skip
def test_a_ratio_without_an_interval_has_three_significant_digits(ratio: float, text: str) -> None:
    assert ratio_text(_LONE, ratio) == text


def test_a_small_end_of_a_wide_interval_is_not_rounded_to_zero() -> None:
    wide = _LONE.model_copy(update={"low": 0.0187, "high": 41.7})
    assert ratio_text(wide, 0.0187) == "0.0187"


def test_of_scripts_that_differ_only_the_lines_that_differ_are_shown() -> None:
    lines = ["begin;", "select 1;", "update t set x = 1;", "end;"]
    sides = [
        _flat({"scripts": [{"name": "q.sql", "text": "\n".join([*lines, last]), "weight": 1}]})
        for last in ("select 2;\n", "select 3;\n")
    ]
    (difference,) = _differences(*sides)
    assert difference.what == "scripts.q.sql.text"
    assert (difference.baseline, difference.variant) == ("select 2;", "select 3;")
