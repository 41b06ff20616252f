"""What a command must not load: large libraries that it does not need are most of its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.fakery import climb

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.store import RunStore

LARGE = {"polars", "numpy", "scipy", "duckdb", "psycopg", "rich", "pydantic", "dbdyno._core"}
_PROGRAM = """
import json, sys
from dbdyno.cli.app import app
try:
    app(sys.argv[1:], prog_name="dbdyno")
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*words: str, **environment: str) -> set[str]:
    """Large libraries that are there after ``dbdyno WORDS`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return LARGE & set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_no_large_library() -> None:
    assert loaded("--help") == set()


@pytest.mark.parametrize("command", sorted(app.list_commands(click.Context(app))))
def test_help_of_a_command_loads_no_large_library(command: str) -> None:
    assert loaded(command, "--help") == set()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1])
    run = RunStore(tmp_path_factory.mktemp("store")).create(made.plan, workloads=made.info.workloads)
    run.write_environment(made.environment)
    for cell in made.cells:
        run.write_cell(cell)
    run.finish("complete")
    conduct.rebuild(run)
    return run.path.parent


def test_listing_runs_loads_no_large_library(store: Path) -> None:
    assert loaded("runs", DBDYNO_STORE=str(store)) == set()
    assert loaded("runs", "--json", DBDYNO_STORE=str(store)) == set()
    assert loaded("runs", DBDYNO_STORE=str(store / "none")) == set()


def test_a_query_loads_duckdb_alone(store: Path) -> None:
    assert loaded("sql", "from rungs", DBDYNO_STORE=str(store)) == {"duckdb"}
    assert loaded("sql", "--tables") == set()


def test_showing_a_run_loads_what_prints_alone(store: Path) -> None:
    assert loaded("show", "last", DBDYNO_STORE=str(store)) == {"rich"}
    some = loaded("show", "last", "--profile", DBDYNO_STORE=str(store))
    assert some.isdisjoint({"duckdb", "psycopg", "scipy"})
