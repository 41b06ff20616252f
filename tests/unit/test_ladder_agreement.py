"""What the page of a ladder says in one place agrees with what it says in all others, whatever the shape."""

from __future__ import annotations

import pytest
from tests.unit.test_scaling_laws import CONVOY, answer, of

from dbdyno.conclude.scaling.scaled import scaled
from dbdyno.model.analyses import Scaling
from dbdyno.present import scaling_charts

RETROGRADE = ((20, 30, 40, 60, 80, 120, 160), (800, 700, 620, 500, 420, 310, 250))


@pytest.fixture(scope="module")
def convoy() -> Scaling:
    return scaled(of(*CONVOY))


@pytest.fixture(scope="module")
def retrograde() -> Scaling:
    return scaled(of(*RETROGRADE))


def test_a_parameter_that_is_a_knee_has_the_knees_interval(convoy: Scaling) -> None:
    best = convoy.best
    assert best is not None and len(best.knees) == 1
    own = next(p for p in best.parameters if p.name == "knee")
    assert (own.value, own.low, own.high) == (best.knees[0].value, best.knees[0].low, best.knees[0].high)


def test_a_peak_below_all_loads_has_no_place(retrograde: Scaling) -> None:
    best, peak = retrograde.best, answer(retrograde, "peak")
    assert best is not None and best.peak is not None and best.peak_throughput is None
    assert (best.peak.low, bool(best.peak.note)) == (None, True)
    assert "The Universal Scalability Law puts the peak at 20 sessions or below" in peak.text
    assert "peak" not in [name for name, *_ in scaling_charts._named(retrograde)]


def test_sentences_begin_with_a_capital(convoy: Scaling, retrograde: Scaling) -> None:
    for made in (convoy, retrograde):
        for sentence in [*(a.text for a in made.answers if a.id != "paragraph"), *made.refused, *made.notes]:
            assert all(part[:1] == part[:1].upper() for part in sentence.split(". ")), sentence
