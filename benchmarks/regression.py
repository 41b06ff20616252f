"""How often the 95 % intervals of CPU per unit of work, and of comparisons of two machines, contain the
truth, by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.conclude.machines.machines import machines
from dbdyno.conclude.regression import regress
from dbdyno.model.results.analyses import POINTS, Estimate, Ladder

COST, BACKGROUND = 2e-5, 0.3
"""CPU seconds per unit of work, and per second."""
TIMES = 2_000
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator], tuple[Floats, Floats, bool]]
"""Draws work, noise of CPU, and whether they are in time order."""
Noise = Callable[[np.random.Generator, Floats], Floats]
"""Draws noise for windows of this work, in their order."""


def main(pairs: int = 0, seconds: float = 0) -> None:
    """Prints coverage in per cent and the median width of the interval, relative to the truth."""
    del pairs, seconds
    for name, draw in _worlds():
        slope, background, width = _coverage(draw)
        print(
            f"{name:60} slope {slope:5.1f} %  background {background:5.1f} %  width {100 * width:5.1f} %",
            flush=True,
        )
    for name, noise, repeats in (("3 repeats", 0.02, 3), ("5 repeats", 0.05, 5)):
        print(f"machines, {name:50} {_machines(noise, repeats)}")


def _worlds() -> Iterator[tuple[str, Draw]]:
    even = np.linspace(5e3, 6e4, 12)
    doubling = np.repeat(5e3 * 2.0 ** np.arange(4), 3)
    yield "12 rungs, HC3, even noise", lambda c: (even, c.normal(0, 0.02, 12), False)
    yield "12 rungs, HC3, noise 2 % of CPU", _in_proportion(even)
    yield "1, 2, 4, 8 x 3 repeats, HC3, even noise", lambda c: (doubling, c.normal(0, 0.02, 12), False)
    yield "1, 2, 4, 8 x 3 repeats, HC3, noise 2 % of CPU", _in_proportion(doubling)
    for rungs, repeats in ((5, 2), (7, 1), (7, 3), (10, 1)):
        work = np.repeat(5e3 * 2.0 ** np.arange(rungs), repeats)
        yield f"{rungs} rungs that double x {repeats}, HC3, noise 2 % of CPU", _in_proportion(work)
    for n in (30, 60, 200):
        for r in (0.0, 0.3, 0.5, 0.7, 0.9):
            yield f"{n} windows, both resemble by {r}", _windows(n, r)
        for name, noise in _OTHERS.items():
            yield f"{n} windows, work by 0.7, {name}", _windows(n, 0.7, noise)
        rising = np.linspace(1e4, 3e4, n)
        yield f"{n} windows, work rises, noise by 0.7", _given(rising)


def _windows(n: int, r: float, noise: Noise | None = None) -> Draw:
    """Returns a drawer of windows. ``noise`` replaces the first-order autoregression."""

    def draw(c: np.random.Generator) -> tuple[Floats, Floats, bool]:
        work = np.maximum(0.0, 2e4 + 4e3 * _neighbours(c, n, r))
        return work, 0.03 * (_neighbours(c, n, r) if noise is None else noise(c, work)), True

    return draw


def _in_proportion(work: Floats) -> Draw:
    return lambda c: (work, c.normal(0, 0.02, len(work)) * _cpu(work), False)


def _given(work: Floats) -> Draw:
    return lambda c: (work, 0.03 * _neighbours(c, len(work), 0.7), True)


def _second_order(chance: np.random.Generator, work: Floats) -> Floats:
    steps = chance.normal(0, 0.5, len(work) + 100)
    for i in range(2, len(steps)):
        steps[i] += 1.2 * steps[i - 1] - 0.5 * steps[i - 2]
    return steps[100:]


_OTHERS: dict[str, Noise] = {
    "noise half by 0.9, half by 0": lambda c, w: (_neighbours(c, len(w), 0.9) + c.normal(size=len(w))) / 1.4,
    "noise of second order": _second_order,
    "noise by -0.5": lambda c, w: _neighbours(c, len(w), -0.5),
    "noise by 0.7 in proportion to work": lambda c, w: _neighbours(c, len(w), 0.7) * w / 2e4,
}


def _cpu(work: Floats) -> Floats:
    return BACKGROUND + COST * work


def _neighbours(chance: np.random.Generator, n: int, r: float) -> Floats:
    """Returns a first-order autoregression of variance 1."""
    steps = chance.normal(0, np.sqrt(1 - r * r), n)
    steps[0] = chance.normal()
    for i in range(1, n):
        steps[i] += r * steps[i - 1]
    return steps


def _coverage(draw: Draw) -> tuple[float, float, float]:
    chance, held, widths = np.random.default_rng(1), np.zeros(2), []
    for _ in range(TIMES):
        work, noise, ordered = draw(chance)
        total = regress(work, _cpu(work) + noise, ordered=ordered).total
        assert total is not None
        held += [_holds(total.slope, COST), _holds(total.background, BACKGROUND)]
        widths.append(((total.slope.high or 0) - (total.slope.low or 0)) / COST)
    slope, background = 100 * held / TIMES
    return float(slope), float(background), float(np.median(widths))


def _holds(e: Estimate | None, truth: float) -> bool:
    return e is not None and (e.low is None or e.low <= truth) and (e.high is None or truth <= e.high)


def _machines(noise: float, repeats: int) -> str:
    """Compares simulated machines: eight fast threads against 32 half as fast. The true ratios are 0.5 at
    one session and 2 at the peaks; the curves cross at 16."""
    chance, held = np.random.default_rng(2), np.zeros(3)
    times = TIMES // 2
    for _ in range(times):
        a = _ladder(lambda n: 100 * min(n, 8), noise, repeats, chance)
        b = _ladder(lambda n: 50 * min(n, 32), noise, repeats, chance)
        comparison = machines(a, b)
        crossing = comparison.crossings[0] if len(comparison.crossings) == 1 else None
        last = comparison.at_loads[-1].throughput.ratio
        held += [_holds(comparison.one_session.ratio, 0.5), _holds(last, 2), _holds(crossing, 16)]
    one, many, crossing_held = 100 * held / times
    return f"one session {one:.1f} %  64 sessions {many:.1f} %  crossing {crossing_held:.1f} %"


def _ladder(law: Callable[[float], float], noise: float, repeats: int, chance: np.random.Generator) -> Ladder:
    rows = [
        {"load": n, "repeat": r, "throughput": law(n) * float(np.exp(chance.normal(0, noise)))}
        for n in (1, 2, 4, 8, 12, 24, 32, 64)
        for r in range(1, repeats + 1)
    ]
    return Ladder("simulated", pl.DataFrame(rows, schema=POINTS, strict=False))
