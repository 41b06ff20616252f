"""The suites' files: each benchmark has a script that can be read, and a doc; no script is left over."""

from __future__ import annotations

from importlib import resources

import pytest

from dbdyno.engines.postgres import loader, script_check, script_halves, suites, workloads
from dbdyno.model.plan.plan import DriverSetup, DriverSpec
from dbdyno.model.plan.suite import Benchmark

FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"
BENCHMARKS = [b for s in suites().values() for b in s.benchmarks]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda b: b.name)
def test_a_benchmark_has_a_doc_and_a_script_that_can_be_read(benchmark: Benchmark) -> None:
    assert benchmark.doc and len(benchmark.doc) < 90 and not benchmark.doc.endswith(".")
    (script,) = script_halves.scripts_of(benchmark.workload, benchmark.params)
    driver = DriverSetup.of(DriverSpec(**dict(benchmark.driver)))
    assert script_check.commands(script, driver)
    assert "random()" not in script.text  # the same calls for both sides, by the seed of the run
    assert set(script_halves.session_of(benchmark.workload, benchmark.params)) <= {
        *("enable_seqscan", "enable_bitmapscan", "enable_mergejoin", "enable_hashjoin", "enable_nestloop"),
        *("enable_memoize", "work_mem", "plan_cache_mode", "max_parallel_workers_per_gather"),
        *("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size"),
        "max_parallel_maintenance_workers",
    }


def test_the_micro_suite_has_what_was_asked_for() -> None:
    names = [b.name for b in suites()["micro"].benchmarks]
    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize("name", [*workloads()])
def test_every_file_of_a_workload_is_used(name: str) -> None:
    described = loader.description(name)
    half = script_halves.script_half(name)
    assert half is not None and described.own_schema
    used = {s.file for s in half.scripts} | {f for t in described.tables for f in (t.ddl, *t.after)}
    assert used == {f.name for f in (FOLDER / name).iterdir() if f.name.endswith(".sql")}
    assert all(t.name.startswith("micro_") for t in described.tables)
