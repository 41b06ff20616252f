"""A suite: small benchmarks that are measured one after another, each a run of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean


class Benchmark(NamedTuple):
    """A benchmark of a suite: a workload with parameters, and how it is driven."""

    name: str
    doc: str  # what a call does, in one line
    workload: str
    params: Mapping[str, str]
    sessions: str
    driver: Mapping[str, str | bool]  # keys of DriverSpec


class Suite(NamedTuple):
    name: str
    doc: str
    benchmarks: tuple[Benchmark, ...]

    def only(self, names: str | None) -> Suite:
        """Returns the suite with the benchmarks of a list such as ``sort,hash-join``, in the suite's order.
        Raises :class:`UsageError` with the nearest name for an unknown one."""
        if names is None:
            return self
        wanted = [n.strip() for n in names.split(",") if n.strip()]
        known = [b.name for b in self.benchmarks]
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"the suite {self.name} has no benchmark {name!r}", did_you_mean(name, known)
                )
        if not wanted:
            raise UsageError("--only names no benchmark", f"dbdyno run --suite {self.name} --list")
        return self._replace(benchmarks=tuple(b for b in self.benchmarks if b.name in wanted))
