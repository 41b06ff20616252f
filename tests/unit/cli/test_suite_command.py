"""``dbdyno run --suite`` with the fake engine: lists, plans, the matrix, the stored suite."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import in_process

from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_GATE

Invoke = Callable[..., subprocess.CompletedProcess[str]]
TINY = ("run", "--suite", "tiny", "--engine", "fake", "--dsn", "fake:cpus=2,cpu=5ms", "--call-target", "5ms")


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """Runs the program in a folder with a recipe of two equal variants and a store of its own."""
    (tmp_path / "two.toml").write_text("[variants.a]\n[variants.b]\n")
    env = {**os.environ, "DBDYNO_STORE": str(tmp_path / "store"), "COLUMNS": "120"}
    return lambda *words: in_process.dbdyno(words, env, tmp_path)


def test_suites_and_benchmarks_are_listed(invoke: Invoke) -> None:
    assert "micro: 35 benchmarks." in invoke("run", "--list").stdout
    listed = invoke("run", "--suite", "micro", "--list").stdout.splitlines()
    assert listed[0].split() == ["benchmark", "a", "call", "is"] and len(listed) == 36
    chosen = json.loads(invoke("run", "--suite", "micro", "--list", "--only", "sort", "--json").stdout)
    assert [b["name"] for b in chosen] == ["sort"]
    wrong = invoke("run", "--suite", "mirco")
    assert wrong.returncode == 2 and "did you mean 'micro'?" in wrong.stderr
    assert "did you mean 'sort'?" in invoke("run", "--suite", "micro", "--only", "srot").stderr
    for words in (
        ("lio", "--only", "sort"),
        ("--suite", "micro", "--fail-on", "worse"),
        ("--suite", "micro", "lio"),
    ):
        assert invoke("run", *words).returncode == 2


def test_the_plan_has_every_benchmark_and_a_duration(invoke: Invoke) -> None:
    planned = invoke(*TINY, "--recipe", "two.toml", "--dry-run").stdout.splitlines()
    assert [line.split()[:2] for line in planned[1:3]] == [["loop", "14"], ["reads", "14"]]
    assert planned[3].startswith("variants: a, b; about ")
    plans = json.loads(invoke(*TINY, "--dry-run", "--json").stdout)
    assert [p["benchmark"] for p in plans] == ["loop", "reads"]


def test_the_matrix_is_shown_now_and_again(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke(*TINY, "--recipe", "two.toml", "--tag", "mine", "-o", "matrix.md")
    assert done.returncode == 0, done.stderr
    assert "b against a: faster in 0 of 2 benchmarks, slower in 0" in done.stdout
    assert "[2/2] reads" in done.stderr and "left)" in done.stderr
    assert "| loop" in (tmp_path / "matrix.md").read_text()
    (line,) = [x for x in invoke("runs").stdout.splitlines() if "suite tiny" in x]
    suite = line.split()[0]
    runs = json.loads(invoke("runs", "--json").stdout)
    assert [r["benchmark"] for r in runs] == ["loop", "reads"]
    assert {r["group"][-len(suite) :] for r in runs} == {suite}
    assert runs[0]["tags"] == ["mine", "suite:tiny", "loop"]
    assert invoke("runs", "--tag", "suite:tiny").stdout.count("\n") == 3
    assert "reads" in invoke("show", suite).stdout and "reads" in invoke("show", "last").stdout
    record = json.loads(invoke("show", suite, "--json").stdout)
    assert record["variants"] == ["a", "b"] and {r["benchmark"] for r in record["rows"]} == {"loop", "reads"}
    assert "| loop" in Path(invoke("report", suite, "-o", "again.md").stdout.strip()).read_text()
    assert invoke("compare", runs[0]["id"]).returncode == 0
    compared = invoke("compare", suite, "--fail-on", "worse:5%", "-o", "gate.md")
    assert compared.returncode == 0, compared.stderr
    assert "reads" in compared.stdout and "\ngate passed\n" in compared.stdout
    assert "Gate passed." in (tmp_path / "gate.md").read_text()
    gate = json.loads(invoke("show", suite, "--fail-on", "different", "--json").stdout)["gate"]
    assert (gate["verdict"], gate["rules"][0]["findings"][0]["place"]) == ("passed", "loop, b")
    assert invoke("rm", suite, "--yes").stdout.count("removed") == 2
    assert invoke("show", suite).returncode != 0


def test_a_suite_whose_rule_fails_ends_with_the_exit_code_of_gates(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text("[variants.a]\n[variants.b]\nsettings = { cpu = '8ms' }\n")
    words = (*TINY, "--recipe", "slow.toml", "--fail-on", "worse:5%")
    failed = invoke(*words, "--repeats", "6")
    assert failed.returncode == EXIT_GATE, failed.stderr
    assert "failed  worse:5%  " in failed.stdout and "all of it: dbdyno report " in failed.stdout
    lost = invoke(*words, "--repeats", "2", "--fail-on", "unknown", "-q")
    assert lost.returncode == EXIT_GATE
    assert "gate failed, because it cannot tell (--fail-on unknown)\n" in lost.stdout
    assert "calls per second" not in lost.stdout
    refused = invoke(*words, "--fail-on", "p99:worse")
    assert refused.returncode == 2 and "a suite compares throughput and cpu_per_call" in refused.stderr


def test_a_benchmark_without_figures_ends_with_an_exit_code(invoke: Invoke) -> None:
    failing = ("--dsn", "fake:cpus=2,cpu=5ms,error_every=1")
    done = invoke(*TINY, *failing, "--only", "loop", "--repeats", "1")
    assert done.returncode == EXIT_CUT_SHORT
    assert "1 benchmark without figures: loop" in done.stderr
