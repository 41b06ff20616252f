"""Coverage of the whole analysis on ladders of eleven laws, most of which are none of the fitted models.

Counts, under seven kinds of noise, how often bands contain the law within the measured range and at 1.5 times
its end, how wide they are, and how many bends, steps, outliers and directions are claimed. ``python -m
benchmarks laws``: ``--ladders`` of each law, with all kinds of noise in turn, and random numbers of rungs and
repeats. With 14 it takes minutes.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.conclude.scaled import scaled
from dbdyno.conclude.scaling.asked import asked
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import POINTS, Ladder, Scaling
from dbdyno.stats.scaling.models import MODELS

Floats = NDArray[np.float64]
Law = Callable[[Floats], Floats]
LADDERS = 105
FARTHER = 1.5
"""Times the largest load at which a prediction beyond the range is compared with the law."""
RATE = 100.0


# -- laws --


def _model(name: str, *p: float) -> Law:
    return lambda n: MODELS[name].curve(n, np.array((RATE, *p)))


def mean_value_analysis(demands: Floats, think: float) -> Law:
    """Returns the throughput of a closed network of queueing stations by exact mean value analysis (Reiser
    and Lavenberg, Journal of the ACM 27 (1980) 313), interpolated between whole numbers of customers."""

    def law(n: Floats) -> Floats:
        d, queue, x = demands, np.zeros(len(demands)), [0.0]
        for customers in range(1, math.ceil(n.max()) + 1):
            response = d * (1 + queue)
            x.append(customers / (think + response.sum()))
            queue = x[-1] * response
        return np.interp(n, np.arange(len(x)), x)

    return law


def smt(cores: float, gain: float) -> Law:
    """First one thread per core, then two, then no more CPUs."""
    return lambda n: RATE * (np.minimum(n, cores) + gain * np.clip(n - cores, 0, cores))


def convoy(start: float, loss: float) -> Law:
    """Grows without loss up to ``start``; each further session lengthens the wait of all."""
    return lambda n: RATE * np.minimum(n, start) / (1 + loss / start * np.maximum(n - start, 0))


def cliff(sigma: float, at: float, factor: float) -> Law:
    """Amdahl's law, multiplied by ``factor`` from a load on: the working set no longer fits."""
    grown = _model("amdahl", sigma)
    return lambda n: grown(n) * np.where(n >= at, factor, 1.0)


def retrograde(top: float, power: float) -> Law:
    """Growth that turns into loss, more steeply than the USL if ``power`` is above 2."""
    return lambda n: RATE * n / (1 + (n / top) ** power)


def power(exponent: float) -> Law:
    """Each doubling of the load multiplies throughput by the same factor."""
    return lambda n: RATE * n**exponent


def _laws() -> dict[str, Callable[[np.random.Generator, float], Law]]:
    """Returns makers of laws by name. Each draws parameters for a ladder up to a load, with bends within
    it."""

    def network(r: np.random.Generator, last: float) -> Law:
        demands = np.sort(r.uniform(0.2, 1.0, 3)) / RATE
        return mean_value_analysis(
            demands, max(r.uniform(0.15, 0.6) * last * demands.max() - demands.sum(), 0)
        )

    def repairman(r: np.random.Generator, last: float) -> Law:
        servers = max(1.0, round(r.uniform(0.1, 0.3) * last))
        return _model("repairman", servers, r.uniform(0.2, 1.5))

    return {
        "linear": lambda *_: _model("linear"),
        "amdahl": lambda r, last: _model("amdahl", r.uniform(0.5, 6) / last),
        "usl": lambda r, last: _model("usl", r.uniform(0, 3) / last, r.uniform(0.3, 3) / last**2),
        "plateau": lambda r, last: _model("plateau", r.uniform(0.15, 0.7) * last),
        "repairman": repairman,
        "closed network": network,
        "cores and SMT": lambda r, last: smt(r.uniform(0.15, 0.4) * last, r.uniform(0.1, 0.5)),
        "lock convoy": lambda r, last: convoy(r.uniform(0.15, 0.5) * last, r.uniform(0.05, 0.5)),
        "cache cliff": lambda r, last: cliff(
            r.uniform(0, 2) / last, r.uniform(0.25, 0.7) * last, r.uniform(0.5, 0.8)
        ),
        "power law": lambda r, _: power(r.uniform(0.5, 0.95)),
        "retrograde": lambda r, last: retrograde(r.uniform(0.3, 0.7) * last, r.uniform(1.5, 2.5)),
    }


