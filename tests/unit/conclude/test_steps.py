"""Steps in time and along a ladder, growth tied to cores and CPUs: examples by hand, coverage in small."""

from __future__ import annotations

import numpy as np
import pytest

from dbdyno.conclude.scaled import answered
from dbdyno.conclude.scaling import scale
from dbdyno.model.results.analyses import POINTS, Ladder
from dbdyno.stats import steps
from dbdyno.stats.cliff import cliff
from dbdyno.stats.tied import tied

# -- in time --


@pytest.mark.parametrize("rho", [0.3, 0.7])
@pytest.mark.parametrize("n", [10, 30])
def test_steady_series_with_correlated_noise_have_few_steps(n: int, rho: float) -> None:
    """5 % at most are expected; 500 series exceed 7 % once in 50."""
    rows = 1 + 0.03 * steps.correlated_noise(np.random.default_rng(1), 500, n, rho)
    changes = [s for row in rows if (s := steps.change(row.tolist())) is not None and s.p < steps.LEVEL]
    assert len(changes) <= 35


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_a_steps_place_and_size_are_found(rho: float) -> None:
    random = np.random.default_rng(2)
    rows = 1 + 0.03 * steps.correlated_noise(random, 100, 20, rho)
    held = 0
    for row in rows:
        at = int(random.integers(3, 18))
        row[at:] *= 0.75
        step = steps.change(row.tolist())
        assert step is not None and step.p < steps.LEVEL
        held += step.start95[0] <= at <= step.start95[1]
        assert step.end == 20 and step.relative == pytest.approx(-0.25, abs=0.08)
    assert held >= 90


def test_a_level_that_came_and_went_has_two_ends() -> None:
    values = [10.0, 10.1, 9.9, 10.0, 6.0, 6.1, 5.9, 6.0, 10.0, 10.1, 9.9, 10.0]
    step = steps.change(values)
    assert step is not None and (step.start, step.end) == (4, 8)
    assert step.start95[0] <= 4 <= step.start95[1] and step.end95[0] <= 8 <= step.end95[1]


def test_drift_one_wild_value_and_short_series_are_no_step() -> None:
    assert steps.change([10 + 0.5 * n for n in range(20)]) is None
    assert steps.change([10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 2.0, 10.0, 10.1, 9.9, 10.0, 10.1]) is None
    assert steps.change([5.0] * 20) is None
    assert steps.change([1.0, 1.0, 1.0, 2.0, 2.0, 2.0]) is None


def test_a_long_series_is_as_sure_of_its_step() -> None:
    random = np.random.default_rng(3)
    values = 1 + 0.02 * random.normal(size=601)
    values[400:] *= 1.2
    step = steps.change(values.tolist())
    assert step is not None and step.start95[0] <= 400 <= step.start95[1] and step.end == 601


# -- along a ladder --


def _loads_and_rates(text: str) -> tuple[list[float], list[float]]:
    pairs = [tuple(map(float, pair.split(","))) for pair in text.split()]
    return [n for n, _ in pairs], [x for _, x in pairs]


@pytest.mark.parametrize(
    ("text", "low", "high", "share"),
    [
        ("1,100 2,200 4,400 8,800 12,810 16,805 24,800 32,500 48,495 64,505", 24, 32, -0.375),
        ("1,100 2,200 4,400 8,800 12,1200 16,1600 20,1100 24,1320 32,1760", 16, 20, -0.45),
        ("1,100 2,196 4,380 8,705 12,900 16,1010 24,1020 32,600 40,590", 24, 32, -0.42),
        ("64,505 48,495 1,100 2,200 32,500 4,400 24,800 8,800 12,810 16,805", 24, 32, -0.375),
    ],
)
def test_a_cliff_is_between_two_loads(text: str, low: float, high: float, share: float) -> None:
    drop = cliff(*_loads_and_rates(text))
    assert drop is not None and (drop.low, drop.high) == (low, high)
    assert drop.relative_low <= share <= drop.relative_high < 0


