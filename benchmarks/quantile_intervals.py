"""Coverage of the intervals of quantiles that are shown, on simulated calls with known quantiles.

Calls are independent, or have levels that drift over some seconds, or stall together at regular or random
times. For each law, window and quantile: the share of the windows with an interval, and the share of these
intervals that hold the truth. ``python -m benchmarks quantile-intervals``: ``--ladders`` tries of each. It
takes half an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.model.schema.quantiles import QUANTILES
from dbdyno.stats.tail_intervals import design_effect, effect_of_groups, is_steady, ranks

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Shape = Callable[[Floats], Floats]
TRIES, RATE = 200, 400.0
WINDOWS, REPEATS = (10, 30, 60, 300), ((3, 10), (5, 10), (10, 10), (5, 30))
CALLS_OF_A_STALL = 16
LEAST_SHOWN, HELD = 0.05, 0.93
"""Where more windows than this share have an interval, this share of the intervals has to hold."""
EDGES = np.arange(-6, 8, 0.02)
"""Bounds of the buckets: logarithms of response times over the median."""
_STALL = (20.0, 60.0)
"""Shortest and longest response time in a stall, over the median."""


def exponential(x: Floats) -> Floats:
    return np.asarray(1 - np.exp(-np.exp(x)))


def lognormal(x: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


def two_modes(x: Floats) -> Floats:
    return np.asarray(0.97 * lognormal(x / 0.3) + 0.03 * lognormal((x - 3) / 0.3))


@dataclass(frozen=True)
class Law:
    """How long calls take, and what makes them slow together."""

    name: str
    shape: Shape = lognormal
    """Distribution of the logarithms of response times."""
    rate: float = RATE
    """Calls a second at the mean level."""
    time_s: float = 0.0
    """Seconds after which the correlation of levels has fallen to 1/e; 0 without levels."""
    spread: float = 0.3
    """Standard deviation of the levels."""
    stall_every_s: float = 0.0
    """Seconds between stalls; 0 without stalls."""
    random: bool = False
    """Whether stalls come at random times."""

    def truth(self) -> list[int]:
        """Returns the bucket of each quantile."""
        levels = np.linspace(-5, 5, 201) * self.spread if self.time_s else np.zeros(1)
        weights = np.exp(-0.5 * (levels / self.spread) ** 2)
        calls = (self.rate * np.exp(-levels) * weights / weights.sum()) @ self._shares(levels)
        if self.stall_every_s:
            low, high = _STALL
            stalled = np.diff(np.clip((np.exp(EDGES) - low) / (high - low), 0, 1))
            calls = calls + CALLS_OF_A_STALL / self.stall_every_s * stalled
        return [int(np.searchsorted(calls.cumsum() / calls.sum(), one.q)) for one in QUANTILES]

    def _shares(self, levels: Floats) -> Floats:
        return np.diff(self.shape(EDGES[None, :] - levels[:, None]), axis=1)

    def draw(self, chance: np.random.Generator, seconds: int) -> Counts:
        """Returns the calls by second and bucket."""
        levels = np.zeros(1)
        if self.time_s:
            kept = np.exp(-1 / self.time_s)
            levels = chance.normal(0, self.spread, seconds)
            for i in range(1, seconds):
                levels[i] = kept * levels[i - 1] + (1 - kept**2) ** 0.5 * levels[i]
        intensity = self.rate * np.exp(-levels)[:, None] * self._shares(levels)
        calls = chance.poisson(np.broadcast_to(intensity, (seconds, len(EDGES) - 1)))
        if self.stall_every_s:
            n = chance.poisson(seconds / self.stall_every_s)
            times = chance.uniform(0, seconds, n)
            if not self.random:
                times = np.arange(chance.uniform(0, self.stall_every_s), seconds, self.stall_every_s)
            long = np.log(chance.uniform(*_STALL, len(times)))
            np.add.at(calls, (times.astype(int), np.searchsorted(EDGES, long) - 1), CALLS_OF_A_STALL)
        return np.asarray(calls)


STEADY = tuple(Law(f"independent, {s.__name__}", s) for s in (exponential, lognormal, two_modes))
DRIFTING = (
    *(Law(f"levels of {t} s", time_s=t) for t in (1, 3, 10, 30)),
    *(Law(f"low levels of {t} s", time_s=t, spread=0.1) for t in (3, 30)),
)
STALLING = tuple(
    Law(f"stalls every {t:g} s{', random' if random else ''}", stall_every_s=t, random=random)
    for random in (False, True)
    for t in (0.3, 1, 3, 10, 30)
)
LAWS = (*STEADY, *DRIFTING, *STALLING)


class Held(NamedTuple):
    """Tries of one law, window and quantile: whether the interval holds the truth, None without one."""

    tries: Sequence[bool | None]

    @property
    def shown(self) -> float:
        return 1 - self.tries.count(None) / len(self.tries)

    @property
    def held(self) -> float | None:
        """The share of the intervals shown that hold; None without one."""
        shown = [t for t in self.tries if t is not None]
        return sum(shown) / len(shown) if shown else None

    @property
    def misleads(self) -> bool:
        return self.shown > LEAST_SHOWN and self.held is not None and self.held < HELD


def tried(law: Law, seconds: int, repeats: int = 1, tries: int = TRIES, seed: int = 5) -> list[Held]:
    """Returns for each quantile how often its intervals are shown and hold."""
    chance, truth = np.random.default_rng(seed), law.truth()
    outcomes: list[list[bool | None]] = [[] for _ in QUANTILES]
    for _ in range(tries):
        parts = np.stack([law.draw(chance, seconds) for _ in range(repeats)])
        for known, bucket, holds in zip(_intervals(parts), truth, outcomes, strict=True):
            holds.append(None if known is None else known[0] <= bucket <= known[1])
    return [Held(one) for one in outcomes]


def _intervals(parts: Counts) -> Iterator[tuple[int, int] | None]:
    """Yields the first and last bucket of each quantile's interval."""
    alone = len(parts) == 1
    groups = parts[0] if alone else parts.sum(axis=1)
    sizes, whole = groups.sum(axis=1).astype(float), groups.sum(axis=0).cumsum()
    steady = not alone or _steady(groups, sizes)
    for one in QUANTILES:
        above, extra = _above(groups, one.q)
        effect = None
        if steady and whole[-1] * (1 - one.q) >= 10:
            effect = design_effect(above, sizes, extra) if alone else effect_of_groups(above, sizes)
        between = None if effect is None else ranks(int(whole[-1]), one.q, effect)
        if between is None or between.low is None or between.high is None:
            yield None
        else:
            low, high = np.searchsorted(whole, [between.low, between.high])
            yield int(low), int(high)


