"""Loads with known true figures. ``dbdyno selftest`` runs them and compares the ledger with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["asleep", "spin", "quota", "convoy", "think", "mixture", "commit", "brief", "blocking"]
Needs = Literal["nothing", "driver", "idle"]
"""The precondition for the truth of an account to hold. ``nothing``: only timely reads; ``driver``: also a
driver that gets its CPU in time; ``idle``: also an otherwise idle machine."""
Verdict = Literal["ok", "off", "inconclusive", "unknown"]


class TruthCase(BaseModel):
    """A load with known figures, in the language of an engine. ``conclude.ground_truth`` derives the truth
    from ``kind``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Kind
    title: str
    sql: str  # the statement of a call
    sessions: int = 0
    sessions_per_cpu: float = 0.0  # added for each CPU
    rate: int = 0  # kind brief: connections per second
    quota_per_cpu: float = 0.0  # kind quota: CPU limit of the server for each CPU of the machine
    think: str = "0s"
    sleep_ns: int = 0  # time that a call sleeps by itself
    setup: tuple[str, ...] = ()  # statements run once before
    teardown: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)  # settings of its sessions, if permitted
    labels: dict[str, str] = Field(default_factory=dict)  # sleep, lock, commit -> "Class/Event"
    counter: str | None = None  # the server's counter of nanoseconds in labels["commit"]

    def count(self, cpus: float) -> int:
        """Returns the number of sessions for a machine with this many CPUs."""
        return max(1, self.sessions + round(self.sessions_per_cpu * cpus))


class Disturbance(BaseModel):
    """CPU use in a window that comes neither from the load nor from dbdyno, in CPUs."""

    model_config = ConfigDict(frozen=True)

    cpus: float  # available to the server
    others: float  # used by other processes, ended ones included
    steal: float  # withheld by the hypervisor
    waited: float | None = None  # share of the sessions' time spent waiting for a CPU; None if unknown
    # share of the window that the driver waited for a CPU: no session waited longer for the driver
    driver: float = 0.0
    late: float = 0.0  # share of the window by which the reads of ``others`` were late or took time

    @property
    def taken(self) -> float:
        """The disturbance as a share of the CPU time of ``cpus``."""
        return (self.others + self.steal) / self.cpus


class Truth(BaseModel):
    """The true value and the ledger's value of one account of a case, in seconds per second."""

    model_config = ConfigDict(frozen=True)

    case: str
    tier: str  # the ledger's method: "scheduler trace", "sampled"
    account: str
    truth: float | None  # None if unknown on this server; ``why`` gives the reason
    why: str  # the source of the truth, or the reason why it is unknown
    ledger: float | None
    low: float | None = None
    high: float | None = None
    wall: float  # session seconds per second
    allowed: float  # permitted error as a share of wall
    disturbance: Disturbance | None = None  # within the window; None if unknown
    verdict: Verdict = "unknown"  # dbdyno.conclude.catalogue.criteria.truth_verdict
    reason: str = ""  # set if the verdict is neither ok nor off

    @property
    def off(self) -> float | None:
        """The ledger's error as a share of the sessions' time."""
        if self.truth is None or self.ledger is None:
            return None
        return (self.ledger - self.truth) / self.wall


class Knowing(Protocol):
    """Provides loads with known figures."""

    def truth_cases(self) -> Sequence[TruthCase]:
        """Returns the loads in the order in which they run."""

    def truth_setup(self, case: TruthCase) -> None:
        """Creates the objects that the case needs in dbdyno's own schema."""

    def truth_teardown(self, case: TruthCase) -> None: ...

    def brief_session(self, case: TruthCase) -> int | None:
        """Connects, runs the case's call once (none if it is empty) and disconnects. Any thread may call it.

        Returns the CPU time in ns that the session's process had used when it was asleep again, hence
        without its exit; None if it cannot be read.
        """
