"""A suite from start to end: one benchmark after another, each a run of its own, all of one group."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ValidationError

from dbdyno import engines, present
from dbdyno.conclude import suite as conclude
from dbdyno.conduct.derive.rebuild import Say, results_of, to_stderr
from dbdyno.conduct.request.request import Request, find_recipe, planned
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.model.engine.environment import Host
from dbdyno.model.errors import NotInstalled, NotPrivileged, StoreError, TargetError, UsageError, did_you_mean
from dbdyno.model.plan.plan import Experiment, Plan, Workload
from dbdyno.model.plan.suite import Benchmark, Suite
from dbdyno.model.results.suite import SuiteMatrix
from dbdyno.model.schema.data_sources import options
from dbdyno.store import Run, RunStore, find_group, remember_suite, suite_by_id, suite_records

PAGE = "suite.html"
"""File name in the directory of the last run of a suite."""
_DEFAULTS: Mapping[str, Any] = {
    "measure": "1s",
    "settle": "300ms",
    "expect": "memory",  # tables are read into the caches first: each run may start a server
    "snapshots": False,  # which with memory takes a third of the time of so short measurements
    "memory": False,
}
_REPEATS, _REPEATS_OF_VARIANTS = 3, 7
"""Repeats without variants, and with them: fewer than six decide no row among about thirty, and one may be
lost."""
_PROFILE_HZ = 997.0
"""Samples per second of a CPU profile in place of the usual rate: a measurement is short."""
_USUAL_HZ = next(o.hz for o in options() if o.key == "profile")
_TAG = "suite:"
_OF_A_WORKLOAD = ("workload", "script", "scripts", "params", "jobs", "axes", "phases", "observation", "noise")
"""Keys of a recipe that a suite itself chooses, or that have no throughput of calls."""


def suites(engine: str = "") -> Mapping[str, Suite]:
    """Returns the engine's suites, by name."""
    return engines.suites(engines.checked(engine))


def suite_named(name: str, engine: str, only: str | None = None) -> Suite:
    """Returns a suite with all its benchmarks, or those of ``only``. Raises :class:`UsageError`."""
    known = suites(engine)
    if name not in known:
        raise UsageError(f"no suite {name!r}", did_you_mean(name, known))
    return known[name].only(only)


class PlannedBenchmark(NamedTuple):
    benchmark: Benchmark
    plan: Plan
    workload: Workload


def planned_suite(suite: Suite, request: Request, host: Host) -> Sequence[PlannedBenchmark]:
    """Returns the plan of each benchmark. Options hold over the recipe, and the recipe over the suite.
    Raises :class:`UsageError` for a request that has a workload of its own."""
    recipe = Experiment() if request.recipe is None else find_recipe(request.recipe)[0]
    fields = request.patch.fields
    given = recipe.model_fields_set | fields.keys()
    if request.workload is not None:
        raise UsageError(
            f"both a suite and a workload were given: {request.workload}",
            "a recipe with variants is named by --recipe FILE; benchmarks are chosen by --only",
        )
    if own := [name for name in _OF_A_WORKLOAD if name in fields or getattr(recipe, name)]:
        raise UsageError(f"a suite chooses {own[0]} itself", "leave it out of the recipe and the options")
    first = _planned(suite.benchmarks[0], request, _DEFAULTS, given, host)
    repeats = _REPEATS_OF_VARIANTS if len(first.plan.variants) > 1 else _REPEATS
    return [_planned(b, request, {**_DEFAULTS, "repeats": repeats}, given, host) for b in suite.benchmarks]


def _planned(
    benchmark: Benchmark, request: Request, defaults: Mapping[str, Any], given: Collection[str], host: Host
) -> PlannedBenchmark:
    chosen = {**defaults, "sessions": benchmark.sessions}
    fields = {name: value for name, value in chosen.items() if name not in given}
    driver = {**benchmark.driver, **request.patch.fields.get("driver", {})}
    fields |= {**request.patch.fields, "driver": driver, "params": dict(benchmark.params)}
    if fields.get("profile") in (True, _USUAL_HZ):
        fields["profile"] = _PROFILE_HZ
    patch = replace(request.patch, fields=fields)
    plan, workload = planned(replace(request, workload=benchmark.workload, patch=patch), host)
    return PlannedBenchmark(benchmark, plan, workload)


