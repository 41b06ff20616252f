"""Do events in a series of seconds go with an activity in the same seconds? And do they come regularly?

The null hypothesis is that both series are what they are, but fall together by chance. A series has
neighbours that resemble each other, so seconds must not be shuffled one by one. Two tests have to agree:

- Runs of seconds with events are moved as a whole to random places: :data:`LEVEL` for all activities
together (Holm).
- The series is shifted in a circle, which keeps its whole structure: :data:`LEVEL` divided by the number of
activities. A window of S seconds has S shifts, so that p is no less than 1/S; in a short window no other
shift may fit as well.

A straight line is taken out of each activity before: what grows over a window would go with all that grows.

If events come regularly, shifts by their period are nearly the same series. That speaks against an activity
which may have the same period by itself, such as a process with a timer. It says nothing about time spent in
the events themselves (``own``), which has no period of its own: then the first test decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbdyno.stats.significance import holm

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]

LEVEL = 0.05
FEWEST = 20
"""Least number of seconds: with fewer, no shift is significant."""
_DRAWS = 999
_FEWEST_RUNS = 4
"""Least number of runs that can be called regular."""
_SAME = 1e-9


class Activity(NamedTuple):
    """An activity by second; ``own``: time spent in the events themselves."""

    values: Floats
    own: bool = False


def associated(events: Floats, activities: Sequence[Activity]) -> list[float | None]:
    """Returns for each activity the p, adjusted for all of them, that it goes with the events as much by
    chance; 1 if shifts do not confirm it, None if it or the events are the same in all seconds, or if there
    are too few seconds. ``events``: their number in each second."""
    varied = [a.values.size > 0 and float(np.ptp(a.values)) > 0 for a in activities]
    if events.size < FEWEST or np.ptp(events) == 0 or not any(varied):
        return [None] * len(activities)
    # A few seconds with very many events must not be all that counts.
    weights = np.sqrt(events)
    period = regular(events > 0)
    orders = _moved(events > 0, weights)
    enough = max(1 / events.size, LEVEL / sum(varied))
    ps: list[float | None] = []
    for activity, is_varied in zip(activities, varied, strict=True):
        if not is_varied:
            ps.append(None)
            continue
        level = _without_line(activity.values)
        observed = float(weights @ level)
        p = (1 + np.count_nonzero(orders @ level >= observed - _SAME)) / (1 + len(orders))
        periodic = activity.own and period is not None
        confirmed = periodic or _shift_p(weights, level) <= enough
        ps.append(float(p) if confirmed else 1.0)
    return holm(ps)


def _without_line(values: Floats) -> Floats:
    """Returns what is left of a straight line through the values, with a standard deviation of 1."""
    time = np.arange(values.size) - (values.size - 1) / 2
    left = values - values.mean()
    left = left - time * (time @ left) / (time @ time)
    return np.asarray(left / max(float(left.std()), 1e-300))


def _moved(marked: Marks, values: Floats) -> Floats:
    """Returns the series with its runs of marked seconds at random places; the rest fills the gaps."""
    starts = np.flatnonzero(marked & ~np.concatenate([[False], marked[:-1]]))
    ends = np.flatnonzero(marked & ~np.concatenate([marked[1:], [False]])) + 1
    runs = [values[a:b] for a, b in zip(starts, ends, strict=True)]
    if len(runs) <= 2:  # most seconds are marked: the runs are those above the mean
        high = values > values.mean()
        if high.any() and not np.array_equal(high, marked):
            return _moved(high, values)
    rest = values[~marked]
    blocks = [*runs, *(rest[i : i + 1] for i in range(rest.size))]
    lengths = np.array([block.size for block in blocks])
    begins = np.cumsum(lengths) - lengths
    random = np.random.default_rng(values.size)
    orders = np.argsort(random.random((_DRAWS, lengths.size)), axis=1).ravel()
    # The places of the blocks' values, one draw after the other: all draws are equally long.
    first = np.cumsum(lengths[orders]) - lengths[orders]
    places = np.repeat(begins[orders] - first, lengths[orders]) + np.arange(_DRAWS * values.size)
    drawn: Floats = np.concatenate(blocks)[places].reshape(_DRAWS, values.size)
    return drawn


def _shift_p(weights: Floats, level: Floats) -> float:
    """Returns the share of the shifts, none included, at which the series fall together as much."""
    shifts = np.arange(weights.size)
    sums = level[(shifts[None, :] - shifts[:, None]) % shifts.size] @ weights
    return float(np.count_nonzero(sums >= sums[0] - _SAME) / shifts.size)


def regular(marked: Marks) -> float | None:
    """Returns the mean distance of the runs of marked seconds, in seconds, if they come regularly: all
    distances are the same to a second, and random runs would seldom be so regular. Else None."""
    starts = np.flatnonzero(marked & ~np.concatenate([[False], marked[:-1]]))
    if starts.size < _FEWEST_RUNS:
        return None
    gaps = np.diff(starts)
    mean = float(gaps.mean())
    if mean < 2 or np.abs(gaps - mean).max() >= 1:
        return None
    # Each gap could have been any from 1 to twice the mean: three of these are the same to a second.
    return mean if (3 / (2 * mean)) ** (gaps.size - 1) < LEVEL else None
