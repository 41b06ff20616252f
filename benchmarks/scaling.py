"""Simulated ladders whose truth is known: how often a 95 % interval holds it, and how often a knee is claimed
where there is none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from dbdyno.analyze.scaling import scale
from dbdyno.analyze.scaling.choose import choose
from dbdyno.analyze.scaling.figures import PROFILE, REPEATS, Figure, figures
from dbdyno.analyze.scaling.fit import fit
from dbdyno.analyze.scaling.models import MODELS, for_loads, own_parameter
from dbdyno.analyze.scaling.points import Points
from dbdyno.analyze.scaling.profiles import holds, profiled
from dbdyno.analyze.scaling.repeats import LEAST, drawn
from dbdyno.analyze.scaling.straight import CLAIMED, straight_p
from dbdyno.model.scaling import Ladder

LADDERS = 2000
PIECE = 50
"""Ladders a process simulates at a time."""
_DENSE = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
_DOUBLING = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class World:
    model: str
    truth: tuple[float, ...]
    loads: tuple[int, ...] = _DENSE
    noise: float = 0.01
    """Standard deviation of a point over the largest throughput."""
    relative: bool = False
    """The noise is in proportion to each point instead."""
    repeats: int = 1
    climb: float = 0.0
    """Standard deviation from climb to climb, of all of its points together, relative."""


def _worlds() -> dict[str, World]:
    once = {
        "linear": World("linear", (900.0,), noise=0.02),
        "amdahl": World("amdahl", (900.0, 0.04), noise=0.02),
        "usl": World("usl", (900.0, 0.03, 1e-3), noise=0.02),
        "usl, doubling loads": World("usl", (900.0, 0.03, 2e-4), _DOUBLING, 0.02),
        "plateau": World("plateau", (900.0, 10.7), noise=0.02),
        "queue": World("queue", (900.0, 9.3), noise=0.02),
        "repairman": World("repairman", (500.0, 5.2, 1.5)),
        "one-knee": World("one-knee", (900.0, 8.6, 0.3)),
        "two-knees": World("two-knees", (900.0, 7.0, 0.4, 18.0, -0.1)),
    }
    out = dict(once)
    for name, w in once.items():
        if "," in name:
            continue
        out[f"{name}, 6 climbs"] = World(w.model, w.truth, w.loads, w.noise, repeats=6, climb=0.01)
    out |= {
        "usl, 4 climbs": World("usl", (900.0, 0.03, 1e-3), noise=0.02, repeats=4, climb=0.01),
        "usl, 12 climbs": World("usl", (900.0, 0.03, 1e-3), noise=0.02, repeats=12, climb=0.01),
        "usl, 3 climbs without drift (profile)": World("usl", (900.0, 0.03, 1e-3), noise=0.02, repeats=3),
        "usl, noise in proportion": World("usl", (900.0, 0.03, 1e-3), noise=0.02, relative=True),
        "one-knee, noise in proportion": World("one-knee", (900.0, 8.6, 0.3), noise=0.01, relative=True),
    }
    return out


def points(world: World, chance: np.random.Generator) -> Points:
    """One simulated ladder."""
    loads = np.array(world.loads, dtype=float)
    x = MODELS[world.model].curve(loads, np.array(world.truth))
    size = x if world.relative else np.full_like(x, x.max())
    climbs = x * (1 + chance.normal(0, world.climb, (world.repeats, 1)))
    climbs = climbs + world.noise * size * chance.normal(size=climbs.shape)
    n = np.repeat(loads, world.repeats)
    repeat = np.tile(np.arange(1.0, world.repeats + 1), len(loads))
    return Points(n, np.maximum(climbs.T.ravel(), 1e-3 * x.min()), repeat)


def true_figures(world: World) -> dict[str, float]:
    model, p = MODELS[world.model], np.array(world.truth)
    found = dict(zip(model.names, world.truth, strict=True))
    found |= {f"{k.name} of it" if k.name in found else k.name: float(k.of(p)) for k in model.knees}
    if model.peak is not None and model.top is not None and np.isfinite(model.peak.of(p)):
        found |= {"peak": float(model.peak.of(p)), "peak throughput": float(model.top.of(p))}
    return found


def estimated(world: World, made: Points, seed: int) -> dict[str, Figure]:
    found = fit(for_loads(MODELS[world.model], made.n), made.n, made.x)
    climbs = made.climbs
    draws = drawn(found, climbs, seed) if climbs is not None and len(climbs) >= LEAST else None
    all_of_them = figures(found, PROFILE if draws is None else REPEATS, draws)
    out = {f.name: f for f in all_of_them.parameters}
    out |= {f"{k.name} of it" if k.name in out else k.name: k for k in all_of_them.knees}
    if all_of_them.peak is not None and all_of_them.top is not None:
        out |= {"peak": all_of_them.peak, "peak throughput": all_of_them.top}
    return out


def held(world: World, made: Points) -> dict[str, bool]:
    """Whether the profile at the truth is within the limit: as its interval says, but quicker."""
    model = MODELS[world.model]
    found = fit(for_loads(model, made.n), made.n, made.x)
    derived = [own_parameter(i, name) for i, name in enumerate(model.names)]
    derived += [k for k in model.knees if k.model is not None]
    derived += [d for d in (model.peak, model.top) if d is not None and d.model is not None]
    truth, out = np.array(world.truth), {}
    asked = [(d, profiled(found, d), float(d.of(truth))) for d in derived]
    values = [v / found.size if d.name in ("rate", "peak throughput") else v for d, _, v in asked]
    kept = [(d, p, v) for (d, p, _), v in zip(asked, values, strict=True) if p is not None]
    for (d, _, _), inside in zip(
        kept, holds(found, [p for _, p, _ in kept], [v for *_, v in kept]), strict=True
    ):
        out[d.name] = inside
    return out


def piece(world: World, seed: int, count: int, exact: bool = False) -> Counter[tuple[str, str]]:
    """How often each figure was held, missed above or below, or not bounded on a side."""
    chance, told = np.random.default_rng((seed, 7)), Counter[tuple[str, str]]()
    truth = true_figures(world)
    for i in range(count):
        ladder = points(world, chance)
        if not exact and world.repeats < LEAST:
            told.update((name, "held" if h else "missed") for name, h in held(world, ladder).items())
            continue
        made = estimated(world, ladder, i)
        for name, value in truth.items():
            figure = made.get(name)
            low, high = (None, None) if figure is None else figure.interval
            above, below = low is not None and value < low, high is not None and value > high
            told[name, "above" if above else "below" if below else "held"] += 1
            told[name, "open"] += low is None or high is None
    return told


def coverage(
    world: World, ladders: int, workers: ProcessPoolExecutor, exact: bool = False
) -> Counter[tuple[str, str]]:
    told = Counter[tuple[str, str]]()
    pieces = range(0, ladders, PIECE)
    counts = [min(PIECE, ladders - p) for p in pieces]
    for made in workers.map(piece, [world] * len(pieces), pieces, counts, [exact] * len(pieces)):
        told.update(made)
    return told


def shown(name: str, told: Counter[tuple[str, str]], ladders: int) -> Iterator[str]:
    for figure in dict.fromkeys(key for key, _ in told):
        if told[figure, "missed"]:
            yield f"| {name} | {figure} | {told[figure, 'held'] / ladders:.1%} | | | |"
            continue
        held, above, below, loose = (told[figure, k] / ladders for k in ("held", "above", "below", "open"))
        yield (f"| {name} | {figure} | {held:.1%} | {above:.1%} | {below:.1%} | {loose:.1%} |")


def straight(ladders: int, relative: bool, seed: int = 1) -> float:
    """Share of straight lines on which a bend is claimed."""
    chance = np.random.default_rng(seed)
    world = World("linear", (900.0,), noise=0.02, relative=relative)
    made = (points(world, chance) for _ in range(ladders))
    found = [straight_p(p.n, p.x, i) for i, p in enumerate(made)]
    return float(np.mean([p is not None and p <= CLAIMED for p in found]))


def claims(world: World, ladders: int, seed: int = 1) -> tuple[Counter[str], int, int]:
    """By the whole analysis: how often each model is the best, and how many knees and peaks it claims."""
    chance, best, knees, peaks = np.random.default_rng(seed), Counter[str](), 0, 0
    for _ in range(ladders):
        made = points(world, chance)
        frame = pl.DataFrame({"load": made.n, "repeat": made.repeat.astype(int), "throughput": made.x})
        found = scale(Ladder("simulated", frame)).best
        if found is not None:
            best[found.model] += 1
            knees += bool(found.knees)
            peaks += found.peak is not None
    return best, knees, peaks


def chosen(world: World, ladders: int, seed: int = 1) -> Counter[str]:
    """How often each model is the best by AICc."""
    chance = np.random.default_rng(seed)
    return Counter(
        choose(points(world, chance), tuple(MODELS), None).weighed[0].fit.model.name for _ in range(ladders)
    )


def main(ladders: int = LADDERS, only: str = "", exact: bool = False) -> None:
    """``only``: worlds whose name has it; ``exact``: ask every interval itself, which takes longer."""
    print(
        "| simulated | figure | held | truth below | truth above | interval open |\n|---|---|---|---|---|---|"
    )
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 1))) as workers:
        for name, world in _worlds().items():
            if only in name:
                for line in shown(name, coverage(world, ladders, workers, exact), ladders):
                    print(line, flush=True)
    for relative in (False, True):
        kind = "in proportion" if relative else "of one size"
        print(f"bends claimed on straight lines, noise {kind}: {straight(ladders, relative):.1%}", flush=True)
    few = max(10, ladders // 20)
    for name in ("linear", "amdahl", "usl", "plateau", "one-knee"):
        best, knees, peaks = claims(_worlds()[name], few)
        print(f"{name}, {few} ladders: best {dict(best)}; a knee claimed {knees}, a peak {peaks}", flush=True)