class SuiteListener(Protocol):
    """Follows a suite."""

    def begun(self, number: int, one: PlannedBenchmark) -> None: ...

    def ended(self, one: PlannedBenchmark, record: Run | None, reason: str) -> None: ...


class _Record(BaseModel):
    """The entry of a suite in the store, besides its runs."""

    suite: str
    planned: tuple[str, ...] = ()
    docs: dict[str, str] = {}
    failed: dict[str, str] = {}


def run_suite(
    suite: Suite,
    benchmarks: Sequence[PlannedBenchmark],
    run_one: Callable[[PlannedBenchmark, Mapping[str, Any]], Run],
    store: RunStore,
    interrupt: Interrupt,
    listener: SuiteListener,
) -> str:
    """Measures the benchmarks, and returns the id of the suite.

    ``run_one`` measures a benchmark; its run gets these labels. A benchmark that fails is noted, and the
    others go on. Raises the error of the server or the store if nothing could be measured, and
    :class:`Interrupted` if the user ends it before that.
    """
    id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-suite-{suite.name}-{secrets.token_hex(2)}"
    failed: dict[str, str] = {}
    stored = 0
    docs = {b.benchmark.name: b.benchmark.doc for b in benchmarks}
    for number, one in enumerate(benchmarks, start=1):
        name, record, reason = one.benchmark.name, None, ""
        labels = {"group": id, "benchmark": name, "tags": (f"{_TAG}{suite.name}", name)}
        listener.begun(number, one)
        try:
            record = run_one(one, labels)
            stored += 1
        except Interrupted:
            if not stored:
                raise
            break
        except (UsageError, TargetError) as e:
            no_server = isinstance(e, TargetError | NotInstalled) and not isinstance(e, NotPrivileged)
            if no_server and not stored:
                raise
            reason = failed[name] = e.message
        listener.ended(one, record, reason)
        kept = _Record(suite=suite.name, planned=tuple(docs), docs=docs, failed=failed)
        remember_suite(store.root, id, kept.model_dump())
        if interrupt.stopping:
            break
    return id


def runs_of_suite(store: RunStore, wanted: str) -> Sequence[Path]:
    """Returns the directories of the runs of a suite named by its id; empty if it names no suite."""
    id = suite_by_id(store.root, wanted)
    return () if id is None else find_group(store.root, id)


def matrix_of(store: RunStore, id: str, say: Say = to_stderr) -> SuiteMatrix:
    """Returns the matrix of a suite from its stored runs. Raises :class:`StoreError` if none is left."""
    runs = [Run(path) for path in find_group(store.root, id)]
    try:
        record = _Record.model_validate(suite_records(store.root).get(id, {"suite": id}))
    except ValidationError:  # edited
        record = _Record(suite=id)
    by_name = {run.info.benchmark: run for run in runs}
    if not by_name and not record.failed:
        raise StoreError(f"no run of the suite {id} is left", "dbdyno runs lists the runs")
    names = dict.fromkeys([*record.planned, *by_name])
    measured = [
        conclude.Measured(
            name,
            record.docs.get(name, ""),
            None if name not in by_name else results_of(by_name[name], say),
            record.failed.get(name, ""),
        )
        for name in names
        if name in by_name or name in record.failed
    ]
    return conclude.matrix(id, record.suite, measured, len(names))


def report_suite(store: RunStore, matrix: SuiteMatrix, output: Path | None = None) -> Path:
    """Writes the page of a suite beside its last run, or to ``output``, and returns its path."""
    path = store.open(max(r.run for r in matrix.rows)).path / PAGE if output is None else output
    return present.write(present.suite(matrix), path)
