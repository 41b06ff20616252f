"""The workflows of GitHub: they are valid by the published schema and pass a linter of security, actions are
pinned, rights are few, and every step runs a target of make or a script that is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.github_runner import ROOT, run_step

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")
BIN = Path(sys.executable).parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return document


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in load(path)["jobs"].values():
        yield from job["steps"]


RUN = [(p.name, step["run"]) for p in WORKFLOWS for step in steps(p) if "run" in step]


def schema_faults(schema: str, *files: Path) -> str:
    """Returns what the published schema refuses; empty for nothing."""
    words = [str(BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", [ROOT / "action.yml"]),
        ("github-issue-forms", FORMS),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_are_valid_by_their_published_schemas(schema: str, files: list[Path]) -> None:
    assert files and schema_faults(schema, *files) == ""


def lint(*files: Path) -> subprocess.CompletedProcess[str]:
    words = [str(BIN / "zizmor"), "--offline", "--no-progress", "--color=never", *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_linter_of_workflows_has_nothing_to_say() -> None:
    done = lint(*WORKFLOWS, ROOT / "action.yml")
    assert done.returncode == 0, done.stdout


def test_the_linter_finds_a_script_that_is_injected(tmp_path: Path) -> None:
    text = (GITHUB / "workflows" / "wheels.yml").read_text("utf-8")
    bad = tmp_path / ".github" / "workflows" / "wheels.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(text.replace(".ci/package wheels", "make ${{ github.head_ref }}"))
    assert "template-injection" in lint(bad).stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_by_commit_and_jobs_have_no_more_rights_than_they_name(path: Path) -> None:
    text, workflow = path.read_text("utf-8"), load(path)
    uses = re.findall(r"uses: (.*)", text)
    assert uses and all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", u) for u in uses)
    assert workflow["permissions"] == {}
    assert all(isinstance(job["permissions"], dict) for job in workflow["jobs"].values())
    assert "secrets." not in text and "pull_request_target" not in text


def test_one_job_alone_may_prove_who_it_is_to_the_package_index() -> None:
    jobs = load(GITHUB / "workflows" / "release.yml")["jobs"]
    proving = {name for name, job in jobs.items() if "id-token" in job["permissions"]}
    assert proving == {"publish"} and jobs["publish"]["environment"] == "release"
    assert jobs["publish"]["needs"] == "build" and not any("run" in s for s in jobs["publish"]["steps"])


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert {p.stem for p in WORKFLOWS} == {"check", "wheels", "docs", "release"}


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("line", [line for _, line in RUN])
def test_a_step_runs_a_target_of_make_or_a_script_of_the_tree(line: str) -> None:
    assert "${{" not in line and "\n" not in line.strip()
    program, *rest = shlex.split(line)
    if program == "python3":
        assert (ROOT / rest[0]).is_file()
    elif program == "make":
        assert rest[0] in targets()
    else:
        assert os.access(ROOT / program, os.X_OK)
        assert program != ".ci/package" or rest[0] in targets()


def programs(folder: Path, *names: str) -> dict[str, str]:
    """Makes programs that write down their words in the file ``called``, and returns an environment with
    them."""
    for name in names:
        path = folder / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{folder}/called\n')
        path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def line_of(workflow: str, word: str) -> str:
    (line,) = (line for name, line in RUN if name == workflow and word in line)
    return line


def test_the_step_that_checks_the_tag_accepts_that_of_the_version_alone(tmp_path: Path) -> None:
    line = line_of("release.yml", "check_tag")
    other = run_step(line, {"GITHUB_REF_NAME": "v9.9.9"})
    assert other.returncode == 1 and f"tag v{VERSION}" in other.stderr
    hostile = run_step(line, {"GITHUB_REF_NAME": f"v{VERSION}; touch {tmp_path}/run"})
    assert hostile.returncode == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("workflow", ["wheels.yml", "release.yml"])
def test_the_step_that_builds_adds_the_compilers_targets_first(workflow: str, tmp_path: Path) -> None:
    line = line_of(workflow, ".ci/package")
    done = run_step(line, programs(tmp_path, "rustup", "make"))
    assert done.returncode == 0, done.stderr
    rustup, make = (tmp_path / "called").read_text().splitlines()
    assert "aarch64-unknown-linux-gnu" in rustup and "x86_64-unknown-linux-musl" in rustup
    assert make == f"make {line.split()[1]}"


def test_the_tag_of_a_version_prints_its_changes(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "check_tag.py").write_text((ROOT / "tools" / "check_tag.py").read_text("utf-8"))
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n## [Unreleased]\n## [1.2.0] - 2027-01-01\n### Fixed\n- a\n## [1.1.0]\n"
    )
    environment = {"GITHUB_REF_NAME": "v1.2.0"}
    done = run_step(line_of("release.yml", "check_tag"), environment, tmp_path)
    assert (done.returncode, done.stdout) == (0, "### Fixed\n- a\n")
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "release-page"
    script.write_text((ROOT / ".ci" / "release-page").read_text("utf-8"))
    script.chmod(0o755)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "a.whl").write_text("")
    bin = tmp_path / "bin"
    bin.mkdir()
    page = run_step(line_of("release.yml", "release-page"), environment | programs(bin, "gh"), tmp_path)
    assert page.returncode == 0, page.stderr
    words = (bin / "called").read_text()
    assert words.startswith("gh release create v1.2.0 --verify-tag") and words.endswith("dist/a.whl\n")
