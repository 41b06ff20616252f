"""Scalings by hand: published data with their published fits (Gunther's specsdm91, USL), for the report."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dbdyno.model.results.analyses import POINTS, Estimate, Fitted, Ladder, Machine, Scaling
from dbdyno.model.results.claim import Claim

SPECSDM91 = ((1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2))
RATE, SIGMA, KAPPA, PEAK = 89.9952, 0.0277284, 0.000104366, 96.5195


def usl(n: Any) -> Any:
    return RATE * n / (1 + SIGMA * (n - 1) + KAPPA * n * (n - 1))


def fitted(model: str, title: str, aicc: float, weight: float, **more: object) -> Fitted:
    base = {"formula": "", "cites": "", "parameters": (), "rss": 1.0, "degrees": 4, "r_squared": 0.99}
    return Fitted(
        model=model,
        title=title,
        aic=aicc - 1,
        aicc=aicc,
        bic=aicc,
        weight=weight,
        weight_bic=weight,
        **{**base, **more},  # type: ignore[arg-type]
    )


def points(
    pairs: tuple[tuple[float, float], ...] = SPECSDM91, repeats: int = 1, **columns: float
) -> pl.DataFrame:
    """Each further repeat delivers a hundredth more; ``columns`` hold a value per load."""
    rows = [
        {
            **dict.fromkeys(POINTS),
            "load": float(n),
            "repeat": r + 1,
            "throughput": x * (1 + r / 100),
            **{k: v * n for k, v in columns.items()},
        }
        for n, x in pairs
        for r in range(repeats)
    ]
    return pl.DataFrame(rows, schema=POINTS)


def ladder(**more: object) -> Ladder:
    base = {"name": "specsdm91.csv", "points": points(), "throughput_unit": "scripts/h", "load_unit": "users"}
    return Ladder(**{**base, "machine": Machine(cpus=16, cores=16), **more})  # type: ignore[arg-type]


def scaling(fitted_ladder: Ladder | None = None) -> Scaling:
    """The published fit's scaling; response times are load over throughput."""
    fitted_ladder = fitted_ladder or ladder()
    best = fitted(
        "usl",
        "Universal Scalability Law",
        70.5,
        0.97,
        formula="X(N) = rate N / (1 + sigma (N - 1) + kappa N (N - 1))",
        cites="Gunther 2007",
        rss=20000.0,
        parameters=(
            Estimate("rate", RATE, "1/s", 61.246, 144.546, "profile likelihood", 14.2135),
            Estimate("sigma", SIGMA, "ratio", 0.009485, 0.064103, "profile likelihood", 0.00912181),
            Estimate("kappa", KAPPA, "ratio", 3.862e-5, 1.6118e-4, "profile likelihood", 1.98767e-5),
        ),
        peak=Estimate("peak", PEAK, "users", 85.2, 118.4, "profile likelihood"),
        peak_throughput=Estimate("top", usl(PEAK), "scripts/h", 1790.0, 1980.0, "profile likelihood"),
        durbin_watson=1.9,
        autocorrelation_p=0.4,
    )
    loads = [1 + 2.15 * i for i in range(150)]
    curve = pl.DataFrame(
        {
            "load": loads,
            "throughput": [usl(n) for n in loads],
            "low": [0.95 * usl(n) for n in loads],
            "high": [1.05 * usl(n) for n in loads],
            "response_s": [n / usl(n) for n in loads],
            "perfect": [RATE * n for n in loads],
            "beyond": [n > 216 for n in loads],
        }
    )
    residuals = fitted_ladder.points.select("load", "repeat", "throughput").with_columns(
        usl(pl.col("load")).alias("predicted")
    )
    residuals = residuals.with_columns(
        residual=pl.col("throughput") - pl.col("predicted"),
        efficiency=pl.col("throughput") / pl.col("load") / RATE,
    )
    others = (fitted("amdahl", "Amdahl's law", 77.6, 0.03), fitted("linear", "a straight line", 99.0, 0.0))
    return Scaling(
        fitted_ladder,
        (best, *others),
        curve,
        residuals,
        ("no knee can be told from a bend",),
        ("a note",),
        ANSWERS,
    )


ANSWERS = (
    Claim(
        id="one-session",
        text="One user alone delivers 90 scripts/h.",
        value=Estimate("one-session", RATE, "scripts/h", 61.2, 144.5),
    ),
    Claim(
        id="peak",
        text="The peak is at 96.5 users.",
        value=Estimate("peak", PEAK, "users", 85.2, 118.4),
        evidence="kappa is above 0",
    ),
    Claim(id="paragraph", text="Up to 97 users each further one adds throughput; <beyond> it falls."),
)


def knees() -> Scaling:
    """Two knees near each other, one at the right edge; with repeats, CPU and a think time."""
    pairs = tuple(
        (n, 100.0 * min(n, 8) + 30.0 * max(0, min(n, 16) - 8)) for n in (1, 2, 4, 6, 8, 10, 12, 16, 20)
    )
    columns = points(pairs, 3, cpu=0.8, cpu_user=0.6, cpu_system=0.2, cpu_wait=0.1)
    ladder = Ladder(
        "two knees", columns, machine=Machine(cpus=16, cores=8, threads_per_core=2), think_s=0.002
    )
    best = fitted(
        "two-knees",
        "growth with two knees",
        10.0,
        0.9,
        degrees=20,
        parameters=(Estimate("rate", 100.0, "1/s"),),
        knees=(
            Estimate("knee", 8.0, "sessions", 7.4, 8.7, "bootstrap of repeats"),
            Estimate("knee2", 16.0, "sessions", 14.9, None, "bootstrap of repeats"),
        ),
        durbin_watson=0.9,
        autocorrelation_p=0.01,
    )
    loads = [1 + 0.5 * i for i in range(39)]
    x = [100.0 * min(n, 8) + 30.0 * max(0, min(n, 16) - 8) for n in loads]
    curve = pl.DataFrame(
        {
            "load": loads,
            "throughput": x,
            "low": [0.98 * v for v in x],
            "high": [math.inf] * len(x),
            "response_s": [n / v - 0.002 for n, v in zip(loads, x, strict=True)],
            "perfect": [100.0 * n for n in loads],
            "beyond": [False] * len(x),
        }
    )
    residuals = columns.select(
        "load", "repeat", "throughput", predicted=pl.col("throughput") * 0.99
    ).with_columns(
        residual=pl.col("throughput") * 0.01, efficiency=pl.col("throughput") / pl.col("load") / 100
    )
    return Scaling(ladder, (best,), curve, residuals)
