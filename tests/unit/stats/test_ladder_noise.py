"""Noise of a ladder is what its repeats or a smooth curve leave over, not that the curve bends."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from dbdyno.stats.estimates import Mean
from dbdyno.stats.knee import NOISE, bend, noise_of

Law = Callable[[float], float]
POWERS = (1, 2, 4, 8, 16, 32, 64)
DENSE = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
SUPERLINEAR: dict[str, Law] = {
    "power 1.15": lambda n: 100 * n**1.15,
    "power 1.5": lambda n: 100 * n**1.5,
    "square": lambda n: 100 * n * n,
    "linear and square": lambda n: 100 * n + 2 * n * n,  # bends up on the scale of logarithms, too
    "power, then a plateau": lambda n: 100 * min(n, 20) ** 1.3,
    "power, then a fall": lambda n: 100 * min(n, 20) ** 1.3 * (1 - 0.0005 * n),
    "exponential": lambda n: 100 * n * math.exp(n / 40),
}
KNOWN: dict[str, Law] = {
    "linear": lambda n: 100 * n,
    "cores and SMT": lambda n: 100 * (min(n, 8) + 0.3 * max(0, min(n, 16) - 8)),
    "plateau": lambda n: 100 * min(n, 10.7),
    "Amdahl": lambda n: 100 * n / (1 + 0.04 * (n - 1)),
    "a level part, then growth again": lambda n: 100 * (min(n, 8) + 0.2 * max(0, n - 8)),
}


def noisy_ladder(
    law: Law, loads: tuple[int, ...], noise: float = 0.0, repeats: int = 1, seed: int = 1
) -> dict[int, Mean]:
    chance = random.Random(seed)
    return {n: Mean.of(law(n) * math.exp(chance.gauss(0, noise)) for _ in range(repeats)) for n in loads}


@pytest.mark.parametrize("loads", [POWERS, DENSE])
@pytest.mark.parametrize("law", SUPERLINEAR)
def test_growth_faster_than_the_load_is_no_noise(law: str, loads: tuple[int, ...]) -> None:
    exact = noisy_ladder(SUPERLINEAR[law], loads)
    assert noise_of(exact) == (pytest.approx(NOISE), "assumed")


def test_an_exact_superlinear_ladder_is_known_to_its_last_load() -> None:
    exact = noisy_ladder(SUPERLINEAR["power 1.15"], POWERS)
    result = bend(exact, 0.5)
    assert (result.at, result.low, result.high) == (64, 32, None)


@pytest.mark.parametrize("loads", [POWERS, DENSE])
@pytest.mark.parametrize("law", KNOWN)
def test_an_exact_ladder_of_a_known_law_has_no_noise(law: str, loads: tuple[int, ...]) -> None:
    assert noise_of(noisy_ladder(KNOWN[law], loads)).share == pytest.approx(NOISE)


@pytest.mark.parametrize("noise", [0.05, 0.1])
@pytest.mark.parametrize("law", ["linear", "power 1.15", "linear and square", "power 1.5"])
def test_scatter_about_a_curve_is_noise_whichever_way_it_bends(law: str, noise: float) -> None:
    curve = (KNOWN | SUPERLINEAR)[law]
    result = [noise_of(noisy_ladder(curve, DENSE, noise, seed=s)).share for s in range(40)]
    assert 0.7 * noise < statistics.median(result) < 1.5 * noise


def test_one_rung_that_lies_far_off_is_noise_on_any_law() -> None:
    for law in (KNOWN | SUPERLINEAR).values():
        off = noisy_ladder(law, DENSE)
        off[6] = Mean(1, 0.7 * law(6))
        assert noise_of(off).share > 0.05


def test_a_ladder_of_one_or_two_loads_has_the_assumed_noise() -> None:
    for loads in ((4,), (4, 8)):
        assert noise_of(noisy_ladder(KNOWN["linear"], loads)).share == pytest.approx(NOISE)


def test_a_ladder_of_thousands_of_loads_takes_no_time_that_grows_with_its_square() -> None:
    assert noise_of(noisy_ladder(KNOWN["Amdahl"], tuple(range(1, 4001)))).share == pytest.approx(NOISE)