@pytest.mark.parametrize(
    "text",
    [
        "1,100 2,200 4,400 8,800 16,1040 32,1041 64,1039",
        "1,1000 2,960 4,900 8,810 12,740 16,690 24,600 32,520",  # falls from the start
        "1,100 2,181.8 4,307.7 8,470.6 16,640 32,780",
        "1,64.9 18,995.9 36,1652.4 72,1853.2 108,1828.9 144,1775.0 216,1702.2",
        "1,100 2,200 4,400 8,80 16,1600 32,3200 64,6400",  # one mistyped rung
        "1,100 2,100 3,100 4,100 5,100 6,100",
        "1,100 2,200 3,150 4,400",
        "1,100 2,200 3,300 4,401 6,600 8,800 12,921 16,1040 24,1039 32,1041 48,1040 64,1040",  # two knees
    ],
)
def test_smooth_ladders_have_no_step(text: str) -> None:
    assert cliff(*_loads_and_rates(text)) is None


def test_thousands_of_loads_and_loads_that_are_not_whole() -> None:
    n = np.linspace(0.5, 64.5, 2000)
    x = np.minimum(n, 8.0) * np.where(n > 40, 0.5, 1.0)
    drop = cliff(n.tolist(), x.tolist())
    assert drop is not None and drop.low <= 40 <= drop.high and drop.high - drop.low < 4


def test_false_steps_are_rare_and_true_ones_are_found() -> None:
    random = np.random.default_rng(4)
    n = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], dtype=float)
    curves = (
        n,
        n / (1 + 0.05 * (n - 1)),
        np.minimum(n, 10.4),
        n / (1 + 0.03 * (n - 1) + 0.001 * n * (n - 1)),
    )
    alarms = [
        cliff(n.tolist(), (x * np.exp(0.03 * random.normal(size=12))).tolist())
        for x in curves
        for _ in range(15)
    ]
    assert sum(drop is not None for drop in alarms) <= 5
    fall = np.minimum(n, 8.0) * np.where(n > 20, 0.6, 1.0)
    for _ in range(10):
        drop = cliff(n.tolist(), (fall * np.exp(0.02 * random.normal(size=12))).tolist())
        assert drop is not None and drop.low <= 16 and drop.high >= 24


def test_the_claim_names_the_loads_of_the_step() -> None:
    import polars as pl

    loads, rates = _loads_and_rates("1,100 2,200 4,400 8,800 12,810 16,805 24,800 32,500 48,495 64,505")
    rows = [{"load": n, "repeat": 1, "throughput": x} for n, x in zip(loads, rates, strict=True)]
    scaling = answered(scale(Ladder("mine", pl.DataFrame(rows, schema=POINTS))))
    (step,) = [a for a in scaling.answers if a.id == "throughput-step"]
    assert (step.case, step.severity) == ("falls", "warning")
    assert (step.slots["low"], step.slots["high"]) == ("24 sessions", "32 sessions")
    assert step.value is not None and step.value.value == pytest.approx(-0.38, abs=0.02)


# -- tied to cores and CPUs --


@pytest.mark.parametrize("loads", [(1, 2, 4, 8, 16, 32, 64), (1, 2, 3, 5, 7, 10, 12, 14, 20, 24)])
@pytest.mark.parametrize("sigma", [0.0, 0.01])
def test_the_tied_fit_s_interval_holds_the_yield(loads: tuple[int, ...], sigma: float) -> None:
    """95 % are expected; of 120 ladders fewer than 106 hold it once in 500."""
    random, held = np.random.default_rng(5), 0
    n = np.array([*loads, 8, 16], dtype=float)
    law = (np.minimum(n, 8) + 0.3 * np.clip(np.minimum(n, 16) - 8, 0, None)) / (1 + sigma * (n - 1))
    truth, law = law[-1] / law[-2], law[:-2]
    for _ in range(120):
        x = law * np.exp(0.03 * random.normal(size=len(law)))
        fit = tied(n[:-2].tolist(), x.tolist(), 8, 2, 16)
        assert fit is not None and fit.yield95 is not None and fit.noise is not None
        held += fit.yield95[0] <= truth <= fit.yield95[1]
    assert held >= 106


def test_a_fit_of_too_few_loads_is_not_tied() -> None:
    assert tied([1, 2, 4, 8], [1, 2, 4, 8], 8, 2, 16) is None  # nothing above the cores
    assert tied([9, 12, 16], [9, 9, 9], 8, 2, 16) is None  # nothing up to them
    exact = tied([1, 8, 16], [100, 800, 1040], 8, 2, 16)
    assert exact is not None and (exact.core_yield, exact.noise) == (pytest.approx(1.3), None)
    two = tied([4, 16], [400, 1040], 8, 2, 16)
    assert two is not None and (two.degrees, two.yield95, two.knee95) == (0, None, None)
