"""The seam lets an engine through whose sessions are several processes in turn and a thread of the server.

It is another package's (an entry point), driven by the program as a user drives it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
from tests import in_process
from tests.fakery import ROOT
from tests.second_engine import SecondServer

from dbdyno.conduct.derive.rebuild import derived_anew
from dbdyno.model.engine import protocols
from dbdyno.model.engine.protocols import Server, Target, needed
from dbdyno.model.errors import UsageError
from dbdyno.model.results.ledger_rows import top_level
from dbdyno.model.results.raw import RawCell
from dbdyno.model.results.results import Results
from dbdyno.observe.glance import glance
from dbdyno.present.figures.headline import overview
from dbdyno.store import RunStore

pytestmark = pytest.mark.whole

RECIPE = """
engine = "second"
workload = "step"
sessions = "1,4"
measure = "10s"
settle = "2s"
repeats = 2
[variants.base]
params = { speed = 1 }
[variants.fast]
params = { speed = 2 }
"""
FOUR = "0004-step-base-s4-r1"
PAGE = ROOT / "docs" / "engine.md"


class Program:
    """``dbdyno`` in a directory and a store of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "second.toml").write_text(RECIPE)
        paths = {"DBDYNO_STORE": str(home / "store"), "XDG_STATE_HOME": str(home / "state")}
        self._env = {**os.environ, **paths, "COLUMNS": "80"}

    def __call__(self, words: str, code: int = 0) -> str:
        """Returns the output of a command, or its error if ``code`` is not 0."""
        done = in_process.dbdyno(tuple(shlex.split(words)), self._env, self.home)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    started = Program(tmp_path_factory.mktemp("second"))
    started("run second.toml -o report.html")
    return started


@pytest.fixture(scope="module")
def run(program: Program) -> tuple[Results, list[RawCell]]:
    record = RunStore(program.home / "store").open("last")
    return derived_anew(record), record.read_cells()[0]


def test_the_ledger_is_that_of_all_tasks_of_a_session(run: tuple[Results, list[RawCell]]) -> None:
    """A thread (run 0.2, run queue 0.2, Mutex 0.6) and processes in turn (run 0.4, Disk 0.2, Peer 0.4)."""
    results, _ = run
    ledger = top_level(results.whole("ledger").filter(pl.col("cell") == FOUR))
    rung = {(r["account"], r["detail"]): r for r in ledger.filter(pl.col("scope") == "rung").to_dicts()}
    assert rung["run", None]["aas"] == pytest.approx(4 * 0.6, abs=0.01)
    assert rung["runq", None]["aas"] == pytest.approx(4 * 0.2, abs=0.01)
    for account, detail, law in (
        ("sleep", "Mutex/Page", 0.6),
        ("sleep", "Disk/Read", 0.2),
        ("client", None, 0.4),
    ):
        row = rung[account, detail]
        assert row["low"] <= 4 * law <= row["high"]
        assert row["aas"] == pytest.approx(4 * law, rel=0.25)
    assert rung["unaccounted", None]["aas"] == pytest.approx(0, abs=0.05)
    each = ledger.filter((pl.col("scope") == "session") & (pl.col("account") == "run"))
    assert each["aas"].to_list() == [pytest.approx(0.6, abs=0.01)] * 4


def test_every_task_has_its_line_and_its_family(run: tuple[Results, list[RawCell]]) -> None:
    results, _ = run
    lines = results.tables["microstates"].filter(pl.col("cell") == FOUR)
    assert lines["role"].unique().to_list() == ["session"]
    threads = lines.filter(pl.col("tid") != pl.col("pid"))
    assert sorted(threads["tid"]) == [501, 502, 503, 504]
    assert threads["lock"].to_list() == [pytest.approx(0.6, abs=0.01)] * 4
    processes = lines.filter((pl.col("tid") == pl.col("pid")) & (pl.col("wall_s") > 0.1))
    assert processes.height == 4 * 5


