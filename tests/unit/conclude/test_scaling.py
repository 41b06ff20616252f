from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.scaling_ladders import CISCO, SPECSDM91, ladder, simulated_ladder

from dbdyno.conclude.scaling import NAMES, scale
from dbdyno.conclude.scaling.fitted import points_of
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Scaling
from dbdyno.stats.scaling.choose import straight_p
from dbdyno.stats.scaling.models import MODELS

LOADS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
LAWS = {
    "linear": (700.0,),
    "amdahl": (700.0, 0.07),
    "usl": (700.0, 0.02, 0.0012),
    "plateau": (700.0, 9.3),
    "queue": (700.0, 6.4),
    "repairman": (300.0, 5.2, 1.7),
    "one-knee": (700.0, 9.2, 0.35),
    "two-knees": (700.0, 5.3, 0.45, 17.1, -0.08),
}


def test_names_are_those_of_the_models() -> None:
    assert tuple(MODELS) == NAMES
    assert all(m.cites for m in MODELS.values() if m.name != "linear")


@pytest.mark.parametrize("law", LAWS)
def test_a_law_without_noise_gives_its_parameters_back(law: str) -> None:
    fit = scale(simulated_ladder(law, LAWS[law], LOADS), models=(law,)).best
    assert fit is not None
    assert [p.value for p in fit.parameters] == pytest.approx(LAWS[law], rel=2e-4)
    assert fit.r_squared == pytest.approx(1)


@pytest.mark.parametrize("law", ["usl", "plateau", "two-knees"])
def test_the_law_behind_a_ladder_is_chosen(law: str) -> None:
    scaling = scale(simulated_ladder(law, LAWS[law], (*LOADS, 40, 48), noise=0.002))
    assert scaling.best is not None
    assert scaling.best.model == law
    assert sum(f.weight for f in scaling.fits) == pytest.approx(1)
    assert sum(f.weight_bic for f in scaling.fits) == pytest.approx(1)
    assert [f.aicc for f in scaling.fits] == sorted(f.aicc for f in scaling.fits)


@pytest.mark.parametrize(("law", "size"), [("usl", 1e9), ("usl", 1e-5), ("one-knee", 1e-3)])
def test_the_size_of_throughput_changes_nothing_else(law: str, size: float) -> None:
    loads = (*LOADS, 40)
    chosen = simulated_ladder(law, LAWS[law], loads, noise=0.01)
    x = chosen.points["throughput"].to_list()
    a, b = (scale(ladder(loads, [v * k for v in x]), models=(law,)).best for k in (1.0, size))
    assert a is not None
    assert b is not None
    assert b.parameters[0].value == pytest.approx(a.parameters[0].value * size, rel=1e-6)
    for p, q in zip(a.parameters[1:], b.parameters[1:], strict=True):
        assert (q.value, q.low, q.high) == pytest.approx((p.value, p.low, p.high), rel=1e-3, abs=1e-6)
    assert b.weight == pytest.approx(a.weight)


def test_order_of_points_and_repeated_loads_do_not_matter() -> None:
    n, x = [*CISCO[0], 8, 8.5], [*CISCO[1], 6600.0, 6900.0]
    a = scale(ladder(n, x), models=("usl",)).best
    b = scale(ladder(n[::-1], x[::-1]), models=("usl",)).best
    assert a is not None
    assert b is not None
    assert [p.value for p in a.parameters] == pytest.approx([p.value for p in b.parameters], rel=1e-7)
    assert a.degrees == 31


def test_a_knee_is_recovered_within_its_interval() -> None:
    points = simulated_ladder("two-knees", LAWS["two-knees"], LOADS, noise=0.005, seed=3)
    fit = scale(points, models=("amdahl", "one-knee", "two-knees")).best
    assert fit is not None
    assert fit.model == "two-knees"
    for knee, truth in zip(fit.knees, (5.3, 17.1), strict=True):
        assert knee.low is not None
        assert knee.high is not None
        assert knee.low < truth < knee.high
        assert knee.high - knee.low < 8


def test_straight_lines_have_neither_knee_nor_peak() -> None:
    scaling = scale(simulated_ladder("linear", (700.0,), LOADS, noise=0.005, seed=4))
    assert not any(f.knees or f.peak for f in scaling.fits)
    assert any("straight line" in refusal for refusal in scaling.refused)


def test_bends_are_claimed_on_few_straight_lines_and_where_there_are_some() -> None:
    lines = [
        points_of(simulated_ladder("linear", (700.0,), LOADS, 0.02, seed=s)) for s in range(5, 105) if s != 7
    ]
    p = np.array([straight_p(a.n, a.x, 1) for a in lines])
    assert (p <= 0.05).mean() <= 0.1  # 1 of 20 is expected
    assert 0.3 < np.median(p) < 0.9
    bent = points_of(simulated_ladder("one-knee", LAWS["one-knee"], LOADS, 0.02))
    assert straight_p(bent.n, bent.x, 1) <= 0.01  # type: ignore[operator]


def test_models_of_too_many_parameters_are_refused_with_a_reason() -> None:
    none, some = (scale(simulated_ladder("usl", LAWS["usl"], LOADS[:k], noise=0.01)) for k in (3, 5))
    assert none.fits == ()
    assert none.best is None
    assert "at least 4" in none.refused[0]
    assert none.residuals.height == 3
    assert {f.model for f in some.fits} == {"linear", "amdahl", "plateau", "queue"}
    assert any("Universal Scalability Law" in refusal and "at least 6" in refusal for refusal in some.refused)


