"""The page of two files in a real browser: both samples are drawn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_report_page import TOO_WIDE, Open, figures

from dbdyno import present
from dbdyno.conclude.compare import compare_samples

pytestmark = pytest.mark.browser

_noise = random.Random(1)
SAMPLES = {
    "ten each": ([100 + _noise.random() for _ in range(10)], [103 + _noise.random() for _ in range(10)]),
    "far apart": ([1.0, 2.0, 1.5, 9000.0], [3.0, 4.0, 5.0, 4.5]),
    "zeros": ([0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 3.0, 5.0]),
    "equal": ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0]),
    "huge": ([1e300, 1.1e300, 1.2e300], [2e300, 2.1e300, 2.2e300]),
    "one each": ([5.0], [6.0]),
    "thousands": ([_noise.gauss(50, 2) for _ in range(3000)], [_noise.gauss(51, 2) for _ in range(20)]),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_comparison_of_two_samples_is_drawn(open_page: Open, tmp_path: Path, name: str, width: int) -> None:
    sides = SAMPLES[name]
    comparison = compare_samples(*sides, names=("old.txt", "new.txt"))
    path = tmp_path / "page.html"
    present.write(present.samples(comparison, sides), path, present.comparison_document(comparison))
    page = open_page(path, width=width)
    (drawn,) = figures(page)
    assert page.errors() == [] and drawn["drawn"] == "yes"
    points = sum(min(len(side), 1_000) for side in sides)
    assert drawn["id"] == "samples" and drawn["marks"] == drawn["wanted"] == points + 2
    assert {"old.txt", "new.txt"} <= set(drawn["labels"])
    assert page.evaluate(TOO_WIDE) == []
