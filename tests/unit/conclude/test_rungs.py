"""Figures of rungs without a model, and answers of ugly ladders."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import polars as pl
import pytest
from tests.unit.scaling_ladders import CISCO, RAYTRACER, SPECSDM91, SYSBENCH

from dbdyno.conclude.ladder.rungs import Rungs, outlier
from dbdyno.conclude.scaled import scaled
from dbdyno.conclude.scaling.capacity import peak, scales_to
from dbdyno.model.results.analyses import POINTS, Ladder, Scaling
from dbdyno.model.results.claim import Claim

pytestmark = pytest.mark.queries


def ladder_of(text: str, **more: Any) -> Ladder:
    """``1,100 2,190 4,350``, a load and a throughput each; a load that comes again is a repeat."""
    seen: dict[float, int] = {}
    rows = []
    for pair in text.split():
        load, rate = map(float, pair.split(","))
        seen[load] = seen.get(load, 0) + 1
        rows.append({"load": load, "repeat": seen[load], "throughput": rate})
    return Ladder("mine", pl.DataFrame(rows, schema=POINTS).sort("load", "repeat"), "queries/s", **more)


def answers(text: str, **more: Any) -> dict[str, Claim]:
    return {a.id: a for a in scaled(ladder_of(text), **more).answers}


@cache
def scaling_of(text: str) -> Scaling:
    """The scaling by the model that the ladder itself chooses."""
    return scaled(ladder_of(text))


FALLS = "1,1000 2,960 4,900 8,810 12,740 16,690 24,600 32,520"
CLIFF = "1,100 2,200 4,400 8,800 16,800 32,790 48,780 64,200 128,190"
LAST = "1,100 2,200 4,400 8,410"
AMDAHL = "1,100 2,181.8 4,307.7 8,470.6"


# -- measured --


@pytest.mark.parametrize(
    ("text", "best", "alike"),
    [
        ("1,100 2,200 4,400 8,410", 8, [4, 8]),
        ("1,100 2,190 4,350 8,600", 8, [8]),
        (FALLS, 1, [1, 2]),
        ("1,100 2,101 4,99 8,100", 2, [1, 2, 4, 8]),
        ("8,800 9,900 10,1000 11,1100 12,1200 13,1300", 13, [13]),  # each is near the next, all of them rise
    ],
)
def test_the_peak_is_the_highest_rung_and_those_not_below_it_beyond_chance(
    text: str, best: float, alike: list[float]
) -> None:
    rungs = Rungs.of(ladder_of(text))
    assert rungs.best == best and set(alike) >= set(rungs.peak) >= {best}
    assert rungs.peak == alike or rungs.peak[-1] == best


@pytest.mark.parametrize(
    ("text", "value", "low", "high", "case"),
    [
        (CLIFF, 8, 8, 16, "limit"),
        (FALLS, 1, 1, 2, "none"),
        (LAST, 4, 4, 8, "limit"),
        ("1,100 2,199 4,398 8,795", 8, 8, None, "top"),
        ("1,100 2,200 4,352 8,810 16,1590 32,1600", 16, 1, 32, "between"),  # a dip at 4 ends nothing
        (
            "1,118 2,200 4,400 8,790 16,1580 32,3150",
            1,
            1,
            None,
            "unsure",
        ),  # one load alone is above the others
    ],
)
def test_scales_to_has_an_interval_from_noise_and_rests_on_no_single_dip(
    text: str, value: float, low: float, high: float | None, case: str
) -> None:
    (claim,) = scales_to(ladder_of(text))
    assert claim.value is not None
    assert (claim.value.value, claim.value.low, claim.value.high, claim.case) == (value, low, high, case)


def test_a_figure_that_rests_on_a_single_measurement_has_a_note() -> None:
    assert Rungs.of(ladder_of(LAST)).reach().rests_on == 8  # type: ignore[union-attr]
    assert Rungs.of(ladder_of(f"{LAST} 8,412")).reach().rests_on is None  # type: ignore[union-attr]


def test_efficiency_above_one_is_a_claim_of_its_own_and_the_best_load_the_reference() -> None:
    claims = answers("1,80 2,200 4,400 8,790 16,1000")
    claim = claims["superlinear"]
    assert claim.value is not None and claim.value.value == pytest.approx(1.25) and claim.value.low > 1  # type: ignore[operator]
    assert claims["scales-to"].value.value == 8 and claims["scales-to"].slots["lowest"] == "2 sessions"  # type: ignore[union-attr]
    assert "superlinear" not in answers("1,98 2,200 4,395 8,790 16,1000")


def test_the_gain_of_the_last_rungs_is_measured() -> None:
    grows, level, falls = (answers(t)["one-more-session"] for t in ("1,100 2,190 4,350 8,600", LAST, FALLS))
    assert (grows.case, level.case, falls.case) == ("more", "nothing", "less")
    assert grows.value is not None and grows.value.value == pytest.approx(250 / 4)
    assert grows.slots["share"] == "71 %" and falls.slots["share"] == "48 %"


def test_more_repeats_narrow_the_interval() -> None:
    one = "1,100 2,195 4,380 8,700"
    many = " ".join([one] * 5)
    few, sure = (next(iter(scales_to(ladder_of(t)))).value for t in (one, many))
    assert few is not None and sure is not None
    assert Rungs.of(ladder_of(many)).share(8) < Rungs.of(ladder_of(one)).share(8) / 2


# -- outliers --


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("1,100 2,198 4,390 8,7600 16,1400 32,2500 64,4000", 8),
        ("1,100 2,198 4,390 8,76 16,1400 32,2500 64,4000", 8),
        ("1,955 2,1879 3,2688 4,3549 5,3416 6,5130 7,5931", 5),  # two digits changed places
        ("1,1000 2,198 4,390 8,760 16,1400", 1),
        ("1,100 2,198 4,390 8,760 16,14000", 16),
        ("1,100 2,200 4,400 8,800 16,800 32,1300 64,790 128,795", 32),
        ("1,100 1,101 2,198 2,19.9 4,390 4,391 8,760 8,761", 2),
    ],
)
def test_a_mistyped_rung_is_named_and_left_out(text: str, load: float) -> None:
    scaling = scaled(ladder_of(text))
    (claim,) = (a for a in scaling.answers if a.id == "outlier")
    assert scaling.ladder.outliers[0][0] == load and claim.severity == "warning"
    assert scaling.ladder.points.height == len(text.split()) - 1
    assert claim.text in next(a.text for a in scaling.answers if a.id == "paragraph")


@pytest.mark.parametrize("data", [CISCO, SPECSDM91, RAYTRACER, SYSBENCH])
def test_published_ladders_have_no_outlier(data: Any) -> None:
    assert outlier(ladder_of(" ".join(f"{n},{x}" for n, x in zip(*data, strict=True)))) is None


@pytest.mark.parametrize("text", [FALLS, CLIFF, LAST, AMDAHL, "4,1 6,1 8,2 10,2 12,2 16,3 18,3 24,4"])
def test_a_plateau_or_fall_is_no_outlier(text: str) -> None:
    assert outlier(ladder_of(text)) is None


def test_a_first_load_that_is_slow_makes_no_outlier_of_the_second() -> None:
    """Measured on two CPUs: a single session lets them sleep between calls, so two deliver more than twice as
    much, and that is all there is."""
    scaling = scaled(ladder_of("1,803 2,2000 3,1902 4,1892 8,2014"))
    assert not scaling.ladder.outliers
    claims = {a.id: a for a in scaling.answers}
    assert claims["scales-to"].value is not None and claims["scales-to"].value.value == 2
    assert outlier(ladder_of("1,803 2,2000 3,1502 4,1492 8,1514")) is not None


def test_noise_is_no_outlier() -> None:
    chance = random.Random(3)
    laws = (
        lambda n: n,
        lambda n: n / (1 + 0.05 * (n - 1)),
        lambda n: min(n, 8),
        lambda n: n / (1 + n * n / 400),
    )
    loads = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    outliers = [
        outlier(ladder_of(" ".join(f"{n},{100 * law(n) * math.exp(chance.gauss(0, 0.1))}" for n in loads)))
        for _ in range(50)
        for law in laws
    ]
    assert sum(o is not None for o in outliers) <= 4  # 2 %


def test_repeats_that_agree_are_no_outlier() -> None:
    text = "1,100 2,198 4,390 8,76 16,1400 32,2500"
    assert outlier(ladder_of(text)) is not None
    assert outlier(ladder_of(f"{text} {text}")) is None


# -- ugly ladders --


def test_a_ladder_that_falls_from_the_start_is_claimed_as_such() -> None:
    claims = answers(FALLS)
    assert (claims["peak"].value.value, claims["scales-to"].value.value) == (1000, 1)  # type: ignore[union-attr]
    assert claims["reason"].slots["growth"].startswith("Throughput falls from 1 session")


def test_a_cliff_is_a_claim_and_the_ladder_is_not_refused() -> None:
    claims = answers(CLIFF)
    drop = claims["throughput-drop"]
    assert (drop.slots["first"], drop.slots["last"], drop.slots["share"]) == ("48", "64 sessions", "74 %")
    assert claims["peak"].value.value == 800 and claims["scales-to"].value.value == 8  # type: ignore[union-attr]


def test_exact_data_of_a_model_are_called_so_however_few() -> None:
    scaling = scaled(ladder_of(AMDAHL))
    assert scaling.best is not None and scaling.best.model == "amdahl"
    assert scaling.best.parameters[1].value == pytest.approx(0.1, abs=1e-3)
    assert "4 loads, which are Amdahl's law (sigma 0.1) but for rounding." in scaling.answers[-1].text


def test_a_bend_between_the_last_two_rungs_is_somewhere_between_them() -> None:
    claims = answers(LAST)
    assert claims["knee"].value is not None
    assert (claims["knee"].value.value, claims["knee"].value.high) == (4, 8)
    assert scaled(ladder_of(LAST)).best is None


def test_a_straight_line_has_no_knee_however_noisy() -> None:
    chance = random.Random(7)
    lines = [
        ladder_of(" ".join(f"{n},{100 * n * chance.gauss(1, 0.1)}" for n in range(1, 21))) for _ in range(100)
    ]
    from dbdyno.conclude.ladder.ladders import knee

    assert sum(knee(line) is not None for line in lines) <= 5


@pytest.mark.parametrize(
    "text", ["1,100 2,100 4,100 8,100", "1,100 2,101 4,99 8,100 16,100.5 32,99.7 64,101"]
)
def test_constant_throughput_peaks_at_once_and_gains_nothing(text: str) -> None:
    claims = answers(text)
    assert claims["peak"].case == "constant" and claims["scales-to"].value.value == 1  # type: ignore[union-attr]
    assert claims["one-more-session"].case == "nothing"


def test_loads_need_not_be_whole_numbers() -> None:
    scaling = scaled(
        ladder_of("0.8,80 1.7,168 3.2,310 5.9,540 9.4,720 14.2,800", load_unit="active sessions")
    )
    text = scaling.answers[-1].text
    assert "14.2 active sessions" in text and "10 times the throughput of 0.8 active sessions" in text


def test_three_rungs_and_two_thousand_have_answers() -> None:
    assert answers("1,100 2,190 4,350")["scales-to"].value.value == 2  # type: ignore[union-attr]
    many = ladder_of(" ".join(f"{n},{100 * min(n, 300) + (n * 7919) % 13}" for n in range(1, 2001)))
    (claim,) = scales_to(many)
    assert claim.value is not None and 300 <= claim.value.value <= 340
    assert peak(many).value is not None and outlier(many) is None


@pytest.mark.parametrize(
    "model", ["linear", "amdahl", "usl", "plateau", "queue", "repairman", "one-knee", "two-knees"]
)
@pytest.mark.parametrize("text", ["1,100", "1,100 2,190", "1,100 2,190 4,350", LAST, CLIFF, FALLS])
def test_the_model_that_is_asked_for_is_always_fitted_with_its_warning(text: str, model: str) -> None:
    scaling = scaled(ladder_of(text), model=model)
    assert scaling.best is not None and scaling.best.model == model
    natural = scaling_of(text).best
    assert (natural is not None and natural.model == model) or "was requested" in scaling.notes[0]


# -- a model's peak and knees --


def _vetoed(scaling: Scaling) -> bool:
    return scaling.best is not None and scaling.best.peak is None and not scaling.best.knees


def test_residuals_with_a_pattern_veto_peak_and_knees_in_the_headline() -> None:
    scaling = scaled(ladder_of(" ".join(f"{n},{x}" for n, x in zip(*CISCO, strict=True))), model="usl")
    claims = {a.id: a for a in scaling.answers}
    assert _vetoed(scaling) and claims["model-veto"].case == "pattern"
    assert claims["model-veto"].text in claims["paragraph"].text
