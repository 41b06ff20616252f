"""Scripts by options and recipes: what a pgbench user types, and what the plan makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.errors import UsageError
from dbdyno.model.plan import Plan


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["run", "--engine", "fake", *words])


def plan(*words: str) -> dict[str, Any]:
    done = run(*words, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def mix(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(s["name"], s["weight"]) for s in found["variants"][0]["scripts"]]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.sql"
    path.write_text("select :n;\n")
    return path


def test_what_a_pgbench_user_types(own: Path) -> None:
    words = f"-b tpcb@2 -f {own}@3 -c 1,2 -j 2 -T 5 -D n=007 -s 7 -M simple -C --max-tries 4 --random-seed 9"
    found = plan(*words.split())
    assert mix(found) == [("tpcb-like", 2), ("own.sql", 3)]
    assert found["variants"][0]["scripts"][1]["text"] == "select :n;\n"
    cell = found["cells"][1]
    assert (cell["sessions"], cell["measure_ns"]) == (2, 5_000_000_000)
    assert cell["params"] == {"scale": 7, "n": "007"}
    driver = {"protocol": "simple", "threads": 2, "max_tries": 4, "reconnect": True, "allow_shell": False}
    assert driver.items() <= cell["driver"].items()
    assert found["experiment"]["seed"] == 9


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("select-only", [("select-only", 1)]),
        ("-S", [("select-only", 1)]),
        ("-N -S", [("select-only", 1), ("simple-update", 1)]),
        ("-b se@0 -b si@5", [("select-only", 0), ("simple-update", 5)]),
    ],
)
def test_built_in_scripts(words: str, made: list[tuple[str, int]]) -> None:
    assert mix(plan(*words.split())) == made


@pytest.mark.parametrize(
    ("words", "said", "cure"),
    [
        ("lio -S", "both a workload and scripts", "--dsn dbname=NAME"),
        ("-b s", "begin with 's'", "select-only or simple-update"),
        ("-b nosuch", "no built-in script 'nosuch'", "tpcb-like"),
        ("-b tpcb-like@x", "'x' is no weight", "tpcb-like@2"),
        ("-b tpcb-like@0", "no script has a weight above 0", "FILE@1"),
        ("-S -D n", "-D n: not a variable", "-D naccounts=1000"),
        ("-S -D a-b=1", "not a variable", "letters"),
        ("-S -c 2 --sessions 2", "both --sessions and -c", "one of them"),
        ("-S --random-seed x", "--random-seed x", "time or rand"),
        ("-t 100 -S", "-t is an option of pgbench", "-T 10"),
        ("-i", "-i is an option of pgbench", "workload prepare pgbench"),
        ("-S -n", "-n is an option of pgbench", "leave it out"),
        ("-S -p 5433", "-p is an option of pgbench", "--dsn port=NUMBER"),
        ("", "nothing to run", "-f FILE"),
    ],
)
def test_errors_name_the_cure(words: str, said: str, cure: str) -> None:
    error = run(*words.split(), "--dry-run").exception
    assert isinstance(error, UsageError)
    assert said in error.message and cure in str(error.cure)


def test_the_list_of_built_in_scripts() -> None:
    assert run("-b", "list").output.split() == ["select-only", "simple-update", "tpcb-like"]


def test_a_recipe_has_a_mix_and_its_variants_another(own: Path) -> None:
    recipe = own.with_name("mix.toml")
    recipe.write_text(
        'engine = "fake"\nsessions = "1"\n[variables]\nn = 3\n'
        '[[scripts]]\nfile = "own.sql"\nweight = 2\n[[scripts]]\nbuiltin = "select-only"\n'
        "[driver]\nmax_tries = 3\n"
        "[variants.a]\n[variants.b]\nvariables = {n = 4}\nscale = 9\n"
        '[[variants.b.scripts]]\nbuiltin = "tpcb"\n'
    )
    a, b = plan(str(recipe))["variants"]
    assert mix({"variants": [a]}) == [("own.sql", 2), ("select-only", 1)] and a["params"] == {"n": 3}
    assert mix({"variants": [b]}) == [("tpcb-like", 1)] and b["params"] == {"n": 4, "scale": 9}
    assert b["driver"]["max_tries"] == 3


def test_a_recipe_names_the_line_of_a_script_that_is_neither(tmp_path: Path) -> None:
    recipe = tmp_path / "wrong.toml"
    recipe.write_text('sessions = "1"\n[[scripts]]\nweight = 2\n')
    done = run(str(recipe), "--dry-run")
    assert "a script is either a file or a builtin" in str(done.exception)
    assert "wrong.toml:2" in str(done.exception)


def test_a_plan_of_before_there_were_several_scripts() -> None:
    found = plan("-S")
    del found["variants"][0]["scripts"]
    old = Plan.model_validate(found | {"script_text": "select 1;"})
    assert [s.text for s in old.scripts] == ["select 1;"]


def test_a_run_of_scripts(own: Path) -> None:
    done = run("-f", str(own), "-b", "select-only", "-c", "1,2", "-T", "1", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["run"]["id"].rpartition("-")[0].endswith("-select-only-own")
    assert list(found["run"]["workloads"]) == ["select-only-own"]
