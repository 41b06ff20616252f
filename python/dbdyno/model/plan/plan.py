"""Experiment (the content of a recipe), Plan (all defaults filled in, every cell listed), and Cell."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model

from dbdyno.model.plan.adaptive import Adaptive as Adaptive
from dbdyno.model.plan.adaptive import Goal as Goal
from dbdyno.model.plan.cluster import HostKeys
from dbdyno.model.plan.driving import MAX_VARIANTS, MOST, MOST_NAMES, MOST_SCRIPTS, MOST_SERVER_TEXT
from dbdyno.model.plan.driving import DriverSetup as DriverSetup
from dbdyno.model.plan.driving import DriverSpec as DriverSpec
from dbdyno.model.plan.driving import PlannedScript as PlannedScript
from dbdyno.model.plan.driving import Protocol as Protocol
from dbdyno.model.plan.driving import ScriptSpec as ScriptSpec
from dbdyno.model.plan.flagged import flagged
from dbdyno.model.plan.jobs import MOST_JOBS, JobKeys, JobSpec, PlannedJob
from dbdyno.model.plan.literals import Expected, Waits
from dbdyno.model.plan.literals import Order as Order
from dbdyno.model.plan.literals import ServerSettings as ServerSettings
from dbdyno.model.plan.pacing import Arrivals, LadderText, Pacing, Think
from dbdyno.model.plan.pacing import Strict as Strict
from dbdyno.model.plan.parameter import Parameter as Parameter
from dbdyno.model.plan.phases import PhaseSpec
from dbdyno.model.plan.resetting import PlannedReset, ResetKeys
from dbdyno.model.plan.servers import ServersText, ServerText, is_started
from dbdyno.model.plan.triggers import TriggerKeys
from dbdyno.model.schema.data_source import MOST_HZ
from dbdyno.model.schema.data_sources import options
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import NS_PER_S

# Variants: what a recipe may vary over an experiment, and what a variant comes to once it is resolved.

Value = str | int | float | bool
PoolMode = Literal["transaction", "session"]
Bind = Literal["spread", "pack", "off"]
Sampling = bool | Annotated[float, Field(gt=0, le=MOST_HZ)] | str
"""The sampling of a source: on or off, samples per second, or the sampling time in an observation (30s)."""


class LimitSpec(Strict):
    """Limits on the server's processes. Left out: not limited (in a variant: as the experiment says)."""

    cpus: str | None = None
    """CPUs the server may use: 0-5,8 or first:2; by a cpuset control group, else by affinity."""
    mems: str | None = None
    """NUMA nodes its memory comes from: 0 or 0-1 (cpuset.mems)."""
    quota: float | None = Field(default=None, gt=0, le=1_000_000)
    """So many CPUs' time: CFS bandwidth control (cpu.cfs_quota_us, cpu.max)."""
    period: str | None = None
    """Period of the quota, 1ms to 1s; the kernel's own is 100ms."""
    weight: int | None = Field(default=None, ge=1, le=10_000)
    """Share under pressure, against 100 of everybody else (cpu.weight, cpu.shares)."""
    pool: int | None = Field(default=None, ge=1, le=10_000)
    """At most so many sessions active at once: a connection pooler in front."""
    pool_mode: PoolMode | None = None
    """When the pooler gives a connection to the next: after each transaction (the default), or session."""
    bind: Bind | None = None
    """Each session's process on one CPU: over sockets and cores first, or threads first."""

    @property
    def of_system(self) -> bool:
        """Whether a limit has to be applied by the operating system before sessions connect."""
        return any(v is not None for v in (self.cpus, self.mems, self.quota, self.weight))


