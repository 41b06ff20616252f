"""docs/json.schema.json: it is what the tool makes, every command with ``--json`` has a document, and what
commands print is valid without a further key. tests/in_process.py validates what all other tests print."""

from __future__ import annotations

import copy
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from tests import json_schema
from tests.fakery import ROOT
from tests.stored_runs import copied_run, derived_run

from dbdyno.cli.app import app

CORPUS = ROOT / "tests" / "golden" / "corpus"


def test_the_published_schema_is_up_to_date_and_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool = runpy.run_path(str(ROOT / "tools" / "json_schema.py"))
    assert json_schema.PATH.read_text("utf-8") == tool["render"](), "run: python tools/json_schema.py"
    Draft202012Validator.check_schema(json_schema.published())


def _with_json(command: click.Command, context: click.Context, path: str = "") -> Iterator[str]:
    if any("--json" in p.opts for p in command.params):
        yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            narrower = command.get_command(context, name)
            assert narrower is not None
            yield from _with_json(narrower, click.Context(narrower, context), f"{path} {name}".strip())


def test_every_command_with_json_has_a_document() -> None:
    names = {json_schema._name(path) for path in _with_json(app, click.Context(app, **app.context_settings))}
    assert names == {n for n in json_schema.published()["$defs"] if n.startswith("command-")}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    model = derived_run(folder)
    for day in range(1, 7):
        copied_run(folder, model, f"2026010{day}-100000-fake-000{day}", name="nightly")
    return folder


def printed(*words: str, **env: str) -> str:
    done = CliRunner().invoke(app, [*words, "--json"], env={"DBDYNO_CONFIG": "", **env})
    assert done.exit_code in (0, 3), done.output
    assert done.stdout
    return done.stdout


OF_RUNS = (
    "runs",
    "show last --profile --events",
    "show last --claims --fail-on claim:errors",
    "label last --name a --tag b",
    "analyze last",
    "compare last~1 last",
    "trend --name nightly --limit 6",
    "sql --tables rungs ledger",
)


@pytest.mark.parametrize("line", OF_RUNS)
def test_documents_of_stored_runs_are_valid(line: str, store: Path) -> None:
    words = line.split()
    where = [] if line.startswith("sql --tables") else [f"--store={store}"]
    json_schema.check((*words, "--json"), printed(*words, *where))


def test_rows_of_a_query_are_valid(store: Path) -> None:
    words = ("sql", "select run_id, sessions from rungs", f"--store={store}")
    json_schema.check((*words, "--json"), printed(*words))


@pytest.mark.parametrize(
    "line",
    [
        "metrics list",
        "recipes",
        "workloads",
        "workload list",
        "topology",
        "run lio --sessions 1,2 --dry-run",
        "run --suite micro --list",
        "analyze --smt-yield 1.31",
        f"analyze {CORPUS / 'foreign.csv'} --predict 48",
        f"compare {CORPUS / 'old.txt'} {CORPUS / 'new.txt'}",
        "server status",
        "snapshot list",
    ],
)
def test_documents_without_a_run_are_valid(line: str, tmp_path: Path) -> None:
    words = line.split()
    json_schema.check((*words, "--json"), printed(*words, DBDYNO_STORE=str(tmp_path / "runs")))


@pytest.fixture(scope="module")
def shown(store: Path) -> str:
    return printed("show", "last", f"--store={store}")


def _changed(text: str, change: Any) -> str:
    document = copy.deepcopy(json.loads(text))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(further=1),
        lambda d: d["rungs"][0].update(further=1),
        lambda d: d["plan"]["experiment"].update(further=1),
        lambda d: d["environment"]["host"]["cpu"].pop("cores"),
        lambda d: d["run"].update(status="asleep"),
        lambda d: d["rungs"][0].update(sessions="8"),
        lambda d: d["findings"].append({"id": "a"}),
    ],
)
def test_a_key_too_many_too_few_or_of_another_type_is_noticed(change: Any, shown: str) -> None:
    json_schema.check(("show", "last", "--json"), shown)
    with pytest.raises(AssertionError, match="json_documents"):
        json_schema.check(("show", "last", "--json"), _changed(shown, change))