def test_the_ladder_of_another_engine_scales_and_its_variants_are_compared(
    run: tuple[Results, list[RawCell]], program: Program
) -> None:
    results, _ = run
    assert results.info.status == "complete" and results.environment.server.product == "Second"
    assert [s.ladder.points["throughput"].to_list() for s in results.scaling] == [
        [pytest.approx(v) for v in (10, 10, 40, 40)],
        [pytest.approx(v) for v in (20, 20, 80, 80)],
    ]
    assert results.comparison is not None
    claims = [c for t in results.comparison.metrics if t.metric == "calls_per_s" for c in t.claims]
    assert [claim.effect.ratio for claim in claims] == [pytest.approx(2.0)] * 2
    assert "2.000" in program("compare last")


def test_a_run_of_another_engine_is_shown_and_exported(program: Program) -> None:
    page = (program.home / "report.html").read_text()
    assert "Second 0.1" in page and "asleep in Mutex" in page and "asleep in Disk" in page
    assert "Mutex/Page" in program("show last --events") and "Mutex/Page" in program("show last --profile")
    assert len(json.loads(program("show last --json"))["windows"]) == 8
    program("export last --to csv -o tables")
    assert pl.read_csv(program.home / "tables" / "rungs.csv").height == 4
    assert program("sql --csv 'select count(*) n from rungs'").split() == ["n", "4"]


