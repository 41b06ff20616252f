"""The command line: every command documented with examples, help and tables as they were last looked at."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from dbdyno.cli.app import REPLACED, _exit_code, app
from dbdyno.cli.flags import Command, Grouped
from dbdyno.model.errors import UsageError

FAKE = ("--engine", "fake", "--dsn", "fake:cpus=2,cpu=10ms", "--measure", "5s", "--call-target", "10ms")


def every_command(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        yield (*path, name), command


COMMANDS = dict(every_command(app))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "100")
    runner = CliRunner()

    def invoke(*words: str) -> Result:
        result = runner.invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result

    return invoke  # type: ignore[return-value]


HELP = Path(__file__).parents[2] / "golden" / "screens" / "help"
"""A file for each text; `python tools/same.py --golden help` writes them anew."""


def text_of_help(*words: str, columns: int = 100) -> str:
    # click leaves two columns of a terminal free
    result = CliRunner().invoke(app, words, terminal_width=columns - 2)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_every_command_is_the_stored_text(path: tuple[str, ...]) -> None:
    name = "-".join(path)
    assert text_of_help(*path, "--help") == (HELP / f"{name}.txt").read_text("utf-8")
    if isinstance(COMMANDS[path], Command):
        assert text_of_help(*path, "--help-all") == (HELP / f"{name}-all.txt").read_text("utf-8")


def test_the_help_of_run_fits_75_lines_and_help_all_has_every_option() -> None:
    brief, full = (text_of_help("run", option, columns=80) for option in ("--help", "--help-all"))
    assert len(brief.splitlines()) <= 75
    assert max(map(len, brief.splitlines())) <= 80
    options = [set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)) for text in (brief, full)]
    assert options[0] < options[1]
    params = [p for p in COMMANDS["run",].params if isinstance(p, click.Option) and not p.hidden]
    assert {next(o for o in p.opts if o.startswith("--")) for p in params} | {"--help"} == options[1]
    headings = ["What to run", "Load", "Measurement", "Server", "What to gather", "Output"]
    assert re.findall(r"^(\w[\w ]*):$", brief, re.MULTILINE) == headings


@pytest.mark.parametrize(
    ("typed", "near"),
    [("--trigger-secre", "--trigger-secret"), ("--messure", "--measure"), ("--rung", "--rungs")],
)
def test_a_mistyped_option_names_the_nearest_whether_or_not_help_shows_it(typed: str, near: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dbdyno", "run", typed, "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"did you mean {near!r}?" in done.stderr


@pytest.mark.parametrize(
    ("words", "message", "cure"),
    [
        ("run cpu --ladder auto:8 --sessions 4", "both --sessions and --ladder were given", "one of them"),
        ("run cpu --ladder auto8", "--ladder auto8: 'auto8' is not a session count", "or auto or auto:64"),
        ("run pay.sql", "no workload 'pay.sql'", "a script: -f pay.sql"),
        ("run pai.sql", "no workload 'pai.sql'", "did you mean -f pay.sql?"),
        ("run own.tml", "no workload 'own.tml'", "did you mean own.toml?"),
        ("run lioo", "no workload 'lioo'", "did you mean 'lio'?"),
        (f"run {'x' * 300}.sql", "no workload", "known: "),
    ],
)
def test_a_slip_has_what_was_meant_as_cure(
    words: str, message: str, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pay.sql", "own.toml"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(app, [*words.split(), "--dry-run"], standalone_mode=False, catch_exceptions=False)
    assert message in error.value.message and cure in (error.value.cure or "")


@pytest.mark.parametrize(
    "path", [p for p, c in COMMANDS.items() if not isinstance(c, click.Group)], ids=" ".join
)
def test_every_command_has_examples(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].help or ""
    assert "Examples:" in text
    assert "dbdyno " + " ".join(path) in text


def test_help_has_each_option_once_in_plain_words() -> None:
    for path, command in COMMANDS.items():
        shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        text = text_of_help(*path, "--help-all" if isinstance(command, Command) else "--help", columns=80)
        listed = re.split(r"^\w.*:$", text.partition("\nCommands:")[0], maxsplit=1, flags=re.MULTILINE)[1]
        begun = re.findall(r"^  (?:-\w, )?(--[\w-]+)", listed, re.MULTILINE)
        longs = [next(o for o in p.opts if o.startswith("--")) for p in shown]
        assert sorted(begun) == sorted([*longs, "--help"]), path
        assert not re.search(r"INTEGER|FLOAT|RANGE|<=x|x>=", text), path
        if isinstance(command, Grouped):
            assert {n for names in command.groups.values() for n in names} <= {p.name for p in shown}, path


@pytest.mark.parametrize(("typed", "cure"), [("version", "dbdyno --version"), ("man", "dbdyno help TOPIC")])
def test_a_command_of_similar_programs_has_its_counterpart_as_cure(typed: str, cure: str) -> None:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(app, [typed], standalone_mode=False, catch_exceptions=False)
    assert cure in (error.value.cure or "")


def test_every_line_of_every_help_fits_80_columns() -> None:
    helps = [(*path, "--help") for path in COMMANDS]
    helps += [(*path, "--help-all") for path, command in COMMANDS.items() if isinstance(command, Command)]
    lines = [(words, line) for words in helps for line in text_of_help(*words, columns=80).splitlines()]
    assert [(words, line) for words, line in lines if len(line) > 80] == []


def test_every_option_is_explained() -> None:
    silent = [
        (" ".join(path), parameter.name)
        for path, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help and not parameter.hidden
    ]
    assert silent == []


def test_the_help_of_the_program_fits_a_screen_and_names_every_command_once() -> None:
    # click leaves two columns free
    lines = CliRunner().invoke(app, ["--help"], terminal_width=78).output.splitlines()
    assert 24 <= len(lines) <= 40 and max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines)
    table = (re.match(r"(?:[A-Z]\w+ +| {9})((?:[\w-]+, )*[\w-]+) {2,}\S", line) for line in lines)
    listed = [name for row in table if row is not None for name in row[1].split(", ")]
    others = {"workloads", "help", "completion"}  # another name of one; and two in the last lines
    assert sorted(listed) == sorted({path[0] for path in COMMANDS} - others)
    pointers = " ".join(lines[-4:])
    assert all(words in pointers for words in ("dbdyno help", "completion", "dbdyno workloads"))


def test_the_index_of_the_docs_names_every_command() -> None:
    index = (Path(__file__).parents[3] / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [" ".join(path) for path in COMMANDS if f"`dbdyno {' '.join(path)}" not in index]
    assert missing == []


@pytest.mark.whole
def test_a_run_on_the_fake_engine_prints_its_rungs(run, snapshot: SnapshotAssertion) -> None:  # type: ignore[no-untyped-def]
    output = run("run", "lio", *FAKE, "--sessions", "1,2,4").output
    table = [line for line in output.splitlines() if re.match(r"sess +calls/s| +\d+ .*\d +\d", line)]
    assert len(table) == 2 * (1 + 3)  # while climbing, and in the summary
    assert table == snapshot


@pytest.mark.whole
def test_stored_runs_show_export_and_rebuild(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    first = json.loads(run("run", "cpu", *FAKE, "--sessions", "1,2", "--json").output)
    assert [r["sessions"] for r in first["rungs"]] == [1, 2]
    listed = json.loads(run("runs", "--json").output)
    assert [r["id"] for r in listed] == [first["run"]["id"]]
    assert json.loads(run("show", "last", "--json").output)["rungs"] == first["rungs"]
    assert json.loads(run("rebuild", "last", "--json").output)["findings"] == first["findings"]
    for kind, *full in (("csv",), ("xlsx", "--full"), ("parquet",), ("json", "--full"), ("md",)):
        words = ["export", "last", "--to", kind, "-o", str(tmp_path / f"out-{kind}"), *full]
        path, _, count = run(*words).output.strip().partition(": ")
        written = sum(1 for file in Path(path).rglob("*") if file.is_file()) if count else 1
        assert Path(path).exists() and written == int((count or "1").split()[0])
    assert Path(run("report", "last", "-o", str(tmp_path / "r.html")).output.strip()).exists()
    with pytest.raises(UsageError):
        run("report", "last", "-o", str(tmp_path / "r.pdf"))
    assert not (tmp_path / "r.pdf").exists()
    run("rm", "--yes", listed[0]["id"])
    assert json.loads(run("runs", "--json").output) == []


def test_a_dry_run_shows_the_plan_and_measures_nothing(run) -> None:  # type: ignore[no-untyped-def]
    plan = json.loads(run("run", "lio", "--sessions", "1,2", "--repeats", "3", "--dry-run", "--json").output)
    assert len(plan["cells"]) == 6
    assert json.loads(run("runs", "--json").output) == []
    text = run("run", "lio", "--sessions", "1,2", "--repeats", "3", "--dry-run").output
    assert "6 measurements" in text
    assert re.findall(r"^base +(\d) +(\d)\b", text, re.MULTILINE) == [("1", "3"), ("2", "3")]
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_a_dry_run_knows_recipes_and_workloads(run) -> None:  # type: ignore[no-untyped-def]
    assert "digest" in run("run", "--recipe", "demo", "--dry-run").output
    assert json.loads(run("run", "cpu", "--dry-run", "--json").output)["cells"]


@pytest.mark.whole
def test_earlier_names_of_options_are_still_accepted(run) -> None:  # type: ignore[no-untyped-def]
    run("run", "cpu", *FAKE, "--sessions", "1,2", "--witness", "sampled")
    new = run("show", "last", "--sessions", "2", "--cross-check").output
    assert run("show", "last", "--rung", "2", "--witnesses").output == new
    assert run("show", "last", "--findings").output == run("show", "last", "--claims").output
    assert json.loads(run("show", "last", "--json").output)["plan"]["experiment"]["waits"] == "sampled"


@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_command_names_the_new_one(name: str) -> None:
    error = CliRunner().invoke(app, [name, "demo"]).exception
    assert isinstance(error, UsageError)
    assert str(error.cure) == REPLACED[name]


@pytest.mark.parametrize(
    "words", ["show --sessions x", "run --mesure 3s", "rm", "compare --margin 5", "plan list"]
)
def test_errors_have_one_form(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dbdyno", *words.split()], capture_output=True, text=True, check=False
    )
    message, cure = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert message.startswith("error: ")
    assert cure.startswith("  ") and "dbdyno " in cure


def test_runs_are_listed_with_sessions_peak_and_server(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run("run", "lio", *FAKE, "--sessions", "1,2")
    (run_record,) = json.loads(run("runs", "--json").output)
    known = {"sessions": [1, 2], "peak_calls_per_s": 200.0, "target": "embedded", "server": "fake 1.0"}
    assert {key: run_record[key] for key in known} == known
    (line,) = run("runs").output.splitlines()[1:]
    assert "embedded" in line and line.split()[0] == run_record["id"].rpartition("-")[2]
    (plan,) = tmp_path.glob("store/*/plan.json")
    plan.write_text("[")
    (run_record,) = json.loads(run("runs", "--json").output)
    assert (run_record["sessions"], run_record["status"]) == ([], "complete")


def test_the_engine_of_a_dsn_warns_of_a_password_in_it() -> None:
    words = ["run", "cpu", "--dry-run", "--dsn", "host=h password=geheim"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and "~/.pgpass" in result.stderr and "geheim" not in result.output
    assert CliRunner().invoke(app, [*words, "--engine", "fake"]).stderr == ""


def test_a_unit_apart_from_its_number_has_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dbdyno", "observe", "--for", "5", "s"])
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    assert _exit_code() == 2
    assert "write 5s" in errors.getvalue()
