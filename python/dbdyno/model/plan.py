"""Experiment (what a recipe says), Plan (all defaults filled in, every cell listed), Cell."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

EngineName = Literal["postgres", "fake"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class VariantSpec(_Strict):
    """A named set of parameters; what it leaves out it inherits from the experiment (one level)."""

    doc: str = ""
    params: dict[str, str | int | float | bool] = Field(default_factory=dict)


class Observation(_Strict):
    """Somebody else's load: which sessions, for how long. ``None``: all, or until stopped."""

    duration: str | None = None
    window: str = "10s"  # a cell each; saved as soon as it is over
    user: str | None = None
    database: str | None = None
    application: str | None = None
    pids: tuple[int, ...] = ()


class Experiment(_Strict):
    """A recipe, or what the command line says. ``None`` means: the planner chooses and says why."""

    name: str = "run"
    doc: str = ""
    engine: EngineName = "postgres"
    workload: str | None = None  # name; None with script
    script: str | None = None  # path of an SQL file, relative to the recipe
    sessions: str | None = None  # "1:16", "1,2,4,8", "1:16:5"
    measure: str = "10s"
    settle: str = "2s"
    repeats: int = Field(default=1, ge=1, le=1000)
    think: str | None = None  # "10ms": from the end of a call to the start of the session's next
    call_target: str | None = None
    params: dict[str, str | int | float | bool] = Field(default_factory=dict)
    variants: dict[str, VariantSpec] = Field(default_factory=dict)
    order: Literal["ladder", "shuffled"] = "ladder"  # shuffled: within each repeat, by the seed
    seed: int = 1
    sample_hz: float = Field(default=10.0, gt=0, le=100)
    memory_budget: float = Field(default=0.005, gt=0, le=1)  # of the CPUs, for reading wait event words
    log_calls: bool = False
    observe: bool = True
    witness: Literal["auto", "sampled", "exact"] = "auto"  # exact: the scheduler trace, or an error
    syscalls: bool = False  # the trace counts system calls, too
    observation: Observation | None = None  # None: a load of our own


class Cell(_Strict):
    """The smallest thing that runs: workload x variant x rung x repeat."""

    id: str  # "0003-lio-base-s4-r1": sorts in the order of running
    workload: str
    variant: str
    sessions: int
    repeat: int
    params: dict[str, str | int | float | bool]
    settle_ns: int
    measure_ns: int
    think_ns: int = 0  # from the end of a call to the start of the session's next


class Choice(_Strict):
    """A default that the planner chose, and why: printed before the run."""

    name: str
    value: str
    reason: str


class Plan(_Strict):
    """Fully resolved. ``digest`` is the SHA-256 of everything else in canonical JSON."""

    experiment: Experiment
    script_text: str | None = None
    cpus: float  # CPUs the process may really use (affinity, cgroup quota)
    call_target_ns: int | None  # None where nothing is calibrated
    cells: tuple[Cell, ...]  # none for an observation: its windows are cells as they come
    choices: tuple[Choice, ...] = ()
    expected_ns: int  # expected duration of the whole run
    digest: str = ""

    @property
    def top(self) -> int:
        """The largest session count; 0 for an observation."""
        return max((c.sessions for c in self.cells), default=0)

    def sealed(self) -> Plan:
        """This plan with its digest filled in."""
        bare = self.model_copy(update={"digest": ""})
        digest = hashlib.sha256(bare.model_dump_json().encode()).hexdigest()
        return self.model_copy(update={"digest": digest})
