"""Scripts by options and recipes: the options of pgbench and the plans that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.engine.machine import Machine
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Plan


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["run", "--engine", "fake", *words])


def plan(*words: str) -> dict[str, Any]:
    done = run(*words, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.output)
    return document


def mix(document: dict[str, Any]) -> list[tuple[str, int]]:
    return [(s["name"], s["weight"]) for s in document["variants"][0]["scripts"]]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.sql"
    path.write_text("select :n;\n")
    return path


def test_options_of_pgbench_make_the_plan_they_mean(own: Path) -> None:
    words = f"-b tpcb@2 -f {own}@3 -c 1,2 -j 2 -T 5 -D n=007 -s 7 -M simple -C --max-tries 4 --random-seed 9"
    document = plan(*words.split())
    assert mix(document) == [("tpcb-like", 2), ("own.sql", 3)]
    assert document["variants"][0]["scripts"][1]["text"] == "select :n;\n"
    cell = document["cells"][1]
    assert (cell["sessions"], cell["measure_ns"]) == (2, 5_000_000_000)
    assert cell["params"] == {"scale": 7, "n": "007"}
    driver = {"protocol": "simple", "threads": 2, "max_tries": 4, "reconnect": True, "allow_shell": False}
    assert driver.items() <= cell["driver"].items()
    assert document["experiment"]["seed"] == 9


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("select-only", [("select-only", 1)]),
        ("-S", [("select-only", 1)]),
        ("-N -S", [("select-only", 1), ("simple-update", 1)]),
        ("-b se@0 -b si@5", [("select-only", 0), ("simple-update", 5)]),
        ("-S -b sel@4 -N", [("select-only", 4), ("select-only (2)", 1), ("simple-update", 1)]),
    ],
)
def test_built_in_scripts_are_named_by_their_beginning_and_short_options(
    words: str, expected: list[tuple[str, int]]
) -> None:
    assert mix(plan(*words.split())) == expected


@pytest.mark.parametrize(
    ("words", "message", "cure"),
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
        ("-S --vacuum-all", "--vacuum-all is an option of pgbench", "vacuumdb"),
        ("-S -p 5433 --dsn host=a", "both --dsn and -p", "one of them"),
        ("", "nothing to run", "-f FILE"),
    ],
)
def test_wrong_options_of_scripts_are_refused_with_the_cure(words: str, message: str, cure: str) -> None:
    error = run(*words.split(), "--dry-run").exception
    assert isinstance(error, UsageError)
    assert message in error.message and cure in str(error.cure)


@pytest.mark.parametrize(
    ("words", "dsn"),
    [
        ("-S", None),
        ("-S bench", "dbname=bench"),
        ("-S -h db.example -p 5433 -U me -d bench -n -P 5", "host=db.example port=5433 user=me dbname=bench"),
        ("-S -h /tmp/a -U o'hara", "host=/tmp/a user='o\\'hara'"),
        ("-S -d service=reporting", "service=reporting"),
        ("lio -p 5433", "port=5433"),
    ],
)
def test_the_options_of_pgbench_say_where_to_connect(
    words: str, dsn: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsns: list[str | None] = []

    def target(options: dict[str, Any], _plan: Plan, _machine: Machine) -> Target:
        dsns.append(options["dsn"])
        raise UsageError("enough", "")

    monkeypatch.setattr("dbdyno.cli.run.target_of", target)
    assert isinstance(run(*words.split()).exception, UsageError)
    assert dsns == [dsn]


def test_h_alone_asks_for_help_and_a_rate_is_as_in_pgbench() -> None:
    assert run("-h").output.startswith("Usage:")
    paced = plan("-S", "-R", "50", "-L", "20", "-c", "2", "--max-tries", "0")["cells"][0]
    assert paced["pacing"]["rate_per_s"] == 50 and paced["pacing"]["latency_limit_ns"] == 20_000_000
    assert paced["driver"]["max_tries"] == 0


@pytest.mark.parametrize(
    ("text", "words", "protocol"),
    [
        ("select 1;\n", "", "prepared"),
        ("select 1 \\; select 2;\n", "", "simple"),
        ("select ':n';\n", "", "prepared"),
        ("select ':n';\n", "-D n=1", "simple"),
        ("select 1 as n \\gset\nselect ':n';\n", "", "simple"),
        ("\\startpipeline\nselect ':scale';\n\\endpipeline\n", "", "prepared"),
        ("select 1 \\; select 2;\n", "-M extended", "extended"),
    ],
)
def test_simple_queries_are_chosen_where_a_script_needs_them(
    tmp_path: Path, text: str, words: str, protocol: str
) -> None:
    path = tmp_path / "own.sql"
    path.write_text(text, encoding="utf-8-sig")
    done = CliRunner().invoke(app, ["run", "-f", str(path), *words.split(), "--dry-run", "--json"])
    document = json.loads(done.output)
    assert document["cells"][0]["driver"]["protocol"] == protocol
    reasons = [c["reason"] for c in document["choices"] if c["name"] == "protocol"]
    assert bool(reasons) == (protocol == "simple")
    assert document["variants"][0]["scripts"][0]["text"] == text


def test_the_scale_of_the_tables_is_used_whatever_was_asked_for(tmp_path: Path) -> None:
    done = run("-S", "-s", "8", "-c", "1", "--measure", "1s", "--json", "--store", str(tmp_path))
    assert done.exit_code == 0, done.output
    (stored,) = tmp_path.glob("*/plan.json")
    document = json.loads(stored.read_text())
    assert document["cells"][0]["params"]["scale"] == 3
    (choice,) = [c for c in document["choices"] if c["name"] == "scale"]
    assert (choice["value"], choice["reason"]) == ("3", "the tables have 3; scale 8 is not used")


def test_the_option_for_built_in_scripts_lists_them() -> None:
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


def test_a_plan_of_an_older_version_has_its_one_script() -> None:
    document = plan("-S")
    del document["variants"][0]["scripts"]
    old = Plan.model_validate(document | {"script_text": "select 1;"})
    assert [s.text for s in old.scripts] == ["select 1;"]


def test_a_run_of_scripts_is_named_by_them(own: Path) -> None:
    done = run("-f", str(own), "-b", "select-only", "-c", "1,2", "-T", "1", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["run"]["id"].rpartition("-")[0].endswith("-select-only-own")
    assert list(document["run"]["workloads"]) == ["select-only-own"]
