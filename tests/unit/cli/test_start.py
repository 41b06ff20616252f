"""Commands do not load large libraries that they do not need: loading is most of their start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from tests.fakery import climb

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.store import RunStore

LARGE = {"polars", "numpy", "scipy", "duckdb", "psycopg", "rich", "pydantic", "dbdyno._core"}
_PROGRAM = """
import json, os, sys
from dbdyno.cli.app import app
for words, environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    try:
        app(words, prog_name="dbdyno")
    except SystemExit as end:
        assert not end.code, (words, end.code)
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_in_turn(*asked: tuple[Sequence[str], Mapping[str, str]]) -> list[set[str]]:
    """Returns the large libraries that are loaded after each of these commands in one process."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    module_lists = [line for line in done.stderr.splitlines() if line.startswith('["')]
    assert len(module_lists) == len(asked)
    return [LARGE & set(json.loads(line)) for line in module_lists]


def test_help_loads_no_large_library() -> None:
    """Help of ``dbdyno`` and of each command, one after another in one process."""
    commands = ["--help", *sorted(app.list_commands(click.Context(app)))]
    loaded = loaded_in_turn(
        *(([command, "--help"] if n else [command], {}) for n, command in enumerate(commands))
    )
    assert dict(zip(commands, loaded, strict=True)) == {command: set() for command in commands}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1])
    run = RunStore(tmp_path_factory.mktemp("store")).create(climbed.plan, workloads=climbed.info.workloads)
    run.write_environment(climbed.environment)
    for cell in climbed.cells:
        run.write_cell(cell)
    run.finish("complete")
    conduct.rebuild(run)
    return run.path.parent


def test_listing_runs_loads_no_large_library(store: Path) -> None:
    with_store, without_store = {"DBDYNO_STORE": str(store)}, {"DBDYNO_STORE": str(store / "none")}
    asked = ((["runs"], with_store), (["runs", "--json"], with_store), (["runs"], without_store))
    assert loaded_in_turn(*asked) == [set()] * 3


def test_a_query_loads_duckdb_alone(store: Path) -> None:
    asked = ((["sql", "--tables"], {}), (["sql", "from rungs"], {"DBDYNO_STORE": str(store)}))
    assert loaded_in_turn(*asked) == [set(), {"duckdb"}]


def test_showing_a_run_loads_the_printing_library_alone(store: Path) -> None:
    with_store = {"DBDYNO_STORE": str(store)}
    first, some = loaded_in_turn((["show", "last"], with_store), (["show", "last", "--profile"], with_store))
    assert first == {"rich"}
    assert some.isdisjoint({"duckdb", "psycopg", "scipy"})
