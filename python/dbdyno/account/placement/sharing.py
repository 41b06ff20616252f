"""Who shared a core or a CPU with another session of the round, and whether the slow ones are those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

Share = Literal["cpu", "core", "none"]


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
