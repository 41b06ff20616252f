"""Random ladders, mostly odd ones, through the whole analysis: no exception, no figure out of range, no
interval without its estimate."""

from __future__ import annotations

import json
import math
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, starmap

import polars as pl

from dbdyno import present
from dbdyno.conclude.scaled import scaled
from dbdyno.model.results.analyses import POINTS, Estimate, Ladder, Machine, Scaling

LADDERS = 20_000
EVERY = 100
LOADS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256)
NOT_A_NUMBER = re.compile(r"\bnan\b|\binf\b|\bNone\b(?! of)|\d[eE][+-]?\d| \?[ .,;)]|-0(\.0+)? ")
_PARAMETER = re.compile(r"\b(sigma|kappa) [\d.]+e-\d+")
"""Parameters of a model may be arbitrarily small; no other figure in a sentence is a power of ten."""
Law = Callable[[float], float]


def ladder(seed: int) -> Ladder:
    """Returns the random ladder of a seed."""
    chance = random.Random(seed)
    many = chance.choice([3, 4, 5, 6, 7, 8, 9, 12, 20])
    loads = sorted({float(chance.choice(LOADS)) for _ in range(many)})
    if chance.random() < 0.1:
        loads = sorted({round(chance.uniform(0.1, 60), 2) for _ in range(many)})
    law, size = _law(chance, loads), 10 ** chance.uniform(-3, 7)
    noise = chance.choice([0.0, 0.001, 0.01, 0.1, 0.5])
    repeats = chance.choice([1, 1, 1, 2, 3, 5])
    rows = [
        {"load": n, "repeat": r, "throughput": max(size * law(n) * math.exp(chance.gauss(0, noise)), 1e-9)}
        for n in loads
        for r in range(1, repeats + 1)
    ]
    if chance.random() < 0.1:  # one is mistyped
        rows[chance.randrange(len(rows))]["throughput"] *= chance.choice([0.01, 0.1, 10.0, 100.0])
    if repeats > 1 and chance.random() < 0.3:  # a climb that was cut short
        rows = rows[: -chance.randrange(1, repeats + 1)]
    cores = chance.choice([None, None, 2, 8, 64])
    machine = (
        Machine() if cores is None else Machine(cpus=2.0 * cores, cores=float(cores), threads_per_core=2)
    )
    return Ladder(f"seed {seed}", pl.DataFrame(rows, schema=POINTS), "transactions/s", "clients", machine)


def _law(chance: random.Random, loads: list[float]) -> Law:
    sigma, kappa, knee = chance.uniform(0, 0.4), 10 ** chance.uniform(-6, -1), chance.choice(loads)
    power, cliff = chance.uniform(0.01, 0.6), chance.choice(loads)
    laws: tuple[Law, ...] = (
        lambda n: n,
        lambda _: 1.0,
        lambda n: n / (1 + sigma * (n - 1)) if n > 1 else n,
        lambda n: n / max(1 + sigma * (n - 1) + kappa * n * (n - 1), 0.1),
        lambda n: min(n, knee) + power * max(n - knee, 0),
        lambda n: n**-power,  # falls from the start
        lambda n: n ** (1 + power),  # efficiency above 1
        lambda n: min(n, knee) * (1.0 if n < cliff else 0.2),  # a cliff
        lambda n: float(n // 8 + 1),  # steps
        lambda _: chance.random() + 1e-6,
        lambda _: 10 ** chance.uniform(-6, 6),
    )
    return chance.choice(laws)


def problems(scaling: Scaling) -> Iterator[str]:
    """Yields the faults of an analysis."""
    loads = scaling.ladder.points["load"]
    for what, e in _estimates(scaling):
        known = [v for v in (e.low, e.value, e.high) if v is not None]
        if not all(map(math.isfinite, known)):
            yield f"{what}: not finite: {e}"
        elif any(a > b + 1e-9 * max(abs(a), abs(b)) for a, b in pairwise(known)):
            yield f"{what}: the interval does not hold the figure: {e}"
    for a in scaling.answers:
        if NOT_A_NUMBER.search(_PARAMETER.sub("", a.text)):
            yield f"{a.id}: {a.text}"
        if a.id in ("scales-to", "knee") and a.value and not min(loads) <= a.value.value <= max(loads):
            yield f"{a.id}: outside the measured loads: {a.value}"
    json.dumps(present.scaling_json([scaling]), allow_nan=False, default=str)
    if present.printed(present.scaling([scaling])) is None:
        yield "no text"


def _estimates(scaling: Scaling) -> Iterator[tuple[str, Estimate]]:
    for a in scaling.answers:
        if a.value is not None:
            yield a.id, a.value
    for f in scaling.fits:
        figures = (*f.parameters, *f.knees, *(e for e in (f.peak, f.peak_throughput) if e is not None))
        yield from ((f"{f.model}: {e.name}", e) for e in figures)


def check(seed: int, model: str | None = None) -> list[str]:
    """Returns the faults of the analysis of the ladder of ``seed``, empty if there are none."""
    try:
        return list(problems(scaled(ladder(seed), model=model)))
    except Exception:  # any exception is a fault
        return [f"exception: {traceback.format_exc(limit=-3)}"]


def main(ladders: int = LADDERS, first: int = 0) -> None:
    began, seen = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor() as pool:
        for seed, wrong in enumerate(pool.map(check, range(first, first + ladders), chunksize=20), first):
            for text in wrong:
                kind = text.partition(":")[0] if not text.startswith("exception") else text.splitlines()[-1]
                seen[kind] += 1
                if seen[kind] == 1:
                    print(f"seed {seed}: {text}", flush=True)
            if (seed + 1) % EVERY == 0:
                print(f"up to seed {seed}: {sum(seen.values())} wrong", flush=True)
    print(f"{ladders:,} ladders in {time.monotonic() - began:.0f} s: {sum(seen.values())} wrong")
    for count in starmap("  {}: {}".format, seen.most_common()):
        print(count)
