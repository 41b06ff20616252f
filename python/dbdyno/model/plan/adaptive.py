"""The rule of an auto ladder, and the target that it searches for."""

from __future__ import annotations

from typing import Literal

from dbdyno.model.plan.pacing import Strict


class Goal(Strict):
    """A goal for a rung. A figure meets it below ``limit``, or above it if the metric is the throughput."""

    metric: Literal["p50", "p90", "p95", "p99", "p99.9", "p99.99", "mean", "max", "throughput"]
    relation: Literal["<", "<=", ">", ">="]
    limit: float  # ns; calls per second of the throughput
    text: str  # "p95 < 20 ms"

    def met(self, figure: float) -> bool:
        tests = {"<": figure < self.limit, "<=": figure <= self.limit, ">": figure > self.limit}
        return tests.get(self.relation, figure >= self.limit)


class Adaptive(Strict):
    """The rule of an auto ladder. Its rungs are determined while it is climbed."""

    top: int  # no rung above
    most_rungs: int
    near: int  # sessions: the knee is first looked for around so many, the CPUs
    repeats: int  # of the ladder; where there is a goal, of the two rungs on both sides of it
    goal: Goal | None = None
    marks: tuple[int, ...] = ()  # always measured: as many sessions as cores, and as CPUs
    by: Literal["sessions", "rate"] = "sessions"  # what its loads are: sessions, or calls per second
    first: int = 1  # the load to begin with
    factor: int = 2  # from one load to the next as long as throughput grows
    share: float = 0.0  # loads closer than this share of the lower one count as the same
