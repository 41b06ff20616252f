"""Completion in real shells, and what an answer may cost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.unit.cli.test_start import loaded_in_turn

RUNS = ["20260101-000000-lio-0001", "20260102-000000-cpu-0002"]
NAMES = {RUNS[1]: "nightly"}
END = "(end of an answer)"
SHELLS = {
    "bash": """source <(dbdyno completion bash)
        for line in "$@"; do
            read -ra COMP_WORDS <<< "$line"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _dbdyno_completion dbdyno 2>/dev/null; printf '%s\\n' "${COMPREPLY[@]}" "$END"
        done""",
    "zsh": """autoload -U compinit; compinit -D; eval "$(dbdyno completion zsh)"
        compadd() { print -l -- "${(@P)@[-1]}" }; _path_files() { }
        _describe() { print -l -- "${completions_with_descriptions[@]%%:*}" }
        for line in "$@"; do
            words=(${=line}); CURRENT=${#words}; _dbdyno_completion; print -- "$END"
        done""",
    "fish": """dbdyno completion fish | source
        for line in $argv; complete -C $line; echo $END; end""",
}
"""A shell's own words: its completion function called with each command line, the last word unfinished."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """``dbdyno`` on the PATH, and a store with two runs, which the configuration file names."""
    place = tmp_path_factory.mktemp("completion")
    for run in RUNS:
        (place / "store" / run).mkdir(parents=True)
        document = {"schema_version": 1, "id": run, "started": "2026-01-01T00:00:00Z"}
        document |= {"name": NAMES.get(run, "")}
        (place / "store" / run / "run.json").write_text(json.dumps(document))
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


def completed(shell: str, env: dict[str, str], lines: Sequence[str]) -> list[set[str]]:
    """Returns the words that the shell offers for the last word of each of ``lines``."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: apt-get install {shell}")
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    script = [shell, *flags, "-c", SHELLS[shell], *(["test"] if shell != "fish" else []), *lines]
    done = subprocess.run(script, env=env | {"END": END}, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *answers, after = done.stdout.split(f"{END}\n")
    assert after == ""
    return [{line.split("\t")[0] for line in answer.splitlines() if line} for answer in answers]


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
    ("show n", {"nightly"}),
    ("runs --name n", {"nightly"}),
    ("runs --workload ra", {"random-read"}),
    ("observe --recipe li", {"limits"}),
    ("run --reset b", {"block"}),
    ("run --help-", {"--help-all"}),
    ("run --suite m", {"micro"}),
    ("run --suite micro --only point-select,sor", {"point-select,sort", "point-select,sort-on-disk"}),
    ("flame --against 20260101", {RUNS[0]}),
    ("help led", {"ledger"}),
    ("open n", {"nightly"}),
    ("no-such-command x", set()),
]


@pytest.mark.whole
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(shell: str, env: dict[str, str]) -> None:
    offers = completed(shell, env, [f"dbdyno {typed}" for typed, _ in CASES])
    assert [(typed, set(some)) for (typed, _), some in zip(CASES, offers, strict=True)] == CASES


def test_an_answer_loads_no_large_library(env: dict[str, str]) -> None:
    """Four answers of one process."""
    typed = ["dbdyno ", "dbdyno run --", "dbdyno show ", "dbdyno explain "]
    variables = {**env, "_DBDYNO_COMPLETE": "bash_complete", "COMP_CWORD": "9"}
    assert loaded_in_turn(*(([], {**variables, "COMP_WORDS": words}) for words in typed)) == [set()] * 4