class VariantSpec(Strict):
    """A named set of limits, settings or parameters; what it leaves out it inherits from the experiment."""

    doc: str = ""
    """Description, in one line."""
    server: ServerText | None = Field(default=None, max_length=MOST_SERVER_TEXT)
    """Its own server: an installed version (17), a directory of programs, or a connection string."""
    scripts: tuple[ScriptSpec, ...] = Field(default=(), max_length=MOST_SCRIPTS)
    """[[variants.NAME.scripts]]: scripts in place of the experiment's."""
    jobs: tuple[JobSpec, ...] = Field(default=(), max_length=MOST_JOBS)
    """[[variants.NAME.jobs]]: commands in place of the experiment's."""
    variables: dict[str, Value] = Field(default_factory=dict, max_length=MOST_NAMES)
    """Variables of the scripts."""
    scale: int | None = Field(default=None, ge=1, le=MOST)
    """Variable scale of the scripts, or the workload's parameter of that name."""
    params: dict[str, Value] = Field(default_factory=dict, max_length=MOST_NAMES)
    """Parameters of the workload."""
    settings: dict[str, Value] = Field(default_factory=dict, max_length=MOST_NAMES)
    """Settings of the server, put back at the end."""
    driver: DriverSpec = DriverSpec()
    """How the driver sends calls."""
    limits: LimitSpec = LimitSpec()
    """Limits on the server's processes."""


class Variant(Strict):
    """A resolved variant, in which inherited values are filled in."""

    name: str
    doc: str = ""
    server: str | None = None  # None: the run's; else a version, an absolute directory or a DSN
    scripts: tuple[PlannedScript, ...] = ()
    jobs: tuple[PlannedJob, ...] = ()
    setup: tuple[str, ...] = ()  # argv of a command before its first measurement
    cleanup: tuple[str, ...] = ()  # and after its last
    params: dict[str, Value] = Field(default_factory=dict)  # of scripts: their variables
    settings: dict[str, str] = Field(default_factory=dict)
    driver: DriverSetup = DriverSetup()
    limits: LimitSpec = LimitSpec()

    def words(self) -> str:
        """Returns the differences of the variant in a few words: ``quota 1.5, work_mem=64MB``; empty if
        there are none."""
        limits = [f"{k} {v}" for k, v in self.limits.model_dump(exclude_none=True).items() if v != "off"]
        settings = [f"{k}={v}" for k, v in self.settings.items()]
        server = [] if self.server is None else [f"server {self.server}"]
        return ", ".join([*server, *limits, *settings, *self.driver.words()])


def cpus_under(limits: LimitSpec, cpus: float) -> float:
    """Returns how many of ``cpus`` CPUs the server may use under these limits."""
    listed = len(cpu_lists.parse(limits.cpus, "cpus")) if limits.cpus is not None else cpus
    return min(cpus, listed, limits.quota or cpus)


def cores_under(
    limits: LimitSpec, siblings: Sequence[Sequence[int]] | None, allowed: Iterable[int]
) -> tuple[tuple[int, ...], ...] | None:
    """Returns the usable CPUs of each core under these limits; ``None`` if unknown. The CPUs ``allowed`` are
    usable if the limits name none. ``siblings`` has all CPUs of each core."""
    usable = set(cpu_lists.parse(limits.cpus, "cpus") if limits.cpus is not None else allowed)
    shared = (tuple(cpu for cpu in core if cpu in usable) for core in siblings or ())
    return tuple(core for core in shared if core) or None


class Observation(Strict):
    """An existing workload: which sessions, for how long. Left out: all, or until stopped."""

    duration: str | None = flagged("observation.duration")
    """Duration; left out: until Ctrl-C."""
    window: str = flagged("observation.window")
    """Duration of a window; each is saved as soon as it ends."""
    user: str | None = flagged("observation.user")
    database: str | None = flagged("observation.database")
    application: str | None = flagged("observation.application")
    pids: tuple[int, ...] = flagged("observation.pids", max_length=MAX_VARIANTS)
    """Only these processes."""

    @property
    def some(self) -> bool:
        """Whether the observation is limited to some sessions."""
        return any((self.user, self.database, self.application, self.pids))


class NoiseSpec(Strict):
    """Groups of equal measurements, which separate the causes of their differences."""

    window: str = "5s"
    """Length of the windows that a measurement is divided into."""
    windows: int = Field(default=2, ge=1, le=1000)
    """Windows in a row of the same sessions: a measurement."""
    restarts: int = Field(default=0, ge=0, le=1000)
    """Restarts of the server between groups of measurements; only of a server that dbdyno started."""
    per_start: int = Field(default=1, ge=1, le=20_000)
    """Measurements on one start of the server, each with new sessions."""
    see: float = Field(default=0.02, gt=0, lt=1)
    """The difference to plan for: 0.02 is 2 %."""


if TYPE_CHECKING:

    class _AskedSources(ResetKeys): ...

