"""Suites: each TOML file here lists benchmarks, and names the folders in ``workloads`` that have their
scripts and tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.model.plan.literals import Protocol
from dbdyno.model.plan.plan import Parameter, Workload
from dbdyno.model.plan.suite import Benchmark, Suite

MODE = "mode"
"""Name of the parameter that selects scripts of a workload by their modes."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Workload(_Data):
    """A workload whose tables and scripts benchmarks use."""

    title: str
    doc: str


class FiledBenchmark(_Data):
    """A benchmark. ``script`` is a file of its workload's folder, by default ``NAME.sql``; ``session`` are
    settings of its sessions."""

    name: str
    doc: str
    workload: str
    script: str = ""
    sessions: str = "1"
    protocol: Protocol | None = None
    reconnect: bool | None = None
    session: dict[str, str] = Field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.script or f"{self.name}.sql"

    @property
    def planned(self) -> Benchmark:
        driver = {k: v for k, v in (("protocol", self.protocol), ("reconnect", self.reconnect)) if v}
        return Benchmark(self.name, self.doc, self.workload, {MODE: self.name}, self.sessions, driver)


class _File(_Data):
    """Contents of ``NAME.toml``. Unknown keys are errors."""

    doc: str
    workloads: dict[str, _Workload]
    benchmarks: tuple[FiledBenchmark, ...] = Field(min_length=1)

    def of(self, workload: str) -> list[FiledBenchmark]:
        return [b for b in self.benchmarks if b.workload == workload]


@cache
def _files() -> Mapping[str, _File]:
    folder = resources.files(__name__)
    return {
        f.name.removesuffix(".toml"): _File.model_validate(tomllib.loads(f.read_text(encoding="utf-8")))
        for f in sorted(folder.iterdir(), key=lambda f: f.name)
        if f.name.endswith(".toml")
    }


def suites() -> dict[str, Suite]:
    """Returns all suites, by name."""
    return {n: Suite(n, f.doc, tuple(b.planned for b in f.benchmarks)) for n, f in _files().items()}


def workloads() -> dict[str, Workload]:
    """Returns the workloads of all suites. The parameter ``mode`` selects a benchmark."""
    return {name: _workload(name, file) for file in _files().values() for name in file.workloads}


def _workload(name: str, file: _File) -> Workload:
    modes = tuple(b.name for b in file.of(name))
    mode = Parameter(doc="the benchmark whose script is run", type="choice", default=modes[0], choices=modes)
    described = file.workloads[name]
    return Workload(
        name=name,
        title=described.title,
        doc=described.doc,
        work_unit="logical reads",
        work_short="LIO",
        work_constant=False,
        calibrated=False,
        parameters={MODE: mode},
    )


def of_workload(workload: str) -> Sequence[FiledBenchmark]:
    """Returns the benchmarks of a workload; empty if no suite has it."""
    return [b for f in _files().values() for b in f.of(workload)]
