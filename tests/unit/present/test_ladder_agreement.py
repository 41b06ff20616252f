"""Statements of a ladder's page agree with each other in all places, whatever its shape."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.conclude.test_scaling_laws import CONVOY, POWER, answer, ladder_of
from tests.unit.shown import as_text

from dbdyno import present
from dbdyno.conclude.ladder import ladders
from dbdyno.conclude.ladder.rungs import Rungs
from dbdyno.conclude.scaled import scaled
from dbdyno.conclude.scaling.asked import asked
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Scaling
from dbdyno.present.scaling import scaling_charts

RETROGRADE = ((20, 30, 40, 60, 80, 120, 160), (800, 700, 620, 500, 420, 310, 250))


@pytest.fixture(scope="module")
def convoy() -> Scaling:
    return scaled(ladder_of(*CONVOY))


@pytest.fixture(scope="module")
def retrograde() -> Scaling:
    return scaled(ladder_of(*RETROGRADE))


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
    assert "peak" not in [name for name, *_ in scaling_charts._marked_loads(retrograde)]


def test_sentences_begin_with_a_capital(convoy: Scaling, retrograde: Scaling) -> None:
    for scaling in (convoy, retrograde):
        for sentence in [
            *(a.text for a in scaling.answers if a.id != "paragraph"),
            *scaling.refused,
            *scaling.notes,
        ]:
            assert all(part[:1] == part[:1].upper() for part in sentence.split(". ")), sentence


SIXTEEN = tuple(range(1, 17))
SEVEN = (1, 2, 4, 8, 16, 32, 64)
SHAPES = {
    "superlinear": (SEVEN, tuple(100 * n**1.2 for n in SEVEN)),
    "superlinear, then flat": (SEVEN, (100, 260, 560, 1000, 1010, 1005, 1000)),
    "flat": (SEVEN, (500,) * 7),
    "cliff": (SEVEN, (100, 198, 390, 760, 1400, 300, 290)),
    "cliff at the end": (SEVEN, (100, 198, 390, 760, 1400, 2500, 700)),
    "retrograde": (SEVEN, (100, 190, 350, 500, 480, 300, 150)),
    "falls from the start": RETROGRADE,
    "sawtooth": (SIXTEEN, tuple(100 * n * (1 if n % 2 else 0.6) for n in SIXTEEN)),
    "power law": ((1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48), POWER[1]),
}


@pytest.fixture(scope="module", params=SHAPES)
def shaped_scaling(request: pytest.FixtureRequest) -> Scaling:
    return scaled(ladder_of(*SHAPES[request.param]))


def _segments_at(values: dict[float, float], target: float) -> list[tuple[float, float]]:
    return [(a, b) for (a, x), (b, y) in pairwise(values.items()) if min(x, y) <= target <= max(x, y)]


def test_rungs_that_do_not_differ_neither_rise_nor_fall(shaped_scaling: Scaling) -> None:
    more, rungs = answer(shaped_scaling, "one-more-session"), Rungs.of(shaped_scaling.ladder)
    if more.case in ("more", "less"):
        assert not {float(more.slots["first"]), rungs.loads[-1]} <= set(rungs.peak)
    if any(a.id == "throughput-drop" for a in shaped_scaling.answers):
        assert more.case == "less"


def test_predictions_lie_within_their_interval_and_a_rejected_model_has_none(shaped_scaling: Scaling) -> None:
    loads = ladders.loads(shaped_scaling.ladder)
    inside = [*loads, *((a + b) / 2 for a, b in pairwise(loads))]
    if shaped_scaling.best is None:
        with pytest.raises(UsageError) as refused:
            asked(shaped_scaling, inside)
        assert "measure more" not in (refused.value.cure or "")
        return
    rejected = any(a.id == "model-veto" for a in shaped_scaling.answers)
    cases = {"measured", "between"} | (set() if rejected else {"known", "wide"})
    for a in (a for a in asked(shaped_scaling, inside).answers if a.id == "prediction"):
        assert a.case in cases, a.text
        if a.case == "known":
            assert a.value is not None and a.value.low is not None and a.value.high is not None
            assert a.value.low < a.value.value < a.value.high


@pytest.mark.parametrize("share", [0.3, 0.99, 1.0, 1.01, 1.5, 0.7])
def test_targets_do_not_contradict_what_was_measured(shaped_scaling: Scaling, share: float) -> None:
    if shaped_scaling.best is None:
        return
    rungs = {n: m.value for n, m in Rungs.of(shaped_scaling.ladder).means.items()}
    times = {n: n / x for n, x in rungs.items()}
    rates = [x * share for x in rungs.values()]
    seconds = [t * share for t in times.values()]
    answers = asked(shaped_scaling, response_s=seconds, throughputs=rates).answers
    for kind, values, targets in (("throughput-target", rungs, rates), ("response-target", times, seconds)):
        for a, target in zip([a for a in answers if a.id == kind], targets, strict=True):
            passing = _segments_at(values, target)
            if passing:
                assert a.case in ("met", "passed", "measured"), a.text
            if passing and a.case == "met":
                assert a.value is not None
                assert any(low <= a.value.value <= high for low, high in passing), a.text


def test_one_sentence_stands_once_on_the_page(shaped_scaling: Scaling) -> None:
    shown = " ".join(as_text(present.scaling([shaped_scaling]), 400).split())
    for a in shaped_scaling.answers:
        if a.id == "model-veto":
            assert shown.count(a.text) == 1
    assert "means over repeats" not in shown
    assert shown.lower().count("residuals of neighbouring loads are") <= 1


def test_an_impossible_efficiency_is_explained() -> None:
    rough = scaled(ladder_of(SEVEN, (100, 231, 180, 1500, 1400, 3300, 14000)))
    rungs = Rungs.of(rough.ladder)
    assert max(rungs.efficiencies.values()) > 1.1 and rungs.above_one is None
    note = next(n for n in rough.notes if n.startswith("Efficiency of"))
    assert "noise of" in note and "1 session delivers" in note


def test_a_gain_within_noise_has_no_interval_beyond_it() -> None:
    jumps = (100, 300, 310, 1300, 1250, 3300, 3500)
    more = answer(scaled(ladder_of(SEVEN, jumps)), "one-more-session")
    assert more.case == "unsure" and "(+" not in more.text


def test_an_exact_power_of_the_load_rises_beyond_noise() -> None:
    scaling = scaled(ladder_of(*SHAPES["superlinear"]))
    more = answer(scaling, "one-more-session")
    assert more.case == "more" and "130 % (117 % to 143 %)" in more.text
    assert not [a.text for a in scaling.answers if "Beyond noise that holds up to" in a.text]