LAWS = _laws()
SMOOTH = ("linear", "amdahl", "usl", "power law", "retrograde")
"""Laws without a bend."""
NOISES = ("1 %", "3 %", "10 %", "autocorrelated", "sawtooth", "late drift", "one outlier")
RUNGS = (5, 7, 10, 14, 20, 32, 64)
REPEATS = (1, 3, 5)


def errors(kind: str, repeats: int, loads: int, r: np.random.Generator) -> Floats:
    """Returns factors on the law, of shape (repeats, loads)."""
    z = r.normal(size=(repeats, loads))
    if kind.endswith("%"):
        return np.asarray(1 + float(kind[:-2]) / 100 * np.clip(z, -4, 4))
    if kind == "autocorrelated":  # along the ladder, by 0.7
        for i in range(1, loads):
            z[:, i] = 0.7 * z[:, i - 1] + math.sqrt(1 - 0.7**2) * z[:, i]
        return np.asarray(1 + 0.03 * z)
    if kind == "sawtooth":
        return np.asarray(1 + 0.01 * z + 0.03 * (-1.0) ** np.arange(loads))
    if kind == "late drift":
        return np.asarray((1 + 0.01 * z) * (1 - 0.08 * np.clip(3 * np.linspace(0, 1, loads) - 2, 0, 1)))
    factors = 1 + 0.01 * z
    factors[r.integers(repeats), r.integers(loads)] *= 0.6
    return np.asarray(factors)


@dataclass(frozen=True)
class Simulated:
    law: str
    noise: str
    rungs: int
    repeats: int
    truth: Law
    loads: Floats
    ladder: Ladder


def simulated(law: str, number: int, seed: int = 1) -> Simulated:
    """Returns the ``number``-th ladder of a law. The kinds of noise take turns."""
    r = np.random.default_rng((seed, number, *map(ord, law)))
    noise, rungs, repeats = NOISES[number % 7], int(r.choice(RUNGS)), int(r.choice(REPEATS))
    last = float(r.choice([32, 64, 96])) if rungs < 64 else 64.0 * float(r.integers(1, 3))
    spread = np.geomspace if rungs < 14 or r.random() < 0.5 else np.linspace
    loads = np.unique(np.round(spread(1, last, rungs), 0 if rungs < 32 else 2))
    truth = LAWS[law](r, last)
    x = truth(loads) * errors(noise, repeats, len(loads), r)
    rows = [
        {"load": float(n), "repeat": i + 1, "throughput": float(v)}
        for i, climb in enumerate(x)
        for n, v in zip(loads, climb, strict=True)
    ]
    points = pl.DataFrame(rows).sort("load", "repeat")
    points = points.with_columns(
        pl.lit(None, t).alias(c) for c, t in POINTS.items() if c not in points.columns
    )
    return Simulated(
        law, noise, rungs, repeats, truth, loads, Ladder("simulated", points.select(list(POINTS)))
    )


# -- the analysis of one ladder against its law --


def inside(of: Simulated, scaling: Scaling) -> tuple[int, int, float]:
    """Returns the number of places in the measured range (rungs and the middles between them), how many
    bands contain the law there, and the sum of the bands' relative widths."""
    places = np.concatenate([of.loads, np.sqrt(of.loads[1:] * of.loads[:-1])])
    curve = scaling.curve.sort("load")
    low, high = (np.interp(places, curve["load"], curve[c]) for c in ("low", "high"))
    truth = of.truth(places)
    held, width = int(((low <= truth) & (truth <= high)).sum()), float(((high - low) / truth).sum())
    return len(places), held, width