else:
    _AskedSources = create_model(
        "_AskedSources",
        __base__=ResetKeys,
        **{
            o.key: (bool if o.hz is None else Sampling, Field(default=False, description=o.help))
            for o in options()
        },
    )


LEAST_WINDOW_NS = NS_PER_S
"""The shortest window of a measurement. The kernel updates the figures of another task only at ticks and
switches (36 ms late was measured), so they are meaningless in a shorter window."""


class Experiment(JobKeys, TriggerKeys, HostKeys, _AskedSources):
    """A recipe, or the options of the command line. Left out: the planner chooses, and prints the reason."""

    expect: Expected | None = flagged("expect")
    name: str = "run"
    """Part of the run's id."""
    doc: str = ""
    """The question that it answers, in one line."""
    answer: tuple[str, ...] = Field(default=(), max_length=MOST_NAMES)
    """Claims that answer the question, by their ids (dbdyno explain); they are shown first."""
    notes: str = ""
    """Source, and the expected result."""
    engine: str = ""
    """System under load; left out: dbdyno's default."""
    workload: str | None = None
    """One of `dbdyno workload list`; not with script."""
    script: str | None = None
    """SQL file in pgbench's language, relative to the recipe; short for one of scripts."""
    scripts: tuple[ScriptSpec, ...] = Field(default=(), max_length=MOST_SCRIPTS)
    """[[scripts]]: a mix of scripts; each call is of one of them, by their weights."""
    variables: dict[str, Value] = flagged("variables", default_factory=dict, max_length=MOST_NAMES)
    """Variables of the scripts."""
    scale: int | None = flagged("scale", le=MOST)
    """Variable scale of the scripts, or the workload's parameter of that name."""
    sessions: LadderText | None = flagged("sessions")
    """Numbers of sessions: 1,2,4,8 or 1:16 or 1:16:5 or 1:64:x2 (2cpus: twice the CPUs); auto; auto:64."""
    rungs: int | None = flagged("rungs")
    """Maximum number of load levels of an auto ladder."""
    target: str | None = flagged("target")
    """p95<20ms: search for the highest number of sessions that meets it."""
    measure: str = flagged("measure")
    settle: str = flagged("settle")
    repeats: int = flagged("repeats")
    rate: LadderText | None = flagged("rate")
    """Calls per second that become due, whether or not earlier ones have ended: 500 or 500/s."""
    rates: LadderText | None = flagged("rates")
    """A ladder of rates: 100,200,400 or 100:2000:x1.5 or auto or auto:2000."""
    arrivals: Arrivals | None = flagged("arrivals")
    """Times between calls that become due: poisson (random, the default) or constant."""
    phases: tuple[PhaseSpec, ...] = Field(default=(), max_length=MAX_VARIANTS)
    """[[phases]]: one measurement whose rate changes from phase to phase; each has its own figures."""
    latency_limit: str | None = flagged("latency_limit")
    """With a rate: a call that is due for longer than this is dropped and counted: 50ms."""
    think: str | None = flagged("think")
    """Think time between two calls of a session: 10ms, exponential 10ms, or uniform 5ms 15ms."""
    call_target: str | None = flagged("call_target")
    """Duration of a call with one session; for workloads that are calibrated."""
    recalibrate: bool = flagged("recalibrate")
    params: dict[str, Value] = flagged("params", default_factory=dict, max_length=MOST_NAMES)
    """Workload parameters."""
    settings: dict[str, Value] = flagged("settings", default_factory=dict, max_length=MOST_NAMES)
    """Server settings, restored at the end."""
    driver: DriverSpec = flagged("driver", default=DriverSpec())
    """Driver options."""
    limits: LimitSpec = flagged("limits", default=LimitSpec())
    """Limits on the server's processes."""
    variants: dict[str, VariantSpec] = Field(default_factory=dict, max_length=MAX_VARIANTS)
    """The variants to compare: [variants.NAME], each with its differences."""
    servers: ServersText | None = flagged("servers", max_length=MAX_VARIANTS * MOST_SERVER_TEXT)
    """Servers to compare, with commas between them; each is a variant."""
    server_settings: ServerSettings | None = flagged("server_settings")
    """same: what all servers have is set to the default of the oldest."""
    baseline: str | None = flagged("baseline")
    """The variant to compare with; left out: the first."""
    order: Order | None = flagged("order")
    """Order of the measurements; left out: interleaved with several variants, else ladder."""
    cool_down: str = flagged("cool_down")
    until: str | None = flagged("until")
    budget: str | None = flagged("budget")
    seed: int = flagged("seed", ge=0, le=2**63 - 1)
    sample_hz: float = flagged("sample_hz", gt=0, ge=None, le=100)
    memory_budget: float = Field(default=0.005, gt=0, le=1)
    """Share of the CPUs that reading wait events from memory may take."""
    log_calls: bool = flagged("log_calls")
    observe: bool = flagged("observe")
    """false: throughput and response times only, no ledger."""
    snapshots: bool | None = flagged("snapshots")
    """false: no snapshots of the server's statistics at the start and end of measurements."""
    memory: bool | None = flagged("memory")
    """false: the memory of server and machine is not read at the start and end of measurements."""
    waits: Waits = flagged("waits", validation_alias=AliasChoices("waits", "witness"))
    """How waits are measured. exact: the scheduler trace, or an error."""
    observation: Observation | None = None
    """Observe an existing workload instead of running one."""
    noise: NoiseSpec | None = None
    """Measure how much equal measurements differ (dbdyno noise)."""

    @property
    def mix(self) -> tuple[ScriptSpec, ...]:
        """All scripts of the recipe."""
        return self.scripts if self.script is None else (ScriptSpec(file=self.script), *self.scripts)

    @property
    def observes_some(self) -> bool:
        """Whether this is an observation of selected sessions only."""
        return self.observation is not None and self.observation.some

    @property
    def asked(self) -> tuple[str, ...]:
        """Keys of the requested data sources among those that are off by default."""
        return tuple(o.key for o in options() if getattr(self, o.key))


