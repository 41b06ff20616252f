"""What comes out of a run, whole: handed to report, cli and web. Pure data."""

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
"""``broken``: only in listings, for a directory whose ``run.json`` cannot be read."""


class Applied(BaseModel):
    """What was done to the server for a variant, and put back at the end."""

    model_config = ConfigDict(frozen=True)

    settings: dict[str, str] = {}  # as the server showed them while it ran
    restarts: tuple[str, ...] = ()  # settings that only a restart brought into force
    limits: tuple[str, ...] = ()  # how each was put on, in words
    files: str = ""  # with direct I/O: on how many of the server's open files it was seen, in words


class Labels(BaseModel):
    """What the user calls a run; it can be changed later."""

    model_config = ConfigDict(frozen=True)

    name: str = ""  # several runs may have one: the newest of them is meant
    tags: tuple[str, ...] = ()
    note: str = ""


class RunInfo(Labels):
    """``run.json``: the run's identity, and how it ended."""

    schema_version: int
    id: str  # "20261121-104501-lio-3f9a": sorts by time
    dbdyno: str  # version that measured
    started: datetime  # UTC
    started_monotonic_ns: int  # read together with started
    ended: datetime | None = None
    status: RunStatus = "running"
    reason: str | None = None
    pid: int = 0  # of the process that measures
    pid_start_ticks: int = 0
    workloads: dict[str, Workload] = {}
    calibrations: dict[str, Calibration] = {}
    applied: dict[str, Applied] = {}  # by variant
    stopped: str | None = None  # why it needed no more repeats, where it ended before its plan did
    group: str = ""  # of an observation of several servers, of which each is a run: their common id


class Narrowed(Mapping[str, pl.DataFrame]):
    """Tables, some of them without rows that do not match. What is not asked for is not read."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], only: Mapping[str, pl.Expr]) -> None:
        self._tables, self._only = tables, only

    def __getitem__(self, name: str) -> pl.DataFrame:
        found = self._tables[name]
        return found.filter(self._only[name]) if name in self._only else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True)
class Results:
    info: RunInfo
    plan: Plan
    environment: Environment
    tables: Mapping[str, pl.DataFrame]  # of DERIVED, sources, histogram, wait_families
    findings: tuple[Claim, ...]
    comparison: Comparison | None = None  # of its variants, where it has several
    scaling: tuple[Scaling, ...] = ()  # one a ladder: a workload under a variant
    answers: tuple[Claim, ...] = ()  # of an observation, which has no ladder: headroom

    @property
    def workloads(self) -> Mapping[str, Workload]:
        return self.info.workloads

    def whole(self, table: str) -> pl.DataFrame:
        """All rows, also those of single sessions, which a stored run's ``tables`` read only here."""
        return self.ask(table, lambda rows: rows)

    def ask(self, table: str, query: Query) -> pl.DataFrame:
        """``query`` of all rows: of a stored run no more is read than it asks for."""
        if (ask := getattr(self.tables, "ask", None)) is not None:
            return cast("pl.DataFrame", ask(table, query))
        return query(self.tables[table].lazy()).collect()

    def of_cell(self, table: str, cell: str) -> pl.DataFrame:
        """All rows of one cell; of a stored run nothing else is read."""
        if (read := getattr(self.tables, "of_cell", None)) is not None:
            return cast("pl.DataFrame", read(table, cell))
        return self.tables.get(table, empty(table)).filter(pl.col("cell") == cell)


# What follows from a run's tables beside its findings, as it is stored with them.

VERSION = DERIVED_VERSION
"""Conclusions of another are drawn anew."""


class Conclusions(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    version: int = VERSION
    scaling: tuple[Scaling, ...] = ()
    answers: tuple[Claim, ...] = ()
    comparison: Comparison | None = None


Conclusions.model_rebuild(_types_namespace={"Regression": Regression})
