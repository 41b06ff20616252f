"""Claims after the choice of a model: a small simulation, and ladders of no model's law."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import claims
from tests.examples import tries

from dbdyno.stats.scaling.averaged import Averaged, averaged, averaged_all
from dbdyno.stats.scaling.models import MODELS
from dbdyno.stats.scaling.points import Points

DENSE = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
DOUBLING = (1, 2, 4, 8, 16, 32, 64)


def points(n: object, x: object, climbs: int = 1) -> Points:
    loads, rates = np.array(n, dtype=float), np.array(x, dtype=float)
    return Points(np.repeat(loads, climbs), rates, np.tile(np.arange(1.0, climbs + 1), len(loads)))


def averages_of(
    law: str,
    p: tuple[float, ...],
    loads: tuple[int, ...],
    noise: float,
    *,
    climbs: int = 1,
    proportional: bool = True,
    ladders: int = tries(20),
) -> list[Averaged]:
    chance = np.random.default_rng(len(law) + len(loads) + climbs)
    condition = claims.Condition(len(loads), "given", noise, proportional, climbs)
    return averaged_all(claims.ladders(law, p, np.array(loads, dtype=float), condition, ladders, chance))


TRUTHS = {
    "linear": {"rate": 900.0},
    "amdahl": {"rate": 900.0, "sigma": 0.04},
    "usl": {"rate": 900.0, "peak": 31.145, "peak throughput": 9858.5},
    "queue": {"rate": 900.0, "knee": 9.3},
    "plateau": {"rate": 900.0, "knee": 10.7},
    "one-knee": {"rate": 900.0, "knee": 8.6, "yield": 0.3},
}
LAWS = claims.TRUTHS
CONDITIONS = (
    (DOUBLING, 0.01, 1, True),
    (DENSE, 0.03, 1, True),
    (DENSE, 0.1, 1, True),
    (DENSE, 0.03, 1, False),
    (DOUBLING, 0.03, 3, True),
)


@pytest.mark.parametrize("law", TRUTHS)
def test_claimed_intervals_hold_the_truth(law: str) -> None:
    """100 ladders of each law: the share that is held may be below 95 % by chance, not by much."""
    models = [
        m
        for loads, noise, climbs, proportional in CONDITIONS
        for m in averages_of(law, LAWS[law], loads, noise, climbs=climbs, proportional=proportional)
    ]
    for name, truth in TRUTHS[law].items():
        stated = [f for m in models if (f := m.figures[name]).claimed]
        held = [f.low <= truth <= f.high for f in stated if f.low is not None and f.high is not None]
        assert len(held) == len(stated)
        assert sum(held) >= 0.9 * len(held) - 2, (name, sum(held), len(held))
    assert name == "rate" or stated
    false = {"knee": law in ("linear", "amdahl", "usl"), "peak": law != "usl"}
    for name, wrong in false.items():
        assert not wrong or sum(m.figures[name].claimed for m in models) <= 0.05 * len(models), name


def test_a_knee_is_found_where_rungs_are_dense_and_the_machine_is_quiet() -> None:
    models = averages_of("one-knee", (900.0, 8.0, 0.3), DENSE, 0.01, ladders=40)
    near = [m.figures["knee"].claimed and abs(m.figures["knee"].value - 8) <= 0.5 for m in models]
    assert sum(near) >= 36


def test_throughput_is_held_where_it_was_measured() -> None:
    loads = np.array(DENSE, dtype=float)
    exact = MODELS["usl"].curve(loads, np.array(LAWS["usl"]))
    held = []
    for m in averages_of("usl", LAWS["usl"], DENSE, 0.03):
        _, low, high = m.throughput(loads)
        held.append(((low <= exact) & (exact <= high)).mean())
    assert np.mean(held) >= 0.9


def test_exact_points_of_a_law_are_recognised() -> None:
    model = averaged(points((1, 2, 4, 8), (100, 181.8, 307.7, 470.6)))
    assert model.shares["amdahl"] > 0.9
    sigma = model.figures["sigma"]
    assert sigma.claimed and sigma.low is not None and sigma.high is not None
    assert sigma.low < 0.1 < sigma.high < 0.12
    assert not model.figures["knee"].claimed and not model.figures["peak"].claimed


def test_loads_that_are_brought_together_leave_the_bend_where_it_is() -> None:
    loads = np.arange(1.0, 1001.0)
    exact = MODELS["usl"].curve(loads, np.array(LAWS["usl"]))
    model = averaged(points(loads, exact * np.random.default_rng(1).normal(1, 0.01, len(loads))))
    rate, peak = model.figures["rate"], model.figures["peak"]
    assert rate.low is not None and rate.high is not None and 850 < rate.low < 900 < rate.high < 950
    assert peak.low is not None and peak.high is not None and peak.low < 31.1 < peak.high < 34


def test_two_bends_that_one_could_be_are_not_claimed_as_one() -> None:
    """8 cores with two threads each: the plateau's bend at 10.4 is that of no machine."""
    knee = averaged(points(DOUBLING, (100, 200, 400, 800, 1040, 1041, 1039))).figures["knee"]
    assert knee.claimed and knee.low is not None and knee.high is not None
    assert knee.low < 9 and knee.high > 10.4


@pytest.mark.parametrize(
    ("n", "x"),
    [
        ((3,), (5,)),
        ((1, 1, 1), (5, 6, 7)),
        ((1, 2), (5, 6)),
        ((1, 2, 3), (7, 7, 7)),
        (DOUBLING, (5,) * 7),
        ((0.5, 0.7, 0.9), (1, 1.3, 1.4)),
        ((1, 2, 4, 8, 12, 16, 24, 32), (1000, 960, 900, 810, 740, 690, 600, 520)),
        (range(1, 2001), np.minimum(np.arange(1, 2001), 300) * 7.0),
        ((1, 2, 3, 4, 5, 6, 7, 8), (1e-9, 1e9, 1, 1e5, 1e-3, 20, 1e4, 3)),
    ],
)
def test_any_ladder_has_figures_in_their_range(n: object, x: object) -> None:
    result = points(n, x)
    model = averaged(result)
    assert sum(model.shares.values()) == pytest.approx(1)
    for f in model.figures.values():
        if f.claimed:
            assert f.low is not None and f.high is not None
            assert np.isfinite([f.low, f.value, f.high]).all() and f.low <= f.value <= f.high
    assert model.figures["rate"].low > 0  # type: ignore[operator]
    middle, low, high = model.throughput(result.loads[-3:])
    assert (low > 0).all() and (low <= middle).all() and (middle <= high).all()