class Cell(Strict):
    """The smallest unit that runs: workload x variant x rung x repeat."""

    id: str  # "0003-lio-base-s4-r1": sorts in the order of running
    workload: str
    variant: str
    sessions: int
    repeat: int
    params: dict[str, Value]
    settle_ns: int
    measure_ns: int
    think_ns: int = 0  # mean pause from the end of a call to the start of the session's next
    think: Think | None = None  # None: always the same
    pacing: Pacing | None = None  # None: each session begins a call when its last has ended
    seed: int = 1  # of think times and arrivals
    driver: DriverSetup = DriverSetup()
    once: bool = False  # each job is run exactly `runs` times; measure_ns is the most that may take
    runs: int = 1
    phase: bool = False  # measured together with the phases before and after it; its name is the variant's
    block: int = 1  # cells of one block are compared with each other: every variant once

    @property
    def rate_per_s(self) -> float | None:
        """Calls per second that become due; ``None`` if the cell is not paced."""
        return None if self.pacing is None else self.pacing.rate_per_s

    def load_by(self, by: str) -> float:
        """Returns the load: calls per second that become due if ``by`` is ``rate``, else sessions."""
        return self.rate_per_s or 0.0 if by == "rate" else self.sessions


class Choice(Strict):
    """A default that the planner chose, printed with its reason before the run. The reason is in ``reason``
    as text, or it is the sentence ``says`` of the catalogue, in this ``case``, with the values ``slots``."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    name: str
    value: str
    reason: str = ""
    says: str = ""
    case: str = ""
    slots: dict[str, str | int | float | bool] = Field(default_factory=dict, alias="said")


class Plan(Strict):
    """A fully resolved experiment. ``digest`` is the SHA-256 of everything else in canonical JSON."""

    experiment: Experiment
    script_text: str | None = None  # in plans of before there were several scripts
    cpus: float  # CPUs the process may really use (affinity, cgroup quota)
    call_target_ns: int | None  # None where nothing is calibrated
    variants: tuple[Variant, ...] = ()  # in the recipe's order; none in plans of before there were any
    order: Order = "ladder"
    # None for an observation: its windows are cells as they come. Of an auto ladder the first ones; those
    # that it asks for are added before they run.
    cells: tuple[Cell, ...]
    adaptive: Adaptive | None = None
    reset: PlannedReset = PlannedReset()  # decided once the server is known
    goal: Goal | None = None  # of phases: what each is to meet
    choices: tuple[Choice, ...] = ()
    expected_ns: int  # expected duration of the whole run
    digest: str = ""

    @property
    def top(self) -> int:
        """The largest session count, for an auto ladder the largest possible one; 0 for an observation."""
        planned = max((c.sessions for c in self.cells), default=0)
        return self.adaptive.top if self.adaptive and self.adaptive.by == "sessions" else planned

    @property
    def by_rate(self) -> bool:
        """Whether the ladder consists of rates with a fixed number of sessions."""
        paced = self.experiment.rates is not None or self.experiment.rate is not None
        return paced and len({c.sessions for c in self.cells}) == 1

    @property
    def servers(self) -> dict[str, str | None]:
        """The server of each variant, by variant; empty if no variant names one."""
        named = {v.name: v.server for v in self.variants}
        return named if any(named.values()) else {}

    def unmeasured(self, measured: Collection[str]) -> list[str]:
        """Returns the variants to compare that are not among ``measured``; empty if all of them are not."""
        planned = {c.variant for c in self.cells}
        if self.experiment.phases or not planned.intersection(measured):
            return []
        return [v.name for v in self.variants if v.name in planned and v.name not in measured]

    @property
    def starts_servers(self) -> bool:
        """Whether dbdyno starts servers of variants anew during the run."""
        return any(is_started(v.server) for v in self.variants)

    @property
    def scripts(self) -> tuple[PlannedScript, ...]:
        """The distinct scripts of all variants."""
        if self.script_text is not None:
            return (PlannedScript(name=self.experiment.script or "script", text=self.script_text),)
        return tuple(dict.fromkeys(s for v in self.variants for s in v.scripts))

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """The jobs of all variants, one for each name."""
        return tuple({j.name: j for v in self.variants for j in v.jobs}.values())

    def variant(self, name: str) -> Variant:
        """Returns the variant of this name. Older plans have no variants; for them it returns one that
        changes nothing."""
        return next((v for v in self.variants if v.name == name), Variant(name=name))

    def sealed(self) -> Plan:
        """Returns the plan with its digest filled in."""
        bare = self.model_copy(update={"digest": ""})
        digest = hashlib.sha256(bare.model_dump_json().encode()).hexdigest()
        return self.model_copy(update={"digest": digest})


# A workload: what a session does over and over. Data (TOML and SQL files), never code.
#
# ``workloads/NAME.toml`` says what it is in words that hold for every engine; the engine's folder
# (``engines/ENGINE/workloads/NAME.toml``) says how it is done there.


class Workload(BaseModel):
    """The part of a workload's definition that is the same for all engines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    doc: str
    work_unit: str  # plural noun: "logical reads", "iterations"
    work_short: str  # "LIO", "iterations": as in "LIO/s"
    work_constant: bool  # work units per call must be constant: checked, and a finding if not
    work_tolerance: float = 0.001  # relative: work per call that varies by no more is called nearly constant
    work_power: tuple[str, str] | None = None  # a call's work: the one parameter to the power of the other
    changes_with: str | None = None  # the parameter above 0 with which its calls change rows; else none does
    cached: bool | None = None  # promises to read from the cache alone; False: to read physically
    calibrated: bool  # has a size that is set so that a call takes the call target at one session
    parameters: dict[str, Parameter] = Field(default_factory=dict)

    def work_of(self, params: Mapping[str, object]) -> float | None:
        """Returns the work units of a call if its parameters determine them and each call verifies them
        itself; None otherwise."""
        if self.work_power is None:
            return None
        base, exponent = (int(str(params[name])) for name in self.work_power)
        return float(base**exponent)


class Calibration(BaseModel):
    """The calibrated size of a call with one session, and how it was determined. It is stored with the
    run."""

    model_config = ConfigDict(frozen=True)

    workload: str
    target_ns: int
    target_reason: str  # "--call-target" or why this default was chosen
    size: int  # e.g. ranges per call, loop iterations: what the engine's call takes as its first parameter
    size_unit: str
    measured_ns: int  # at that size: median of its calls
    basis: Literal["cpu", "wall"]  # CPU time of the backend where it can be read, else the driver's wall time
    work_per_call: float | None  # exact, where the engine can count it
    steps: tuple[tuple[int, int], ...]  # (size, measured_ns) of every step; none: the size of earlier runs
    note: str = ""
