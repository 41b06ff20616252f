"""Ratios of a comparison's rows: one that may be anything is not shown as a figure."""

from __future__ import annotations

import pytest

from dbdyno.model.results.comparison import Contrast, Effect, Verdict
from dbdyno.present.figures.compare_rows import effect_cells


@pytest.mark.parametrize(
    ("verdict", "low", "high", "text"),
    [
        ("undecided", 51.6, 2871.4, "?"),
        ("undecided", 0.0, 9.0, "?"),
        ("undecided", 300.0, 500.0, "385.0"),
        ("worse", 51.6, 2871.4, "385.0"),
    ],
)
def test_an_undecided_ratio_that_may_be_anything_is_no_figure(
    verdict: Verdict, low: float, high: float, text: str
) -> None:
    effect = Effect(ratio=385.0, low=low, high=high, basis="samples")
    contrast = Contrast(workload="w", sessions=2, baseline="A", variant="B", effect=effect, verdict=verdict)
    _, ratio, interval, *_ = effect_cells(contrast, 0.02)
    assert ratio.text == text and ".." in interval.text
