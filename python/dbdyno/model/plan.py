"""Experiment (what a recipe says), Plan (all defaults filled in, every cell listed), Cell."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

from pydantic import AliasChoices, Field, create_model

from dbdyno.model.data_sources import options
from dbdyno.model.variant import DriverSetup, DriverSpec, LimitSpec, Strict, Value, Variant, VariantSpec

Order = Literal["ladder", "interleaved", "shuffled"]


class Observation(Strict):
    """An existing workload: which sessions, for how long. Left out: all, or until stopped."""

    duration: str | None = None
    """Duration; left out: until Ctrl-C."""
    window: str = "10s"
    """Duration of a window; each is saved as soon as it ends."""
    user: str | None = None
    """Only sessions of this user."""
    database: str | None = None
    """Only sessions in this database."""
    application: str | None = None
    """Only sessions with this application_name."""
    pids: tuple[int, ...] = ()
    """Only these processes."""

    @property
    def some(self) -> bool:
        """Whether it leaves sessions out."""
        return any((self.user, self.database, self.application, self.pids))


if TYPE_CHECKING:

    class _AskedSources(Strict): ...

else:
    _AskedSources = create_model(
        "_AskedSources",
        __base__=Strict,
        **{o.key: (bool, Field(default=False, description=o.help)) for o in options()},
    )


class Experiment(_AskedSources):
    """A recipe, or the options of the command line. Left out: the planner chooses, and prints the reason."""

    name: str = "run"
    """Part of the run's id."""
    doc: str = ""
    """The question that it answers, in one line."""
    notes: str = ""
    """Source, and the expected result."""
    engine: str = ""
    """System under load; left out: dbdyno's default."""
    workload: str | None = None
    """One of `dbdyno workloads`; not with script."""
    script: str | None = None
    """SQL file, relative to the recipe."""
    sessions: str | None = None
    """Numbers of sessions: 1,2,4,8 or 1:16 or 1:16:5 or 1:64:x2 (2cpus: twice the CPUs); auto; auto:64."""
    rungs: int | None = Field(default=None, ge=3, le=200)
    """Maximum number of load levels of an auto ladder."""
    target: str | None = None
    """p95<20ms: search for the highest number of sessions that meets it."""
    measure: str = "10s"
    """Duration of a measurement."""
    settle: str = "2s"
    """Warm-up before each measurement."""
    repeats: int = Field(default=1, ge=1, le=1000)
    """Repeats; two or more give intervals."""
    think: str | None = None
    """Think time between two calls of a session: 10ms."""
    call_target: str | None = None
    """Duration of a call with one session; for workloads that are calibrated."""
    params: dict[str, Value] = Field(default_factory=dict)
    """Workload parameters."""
    settings: dict[str, Value] = Field(default_factory=dict)
    """Server settings, restored at the end."""
    driver: DriverSpec = DriverSpec()
    """Driver options."""
    limits: LimitSpec = LimitSpec()
    """Limits on the server's processes."""
    variants: dict[str, VariantSpec] = Field(default_factory=dict)
    """What is compared: [variants.NAME], each with its differences."""
    baseline: str | None = None
    """The variant to compare with; left out: the first."""
    order: Order | None = None
    """Order of the measurements; left out: interleaved with several variants, else ladder."""
    cool_down: str = "0s"
    """Pause before each measurement."""
    until: str | None = None
    """2%: repeat until every 95 % interval is within this share."""
    budget: str | None = None
    """Total time budget: 30min."""
    seed: int = 1
    """Random seed for order and sampling times."""
    sample_hz: float = Field(default=10.0, gt=0, le=100)
    """Activity samples per second."""
    memory_budget: float = Field(default=0.005, gt=0, le=1)
    """Share of the CPUs that reading wait events from memory may take."""
    log_calls: bool = False
    """Store start, duration and CPU of every call."""
    observe: bool = True
    """false: throughput and response times only, no ledger."""
    waits: Literal["auto", "sampled", "exact"] = Field(
        "auto", validation_alias=AliasChoices("waits", "witness")
    )
    """How waits are measured. exact: the scheduler trace, or an error."""
    observation: Observation | None = None
    """Observe an existing workload instead of running one."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Keys of the data sources that are off unless asked for."""
        return tuple(o.key for o in options() if getattr(self, o.key))


class Goal(Strict):
    """What a rung must show. Met below ``limit``, or above it where the metric is the throughput."""

    metric: Literal["p50", "p90", "p95", "p99", "mean", "max", "throughput"]
    relation: Literal["<", "<=", ">", ">="]
    limit: float  # ns; calls per second of the throughput
    text: str  # "p95 < 20 ms"

    def met(self, figure: float) -> bool:
        tests = {"<": figure < self.limit, "<=": figure <= self.limit, ">": figure > self.limit}
        return tests.get(self.relation, figure >= self.limit)


class Adaptive(Strict):
    """The rule of an auto ladder: which rungs it has is found while it is climbed."""

    top: int  # no rung above
    most_rungs: int
    near: int  # sessions: the knee is first looked for around so many, the CPUs
    repeats: int  # of the ladder; where there is a goal, of the two rungs on both sides of it
    goal: Goal | None = None


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
    # None for an observation: its windows are cells as they come. Of an auto ladder the first ones; those
    # that it asks for are added before they run.
    cells: tuple[Cell, ...]
    adaptive: Adaptive | None = None
    choices: tuple[Choice, ...] = ()
    expected_ns: int  # expected duration of the whole run
    digest: str = ""

    @property
    def top(self) -> int:
        """The largest session count, of an auto ladder the largest there may be; 0 for an observation."""
        planned = max((c.sessions for c in self.cells), default=0)
        return planned if self.adaptive is None else self.adaptive.top

    def variant(self, name: str) -> Variant:
        """By name; of a plan from before there were variants, one that changes nothing."""
        return next((v for v in self.variants if v.name == name), Variant(name=name))

    def sealed(self) -> Plan:
        """This plan with its digest filled in."""
        bare = self.model_copy(update={"digest": ""})
        digest = hashlib.sha256(bare.model_dump_json().encode()).hexdigest()
        return self.model_copy(update={"digest": digest})
