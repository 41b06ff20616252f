"""Published ladders, and how tests make their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from dbdyno.model.results.analyses import Ladder
from dbdyno.stats.scaling.models import MODELS

Two = tuple[tuple[float, ...], tuple[float, ...]]

# Gunther, as shipped by the R package usl
SPECSDM91: Two = ((1, 18, 36, 72, 108, 144, 216), (64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2))
RAYTRACER: Two = (
    (1, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64),
    (20, 78, 130, 170, 190, 200, 210, 230, 260, 280, 310),
)
# Schwartz, Practical Scalability Analysis with the Universal Scalability Law
CISCO: Two = (
    tuple(range(1, 33)),
    (
        955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71,
        8646.7, 9047.84, 9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63,
        11806, 12089.37, 12075.41, 12177.29, 12211.41, 12158.93, 12155.27, 12118.04, 12140.4, 12074.39,
    ),
)  # fmt: skip
# a loop on the CPU by sysbench; fixture of sca_tools
SYSBENCH: Two = (
    (1, 2, 4, 8, 16, 32, 64, 128, 512, 1024, 2048),
    (
        8272.55783333,
        16589.7894915,
        27322.0743333,
        27313.8616949,
        27368.63,
        27352.1261667,
        27308.6731667,
        27309.2926667,
        27378.5465,
        27346.7111667,
        27411.8171667,
    ),
)


def ladder(n: Sequence[float], x: Sequence[float], repeat: Sequence[int] | None = None, **more) -> Ladder:  # type: ignore[no-untyped-def]
    repeats = list(repeat) if repeat is not None else [1] * len(n)
    frame = pl.DataFrame({"load": list(n), "repeat": repeats, "throughput": list(x)}, strict=False)
    return Ladder("test", frame, **more)


def first(data: Two, count: int) -> Ladder:
    return ladder(data[0][:count], data[1][:count])


def simulated_ladder(
    model: str,
    p: Sequence[float],
    n: Sequence[float],
    noise: float = 0.0,
    repeats: int = 1,
    climb: float = 0.0,
    seed: int = 1,
) -> Ladder:
    """``noise`` of a point over the largest throughput, ``climb`` from climb to climb, relative."""
    chance, loads = np.random.default_rng(seed), np.array(n, dtype=float)
    exact = MODELS[model].curve(loads, np.array(p, dtype=float))
    x = exact * (1 + chance.normal(0, climb, (repeats, 1)))
    x = x + chance.normal(0, noise * exact.max(), x.shape)
    x = np.maximum(x, exact.min() / 1000)  # nothing is below 0
    return ladder(np.tile(loads, repeats), x.ravel(), np.repeat(np.arange(1, repeats + 1), len(loads)))
