"""The complete results of a run, as plain data for present, cli and web."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

import polars as pl
from pydantic import BaseModel, ConfigDict

from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Calibration, Plan, Workload
from dbdyno.model.results.analyses import Regression, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.schema.column import DERIVED_VERSION
from dbdyno.model.schema.tables import empty

Query = Callable[[pl.LazyFrame], pl.LazyFrame]

RunStatus = Literal["running", "complete", "cut short", "broken"]
"""``broken`` occurs only in listings, for a directory whose ``run.json`` cannot be read."""


class Applied(BaseModel):
    """Changes made to the server for a variant, undone at the end."""

    model_config = ConfigDict(frozen=True)

    settings: dict[str, str] = {}  # values shown by the server while the variant ran
    restarts: tuple[str, ...] = ()  # settings that took effect only by a restart
    limits: tuple[str, ...] = ()  # how each limit was applied, in words
    starts: int = 0  # how often the variant's own server was started for measurements
    files: str = ""  # with direct I/O: on how many of the server's open files it was seen, in words


class Labels(BaseModel):
    """The name, tags and note that the user gave a run. They can be changed later."""

    model_config = ConfigDict(frozen=True)

    name: str = ""  # may be shared by several runs; then it refers to the newest
    tags: tuple[str, ...] = ()
    note: str = ""


class RunInfo(Labels):
    """The content of ``run.json``: the run's identity and its outcome."""

    schema_version: int
    id: str  # "20261121-104501-lio-3f9a", which sorts by time
    dbdyno: str  # version that made the measurement
    started: datetime  # UTC
    started_monotonic_ns: int  # read at the same time as ``started``
    ended: datetime | None = None
    status: RunStatus = "running"
    reason: str | None = None
    pid: int = 0  # of the measuring process
    pid_start_ticks: int = 0
    workloads: dict[str, Workload] = {}
    calibrations: dict[str, Calibration] = {}
    applied: dict[str, Applied] = {}  # by variant
    stopped: str | None = None  # reason why no more repeats were needed, if the run ended before its plan did
    group: str = ""  # common id of the runs that observe several servers at once, or of those of a suite
    benchmark: str = ""  # of a suite: the benchmark that it measured


class Narrowed(Mapping[str, pl.DataFrame]):
    """Tables with a row filter for some of them. A table is read only on access."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], only: Mapping[str, pl.Expr]) -> None:
        self._tables, self._only = tables, only

    def __getitem__(self, name: str) -> pl.DataFrame:
        table = self._tables[name]
        return table.filter(self._only[name]) if name in self._only else table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True)
class Results:
    info: RunInfo
    plan: Plan
    environment: Environment
    tables: Mapping[str, pl.DataFrame]  # those of DERIVED, sources, histogram, wait_families
    findings: tuple[Claim, ...]
    comparison: Comparison | None = None  # of the run's variants, if there are several
    scaling: tuple[Scaling, ...] = ()  # one per ladder, that is a workload under a variant
    answers: tuple[Claim, ...] = ()  # headroom, for an observation, which has no ladder
    reply: tuple[Claim, ...] = ()  # to the question of the recipe; the claim not-decided if there is none

    @property
    def workloads(self) -> Mapping[str, Workload]:
        return self.info.workloads

    def whole(self, table: str) -> pl.DataFrame:
        """Returns all rows, including those of single sessions, which ``tables`` of a stored run leave
        out."""
        return self.ask(table, lambda rows: rows)

    def ask(self, table: str, query: Query) -> pl.DataFrame:
        """Returns the result of ``query`` on all rows. A stored run reads only the part that the query
        needs."""
        if (ask := getattr(self.tables, "ask", None)) is not None:
            return cast("pl.DataFrame", ask(table, query))
        return query(self.tables[table].lazy()).collect()

    def of_cell(self, table: str, cell: str) -> pl.DataFrame:
        """Returns all rows of one cell. A stored run reads only these."""
        if (read := getattr(self.tables, "of_cell", None)) is not None:
            return cast("pl.DataFrame", read(table, cell))
        return self.tables.get(table, empty(table)).filter(pl.col("cell") == cell)


# The conclusions from a run's tables, stored with its findings.

VERSION = DERIVED_VERSION
"""Conclusions stored with another version are derived again."""


class Conclusions(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    version: int = VERSION
    scaling: tuple[Scaling, ...] = ()
    answers: tuple[Claim, ...] = ()
    reply: tuple[Claim, ...] = ()
    comparison: Comparison | None = None


Conclusions.model_rebuild(_types_namespace={"Regression": Regression})