def test_a_stored_run_outlives_its_engine(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbdyno.engines._installed", dict)
    assert program("run step --engine second", 2).startswith("error: no engine 'second'")
    assert "Mutex/Page" in program("show last --events")
    assert derived_anew(RunStore(program.home / "store").open("last")).tables["ledger"].height


def test_every_account_is_known_while_a_run_is_measured(program: Program) -> None:
    output = program("run step --engine second --sessions 2 speed=3 --store other")
    heads, row = (
        next(line.replace(" ms", "ms").split() for line in output.splitlines() if line.startswith(begin))
        for begin in ("sess", "   2")
    )
    shown = dict(zip(heads, row, strict=False))
    assert (shown["CPU%"], shown["WAIT%"]) == ("60", "20") and "?" not in row[heads.index("CPU%") :]


def test_a_live_view_has_a_line_for_each_thread_of_a_process(run: tuple[Results, list[RawCell]]) -> None:
    _, cells = run
    cell = next(c for c in cells if c.id == FOUR)
    view = glance(cell.tables, cell.meta.wait_families, 10**12)
    assert {s.pid for s in view.sessions} >= {501, 502, 503, 504}
    assert view.total("run") == pytest.approx(4 * 0.6, abs=0.1)


@pytest.fixture(scope="module")
def observe_output(program: Program) -> str:
    return program("observe --engine second --for 30s --store guests -o guests.html")


@pytest.fixture(scope="module")
def observation(program: Program, observe_output: str) -> tuple[Results, list[RawCell]]:  # noqa: ARG001
    record = RunStore(program.home / "guests").open("last")
    return derived_anew(record), record.read_cells()[0]


HERE_S = {"0": (10, 10, 10), "1": (10, 3, 0), "2": (4, 0, 0), "3": (0, 3, 10)}
"""How long each guest is there in each window."""


def test_guests_that_come_and_go_keep_one_number_over_all_their_tasks(
    observation: tuple[Results, list[RawCell]],
) -> None:
    """Each watch numbers newcomers anew. Between two windows all tasks of a session change but its thread."""
    _, cells = observation
    met = pl.concat([c.tables["samples"].select("session", "pid", "tid").unique() for c in cells])
    tasks = met.unique().with_columns(
        guest=pl.when(pl.col("pid") == 500).then(pl.col("tid") - 501).otherwise((pl.col("pid") - 1000) // 100)
    )
    pairs = tasks.select("session", "guest").unique()
    assert pairs.height == 4 and pairs["session"].sort().to_list() == [0, 1, 2, 3] == sorted(pairs["guest"])
    assert tasks.group_by("session").len()["len"].min() > 2  # type: ignore[operator]


def test_the_ledger_of_guests_is_that_of_all_their_tasks(observation: tuple[Results, list[RawCell]]) -> None:
    results, cells = observation
    ledger = top_level(results.whole("ledger").filter(pl.col("scope") == "rung"))
    for window, cell in enumerate(cells):
        present_guests = sum(lengths[window] for lengths in HERE_S.values()) / 10
        rows = {(r["account"], r["detail"]): r for r in ledger.filter(pl.col("cell") == cell.id).to_dicts()}
        assert rows["run", None]["aas"] == pytest.approx(0.6 * present_guests, rel=0.1)
        assert rows["runq", None]["aas"] == pytest.approx(0.2 * present_guests, rel=0.1)
        assert rows["sleep", "Mutex/Page"]["aas"] == pytest.approx(0.6 * present_guests, rel=0.1)
        assert rows["unaccounted", None]["aas"] == pytest.approx(0, abs=0.1)


def test_figures_of_guests_count_sessions_and_not_their_tasks(
    observation: tuple[Results, list[RawCell]], observe_output: str, program: Program
) -> None:
    results, cells = observation
    summary = overview(results)
    assert summary is not None and summary.sessions == 4 and summary.db_time == pytest.approx(3.2, rel=0.05)
    assert {e["name"] for e in summary.top} == {"DB CPU", "CPU WAIT", "Mutex/Page", "Disk/Read"}
    first, *_, last = (glance(c.tables, c.meta.wait_families, 10**10) for c in cells)
    assert [s.pid for s in first.sessions] == [501, 502, 503] and first.count == 3
    assert [s.pid for s in last.sessions] == [501, 504]
    assert last.total("run") == pytest.approx(1.2, rel=0.05)
    assert last.total("db_time") == pytest.approx(3.2, rel=0.05)
    assert "Mutex/Page" in observe_output and "Mutex/Page" in (program.home / "guests.html").read_text()
    assert "Mutex/Page" in program("show last --store guests --claims")
    assert program("sql --store guests --csv 'select count(*) n from windows'").split() == ["n", "3"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("observe --engine second --only-user me", 2),
        ("selftest --engine second", 2),
        ("run lio --engine second", 2),  # needs calls of a chosen length
        ("run --script second.toml --engine second", 2),
        ("run step --engine second --setting a=b", 2),
        ("run step --engine second --dsn here --setting a=b", 2),
        ("run step --engine second --limit pool=2", 2),
        ("run step --engine second --limit quota=1", 2),
        ("run step --engine second --waits exact", 3),
    ],
)
def test_a_capability_that_an_engine_lacks_is_refused_where_it_is_needed(
    program: Program, words: str, code: int
) -> None:
    error = program(words, code)
    named = ("second", "this engine cannot", "not supported", "has no users")
    assert any(words in error for words in named)
    assert "not put back" not in error


def test_a_capability_is_handed_over_or_missing() -> None:
    server = SecondServer(Target())
    with pytest.raises(UsageError, match="this engine cannot use a connection pooler"):
        needed(server.pooling, "use a connection pooler")
    assert needed(server.world, "live in a world of its own") is server


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def _install_package(home: Path) -> None:
    """Installs a package of the page's two blocks and this engine's modules in ``home``."""
    (module,), (project,) = _blocks("python"), map(tomllib.loads, _blocks("toml"))
    source, package = ROOT / "tests" / "second_engine", home / "second_engine"
    package.mkdir()
    for path in source.glob("*.py"):
        (package / path.name).write_text(path.read_text().replace("tests.second_engine", "second_engine"))
    (package / "__init__.py").write_text(module)
    info = home / "dbdyno_second-1.dist-info"
    info.mkdir()
    name, version = project["project"]["name"], project["project"]["version"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["project"]["entry-points"]["dbdyno.engines"].items()
    (info / "entry_points.txt").write_text("[dbdyno.engines]\n" + "".join(f"{n} = {m}\n" for n, m in points))


def test_a_package_made_as_the_documentation_says_brings_its_engine(tmp_path: Path) -> None:
    _install_package(tmp_path)
    (tmp_path / "second.toml").write_text(RECIPE)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "DBDYNO_STORE": "store", "XDG_STATE_HOME": "state"}
    words = ("run", "second.toml", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "dbdyno", *words], env=env, cwd=tmp_path, capture_output=True, check=True
    )
    document = json.loads(done.stdout)
    assert document["environment"]["server"]["product"] == "Second" and len(document["rungs"]) == 4


def test_the_documentation_names_every_member_of_a_server() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(n for n in vars(Server) if not n.startswith("_"))
    assert set(re.findall(r"^\| `\w+` \| `(\w+)` \|", PAGE.read_text(), re.M)) <= set(vars(protocols))