def _steady(groups: Counts, sizes: Floats) -> bool:
    series = [_above(groups, q)[0] for q in (0.5, 0.95)]
    logs = groups @ ((EDGES[1:] + EDGES[:-1]) / 2 - EDGES[0])
    return all(is_steady(one, sizes) for one in (*series, logs))


def _above(groups: Counts, q: float) -> tuple[Floats, float]:
    """Returns the calls above the quantile by group; those of its own bucket are divided."""
    total = groups.sum(axis=0)
    at = int(np.searchsorted(total.cumsum(), q * total.sum() - 1e-9))
    over, inside = groups[:, at + 1 :].sum(axis=1).astype(float), groups[:, at].astype(float)
    share = min(1.0, max(0.0, ((1 - q) * total.sum() - over.sum()) / inside.sum()))
    return over + share * inside, float(share * (1 - share) * inside.sum())


def main(tries: int = TRIES) -> None:
    print(f"share of windows with an interval / share of these that hold; ! less than {HELD:.0%}")
    print(f"{'':42}" + "".join(f"{one.name:>11}" for one in QUANTILES))
    misleading = 0
    for law in LAWS:
        for repeats, seconds in (*((1, s) for s in WINDOWS), *REPEATS):
            found = tried(law, seconds, repeats, tries)
            misleading += sum(one.misleads for one in found)
            cells = [
                "--" if h.held is None else f"{h.shown:.0%}/{h.held:.0%}{'!' if h.misleads else ' '}"
                for h in found
            ]
            length = f"{repeats} x {seconds} s"
            print(f"{law.name:30} {length:>11}" + "".join(f"{c:>11}" for c in cells), flush=True)
    print(f"{misleading} misleading")
