"""Modes: do durations fall into kinds that differ by a factor, or is there one hill?

Durations are compared on a logarithmic scale. A density with one hill is nowhere lower than at both of two
places around. So of three windows of one width, the middle one contains no fewer durations than the emptier
of the others, but for chance. Here a window is an octave (from a duration to twice that), and the middle one
must contain significantly less than :data:`DEPTH` of either other: a test of a binomial share (by
Chernoff's bound of its tail, Ann. Math. Statist. 23, 1952). With one hill, each window contains, but for
chance, no fewer than any on one side of it: so the level is divided by the number of pairs of a window and
another on that side (Bonferroni). Whatever the shape of the hill, this finds a valley in less than
:data:`LEVEL` of the cases. The depth is asked for because durations may be whole ticks of a timer: an octave
that holds the second tick alone has 2/3 of its share of a smooth density. Two ticks next to each other are
less than an octave apart, so gaps between them are no valleys.

A few calls that are apart from all others are less than that test asks for. They are an
uncertain mode: the same test of a single valley, at :data:`APART`. No more is claimed of them than that they
are there.

Fewer calls still are seen by the gap before them alone: :data:`FAR_CALLS` or more, each :data:`FAR` times as
long as the longest of all others. The k longest of a law whose tail is a power with exponent a are r times as
long as the next one with probability r^(-a k) (spacings of order statistics of an exponential law are
independent: Renyi, Acta Math. Hung. 4, 1953). This must be below :data:`APART` with an exponent of 1/2, at
which not even a mean exists. So for all k together it is 3 % with that tail, and less with a lighter one.

Calls need not be independent: a stall of many sessions counts as many calls. So callers ask that calls of a
mode end in several different seconds (:data:`LEAST_SECONDS`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEVEL = 0.05
"""Probability of a valley in a density with one hill."""
APART = 0.005
"""Probability of one valley by chance, below which an uncertain mode begins."""
DEPTH = 0.5
"""A valley has less than this part of the durations of the lower hill beside it, octave by octave."""
LEAST_SHARE, LEAST_TIME = 0.001, 0.01
"""Least share of the calls of a mode's hill, or of the sum of all durations: a few long calls matter, too."""
LEAST_SECONDS = 3
"""Least number of seconds in which calls of a mode ended."""
OCTAVE = 16
"""Buckets of an octave, as the driver counts by second."""
_STEP = 4  # buckets from one window to the next
_FIRST = 2 * OCTAVE  # shorter durations have a bucket for each nanosecond
_BUCKETS = 44 * OCTAVE
_APART = OCTAVE // _STEP  # windows, from one to the next that does not overlap it
_WINDOWS = (_BUCKETS - _FIRST - OCTAVE) // _STEP + 1
_PAIRS = sum(max(m - _APART + 1, _WINDOWS - m - _APART) for m in range(_WINDOWS))
"""Pairs of a window and another on that side of it which has more of them."""
_CHANCE = DEPTH / (1 + DEPTH)
FAR, FAR_CALLS = 5, 3
"""Least ratio of durations across a gap, and least number of calls beyond it, if a gap alone is known."""
FEWEST = 2 * math.ceil(math.log(LEVEL / _PAIRS) / math.log(1 - _CHANCE))
"""Fewest calls of which two modes can be told apart: with nothing in between, half of the calls each."""


class Mode(NamedTuple):
    """Durations from ``low_ns`` to below ``high_ns``. The first begins at 0, the last ends at infinity."""

    low_ns: int
    high_ns: int | None
    middle_ns: float
    """Median of its durations."""
    calls: int
    shortest_ns: int
    longest_ns: int
    """Shortest and longest duration, as edges of their buckets."""
    certain: bool = True
    """Whether the valley before it is deeper than by chance."""
    far: bool = False
    """Whether a gap before it is the only sign of a mode."""


def bucket(ns: Ints) -> Ints:
    """Returns the number of the bucket of each duration. A bucket and the 16th after it are a factor of two
    apart."""
    dropped = np.maximum(np.floor(np.log2(np.maximum(ns, 1) + 0.5)).astype(np.int64) - 4, 0)
    places: Ints = np.minimum(dropped * OCTAVE + (ns >> dropped), _BUCKETS - 1)
    return places


