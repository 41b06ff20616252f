"""Sessions on machines that are not there: rounds of a known population, on the CPUs of a golden machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.fakery import MS

from dbdyno.model.schema.tables import rows

Siblings = Sequence[Sequence[int]]
GOLDEN = Path(__file__).parents[1] / "golden" / "placement" / "c4.4xlarge.csv"


def table_of(
    durations_ms: Any, cpus: Any = None, *, moved: Any = None, repeat: int = 1, variant: str = "base"
) -> pl.DataFrame:
    """Table ``rounds`` of one cell; shapes (rounds, N). CPU -1 is unknown."""
    times = np.atleast_2d(np.asarray(durations_ms, dtype=float))
    n = times.shape[1]
    key = {"cell": f"{variant}-s{n}-r{repeat}", "workload": "cpu-query", "variant": variant}
    records = [
        {**key, "sessions": n, "repeat": repeat, "round": r + 1, "session": s}
        | {"start_ns": r * 1000 * MS + s, "duration_ns": round(times[r, s] * MS)}
        | {"cpu": None if cpus is None or cpus[r][s] < 0 else int(cpus[r][s])}
        | {"migrations": None if moved is None else int(moved[r][s])}
        for r in range(times.shape[0])
        for s in range(n)
    ]
    return rows("rounds", records)


def article() -> dict[int, list[float]]:
    """Seconds of the golden file, by number of sessions."""
    frame = pl.read_csv(GOLDEN, comment_prefix="#")
    return {int(n): part["elapsed_s"].to_list() for (n,), part in frame.group_by("sessions")}


def cpus_of_sessions(siblings: Siblings, sessions: int, seed: int) -> list[int]:
    """CPUs as a kernel gives them: an idle core each, then an idle thread, then the least busy CPU."""
    chance = np.random.default_rng(seed)
    order = [list(chance.permutation(core)) for core in chance.permutation(np.array(siblings, dtype=object))]
    by_thread = [int(core[t]) for t in range(max(map(len, order))) for core in order if t < len(core)]
    chosen = [by_thread[i % len(by_thread)] for i in range(sessions)]
    return [int(c) for c in chance.permutation(chosen)]


def slowdowns(cpus: Sequence[int], siblings: Siblings, yields: Mapping[int, float]) -> np.ndarray:
    """How many times longer each session runs: busy threads of its core over what they yield together, times
    the sessions on its CPU."""
    core = {cpu: n for n, threads in enumerate(siblings) for cpu in threads}
    on_cpu = Counter(cpus)
    busy = Counter(core[c] for c in on_cpu)
    return np.array([on_cpu[c] * busy[core[c]] / yields[busy[core[c]]] for c in cpus])


def simulated_rounds(
    siblings: Siblings,
    sessions: int,
    *,
    rounds: int = 30,
    settled: bool = True,
    noise: float = 0.02,
    yields: Mapping[int, float],
    seed: int = 1,
    repeat: int = 1,
) -> pl.DataFrame:
    """``settled``: sessions keep their CPUs over all rounds, as in the article; else they get new ones."""
    chance = np.random.default_rng(seed)
    cpus = [cpus_of_sessions(siblings, sessions, seed if settled else 1000 * seed + r) for r in range(rounds)]
    times = [100 * slowdowns(c, siblings, yields) * np.exp(chance.normal(0, noise, sessions)) for c in cpus]
    return table_of(times, cpus, moved=np.zeros((rounds, sessions)), repeat=repeat)
