"""Loads whose truth is known in advance: what ``dbdyno selftest`` runs and compares the ledger with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["asleep", "spin", "quota", "convoy", "think", "mixture", "commit", "brief", "blocking"]
Needs = Literal["nothing", "driver", "idle"]
"""What the truth of an account needs: nothing but reads in time; a driver in time; an idle machine."""
Verdict = Literal["ok", "off", "inconclusive", "unknown"]


class TruthCase(BaseModel):
    """One such load, in the words of an engine. What follows from ``kind``: ``conclude.ground_truth``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Kind
    title: str
    sql: str  # the call
    sessions: int = 0
    sessions_per_cpu: float = 0.0  # besides, for each CPU
    rate: int = 0  # kind brief: sessions that connect a second
    quota_per_cpu: float = 0.0  # kind quota: CPUs that the server may use, for each CPU
    think: str = "0s"
    sleep_ns: int = 0  # that a call sleeps by itself
    setup: tuple[str, ...] = ()  # statements, once, before
    teardown: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)  # of its sessions, where we may set them
    labels: dict[str, str] = Field(default_factory=dict)  # sleep, lock, commit -> "Class/Event"
    counter: str | None = None  # of the server, that counts ns in labels["commit"]

    def count(self, cpus: float) -> int:
        """Sessions on a machine of so many CPUs."""
        return max(1, self.sessions + round(self.sessions_per_cpu * cpus))


class Disturbance(BaseModel):
    """What took the machine's CPUs in a window beside the load and dbdyno, in CPUs."""

    model_config = ConfigDict(frozen=True)

    cpus: float  # that the server may use
    others: float  # other processes, those that have ended included
    steal: float  # withheld by the hypervisor
    waited: float | None = None  # of the sessions' time, by them for a CPU; None: not known
    driver: float = 0.0  # of the window, by the driver for a CPU: no session waited longer for it
    late: float = 0.0  # of the window, by which the reads of ``others`` were late, or took

    @property
    def taken(self) -> float:
        """Share of the CPU time of ``cpus``."""
        return (self.others + self.steal) / self.cpus


class Truth(BaseModel):
    """One account of a case: what it must be, what the ledger says, in seconds per second."""

    model_config = ConfigDict(frozen=True)

    case: str
    tier: str  # of the ledger: "scheduler trace", "sampled"
    account: str
    truth: float | None  # None: unknown on this server, see why
    why: str  # where the truth comes from, or why it is not known
    ledger: float | None
    low: float | None = None
    high: float | None = None
    wall: float  # session seconds per second
    allowed: float  # share of wall
    disturbance: Disturbance | None = None  # in the window; None: not known
    verdict: Verdict = "unknown"  # dbdyno.conclude.catalogue.criteria.truth_verdict
    reason: str = ""  # of a verdict that is neither ok nor off

    @property
    def off(self) -> float | None:
        """Difference, as a share of the sessions' time."""
        if self.truth is None or self.ledger is None:
            return None
        return (self.ledger - self.truth) / self.wall


class Knowing(Protocol):
    """Loads whose truth is known in advance."""

    def truth_cases(self) -> Sequence[TruthCase]:
        """Loads whose truth is known in advance, in the order of running."""

    def truth_setup(self, case: TruthCase) -> None:
        """Makes what the case needs in dbdyno's own schema."""

    def truth_teardown(self, case: TruthCase) -> None: ...

    def brief_session(self, case: TruthCase) -> int | None:
        """Connects, makes the case's call once (an empty one is none) and disconnects; from any thread.

        CPU time (ns) that the session's process had used when it was asleep again, so without its end; None:
        it cannot be read.
        """