@pytest.mark.parametrize("bad", [0.0, -5.0, math.nan, math.inf, None])
@pytest.mark.parametrize("column", ["load", "throughput"])
def test_points_of_no_use_are_an_error(bad: float | None, column: str) -> None:
    n: list[float | None] = [1, 2, 4, 8, 16]
    x: list[float | None] = [10, 19, 35, 60, 80]
    (n if column == "load" else x)[2] = bad
    with pytest.raises(UsageError, match=f"{column} of point 3"):
        scale(ladder(n, x))  # type: ignore[arg-type]


def test_no_points_and_unknown_models_are_an_error() -> None:
    with pytest.raises(UsageError, match="no points"):
        scale(ladder([], []))
    with pytest.raises(UsageError, match="no model 'cubic'"):
        scale(ladder(*SPECSDM91), models=("cubic",))


def test_text_in_place_of_a_number_is_an_error() -> None:
    with pytest.raises(UsageError, match="not a number"):
        scale(ladder([1, 2, 3], ["a", "b", "c"]))  # type: ignore[list-item]


def _scaling_of_repeats(repeats: int) -> Scaling:
    return scale(simulated_ladder("usl", LAWS["usl"], LOADS, 0.01, repeats, 0.03), models=("usl",))


def test_repeats_are_drawn_where_there_are_enough() -> None:
    two, six = _scaling_of_repeats(2), _scaling_of_repeats(6)
    assert two.best is not None
    assert six.best is not None
    assert {p.method for p in two.best.parameters} == {"profile likelihood"}
    assert any("too few" in note for note in two.notes)
    assert {p.method for p in six.best.parameters} == {"bootstrap of repeats"}
    for p, truth in zip(six.best.parameters, LAWS["usl"], strict=True):
        assert p.low is not None
        assert p.high is not None
        assert p.low < truth < p.high
    rate = six.best.parameters[0]
    assert rate.std_err is not None
    assert (
        rate.std_err > 700 * 0.03 / math.sqrt(6) / 2
    )  # climbs differ by 3 %: no fit of all points knows that
    assert _scaling_of_repeats(6).best == six.best  # the draws are always the same


def test_climbs_that_are_not_whole_are_not_drawn() -> None:
    whole = simulated_ladder("amdahl", LAWS["amdahl"], LOADS, 0.01, 5)
    scaling = scale(
        ladder(*(whole.points[c].to_list()[:-1] for c in ("load", "throughput", "repeat"))),
        models=("amdahl",),
    )
    assert any("differ in their load levels" in note for note in scaling.notes)
    assert scaling.best is not None
    assert scaling.best.parameters[0].method == "profile likelihood"


def test_a_known_think_time_is_no_parameter() -> None:
    rate, servers, think = LAWS["repairman"]
    pause = think / (1 + think) / rate  # Z of 1 / rate = S + Z
    known = simulated_ladder("repairman", LAWS["repairman"], LOADS, 0.005)
    points = known.points
    fit = scale(ladder(points["load"], points["throughput"], think_s=pause), models=("repairman",)).best
    assert fit is not None
    assert fit.degrees == len(LOADS) - 2
    assert [p.value for p in fit.parameters] == pytest.approx((rate, servers, think), rel=0.1)
    assert "known" in fit.parameters[2].note
    assert fit.knees[0].value == pytest.approx(servers * (1 + think), rel=0.05)


def test_curve_and_residuals_belong_to_the_best_fit() -> None:
    scaling = scale(ladder(*SPECSDM91, think_s=0.001), models=("usl",))
    curve, residuals = scaling.curve, scaling.residuals
    assert set(SPECSDM91[0]) <= set(curve["load"])
    assert curve["load"].is_sorted()
    assert curve.filter("beyond")["load"].min() > 216  # type: ignore[operator]
    inside = curve.filter((curve["low"] < curve["throughput"]) & (curve["throughput"] < curve["high"]))
    assert inside.height == curve.height
    cycle = curve["load"] / curve["throughput"] - 0.001
    assert np.allclose(curve["response_s"], cycle)
    assert residuals["efficiency"][0] == 1
    assert np.allclose(residuals["predicted"] + residuals["residual"], residuals["throughput"])
    assert scaling.best is not None
    assert (residuals["residual"] ** 2).sum() == pytest.approx(scaling.best.rss, rel=1e-9)


def test_a_model_that_does_not_describe_the_points_is_not_called_the_best_one() -> None:
    """Four rungs that bend leave the straight line alone to be weighed; and some ladders are no ladder."""
    few = scale(ladder([1, 2, 3, 4], [100.0, 101.0, 99.0, 100.5]))
    assert few.best is None and "Too few points for a model" in few.refused[0]
    wild = scale(ladder([1, 2, 3, 4, 5, 6, 7, 8], [100.0, 300.0, 90.0, 20.0, 400.0, 15.0, 200.0, 60.0]))
    assert wild.best is None and "too scattered for a model" in wild.refused[0]
    straight = scale(ladder([1, 2, 3, 4], [100.0, 201.0, 299.0, 402.0]))
    assert straight.best is not None and straight.best.model == "linear"


def test_a_ladder_that_falls_from_the_start_has_answers() -> None:
    """The best law has no peak to the right of 1: figures there are unknown, and nothing fails."""
    scaling = scale(ladder((1, 2, 4, 8, 12, 16, 24, 32), (1000, 960, 900, 810, 740, 690, 600, 520)))
    assert scaling.fits and all(f.peak is None or f.peak.value <= 2 for f in scaling.fits)
