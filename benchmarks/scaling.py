"""Simulated ladders with known truth: how often a 95 % interval contains it, and how often a knee is
claimed where there is none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import scipy

from dbdyno.conclude.scaling import scale
from dbdyno.model.results.analyses import Ladder
from dbdyno.stats.scaling.choose import ALPHA, straight_p
from dbdyno.stats.scaling.figures import PROFILE, REPEATS, Figures, figures
from dbdyno.stats.scaling.fit import Fit, distinct, fit, solve, starts
from dbdyno.stats.scaling.intervals import LEAST, Drawn, means
from dbdyno.stats.scaling.models import MODELS, Derived, Model, for_loads, own_parameter, tabled
from dbdyno.stats.scaling.points import Points

LADDERS = 2000
PIECE = 50
"""Ladders a process simulates at a time."""
_DENSE = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
_DOUBLING = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class World:
    """A population of simulated ladders."""

    model: str
    truth: tuple[float, ...]
    loads: tuple[int, ...] = _DENSE
    noise: float = 0.01
    """Standard deviation of a point, relative to the largest throughput."""
    relative: bool = False
    """The noise is relative to each point instead."""
    repeats: int = 1
    climb: float = 0.0
    """Relative standard deviation between climbs, common to all points of a climb."""


def worlds() -> dict[str, World]:
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
        "usl, 2 climbs without drift (profile)": World("usl", (900.0, 0.03, 1e-3), noise=0.02, repeats=2),
        "usl, 3 climbs": World("usl", (900.0, 0.03, 1e-3), noise=0.02, repeats=3, climb=0.01),
        "usl, noise in proportion": World("usl", (900.0, 0.03, 1e-3), noise=0.02, relative=True),
        "one-knee, noise in proportion": World("one-knee", (900.0, 8.6, 0.3), noise=0.01, relative=True),
    }
    return out


def points(world: World, chance: np.random.Generator) -> Points:
    """Returns one simulated ladder."""
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
    true_values = dict(zip(model.names, world.truth, strict=True)) | {
        k.name: float(k.of(p)) for k in model.knees
    }
    if model.peak is not None and model.top is not None and np.isfinite(model.peak.of(p)):
        true_values |= {"peak": float(model.peak.of(p)), "peak throughput": float(model.top.of(p))}
    return true_values


def fitted(world: World, ladders: list[Points]) -> list[Fit]:
    """Fits all ladders at once, as ``fit`` does, but without scipy's last digits."""
    n, counts = ladders[0].n, len(ladders)
    model = for_loads(MODELS[world.model], n)
    sizes = [float(m.x.max()) for m in ladders]
    x = np.stack([m.x / size for m, size in zip(ladders, sizes, strict=True)])
    start = np.stack([starts(model, n, one) for one in x])
    p, rss = solve(model, n, np.repeat(x, start.shape[1], 0), start.reshape(-1, start.shape[2]))
    p, rss = p.reshape(start.shape), rss.reshape(counts, -1)
    return [Fit(model, n, x[i], sizes[i], *distinct(p[i], rss[i])) for i in range(counts)]


def figures_of(model: Model, p: np.ndarray) -> list[Derived]:
    """Returns all figures that have a profile of their own and a meaning at ``p``."""
    derived = [own_parameter(i, name) for i, name in enumerate(model.names)]
    derived += [replace(k, name="knee") for k in model.knees if k.model is not None]
    derived += [d for d in (model.peak, model.top) if d is not None and d.model is not None]
    return [d for d in derived if np.isfinite(d.of(p))]


def by_profile(world: World, ladders: list[Points]) -> Counter[tuple[str, str]]:
    """Counts whether the profile at the truth is within the limit, which decides whether the interval
    contains it.

    That takes one solution instead of the twenty for the interval's ends.
    """
    fits, counts, truth = fitted(world, ladders), Counter[tuple[str, str]](), np.array(world.truth)
    limit = 1 + scipy.stats.f.ppf(0.95, 1, fits[0].degrees) / fits[0].degrees
    for d in figures_of(MODELS[world.model], truth):
        starts_of = [f.minima if d.turned is None else _finite(d.turned(f.minima)) for f in fits]
        owner = np.repeat(np.arange(len(fits)), [len(q) for q in starts_of])
        start = np.concatenate(starts_of)
        sizes = np.array([f.size for f in fits])[owner]
        start[:, d.at] = float(d.of(truth)) / (sizes if d.at == 0 else 1.0)
        hold = np.zeros(start.shape, dtype=bool)
        hold[:, d.at] = True
        model = fits[0].model if d.model is None else d.model
        _, rss = solve(model, fits[0].n, np.stack([f.x for f in fits])[owner], start, hold)
        for i, f in enumerate(fits):
            own_rss = rss[owner == i]
            # a peak that no minimum has: kappa is 0, and its interval is open
            inside = not len(own_rss) or own_rss.min() <= limit * f.rss
            counts[d.name, "held" if inside else "missed"] += 1
    return counts


def _finite(p: np.ndarray) -> np.ndarray:
    return np.asarray(p[np.isfinite(p).all(1) & (p[:, -1] < 1e11)])


