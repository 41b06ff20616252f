"""Who shared a core or a CPU with another session of the round, and whether the slow ones are those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from math import factorial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Share = Literal["cpu", "core", "none"]
Marks = NDArray[np.bool_]

_DRAWS = 9_999
_MOST_ENUMERATED = 5_040


def core_of(siblings: Sequence[Sequence[int]] | None) -> Mapping[int, int]:
    """CPU -> number of its core, from the CPUs of each core; empty where nobody told."""
    return {cpu: core for core, cpus in enumerate(siblings or ()) for cpu in cpus}


def shares(cpus: Sequence[int | None], cores: Mapping[int, int]) -> list[Share | None]:
    """Of each session of a round, by the CPUs that they ran on (``None``: unknown, or more than one)."""
    there = Counter(c for c in cpus if c is not None)
    busy = Counter(cores[c] for c in cpus if c is not None and c in cores)

    def share(cpu: int | None) -> Share | None:
        if cpu is None:
            return None
        if there[cpu] > 1:
            return "cpu"
        if cpu in cores and busy[cores[cpu]] > 1:
            return "core"
        # Somebody whose place is unknown may have been there. Where no core is known, CPUs are compared.
        return None if None in cpus or (cores and cpu not in cores) else "none"

    return [share(cpu) for cpu in cpus]


def chance(slow: Marks, shared: Marks) -> float | None:
    """How likely the slow ones share so often, if who shares has nothing to do with who is slow.

    Both of shape (rounds, N). Sessions change places as a whole, over all rounds: what stays with a session
    (it may keep its CPU for all of them) stays together. All orders of few sessions, else draws.
    ``None``: nothing to tell them by.
    """
    if not slow.any() or not shared.any() or shared.all():
        return None
    n = slow.shape[1]
    both = slow.T.astype(np.int64) @ shared.astype(np.int64)  # [i, j]: i slow in a round where j shared
    orders = _orders(n)
    met = both[np.arange(n), orders].sum(axis=1)
    there = int(np.trace(both))
    if factorial(n) <= _MOST_ENUMERATED:
        return float(np.count_nonzero(met >= there) / met.size)
    return float((1 + np.count_nonzero(met >= there)) / (1 + met.size))


def _orders(n: int) -> NDArray[np.int64]:
    if factorial(n) <= _MOST_ENUMERATED:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    draws = max(999, min(_DRAWS, 2_000_000 // n))
    return np.random.default_rng(n).permuted(np.tile(np.arange(n), (draws, 1)), axis=1).astype(np.int64)
