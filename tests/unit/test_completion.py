"""Completion in real shells, and what an answer may cost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from tests.unit.test_start import loaded

RUNS = ["20260101-000000-lio-0001", "20260102-000000-cpu-0002"]
SHELLS = {
    "bash": """source <(dbdyno completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _dbdyno_completion dbdyno 2>/dev/null; printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """autoload -U compinit; compinit -D; eval "$(dbdyno completion zsh)"; words=("$@"); CURRENT=$#
        compadd() { print -l -- "${(@P)@[-1]}" }; _path_files() { }
        _describe() { print -l -- "${completions_with_descriptions[@]%%:*}" }; _dbdyno_completion""",
    "fish": "dbdyno completion fish | source; complete -C (string join ' ' -- $argv)",
}
"""A shell's own words: its completion function called with a command line, the last word unfinished."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """``dbdyno`` on the PATH, and a store with two runs, which the configuration file names."""
    place = tmp_path_factory.mktemp("completion")
    for run in RUNS:
        (place / "store" / run).mkdir(parents=True)
        (place / "store" / run / "run.json").write_text("{}")
    config = place / "config.toml"
    config.write_text(f'store = "{place}/store"\n')
    program = place / "dbdyno"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dbdyno "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{place}:{os.environ['PATH']}",
        "DBDYNO_CONFIG": str(config),
        "HOME": str(place),
    }


def completed(shell: str, env: dict[str, str], *words: str) -> list[str]:
    """What the shell offers for the last of ``words``."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    script = [shell, *flags, "-c", SHELLS[shell], *(["test"] if shell != "fish" else []), *words]
    done = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


CASES = [
    ("ru", {"run", "runs"}),
    ("run --recipe li", {"limits"}),
    ("observe --waits s", {"sampled"}),
    ("show 2026", set(RUNS)),
    ("run --recip", {"--recipe"}),
    ("server sta", {"start", "status"}),
    ("run cpu", {"cpu", "cpu-query"}),
    ("rm 20260102", {RUNS[1]}),
    ("explain cpu-i", {"cpu-inflation"}),
    ("no-such-command x", set()),
]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [(shell, *case) for shell in SHELLS for case in (CASES if shell == "bash" else CASES[:5])],
)
def test_a_shell_completes(shell: str, typed: str, offered: set[str], env: dict[str, str]) -> None:
    assert set(completed(shell, env, "dbdyno", *typed.split())) == offered


@pytest.mark.parametrize("words", ["dbdyno ", "dbdyno run --", "dbdyno show ", "dbdyno explain "])
def test_an_answer_loads_no_large_library(words: str, env: dict[str, str]) -> None:
    variables = {"_DBDYNO_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "9"}
    assert loaded(**{**env, **variables}) == set()
