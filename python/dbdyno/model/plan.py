"""Experiment (what a recipe says), Plan (all defaults filled in, every cell listed), Cell."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from dbdyno.model.variant import DriverSetup, DriverSpec, LimitSpec, Strict, Value, Variant, VariantSpec

EngineName = Literal["postgres", "fake"]
Order = Literal["ladder", "interleaved", "shuffled"]


class Observation(Strict):
    """Somebody else's load: which sessions, for how long. ``None``: all, or until stopped."""

    duration: str | None = None
    window: str = "10s"  # a cell each; saved as soon as it is over
    user: str | None = None
    database: str | None = None
    application: str | None = None
    pids: tuple[int, ...] = ()


class Experiment(Strict):
    """A recipe, or what the command line says. ``None`` means: the planner chooses and says why."""

    name: str = "run"
    doc: str = ""  # the question, in one line
    notes: str = ""  # where it comes from, what to expect
    engine: EngineName = "postgres"
    workload: str | None = None  # name; None with script
    script: str | None = None  # path of an SQL file, relative to the recipe
    sessions: str | None = None  # "1:16", "1,2,4,8", "1:16:5"
    measure: str = "10s"
    settle: str = "2s"
    repeats: int = Field(default=1, ge=1, le=1000)
    think: str | None = None  # "10ms": from the end of a call to the start of the session's next
    call_target: str | None = None
    params: dict[str, Value] = Field(default_factory=dict)
    settings: dict[str, Value] = Field(default_factory=dict)  # of the server, put back at the end
    driver: DriverSpec = DriverSpec()
    limits: LimitSpec = LimitSpec()
    variants: dict[str, VariantSpec] = Field(default_factory=dict)
    baseline: str | None = None  # the variant that others are compared with; None: the first
    order: Order | None = None  # None: ladder with one variant, else interleaved
    cool_down: str = "0s"  # pause before each cell
    until: str | None = None  # "2%": stop after a repeat when every interval is as tight as that
    budget: str | None = None  # "30min": no repeat begins that would end later
    seed: int = 1
    sample_hz: float = Field(default=10.0, gt=0, le=100)
    memory_budget: float = Field(default=0.005, gt=0, le=1)  # of the CPUs, for reading wait event words
    log_calls: bool = False
    observe: bool = True
    witness: Literal["auto", "sampled", "exact"] = "auto"  # exact: the scheduler trace, or an error
    syscalls: bool = False  # the trace counts system calls, too
    observation: Observation | None = None  # None: a load of our own


class Cell(Strict):
    """The smallest thing that runs: workload x variant x rung x repeat."""

    id: str  # "0003-lio-base-s4-r1": sorts in the order of running
    workload: str
    variant: str
    sessions: int
    repeat: int
    params: dict[str, Value]
    settle_ns: int
    measure_ns: int
    think_ns: int = 0  # from the end of a call to the start of the session's next
    driver: DriverSetup = DriverSetup()
    block: int = 1  # cells of one block are compared with each other: every variant once


class Choice(Strict):
    """A default that the planner chose, and why: printed before the run."""

    name: str
    value: str
    reason: str


class Plan(Strict):
    """Fully resolved. ``digest`` is the SHA-256 of everything else in canonical JSON."""

    experiment: Experiment
    script_text: str | None = None
    cpus: float  # CPUs the process may really use (affinity, cgroup quota)
    call_target_ns: int | None  # None where nothing is calibrated
    variants: tuple[Variant, ...] = ()  # in the recipe's order; none in plans of before there were any
    order: Order = "ladder"
    cells: tuple[Cell, ...]  # none for an observation: its windows are cells as they come
    choices: tuple[Choice, ...] = ()
    expected_ns: int  # expected duration of the whole run
    digest: str = ""

    @property
    def top(self) -> int:
        """The largest session count; 0 for an observation."""
        return max((c.sessions for c in self.cells), default=0)

    def variant(self, name: str) -> Variant:
        """By name; of a plan from before there were variants, one that changes nothing."""
        return next((v for v in self.variants if v.name == name), Variant(name=name))

    def sealed(self) -> Plan:
        """This plan with its digest filled in."""
        bare = self.model_copy(update={"digest": ""})
        digest = hashlib.sha256(bare.model_dump_json().encode()).hexdigest()
        return self.model_copy(update={"digest": digest})
