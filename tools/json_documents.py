"""The documents that ``--json`` prints, as types, and the commands that print them.

Models and dataclasses of the program stand for themselves; what it builds key by key is declared here. The
tests validate what commands print against the schema and allow no further key, so that a key that is missing
here fails them. A key that is not always there is ``NotRequired``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, get_type_hints

import polars as pl
from pydantic import BaseModel, Field, WithJsonSchema
from typing_extensions import TypedDict

from dbdyno.model.engine.condition import Condition
from dbdyno.model.engine.environment import Environment, ServerFacts
from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.engine.topology import Topology
from dbdyno.model.engine.truth import Truth
from dbdyno.model.plan.cluster import ClusterStatus
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.plan.suite import Benchmark
from dbdyno.model.plan.table_making import PreparedTable
from dbdyno.model.results.analyses import (
    CURVE,
    POINTS,
    REGRESSION_POINTS,
    RESIDUALS,
    Fitted,
    How,
    Machine,
)
from dbdyno.model.results.claim import Claim, Estimate, Severity
from dbdyno.model.results.comparison import Comparison, CostChange, SampleComparison
from dbdyno.model.results.gate import Outcome, State
from dbdyno.model.results.interval import Reset
from dbdyno.model.results.results import RunInfo
from dbdyno.model.results.suite import SuiteMatrix
from dbdyno.model.schema.column import CELL, Column, Type
from dbdyno.model.schema.data_sources.memory import MEMORY_TABLES
from dbdyno.model.schema.table import Table
from dbdyno.model.schema.tables import REGISTERED
from dbdyno.model.sources.source import Source
from dbdyno.present.run.cpu_profile import KINDS
from dbdyno.store.overview import Outline
from dbdyno.store.view_files import ViewColumn

ABSENT: Any = object()
"""Default of a key that a subclass of a model adds and that is not always there."""
TABLE = "x-table"
"""Key of a place-holder for the rows of a registered table."""
_JSON: Mapping[Type, str] = {"i64": "integer", "f64": "number", "str": "string", "bool": "boolean"}
_OF_POLARS = {pl.Int64: "integer", pl.Float64: "number", pl.String: "string", pl.Boolean: "boolean"}


def row_schema(columns: Iterable[Column]) -> dict[str, Any]:
    """Returns the schema of a row of a table. A float that is not finite is printed as null."""
    columns = tuple(columns)
    properties = {
        c.name: {
            "type": [_JSON[c.type], "null"] if c.null or c.type == "f64" else _JSON[c.type],
            "description": c.doc,
        }
        for c in columns
    }
    return {"type": "object", "properties": properties, "required": [c.name for c in columns]}


def _rows(table: str) -> Any:
    """Returns the type of the rows of a registered table."""
    return Annotated[list[dict[str, Any]], WithJsonSchema({TABLE: table})]


def _together(table: str, *without: str) -> Any:
    """Returns the type of the rows of a registered table without the key of a cell and some columns."""
    left_out = {*(c.name for c in CELL), *without}
    row = row_schema(c for c in REGISTERED[table].columns if c.name not in left_out)
    return Annotated[list[dict[str, Any]], WithJsonSchema({"type": "array", "items": row})]


def _frame(columns: Mapping[str, Any]) -> Any:
    """Returns the type of the rows of a frame with these columns, which may all be null."""
    properties = {name: {"type": [_OF_POLARS[kind], "null"]} for name, kind in columns.items()}
    row = {"type": "object", "properties": properties, "required": list(columns)}
    return Annotated[list[dict[str, Any]], WithJsonSchema({"type": "array", "items": row})]


def _object(named_tuple: type) -> Any:
    """Returns the type of a named tuple that is printed with its names."""
    return TypedDict(named_tuple.__name__, get_type_hints(named_tuple))  # type: ignore[operator]


def _names(tables: Iterable[Table]) -> dict[str, Any]:
    """Returns the types of tables by their names and former names."""
    return {name: _rows(t.name) for t in tables for name in (t.name, *t.older)}


def _fields(model: type[BaseModel], *without: str) -> dict[str, Any]:
    return {name: f.annotation for name, f in model.model_fields.items() if name not in without}


Figures = list[dict[str, str | float | bool | None]]
"""Rows whose columns a page of the documentation has."""


class Gate(TypedDict):
    verdict: State
    exit_code: int
    strict: bool
    rules: list[Outcome]
    warnings: list[str]
    summary: list[str]


class FindingRecord(TypedDict):
    id: str
    severity: Severity
    subject: str
    claim: str
    value: float | None
    unit: str
    low: float | None
    high: float | None
    evidence: str
    cure: str
    cells: list[str]


class Answer(TypedDict):
    id: str
    claim: str
    value: Estimate | None
    evidence: str


# -- ladders --


class RegressionPart(TypedDict):
    slopes: list[Estimate]
    background: Estimate
    r_squared: float | None
    residual_sd: float | None


class RegressionRecord(TypedDict):
    name: str
    regime: str
    work_units: list[str]
    n: int
    degrees: int
    method: str
    parts: dict[str, RegressionPart]
    points: _frame(REGRESSION_POINTS)  # type: ignore[valid-type]
    ratio: Estimate | None
    durbin_watson: float | None
    autocorrelation_p: float | None
    breusch_pagan_p: float | None
    notes: list[str]
    refused: str | None


class ScalingRecord(TypedDict):
    name: str
    load_unit: str
    throughput_unit: str
    of_work: str
    machine: Machine
    think_s: float | None
    best: str | None
    fits: list[Fitted]
    answers: list[Answer]
    regressions: list[RegressionRecord]
    refused: list[str]
    notes: list[str]
    points: _frame(POINTS)  # type: ignore[valid-type]
    residuals: _frame(RESIDUALS)  # type: ignore[valid-type]
    curve: _frame(CURVE)  # type: ignore[valid-type]


class Ladders(TypedDict):
    format: int
    scalings: list[ScalingRecord]


class SmtYield(TypedDict):
    answers: list[Claim]


# -- comparisons --


class SpeedRecord(TypedDict):
    what: str
    unit: str
    a: Estimate | None
    b: Estimate | None
    ratio: Estimate | None
    reason: str | None


class PeakRecord(SpeedRecord):
    loads: list[float]


class AtLoadRecord(TypedDict):
    load: float
    throughput: SpeedRecord
    response: SpeedRecord
    how: How


class MachinesRecord(TypedDict):
    format: int
    names: list[str]
    ladders: list[str]
    machines: list[Machine]
    load_unit: str
    throughput_unit: str
    one_session: SpeedRecord
    at_loads: list[AtLoadRecord]
    crossings: list[Estimate]
    peak: PeakRecord
    per_core: SpeedRecord
    per_thread: SpeedRecord
    per_cpu_second: SpeedRecord
    claims: list[str]
    notes: list[str]


class ComparisonRecord(Comparison):
    format: int
    machines: list[MachinesRecord] = ABSENT
    gate: Gate = ABSENT


class SamplesRecord(SampleComparison):
    format: int
    gate: Gate = ABSENT


class MachinesOfFiles(TypedDict):
    format: int
    machines: list[MachinesRecord]
    gate: NotRequired[Gate]


class IntervalSide(TypedDict):
    first: str
    last: str
    seconds: float
    server: str
    version: str
    blocks: int
    restarted: bool
    evictions: int | None


class Intervals(TypedDict):
    format: int
    kind: Literal["intervals"]
    a: IntervalSide
    b: IntervalSide
    load: Figures
    statements: Figures
    tables: Figures
    claims: list[FindingRecord]
    gate: NotRequired[Gate]


# -- runs --


class Tier(TypedDict):
    source: str
    tier: Literal["exact", "sampled"]
    cells: int


class ObservationRecord(TypedDict):
    events: _together("events", "session")  # type: ignore[valid-type]
    microstates: _together("microstates", "tid")  # type: ignore[valid-type]


class ObjectUse(TypedDict):
    cell: str
    per: str
    work: str
    tables: Figures
    indexes: Figures


_SHOWN = [t for t in REGISTERED.values() if t.shown]
_BESIDE = {
    "answer": list[FindingRecord],
    "summary": list[str],
    "plan": Plan,
    "environment": Environment,
    "ledger_sources": list[Tier],
    "observation": ObservationRecord | None,
    "comparison": ComparisonRecord | None,
    "scaling": list[ScalingRecord],
    "answers": list[Answer],
    "findings": list[FindingRecord],
}
Run = TypedDict(  # type: ignore[misc]
    "Run",
    {
        "format": int,
        "run": RunInfo,
        "title": str,
        "doubts": list[str],
        **_BESIDE,
        **_names(t for t in _SHOWN if t.json),
        "sources": list[Source],
        "objects": NotRequired[ObjectUse],
        "gate": NotRequired[Gate],
    },
)
"""The document of a run."""
Parts = TypedDict(  # type: ignore[misc]
    "Parts",
    {
        "run": RunInfo,
        "findings": NotRequired[list[FindingRecord]],
        **{name: NotRequired[rows] for name, rows in _names(_SHOWN).items()},
        "objects": NotRequired[ObjectUse],
        "gate": NotRequired[Gate],
    },
)
"""The tables that options of ``dbdyno show`` select."""
ListedRun = TypedDict(  # type: ignore[misc]
    "ListedRun",
    _fields(RunInfo, "workloads", "calibrations")
    | {"applied": dict[str, dict[str, Any]]}
    | get_type_hints(Outline),
    total=False,
)
"""A run of the list, as the version that measured it wrote it. One that cannot be read has fewer keys."""


class Outputs(TypedDict):
    outputs: Figures


class Labels(TypedDict):
    id: str
    name: str
    tags: list[str]
    note: str


class SuiteRecord(SuiteMatrix):
    format: int
    comparisons: dict[str, Comparison] = Field(default_factory=dict, exclude=True)
    gate: Gate = ABSENT


class BenchmarkPlan(TypedDict):
    benchmark: str
    plan: Plan


_WINDOW = dict.fromkeys(("t0_ns", "t1_ns"), pl.Int64) | {"status": pl.String}
_WINDOW |= dict.fromkeys(("db_time", "db_cpu", "cpu_wait", "transactions_per_s"), pl.Float64)
_WINDOW |= dict.fromkeys(("statements_per_s", "replay_lag_ns", "replay_behind_bytes"), pl.Float64)


class ServerRecord(TypedDict):
    server: str
    where: str
    role: Literal["primary", "standby"] | None
    version: str
    host: str
    clock_bound_ns: float | None
    run: str
    status: str
    reason: str | None
    sessions: float | None
    db_time: float | None
    db_cpu: float | None
    cpu_wait: float | None
    transactions_per_s: float | None
    statements_per_s: float | None
    asleep: dict[str, float | None]
    replay_lag_ns: float | None
    replay_behind_bytes: float | None
    statements: Figures
    windows: _frame(_WINDOW)  # type: ignore[valid-type]


class Servers(TypedDict):
    format: int
    group: str
    title: str
    servers: list[ServerRecord]


# -- trends --


class TrendRun(TypedDict):
    id: str
    name: str
    started: str
    sessions: int
    value: float
    low: float | None
    high: float | None
    level: float
    flagged: bool
    remark: str
    outlier: bool


class TrendChange(TypedDict):
    run: str
    first: str
    last: str
    ratio: float
    low: float | None
    high: float | None
    p: float


class TrendLeftOut(TypedDict):
    why: str
    runs: list[str]


class TrendRecord(TypedDict):
    format: int
    figure: str
    unit: str
    what: str
    machine: str
    runs: list[TrendRun]
    changes: list[TrendChange]
    left_out: list[TrendLeftOut]
    claims: list[FindingRecord]
    gate: NotRequired[Gate]


# -- snapshots --


class SnapshotRecord(SnapshotInfo):
    seconds: float
    rows: dict[str, int]


class ListedSnapshot(SnapshotRecord):
    remark: str


class TimeModelRecord(TypedDict):
    runs: list[str]
    windows: int
    covered_s: float
    db_time_s: float
    parts: Figures


class IntervalReport(TypedDict):
    format: int
    first: SnapshotInfo
    last: SnapshotInfo
    seconds: float
    restarted: str | None
    resets: list[_object(Reset)]  # type: ignore[misc]
    evictions: int | None
    claims: list[FindingRecord]
    time_model: TimeModelRecord | None
    load_profile: Figures
    statements: Figures
    statement_texts: Figures
    most_accessed: Figures
    tables: dict[str, Figures]
    gate: NotRequired[Gate]


class Pruned(TypedDict):
    removed: list[str]
    dry_run: bool
    left: int


# -- server and machine --


class CheckedServer(ServerFacts):
    settings: dict[str, str] = Field(exclude=True)


class Trouble(TypedDict):
    message: str
    cure: str | None


class Command(TypedDict):
    command: str
    how: Literal["sql", "root", "hand"]


_STATE = get_type_hints(Condition)["state"]


class Check(TypedDict):
    id: str
    title: str
    state: _STATE
    value: str
    why: str
    cure: str
    commands: list[Command]


class DataSource(TypedDict):
    name: str
    state: str
    adds: str
    reads: str
    why: str
    right: str
    commands: list[Command]


class Doctor(TypedDict):
    server: CheckedServer | None
    error: Trouble | None
    checks: list[Check]
    sources: list[DataSource]


Memory = TypedDict(  # type: ignore[misc]
    "Memory",
    {
        "format": int,
        "server": str,
        "taken": str,
        "took_s": float,
        **_names(MEMORY_TABLES),
        "findings": list[FindingRecord],
        "sources": list[Source],
    },
)


class EmbeddedServer(TypedDict, total=False):
    running: bool | None
    stopped: bool
    stays: bool
    owner_pid: int | None
    pid: int | None
    version: str
    dsn: str
    socket: str
    data_dir: str | None
    log: str
    programs: str
    max_connections: int
    settings: dict[str, str]
    uptime_s: float
    detail: str
    cure: str | None
    others: list[str]
    of_variants: list[str]


SelftestRow = TypedDict("SelftestRow", {**_fields(Truth), "off": float | None})  # type: ignore[misc]

# -- the rest --

_PROFILE = {kind: _rows("cpu_profile") for kind in KINDS}
Hot = TypedDict("Hot", {"run": str, **{k: NotRequired[v] for k, v in _PROFILE.items()}})  # type: ignore[misc]


class MetricRecord(TypedDict):
    name: str
    kind: str
    unit: str
    labels: list[str]
    help: str
    series: list[str]
    table: str


class Metrics(TypedDict):
    metrics: list[MetricRecord]


class MadeTables(TypedDict):
    workload: str
    scale: int | None
    seed: int
    created: bool
    workers: int
    rows: int
    loaded_bytes: int
    seconds: float
    steps: dict[str, float]
    tables: list[_object(PreparedTable)]  # type: ignore[misc]


class CaughtLogin(TypedDict):
    at_s: float
    pid: int
    sessions: int
    role: str
    client: str
    there: bool
    lines: list[str] | None


class CaughtLogins(TypedDict):
    caught: list[CaughtLogin]
    installed: str | None
    log: str
    why_unread: str | None
    find: str


class Removed(TypedDict):
    removed: list[str]


COMMANDS: Mapping[str, Sequence[Any]] = {
    "analyze": (Ladders, SmtYield),
    "cluster status": (ClusterStatus,),
    "compare": (ComparisonRecord, MachinesOfFiles, SamplesRecord, Intervals),
    "doctor": (Doctor,),
    "hot": (Hot, CostChange),
    "label": (Labels,),
    "memory": (Memory,),
    "metrics list": (Metrics,),
    "noise": (Run, Plan),
    "observe": (Run, Servers),
    "rebuild": (Run,),
    "recipes": (dict[str, dict[str, Any]],),
    "report": (IntervalReport,),
    "run": (Run, Plan, SuiteRecord, list[_object(Benchmark)], list[BenchmarkPlan]),
    "runs": (list[ListedRun],),
    "selftest": (list[SelftestRow],),
    "server start": (EmbeddedServer,),
    "server status": (EmbeddedServer,),
    "server stop": (EmbeddedServer,),
    "show": (Run, Parts, Outputs, SuiteRecord, Servers),
    "snapshot": (SnapshotRecord,),
    "snapshot list": (list[ListedSnapshot],),
    "snapshot prune": (Pruned,),
    "snapshot show": (SnapshotRecord,),
    "sql": (list[dict[str, Any]], dict[str, list[_object(ViewColumn)]]),
    "topology": (Topology,),
    "trace-logins": (CaughtLogins, Removed),
    "trend": (TrendRecord,),
    "workload list": (dict[str, Workload],),
    "workload prepare": (MadeTables,),
    "workloads": (dict[str, Workload],),
}
"""Documents that each command with ``--json`` prints: one of these."""