def judged(of: Simulated) -> Counter[str]:
    """Counts the claims about a ladder, and those that its law confirms."""
    counts = Counter[str]({"ladders": 1})
    scaling = scaled(of.ladder)
    ids = {a.id: a for a in scaling.answers}
    counts["outlier"] += "outlier" in ids
    counts["step"] += "throughput-step" in ids
    counts["veto"] += "model-veto" in ids
    counts["bend"] += bool(scaling.best and scaling.best.knees)
    change = ids.get("one-more-session")
    if change is not None and change.value is not None and change.case in ("more", "less"):
        counts["direction"] += 1
        counts["wrong direction"] += _wrong(of, change.case)
    if scaling.best is None:
        return counts
    places, held, width = inside(of, scaling)
    counts.update({"places": places, "held": held, "modelled": 1})
    counts["width"] += width / places  # type: ignore[assignment]
    _beyond(of, scaling, counts)
    return counts


def _wrong(of: Simulated, case: str) -> bool:
    """Returns whether the law has another direction at the top of the range."""
    last = of.loads[-1]
    before, after = of.truth(np.array([last / 1.5, last]))
    return bool(after <= before * (1 + 1e-9)) if case == "more" else bool(after >= of.truth(of.loads).max())


def _beyond(of: Simulated, scaling: Scaling, counts: Counter[str]) -> None:
    load = FARTHER * of.loads[-1]
    alone = (of.ladder.points["throughput"] / of.ladder.points["load"]).to_numpy()
    for n in (load, 3 * of.loads[-1]):
        try:
            answer = asked(scaling, [n]).answers[0]
        except UsageError:
            continue
        value = answer.value
        if value is None or value.low is None or value.high is None:
            continue
        most = n * float(alone.max()) * 1.2
        ends = (value.low, value.value, value.high)
        counts["impossible"] += (
            min(ends) < 0 or value.value <= 0 or max(ends) > most or not np.isfinite(ends).all()
        )
        if n == load:
            truth = float(of.truth(np.array([n]))[0])
            counts["predicted"] += 1
            counts["foretold"] += value.low <= truth <= value.high
            counts["span"] += (value.high - value.low) / truth  # type: ignore[assignment]
    response = asked(scaling, response_s=[1.0]).answers[0]
    counts["no load of 1 s"] += response.case == "never"


def counted(task: tuple[str, int, int]) -> tuple[str, str, int, int, Counter[str]]:
    of = simulated(*task)
    return of.law, of.noise, of.rungs, of.repeats, judged(of)


def table(records: Sequence[tuple[Any, ...]], by: int, what: str) -> Iterator[str]:
    """Yields rows by column number ``by`` of the records."""
    pooled: dict[Any, Counter[str]] = defaultdict(Counter)
    for r in records:
        pooled[r[by]].update(r[-1])
    yield (
        f"| {what} | ladders | modelled | in range | width | at {FARTHER:g} N | known | width | impossible "
        "| rejected | bend | step | outlier | wrong direction |"
    )
    yield "|---|" + "---|" * 13
    for name, t in pooled.items():
        n, known = t["ladders"], t["predicted"]
        cells = [
            f"{n}",
            f"{t['modelled'] / n:.0%}",
            _share(t["held"], t["places"]),
            f"{t['width'] / max(t['modelled'], 1):.0%}",
            _share(t["foretold"], known),
            f"{known / n:.0%}",
            f"{t['span'] / max(known, 1):.0%}",
            f"{t['impossible']}",
            *(f"{t[kind] / n:.0%}" for kind in ("veto", "bend", "step", "outlier")),
            f"{t['wrong direction']} of {t['direction']}",
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def main(count: int = LADDERS, seed: int = 2) -> None:
    """Analyses ``count`` ladders of each law."""
    tasks = [(law, number, seed) for number in range(count) for law in LAWS]
    with ProcessPoolExecutor(os.cpu_count() or 1) as workers:
        records = list(workers.map(counted, tasks, chunksize=4))
    everything = [("all", *r[1:]) for r in records]
    for by, what in enumerate(("law", "noise", "rungs", "repeats")):
        print("\n".join(table(records, by, what)), end="\n\n")
    print("\n".join(table(everything, 0, "all")))
