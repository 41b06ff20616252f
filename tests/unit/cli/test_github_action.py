"""The GitHub Action: its metadata, and its steps as a runner executes them, on the simulated server."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import zipfile
from pathlib import Path

import jsonschema
import pytest
from tests.github_runner import ACTION, ROOT, SCRIPT, Runner, repository

from dbdyno.conduct import labels_of
from dbdyno.model.errors import EXIT_GATE

FAKE = "--engine fake --dsn fake:cpus=2,cpu=5ms --sessions 1 --repeats 2 --measure 2s --call-target 5ms"

METADATA = {
    "type": "object",
    "required": ["name", "description", "runs"],
    "additionalProperties": False,
    "properties": {
        **{key: {"type": "string"} for key in ("name", "description", "author")},
        "branding": {"type": "object", "properties": {"color": {"enum": ["blue"]}}},
        "inputs": {
            "patternProperties": {
                "^[_a-zA-Z][a-zA-Z0-9_-]*$": {
                    "type": "object",
                    "required": ["description", "required"],
                    "additionalProperties": False,
                    "properties": {
                        "description": {"type": "string"},
                        "required": {"type": "boolean"},
                        "default": {"type": "string"},
                    },
                }
            },
            "additionalProperties": False,
        },
        "outputs": {
            "additionalProperties": {
                "required": ["description", "value"],
                "properties": {"value": {"type": "string", "pattern": r"^\$\{\{ steps\."}},
                "additionalProperties": {"type": "string"},
            }
        },
        "runs": {
            "required": ["using", "steps"],
            "additionalProperties": False,
            "properties": {
                "using": {"const": "composite"},
                "steps": {
                    "items": {
                        "type": "object",
                        "oneOf": [{"required": ["run", "shell"]}, {"required": ["uses"]}],
                        "additionalProperties": False,
                        "properties": {
                            **{k: {"type": "string"} for k in ("name", "id", "if", "run", "shell", "uses")},
                            **{k: {"additionalProperties": {"type": "string"}} for k in ("env", "with")},
                        },
                    }
                },
            },
        },
    },
}
"""What https://docs.github.com/actions/creating-actions/metadata-syntax-for-github-actions says of composite
actions."""


def test_the_metadata_is_that_of_a_composite_action() -> None:
    jsonschema.validate(ACTION, METADATA)


def test_every_input_is_used_and_none_is_within_the_text_of_a_shell() -> None:
    steps = ACTION["runs"]["steps"]
    assert not any("${{" in step.get("run", "") for step in steps)  # a ref could be named $(rm -rf .)
    texts = [str(v) for step in steps for v in (step.get("if"), step.get("env"), step.get("with"))]
    used = {name for text in texts for name in re.findall(r"inputs\.([\w-]+)", text)}
    assert used == set(ACTION["inputs"])
    environment = {k: v for step in steps for k, v in step.get("env", {}).items()}
    for name, value in environment.items():
        of = name.removeprefix("INPUT_").lower().replace("_", "-")
        assert value == f"${{{{ inputs.{of} }}}}"
    asked = set(re.findall(r'given(?:_\w+)?\("([\w-]+)"', SCRIPT.read_text("utf-8")))
    assert {f"INPUT_{n.upper().replace('-', '_')}" for n in asked} == set(environment)


def test_every_output_is_set_and_the_script_exists() -> None:
    steps = ACTION["runs"]["steps"]
    ids = {step["id"] for step in steps if "id" in step}
    source = SCRIPT.read_text("utf-8")
    for name, out in ACTION["outputs"].items():
        step, wanted = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.([\w-]+) \}\}", out["value"]).groups()
        assert step in ids and wanted == name and f'output("{name}"' in source
    for step in steps:
        for path in re.findall(r"\$GITHUB_ACTION_PATH/([\w./]+)", step.get("run", "")):
            assert (ROOT / path).is_file()


@pytest.mark.whole
def test_the_first_build_has_no_baseline_and_the_second_compares_with_it(tmp_path: Path) -> None:
    runner = Runner(tmp_path, {"run": f"lio {FAKE}"})
    required = runner.step("measure", require_baseline="true")
    assert required.returncode == 4 and "::error title=dbdyno::no baseline last" in required.stdout
    first = runner.step("measure")
    assert first.returncode == 0, first.stdout + first.stderr
    assert runner.outputs["verdict"] == "no baseline" and runner.outputs["base-run"] == ""
    assert "no baseline" in runner.summary and "::warning" in first.stdout
    baseline = runner.outputs["head-run"]

    second = runner.step("measure", fail_on="worse:5%\n\nclaim:errors\n")
    assert second.returncode == 0, second.stdout + second.stderr
    outputs = runner.outputs
    assert outputs["base-run"] == baseline != outputs["head-run"]
    assert outputs["verdict"] == "passed" and Path(outputs["report"]).is_file()
    assert (Path(outputs["store"]) / outputs["head-run"]).is_dir()
    assert (
        runner.summary.startswith(f"A is the base, run {baseline}; B is the head, run {outputs['head-run']}.")
        and "claim:errors" in runner.summary
        and "worse:5%" in runner.summary
    )

    third = runner.step("measure", baseline=baseline, fail_on="claim:peak")
    assert third.returncode == EXIT_GATE and runner.outputs["verdict"] == "failed"
    assert runner.outputs["base-run"] == baseline
    assert re.search(
        r"::error title=dbdyno::gate failed%0AA is .*; B is .*%0Afailed  claim:peak.*"
        r"%0Aall of it: the summary of this job$",
        third.stdout,
        re.MULTILINE,
    )
    assert "dbdyno-comparison.md" not in third.stdout
    assert "Gate failed" in runner.summary


@pytest.mark.whole
def test_two_refs_are_built_measured_and_compared(tmp_path: Path) -> None:
    runner = Runner(tmp_path, {"mode": "refs", "base": "main", "head": "slow"})
    repository(runner.workspace, "select 1;", "select 2;")
    inputs = {
        "run": "-f {tree}/built.sql --engine fake --dsn fake: --sessions 1 --measure 1s",
        "build": 'cp q.sql built.sql; echo "$DBDYNO_SIDE $(cat built.sql)" >> ../log',
        "stop": 'echo "stop $DBDYNO_SIDE" >> ../log',
        "fail_on": "claim:peak",
    }
    done = runner.step("measure", **inputs)
    assert done.returncode == EXIT_GATE, done.stdout + done.stderr
    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["base select 1;", "stop base", "head select 2;", "stop head"]
    assert runner.outputs["base-run"] != runner.outputs["head-run"]
    trees = subprocess.run(
        ["git", "worktree", "list"], cwd=runner.workspace, capture_output=True, text=True, check=True
    )
    assert len(trees.stdout.splitlines()) == 1  # nothing is left behind
    first, _, title = runner.summary.splitlines()[:3]
    assert re.match(r"A is the base, `main@[0-9a-f]{10}` \(run .*\); B is the head, `slow@", first)
    assert re.match(r"# slow@[0-9a-f]{10} \(B\) against main@[0-9a-f]{10} \(A\)", title)


@pytest.mark.parametrize(
    ("inputs", "code", "words"),
    [
        ({"run": ""}, 2, "run is empty"),
        ({"mode": "ref"}, 2, "baseline or refs"),
        ({"fail_on": "wrose"}, 2, "did you mean 'worse'?"),
        ({"compare": "--margn 1%"}, 2, "--margin"),
        ({"mode": "refs", "base": "nowhere"}, 2, "fetch-depth: 0"),
        ({"mode": "refs", "base": "--upload-pack=touch x"}, 2, "fetch-depth: 0"),
        ({"mode": "refs", "base": "$(touch injected)"}, 2, "fetch-depth: 0"),
        ({"build": "exit 3"}, 2, "exit code 3"),
        ({"run": "no-such-workload"}, 2, "exit code 2"),
        ({"run": "lio 'x"}, 2, "input run: no closing quotation"),
        ({"compare": "--margin '1%"}, 2, "input compare: no closing quotation"),
        ({"require_baseline": "yes"}, 2, "input require-baseline: 'yes' is neither true nor false"),
        ({"require_baseline": "TRUE"}, 4, "no baseline last"),
        ({"store": "../../escape"}, 2, "within the workspace"),
        ({"store": "."}, 2, "within the workspace"),
        ({"store": "link/runs"}, 2, "within the workspace"),
    ],
)
def test_mistakes_are_errors_beside_the_job(
    tmp_path: Path, inputs: dict[str, str], code: int, words: str
) -> None:
    runner = Runner(tmp_path, {"run": f"lio {FAKE}"})
    repository(runner.workspace, "select 1;", "select 2;")
    (runner.workspace / "link").symlink_to(tmp_path)
    done = runner.step("measure", **inputs)
    assert done.returncode == code and not done.stderr.startswith("Traceback")
    (error,) = (line for line in done.stdout.splitlines() if line.startswith("::error"))
    assert words in error and words in runner.summary
    assert not (runner.workspace / "injected").exists() and not (tmp_path / "runs").exists()


def test_a_mistake_in_a_recipe_is_met_before_anything_is_built(tmp_path: Path) -> None:
    """One of the head alone, too, since both are read first. A file that the build makes is read after it."""
    runner = Runner(tmp_path, {"mode": "refs", "base": "main", "head": "slow", "build": "touch ../built"})
    repository(runner.workspace, 'workload = "lio"', 'wrokload = "lio"', name="q.toml")
    done = runner.step("measure", run="{tree}/q.toml --engine fake --dsn fake:")
    assert done.returncode == 2 and "dbdyno run of head, exit code 2" in done.stdout
    assert not (tmp_path / "built").exists()
    done = runner.step("measure", run="-f {tree}/built.sql --engine fake --dsn fake:")
    assert done.returncode == 2 and (tmp_path / "built").exists()


def test_a_program_that_is_not_there_is_an_error_beside_the_job(tmp_path: Path) -> None:
    runner = Runner(tmp_path, {"run": "lio"}, {"PATH": os.environ["PATH"]})
    done = runner.step("measure", program="/no/such/dbdyno")
    assert done.returncode == 1 and "::error" in done.stdout and "/no/such/dbdyno" in done.stdout


def test_the_metadata_pins_what_it_uses_and_documents_every_input() -> None:
    """A tag of another action can be moved; the hash of a commit cannot."""
    uses = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert uses and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one) for one in uses)
    documented = (ROOT / "docs" / "gates.md").read_text("utf-8")
    for name, about in ACTION["inputs"].items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", documented, re.MULTILINE)
        default = about.get("default", "")
        assert about["required"] is not bool("default" in about)
        if default and "${{" not in default:
            assert f"`{default}`" in row, row
    for name in ACTION["outputs"]:
        assert f"`{name}`" in documented


def test_names_of_refs_are_names_of_runs() -> None:
    module = runpy.run_path(str(SCRIPT))
    commit = "0123456789abcdef0123456789abcdef01234567"
    names = [module["name_of"](ref, commit) for ref in ("main", "HEAD~1", "x" * 80, "")]
    assert names == ["main@0123456789", *["0123456789"] * 3]
    for name in names:
        assert labels_of({"tags": (), "name": name, "note": None})["name"] == name


def test_an_installation_refuses_what_is_no_package(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for package, words in (
        ("dist/*.whl", "0 such files"),
        ("dist/*.tar.gz", "0 such files"),
        ("--index-url=http://x", "neither"),
        ("", "neither"),
    ):
        done = runner.step("install", package=package)
        assert done.returncode == 2 and words in done.stdout


@pytest.mark.whole
def test_a_wheel_is_installed_where_later_steps_find_its_program(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    (runner.workspace / "dist").mkdir(parents=True)
    with zipfile.ZipFile(runner.workspace / "dist" / "small-1.0-py3-none-any.whl", "w") as wheel:
        about = "small-1.0.dist-info"
        wheel.writestr("small.py", "def main():\n    print('installed')\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/entry_points.txt", "[console_scripts]\nsmall = small:main\n")
        wheel.writestr(f"{about}/RECORD", "")
    done = runner.step("install", package="dist/small-*.whl")
    assert done.returncode == 0, done.stdout + done.stderr
    program = Path((tmp_path / "PATH").read_text().strip()) / "small"
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "installed\n"
