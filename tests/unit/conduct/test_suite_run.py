"""Suites: what a benchmark's plan takes from whom, benchmarks that fail, the end by the user, the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fake_engine import suites

from dbdyno import conduct, observe
from dbdyno.conduct.suite import PlannedBenchmark, matrix_of, planned_suite, run_suite
from dbdyno.drive import Interrupt, Interrupted
from dbdyno.model.errors import ScriptError, StoreError, Unreachable, UsageError
from dbdyno.store import Run, RunStore, find_suite, remember_suite, suite_records

TINY = suites()["tiny"]
TWO = "[variants.a]\n[variants.b]\n"


def planned(fields: Mapping[str, Any] = {}, recipe: Path | None = None) -> list[PlannedBenchmark]:
    patch = conduct.Patch({"engine": "fake", **fields})
    request = conduct.Request(recipe=None if recipe is None else str(recipe), patch=patch)
    return [*planned_suite(TINY, request, observe.host())]


def file(folder: Path, text: str) -> Path:
    path = folder / "variants.toml"
    path.write_text(text)
    return path


def test_options_hold_over_the_recipe_and_that_over_the_suite(tmp_path: Path) -> None:
    recipe = file(tmp_path, 'measure = "3s"\nrepeats = 2\n' + TWO)
    loop, reads = planned({"repeats": 4}, recipe)
    assert [b.plan.experiment.workload for b in (loop, reads)] == ["cpu", "lio"]
    assert reads.plan.experiment.params == {"tables": "shared"}
    assert reads.plan.experiment.measure == "3s" and reads.plan.experiment.repeats == 4
    assert {c.sessions for c in reads.plan.cells} == {2} and len(reads.plan.cells) == 8
    assert loop.plan.experiment.settle == "300ms" and loop.plan.experiment.snapshots is False
    assert [p.plan.experiment.profile for p in planned({"profile": 49.0})] == [997.0, 997.0]
    assert [p.plan.experiment.profile for p in planned({"profile": 99.0})] == [99.0, 99.0]
    assert {c.sessions for b in planned({"sessions": "3"}) for c in b.plan.cells} == {3}


def test_seven_repeats_with_variants_and_three_without(tmp_path: Path) -> None:
    assert [len(b.plan.cells) for b in planned(recipe=file(tmp_path, TWO))] == [14, 14]
    assert [len(b.plan.cells) for b in planned()] == [3, 3]


def test_what_a_suite_chooses_itself_is_refused(tmp_path: Path) -> None:
    for text in ('workload = "cpu"\n', '[params]\ntables = "own"\n'):
        with pytest.raises(UsageError, match="a suite chooses"):
            planned(recipe=file(tmp_path, text + TWO))
    with pytest.raises(UsageError, match="a suite chooses scripts itself"):
        planned({"scripts": [{"file": "x.sql"}]})
    with pytest.raises(UsageError, match="both a suite and a workload"):
        planned_suite(TINY, conduct.Request(workload="cpu"), observe.host())


class Listener:
    def __init__(self) -> None:
        self.ends: list[tuple[str, str]] = []

    def begun(self, number: int, one: PlannedBenchmark) -> None: ...

    def ended(self, one: PlannedBenchmark, record: Run | None, reason: str) -> None:  # noqa: ARG002
        self.ends.append((one.benchmark.name, reason))


def test_a_failing_benchmark_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    store, listener = RunStore(tmp_path), Listener()

    def fails(one: PlannedBenchmark, labels: Mapping[str, Any]) -> Run:
        assert labels["tags"] == ("suite:tiny", one.benchmark.name)
        raise ScriptError(f"{one.benchmark.name} is wrong")

    id = run_suite(TINY, planned(), fails, store, Interrupt(), listener)
    assert listener.ends == [("loop", "loop is wrong"), ("reads", "reads is wrong")]
    assert [find_suite(tmp_path, w) for w in (id, id[-4:], "20")] == [id] * 3
    assert [(r.benchmark, r.reason) for r in matrix_of(store, id).rows] == listener.ends
    remember_suite(tmp_path, id, {"suite": "tiny"})
    with pytest.raises(StoreError):
        matrix_of(store, id)
    remember_suite(tmp_path, id, {"suite": ["edited"]})
    assert find_suite(tmp_path, id) == id


@pytest.mark.parametrize("error", [Unreachable("no server"), Interrupted()])
def test_the_first_error_of_the_server_ends_the_suite(tmp_path: Path, error: Exception) -> None:
    listener = Listener()

    def fails(one: PlannedBenchmark, labels: Mapping[str, Any]) -> Run:  # noqa: ARG001
        raise error

    with pytest.raises(type(error)):
        run_suite(TINY, planned(), fails, RunStore(tmp_path), Interrupt(), listener)
    assert not listener.ends


def test_only_the_newest_suites_are_remembered(tmp_path: Path) -> None:
    assert suite_records(tmp_path) == {}
    for n in range(205):
        remember_suite(tmp_path, f"20261121-{n:06d}-suite-x-aaaa", {"suite": "x"})
    kept = suite_records(tmp_path)
    assert len(kept) == 200 and min(kept) == "20261121-000005-suite-x-aaaa"
    (tmp_path / ".suites.json").write_text("[1")
    assert suite_records(tmp_path) == {}