def low_of(place: int) -> int:
    """Returns the lowest duration of a bucket."""
    dropped = max(0, place // OCTAVE - 1)
    return (place - dropped * OCTAVE) << dropped


def modes(durations_ns: Ints, counts: Ints) -> list[Mode]:
    """Returns the modes of a histogram, the shortest first: one if no valley is significant; none if all is
    empty. The last ones may be uncertain, or a last one be far. ``durations_ns``: one duration of each
    bucket, the lowest if a bucket is one of the driver's."""
    histogram = np.zeros(_BUCKETS, dtype=np.int64)
    np.add.at(histogram, bucket(durations_ns), counts)
    if not histogram.any():
        return []
    sums = _Sums.of(histogram)
    cuts = sorted(_cuts(sums, _FIRST, _BUCKETS, LEVEL / _PAIRS))
    uncertain = _apart(sums, max(cuts, default=_FIRST)) if histogram.sum() >= FEWEST else []
    gap = _gap(histogram, max(cuts, default=_FIRST)) if histogram.sum() >= FEWEST and not uncertain else []
    edges = [0, *cuts, *uncertain, *gap, _BUCKETS]
    return [
        _mode(histogram, low, high)._replace(certain=low not in (*uncertain, *gap), far=low in gap)
        for low, high in pairwise(edges)
    ]


def _gap(histogram: Ints, low: int) -> list[int]:
    """Returns the bucket after the widest gap between durations from ``low`` on that few calls are beyond;
    empty without one."""
    held = low + np.flatnonzero(histogram[low:])
    beyond = np.cumsum(histogram[held][::-1])[::-1]
    wide = [
        (ratio, int(after))
        for before, after, calls in zip(held, held[1:], beyond[1:], strict=False)
        if FAR_CALLS <= calls < beyond[0] / 2
        and (ratio := low_of(int(after)) / low_of(int(before) + 1)) >= max(FAR, APART ** (-2 / calls))
    ]
    return [max(wide)[1]] if wide else []


def _apart(sums: _Sums, low: int) -> list[int]:
    """Returns the buckets from ``low`` on at which calls begin that are apart from the others, and fewer."""
    whole = sums.histogram[low:].sum()
    cuts = sorted(_cuts(sums, low, _BUCKETS, APART))
    return [cut for cut in cuts if 2 * sums.histogram[cut:].sum() < whole]


def _mode(histogram: Ints, low: int, high: int) -> Mode:
    counts = histogram[low:high]
    total = int(counts.sum())
    before = np.cumsum(counts)
    place = int(np.searchsorted(before, total / 2))
    # Linear within the bucket of the median.
    inside = (total / 2 - (before[place] - counts[place])) / counts[place]
    start, end = low_of(low + place), low_of(low + place + 1)
    middle = start + inside * (end - start)
    held = low + np.flatnonzero(counts)
    ends = low_of(int(held[0])), low_of(int(held[-1]) + 1) - 1
    return Mode(low_of(low), low_of(high) if high < _BUCKETS else None, middle, total, *ends)


class _Sums(NamedTuple):
    histogram: Ints
    windows: Ints
    """Durations in the octave from each bucket on."""
    hills: Ints
    """The same; 0 where they are too few for a mode."""

    @classmethod
    def of(cls, histogram: Ints) -> _Sums:
        def octaves(values: NDArray[Any]) -> NDArray[Any]:
            sums: NDArray[Any] = np.concatenate([[0], np.cumsum(values)])
            return np.asarray(sums[OCTAVE:] - sums[:-OCTAVE])

        lows = np.array([low_of(place) for place in range(_BUCKETS)], dtype=np.float64)
        counts, times = octaves(histogram), octaves(histogram * lows)
        enough = counts >= LEAST_SHARE * histogram.sum()
        enough |= times >= LEAST_TIME * float(histogram @ lows)
        return cls(histogram, counts, np.where(enough, counts, 0))


def _cuts(sums: _Sums, low: int, high: int, level: float) -> Iterator[int]:
    """Yields the buckets at which valleys divide those from ``low`` to below ``high``, each at ``level``."""
    starts = np.arange(low, high - OCTAVE + 1, _STEP)
    if starts.size <= 2 * _APART:
        return
    hills = sums.hills[starts]
    left, right = np.maximum.accumulate(hills), np.maximum.accumulate(hills[::-1])[::-1]
    middle = sums.windows[starts][_APART:-_APART]
    lower = np.minimum(left[: -2 * _APART], right[2 * _APART :])
    log_p = np.where(lower > 0, _log_tail(middle, np.maximum(middle + lower, 1)), 0.0)
    if log_p.min() >= math.log(level):
        return
    best = np.flatnonzero(log_p == log_p.min())
    cut = _lowest(sums.histogram, int(starts[_APART + best[best.size // 2]]))
    yield cut
    yield from _cuts(sums, low, cut, level)
    yield from _cuts(sums, cut, high, level)


def _log_tail(few: Ints, n: Ints) -> Floats:
    """Returns a bound of the logarithm of the probability that at most so ``few`` of ``n`` are in a valley of
    depth :data:`DEPTH`."""
    share = np.minimum(few / n, _CHANCE)
    inside = np.where(share > 0, share * np.log(np.maximum(share, 1e-300) / _CHANCE), 0.0)
    return np.asarray(-n * (inside + (1 - share) * np.log((1 - share) / (1 - _CHANCE))))


def _lowest(histogram: Ints, start: int) -> int:
    """Returns the middle of the emptiest quarter octaves of a window."""
    quarter = np.convolve(histogram[start : start + OCTAVE], np.ones(_STEP), mode="valid")
    emptiest = np.flatnonzero(quarter == quarter.min())
    return start + int(emptiest[emptiest.size // 2]) + _STEP // 2
