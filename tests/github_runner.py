"""A runner of GitHub, as far as the steps of the action see one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fakery import WITH_ENGINES

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "github_action.py"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


@dataclass
class Runner:
    """A runner of GitHub: a workspace, and the files that steps write to."""

    folder: Path
    inputs: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    def step(
        self, name: str, program: str = str(Path(sys.executable).parent / "dbdyno"), **inputs: str
    ) -> subprocess.CompletedProcess[str]:
        self.workspace.mkdir(parents=True, exist_ok=True)
        files = {f"GITHUB_{n}": str(self.folder / n) for n in ("OUTPUT", "STEP_SUMMARY", "PATH")}
        for path in files.values():
            Path(path).write_text("")
        defaults = {
            n: i["default"] for n, i in ACTION["inputs"].items() if "${{" not in i.get("default", "${{")
        }
        given = {**defaults, **self.inputs, **{k.replace("_", "-"): v for k, v in inputs.items()}}
        env = {
            **{
                k: v
                for k, v in self.environment.items()
                if not k.startswith(("INPUT_", "GITHUB_", "PG", "GIT_"))
            },
            **files,
            **{f"INPUT_{k.upper().replace('-', '_')}": v for k, v in given.items()},
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.folder),
            "DBDYNO_PROGRAM": program,
            "PYTHONPATH": WITH_ENGINES,
        }
        return subprocess.run(
            [sys.executable, str(SCRIPT), name], cwd=self.workspace, env=env, capture_output=True, text=True
        )

    @property
    def outputs(self) -> dict[str, str]:
        lines = (self.folder / "OUTPUT").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def summary(self) -> str:
        return (self.folder / "STEP_SUMMARY").read_text()


def run_step(
    line: str, environment: Mapping[str, str], folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs the text of a step as a runner does without ``shell``."""
    words = ["bash", "-e", "-c", line]
    env = {**os.environ, **environment}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def repository(folder: Path, *scripts: str, name: str = "q.sql") -> None:
    """Makes a repository whose file ``name`` has the first script on branch main and the second on slow."""

    def git(*words: str) -> None:
        config = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *config, *words], cwd=folder, check=True, capture_output=True)

    folder.mkdir(parents=True)
    for branch, script in zip(("main", "slow"), scripts, strict=True):
        git(*(("init", "--initial-branch") if branch == "main" else ("checkout", "-b")), branch)
        (folder / name).write_text(f"{script}\n")
        git("add", name)
        git("commit", "--message", f"Call as in {branch}")