def by_repeats(world: World, ladders: list[Points], seed: int) -> Counter[tuple[str, str]]:
    """Counts coverage by the intervals themselves, with the draws of all ladders solved at once."""
    fits, counts = fitted(world, ladders), Counter[tuple[str, str]]()
    loads = np.array(world.loads, dtype=float)
    series = [m.series for m in ladders]
    x = [means(c, seed + i) / fits[i].size for i, c in enumerate(series) if c is not None]
    kept = 3 if fits[0].model.knees else 1
    minima = [np.concatenate([f.minima] * kept)[:kept] for f in fits]
    start = np.concatenate([np.tile(m, (len(q), 1)) for m, q in zip(minima, x, strict=True)])
    p, rss = solve(
        tabled(fits[0].model, loads), loads, np.repeat(np.concatenate(x), kept, 0), start, gain=1e-7
    )
    best = rss.reshape(-1, kept).argmin(1)
    drawn = p.reshape(len(best), kept, -1)[np.arange(len(best)), best].reshape(len(fits), len(x[0]), -1)
    truth = true_figures(world)
    for f, draws in zip(fits, drawn, strict=True):
        counts.update(_against(truth, figures(f, REPEATS, Drawn(draws, world.repeats))))
    return counts


def _against(truth: dict[str, float], estimates: Figures) -> Iterator[tuple[str, str]]:
    known = {f.name: f for f in estimates.parameters} | {k.name: k for k in estimates.knees}
    known |= {f.name: f for f in (estimates.peak, estimates.top) if f is not None}
    for name, value in truth.items():
        low, high = (None, None) if name not in known else known[name].interval
        missed = (low is not None and value < low) or (high is not None and value > high)
        yield name, "missed" if missed else "held"


def piece(world: World, seed: int, count: int) -> Counter[tuple[str, str]]:
    """Counts how often the interval of each figure contains the truth."""
    chance = np.random.default_rng((seed, 7))
    simulated = [points(world, chance) for _ in range(count)]
    return by_profile(world, simulated) if world.repeats < LEAST else by_repeats(world, simulated, seed)


def disagreements(world: World, ladders: int) -> int:
    """Returns the number of ladders for which an interval disagrees with :func:`by_profile`."""
    chance, count = np.random.default_rng(11), 0
    for _ in range(ladders):
        ladder = points(world, chance)
        quick = by_profile(world, [ladder])
        whole = figures(fit(for_loads(MODELS[world.model], ladder.n), ladder.n, ladder.x), PROFILE)
        asked = dict(_against(true_figures(world), whole))
        count += any(quick[name, asked[name]] == 0 for name, _ in quick if name in asked)
    return count


def coverage(world: World, ladders: int, workers: ProcessPoolExecutor) -> Counter[tuple[str, str]]:
    total = Counter[tuple[str, str]]()
    pieces = range(0, ladders, PIECE)
    sizes = [min(PIECE, ladders - p) for p in pieces]
    for counts in workers.map(piece, [world] * len(pieces), pieces, sizes):
        total.update(counts)
    return total


def shown(name: str, counts: Counter[tuple[str, str]]) -> str:
    names = dict.fromkeys(key for key, _ in counts)
    shares = (f"{n} {counts[n, 'held'] / (counts[n, 'held'] + counts[n, 'missed']):.1%}" for n in names)
    return f"| {name} | {', '.join(shares)} |"


def straight(ladders: int, relative: bool, seed: int = 1) -> float:
    """Returns the share of straight lines for which a bend is claimed."""
    chance = np.random.default_rng(seed)
    world = World("linear", (900.0,), noise=0.02, relative=relative)
    lines = (points(world, chance) for _ in range(ladders))
    p_values = [straight_p(p.n, p.x, i) for i, p in enumerate(lines)]
    return float(np.mean([p is not None and p <= ALPHA for p in p_values]))


def claims(world: World, ladders: int, seed: int = 1) -> tuple[Counter[str], int, int]:
    """Counts by the whole analysis how often each model is the best, and how many knees and peaks it
    claims."""
    chance, best, knees, peaks = np.random.default_rng(seed), Counter[str](), 0, 0
    for _ in range(ladders):
        simulated = points(world, chance)
        frame = pl.DataFrame(
            {"load": simulated.n, "repeat": simulated.repeat.astype(int), "throughput": simulated.x}
        )
        best_fit = scale(Ladder("simulated", frame)).best
        if best_fit is not None:
            best[best_fit.model] += 1
            knees += bool(best_fit.knees)
            peaks += best_fit.peak is not None
    return best, knees, peaks


def main(ladders: int = LADDERS, only: str = "") -> None:
    """Simulates all worlds, or those whose name contains ``only``."""
    print("| simulated | truth held by the 95 % interval of |\n|---|---|")
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 1))) as workers:
        for name, world in worlds().items():
            if only in name:
                print(shown(name, coverage(world, ladders, workers)), flush=True)
    for name in ("usl", "one-knee"):
        few = max(10, ladders // 40)
        print(f"{name}: intervals themselves say otherwise in {disagreements(worlds()[name], few)} of {few}")
    for relative in (False, True):
        kind = "in proportion" if relative else "of one size"
        print(f"bends claimed on straight lines, noise {kind}: {straight(ladders, relative):.1%}", flush=True)
    few = max(10, ladders // 20)
    for name in ("linear", "amdahl", "usl", "plateau", "one-knee"):
        best, knees, peaks = claims(worlds()[name], few)
        print(f"{name}, {few} ladders: best {dict(best)}; a knee claimed {knees}, a peak {peaks}", flush=True)
