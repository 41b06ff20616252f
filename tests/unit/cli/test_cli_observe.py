"""``dbdyno observe``, ``profile`` and the options of ``show``, on the fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.errors import DbdynoError, UsageError

pytestmark = pytest.mark.whole

LAW = "fake:cpus=2,foreign=3,cpu=2ms,think=5ms,wait=IO/DataFileRead:3ms"
OBSERVE = ("observe", "--engine", "fake", "--dsn", LAW)
CLIMB = ("run", "lio", "--engine", "fake", "--dsn", "fake:cpus=2", "--measure", "2s", "--call-target", "10ms")


class Program:
    def __init__(self) -> None:
        self._runner = CliRunner()

    def __call__(self, *words: str, code: int = 0) -> Result:
        result = self._runner.invoke(app, words, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    def fails(self, *words: str) -> DbdynoError:
        with pytest.raises(DbdynoError) as e:
            self._runner.invoke(app, words, catch_exceptions=False)
        return e.value


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "100")
    return Program()


def test_an_observation_prints_a_line_for_each_window_then_summary_and_cost(run: Program) -> None:
    output = run(*OBSERVE, "--for", "20s").stdout
    lines = [line.split() for line in output.splitlines() if line[2:3] == ":" and line[5:6] == ":"]
    assert [(words[1], words[2]) for words in lines] == [("1", "3"), ("2", "3")]
    assert "IO/DataFileRead" in " ".join(lines[0])
    assert "observing cost" in output
    assert "report.html" in output


def test_json_is_one_document_and_quiet_prints_the_end_only(run: Program) -> None:
    document = json.loads(run(*OBSERVE, "--for", "10s", "--json").stdout)
    assert [w["sessions"] for w in document["windows"]] == [0]
    assert document["observation"]["events"]
    assert "CPU WAIT" not in run(*OBSERVE, "--for", "2s", "--quiet").stdout.splitlines()[0]


def test_the_report_is_written_to_the_path_of_its_option(run: Program, tmp_path: Path) -> None:
    run(*OBSERVE, "--for", "2s", "--report", str(tmp_path / "r.html"))
    assert (tmp_path / "r.html").read_text().startswith("<!")


def test_a_filter_is_printed_and_a_warning_says_that_it_matches_nobody(run: Program) -> None:
    result = run(*OBSERVE, "--for", "2s", "--only-user", "zoe")
    assert "only user zoe" in result.stdout
    assert "no session matches user zoe" in result.stderr


def test_stored_observations_show_profile_export_and_rebuild(run: Program, tmp_path: Path) -> None:
    run(*OBSERVE, "--for", "20s", "--quiet")
    assert "IO/DataFileRead" in run("show", "last", "--events").output
    assert "USR" in run("show", "last", "--microstates", "--window", "2").output
    assert "DB CPU" in run("show", "last", "--profile").output
    document = json.loads(run("show", "last", "--profile", "--json").output)
    one = json.loads(run("show", "last", "--profile", "--window", "2", "--json").output)
    assert {r["cell"] for r in one["profile"]} == {"0002-observed-base-s0-r2"}
    assert len(one["profile"]) < len(document["profile"])
    for kind in ("csv", "xlsx", "parquet", "json"):
        assert run("export", "last", "--to", kind, "-o", str(tmp_path / kind)).output.strip()
    assert json.loads(run("rebuild", "last", "--json").output)["windows"]
    assert "3 windows" not in run("show", "last").output


def test_cells_of_a_climb_are_chosen_by_sessions_or_id(run: Program) -> None:
    run(*CLIMB, "--sessions", "1,2")
    assert "at 2 sessions" in run("show", "last", "--profile", "--sessions", "2").output
    assert run("show", "last", "--measurement", "0001-lio-base-s1-r1").output
    for words, cure in (
        (("--sessions", "7"), "1, 2"),
        (("--window", "1"), "none"),
        (("--measurement", "x"), "0001-lio-base-s1-r1"),
        (("--sessions", "1", "--window", "1"), "one of them"),
    ):
        error = run.fails("show", "last", *words)
        assert isinstance(error, UsageError)
        assert cure in str(error.cure)


def test_the_exact_tier_is_demanded_or_refused_before_anything_is_started(run: Program) -> None:
    error = run.fails("observe", "--engine", "fake", "--dsn", f"{LAW},trace=off", "--waits", "exact")
    assert "scheduler trace" in error.message
    assert "--waits auto" in str(error.cure)
    error = run.fails(*CLIMB[:5], "fake:trace=off", *CLIMB[6:], "--sessions", "1", "--waits", "exact")
    assert "scheduler trace" in error.message
    assert json.loads(run("runs", "--json").output) == []


@pytest.mark.parametrize(("waits", "status"), [("exact", "ok"), ("sampled", "off"), ("auto", "ok")])
def test_how_waits_are_measured_is_in_the_sources(run: Program, waits: str, status: str) -> None:
    words = (*OBSERVE, "--for", "2s", "--waits", waits, "--json")
    sources = json.loads(run(*words).stdout)["sources"]
    assert [s["status"] for s in sources if s["name"] == "scheduler trace"] == [status]


def test_system_calls_are_counted_where_asked_for(run: Program) -> None:
    for words, expected in (((), 0), (("--trace-syscalls",), 1)):
        run(*OBSERVE, "--for", "2s", "--quiet", *words)
        document = json.loads(run("show", "last", "--json").output)
        known = [m["syscalls_per_s"] for m in document["microstates"] if m["role"] == "session"]
        assert any(v is not None for v in known) == bool(expected)


def test_a_recipe_can_observe_and_options_win_over_it(run: Program, tmp_path: Path) -> None:
    recipe = tmp_path / "watch.toml"
    recipe.write_text('name = "shop"\nengine = "fake"\n[observation]\nduration = "20s"\nuser = "zoe"\n')
    words = ("observe", "--recipe", str(recipe), "--dsn", LAW, "--only-user", "app", "--json")
    document = json.loads(run(*words).stdout)
    chosen = document["plan"]["experiment"]["observation"]
    assert (chosen["duration"], chosen["user"]) == ("20s", "app")
    assert len(document["windows"]) == 2
    assert "dbdyno observe" in str(run.fails("run", "--recipe", str(recipe)).cure)
    assert "dbdyno run" in str(run.fails("observe", "--recipe", "demo").cure)
    recipe.write_text("[observation]\nusr = 1\n")
    assert "observation" in run.fails("observe", "--recipe", str(recipe)).message
