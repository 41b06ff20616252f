"""Defaults from a configuration file, strictly checked; ``--quiet``, ``--verbose``, NO_COLOR."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.on_terminal import on_terminal

from dbdyno.cli.app import app
from dbdyno.model.errors import UsageError

FAKE = ("--engine", "fake", "--dsn", "fake:cpus=2,cpu=10ms", "--call-target", "10ms")
GOOD = """
store = "~/elsewhere"   # of every command

[run]
sessions = "1,2"
measure = "5s"
repeats = 2
param = ["tables=own"]

[server.start]
max-connections = 50
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes the user's file."""
    monkeypatch.delenv("DBDYNO_CONFIG", raising=False)
    monkeypatch.delenv("DBDYNO_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    path = tmp_path / "xdg" / "dbdyno" / "config.toml"
    path.parent.mkdir(parents=True)

    def write(text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    return write


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def experiment(*words: str) -> dict[str, Any]:
    result = invoke("run", "lio", "--dry-run", "--json", *words)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout)["experiment"])


def test_an_option_comes_from_the_command_line_else_from_the_environment_else_from_the_file(
    config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(GOOD)
    plan = experiment("--repeats", "1")
    assert (plan["measure"], plan["repeats"], plan["params"]) == ("5s", 1, {"tables": "own"})
    assert "no runs in " + str(tmp_path / "elsewhere") in invoke("runs").output
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "named"))
    assert "no runs in " + str(tmp_path / "named") in invoke("runs").output
    assert (
        "no runs in " + str(tmp_path / "given") in invoke("runs", "--store", str(tmp_path / "given")).output
    )


def test_a_commands_own_table_overrides_the_keys_of_all(config: Callable[[str], Path]) -> None:
    config('measure = "9s"\n[run]\nmeasure = "7s"\n')
    assert experiment()["measure"] == "7s"


def test_a_variable_names_another_file_or_none(
    config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config("[run]\nrepeats = 4\n")
    (tmp_path / "other.toml").write_text("[run]\nrepeats = 3\n")
    monkeypatch.setenv("DBDYNO_CONFIG", str(tmp_path / "other.toml"))
    assert experiment()["repeats"] == 3
    monkeypatch.setenv("DBDYNO_CONFIG", "")
    assert experiment()["repeats"] == 1
    monkeypatch.setenv("DBDYNO_CONFIG", str(tmp_path / "none.toml"))
    assert isinstance(invoke("runs").exception, UsageError)


@pytest.mark.parametrize(
    ("before", "after", "line", "cure"),
    [
        ("measure", "mesure", 6, "measure"),
        ("store", "sotre", 2, "store"),
        ("[run]", "[rnu]", 4, "run"),
        ("[server.start]", "[server.strat]", 10, "start"),
        ("max-connections", "max_connections", 11, "max-connections"),
        ("repeats = 2", "repeats = 0", 7, None),
        ("repeats = 2", 'repeats = "two"', 7, None),
        ("repeats = 2", "repeats = [2]", 7, None),
        ("repeats = 2", "repeats = true", 7, None),
        ("repeats = 2", "dry-run = 1", 7, None),
        ("repeats = 2", 'order = "random"', 7, None),
        ("repeats = 2", 'dsn = "host=h password=geheim"', 7, "pgpass"),
        ('param = ["tables=own"]', 'param = "tables=own"', 8, None),
        ("repeats = 2", "repeats = ", 7, None),
        ("repeats = 2", 'run.measure = "1s"', 7, None),
    ],
)
def test_a_mistake_in_the_file_is_refused_with_file_and_line(
    before: str, after: str, line: int, cure: str | None, config: Callable[[str], Path]
) -> None:
    path = config(GOOD.replace(before, after, 1))
    result = invoke("runs", "--verbose")  # the mistake is in the table of another command
    assert isinstance(result.exception, UsageError)
    assert result.exception.message.startswith(f"{path}:{line}: ")
    assert cure is None or cure in str(result.exception.cure)
    assert "geheim" not in result.output + str(result.exception)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('measure = "30x"', ("run", "lio", "--dry-run")),
        ('measure = "100ms"', ("run", "lio", "--dry-run")),
        ('sessions = "1,two"', ("run", "lio", "--dry-run")),
        ('target = "p95<"', ("run", "lio", "--dry-run")),
        ('measure = "100ms"', ("selftest",)),
        ('window = "0s"', ("observe",)),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_what_only_the_plan_refuses_has_file_and_line(
    value: str, words: tuple[str, ...], config: Callable[[str], Path], *, shared: bool
) -> None:
    path = config(f"{value}\n" if shared else f"\n[{words[0]}]\n{value}\n")
    option = f"--{value.split()[0]}"
    result = invoke(*words)
    assert isinstance(result.exception, UsageError)
    assert result.exception.message.startswith(f"{path}:{1 if shared else 3}: {option}")
    by_hand = invoke(*words, option, "nonsense")
    assert isinstance(by_hand.exception, UsageError) and str(path) not in by_hand.exception.message


def test_without_a_readable_home_there_is_no_file(
    config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config("[")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/1/nowhere")
    assert invoke("workloads", "--json").exit_code == 0


@pytest.mark.whole
def test_quiet_prints_the_result_alone(config: Callable[[str], Path]) -> None:
    config("")
    options = ("lio", *FAKE, "--measure", "5s", "--sessions", "1,2")
    loud = invoke("run", *options)
    assert [x.count("sess ") for x in (loud.stderr, loud.stdout)] == [1, 1]
    for words in (("-q", "run"), ("run", "--quiet")):
        result = invoke(*words, *options)
        assert result.exit_code == 0
        assert [x.count("sess ") for x in (result.stderr, result.stdout)] == [0, 1]
        assert "report: " in result.stdout


def test_verbose_says_each_step_and_what_the_file_sets(config: Callable[[str], Path]) -> None:
    path = config('[run]\nmeasure = "5s"\n')
    result = invoke("run", "lio", *FAKE, "--sessions", "1,2", "-v")
    assert f"{path}: measure=5s" in result.stderr
    steps = re.findall(r"^ +\d+\.\d s +measurement (000[12])-\S+: (.+)$", result.stderr, re.MULTILINE)
    phases = ("connecting", "last calls", "closing")  # the fake engine's clock leaps over the others
    assert steps == [(cell, phase) for cell in ("0001", "0002") for phase in phases]
    both = invoke("run", "lio", *FAKE, "-q", "-v")
    assert isinstance(both.exception, UsageError)


def test_no_color_turns_colours_off(config: Callable[[str], Path]) -> None:
    config("")
    coloured = re.compile(r"\x1b\[(\d+;)*[349]\d")
    assert coloured.search(on_terminal("run", "nonsense")[1])
    assert not coloured.search(on_terminal("run", "nonsense", env={"NO_COLOR": "1"})[1])
