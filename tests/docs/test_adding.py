"""The examples of docs/adding can be copied: their Python runs, and has the effects that the pages
describe."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.fakery import climb, plan_cell

from dbdyno.account import making, window
from dbdyno.account.window.cells import key
from dbdyno.conclude import checking
from dbdyno.conclude.catalogue import Entry
from dbdyno.conclude.run.case import Case
from dbdyno.conduct.companion import Companions
from dbdyno.model.plan.kinds import kind_of
from dbdyno.model.schema import table, tables

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "adding"
LAW = "fake:cpus=2,cpu=4ms,wait=IO/DataFileRead:5ms"


def blocks(page: str, language: str) -> str:
    text = (PAGES / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def namespace(page: str) -> dict[str, Any]:
    """Returns the names that the page's Python defines."""
    names: dict[str, Any] = {"__name__": page}
    exec(compile(blocks(page, "python"), page, "exec"), names)
    return names


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Registers the Python of table.md for one test, and returns its names."""
    record, rest = blocks("table.md", "python").split("from typing import Any", 1)
    names: dict[str, Any] = {"__name__": "evenness", "Any": Any}
    exec(record, names)
    monkeypatch.setitem(table._REGISTERED, "evenness", names["EVENNESS"])  # as the list in derived.py does
    monkeypatch.setattr(making, "_REGISTERED", [*making._REGISTERED])
    exec(rest, names)
    return names


def test_the_table_has_the_rates_of_the_servers_law(register: dict[str, Any]) -> None:
    """A call takes 4 ms of CPU and waits 5 ms, and each of the two sessions has a CPU."""
    cut = window.cut_rates(climb(LAW, (2,), repeats=2).cells)
    each = register["evenness"](cut["rates"])
    total = register["evenness_total"](cut["windows"], each)
    assert total.select("cell", "repeat").rows() == [("all", 0)]
    for row in (*each.to_dicts(), *total.to_dicts()):
        assert row["slowest_per_s"] == pytest.approx(1000 / 9, rel=0.01)
        assert row["fastest_per_s"] == pytest.approx(1000 / 9, rel=0.01)


def test_an_unknown_rate_makes_the_ends_unknown(register: dict[str, Any]) -> None:
    cut = window.cut_rates(climb(LAW, (2,)).cells)
    unknown = pl.when(pl.col("session") == 0).then(None).otherwise("value").alias("value")
    (row,) = register["evenness"](cut["rates"].with_columns(unknown)).to_dicts()
    assert row["slowest_per_s"] is row["fastest_per_s"] is None


@pytest.mark.usefixtures("register")
@pytest.mark.parametrize(("fastest", "claims"), [(19.0, 0), (20.0, 1), (None, 0)])
def test_the_check_claims_what_the_table_shows(
    monkeypatch: pytest.MonkeyPatch, fastest: float | None, claims: int
) -> None:
    ((id, record),) = tomllib.loads(blocks("claim.md", "toml")).items()
    entry = Entry(id, **record)
    monkeypatch.setattr("dbdyno.conclude.catalogue.entries", lambda: {id: entry})
    monkeypatch.setattr(checking, "entries", lambda: {id: entry})
    monkeypatch.setattr(checking, "_REGISTERED", [])
    climbed = climb(LAW, (2,))
    cut = window.cut_rates(climbed.cells)
    row = key(climbed.cells[0]) | {"slowest_per_s": 10.0, "fastest_per_s": fastest}
    row |= {"source": "driver", "status": "ok"}
    case = Case(climbed.plan, climbed.environment, cut | {"evenness": tables.rows("evenness", [row])}, {})
    assert len([*namespace("claim.md")["unevenly_served"](case)]) == claims
    assert [c.claims for c in checking.checks(kind_of(climbed.plan))] == [(id,)]


def test_the_parser_reads_the_counters_of_the_source() -> None:
    source = namespace("source.md")["PAGING"]
    assert source.file.parse("nr_free_pages 5\npgfault 600\npgmajfault 7\n") == {
        "nr_free_pages": 5,
        "pgfault": 600,
        "pgmajfault": 7,
    }
    assert {c.name for c in source.file.counters} == {"pgfault", "pgmajfault"}


END_TO_END = """
from tests import json_schema
json_schema.check = lambda words, text: None  # the published schema does not have what the pages add
import json, os, sys
from pathlib import Path
from tests.in_process import dbdyno

def output(*words):
    ended = dbdyno(words, dict(os.environ), Path.cwd())
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

server = ("--engine", "fake", "--dsn", "fake:cpus=1,cpu=4ms")
output("run", "lio", *server, "--sessions", "1,2", "--repeats", "2", "--measure", "1s")
shown = {
    "show": output("show", "last", "--evenness"),
    "show --json": json.loads(output("show", "last", "--evenness", "--json")),
    "json": json.loads(output("show", "last", "--json")),
    "sql": output("sql", "select cell from evenness"),
    "rebuild": output("rebuild", "last"),
    "again": json.loads(output("show", "last", "--json")),
    "report": output("report", "last", "-o", "page.html") and Path("page.html").read_text(),
    "explain": output("explain", "unevenly-served"),
    "xlsx": output("export", "last", "--to", "xlsx", "-o", "run.xlsx"),
}
from tools.schema_doc import render
shown["schema"] = render()
print(json.dumps(shown))
"""


def test_what_the_pages_register_is_everywhere(tmp_path: Path) -> None:
    """A table, its totals, its part with an option and its check are in store, screen, page and documents."""
    record, rest = blocks("table.md", "python").split("from typing import Any", 1)
    lines = [
        *(record, "from dbdyno.model.schema.derived import register", "register(EVENNESS)"),
        f"from typing import Any{rest}",
        "import sys\nsys.modules['dbdyno.conclude.run.evenness'] = sys.modules[__name__]",
        "from dbdyno.conclude.catalogue import Entry, entries",
        f"import tomllib\nfor id, claim in tomllib.loads({blocks('claim.md', 'toml')!r}).items():",
        "    entries()[id] = Entry(id, **claim)",
        blocks("claim.md", "python").replace("RATIO = 2.0", "RATIO = 1.0"),
        "from dbdyno.present.show_options import register_option",
        "register_option('evenness', 'Evenness of sessions.')",
        "from dbdyno.present.report import PARTS",
        "PARTS.register(PART, after='sessions')",
    ]
    (tmp_path / "evenness.py").write_text("\n".join(lines))
    paths = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "tests" / "entry_points")))
    env = os.environ | {"PYTHONPATH": paths, "XDG_DATA_HOME": str(tmp_path / "data")}
    program = [sys.executable, "-c", f"import evenness\n{END_TO_END}"]
    ended = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)
    assert "Evenness of sessions at 2 sessions" in shown["show"]
    assert {r["cell"] for r in shown["show --json"]["evenness"]} > {"all"}
    assert len(shown["json"]["evenness"]) == 4 + 2  # measurements, and the repeats of each load together
    assert shown["again"]["evenness"] == shown["json"]["evenness"]
    assert shown["sql"].count("-lio-") == 4
    assert "unevenly-served" in {f["id"] for f in shown["json"]["findings"]}
    assert "makes at least 1 times as many calls a second" in " ".join(
        shown["explain"].split()
    )  # as RATIO is here
    assert 'id="evenness"' in shown["report"] and "the lowest of the sessions" in shown["report"]
    assert "### evenness" in shown["schema"]
    assert "evenness" in zipfile.ZipFile(tmp_path / "run.xlsx").read("xl/workbook.xml").decode()


def test_the_companion_notes_the_load_average_before_a_cell(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "loadavg").write_text("0.42 0.30 0.10 1/234 5678\n")
    notes: list[str] = []
    server = SimpleNamespace(machine=SimpleNamespace(root=tmp_path))
    companion = namespace("companion.md")["LoadAverage"](server, SimpleNamespace(noted=notes.append))
    companions = Companions(companion)
    companions.before(plan_cell(4))
    assert notes == ["load average before 0001-lio-base-s4-r1: 0.42"]
    assert companions.after([]) == []


OPTION = """
from tests import json_schema
json_schema.check = lambda words, text: None  # the published schema does not have what the page adds
import json, os, sys
from pathlib import Path
from tests.in_process import dbdyno

def ended(*words):
    return dbdyno(words, dict(os.environ), Path.cwd())

def planned(*words):
    done = ended("run", *words, "--engine", "fake", "--sessions", "1", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["experiment"]["pause_after"]

Path("paused.toml").write_text('workload = "lio"\\npause_after = "4s"\\n')
print(json.dumps({
    "help": ended("run", "--help").stdout,
    "help-all": ended("run", "--help-all").stdout,
    "neither": planned("lio"),
    "flag": planned("lio", "--pause-after", "3s"),
    "recipe": planned("paused.toml"),
    "both": planned("paused.toml", "--pause-after", "3s"),
    "schema": json.loads(ended("recipes", "schema").stdout)["properties"]["pause_after"],
    "mistyped": ended("run", "lio", "--pause-aftr", "3s").stderr,
}))
"""


def test_the_option_of_the_page_is_in_help_recipe_schema_and_experiment(tmp_path: Path) -> None:
    """The package has the page's two blocks in the files that it names, and links to all other files."""
    package = tmp_path / "dbdyno"
    shutil.copytree(ROOT / "python" / "dbdyno", package, copy_function=os.symlink)
    flag, field = re.findall(
        r"^```python\n(.*?)^```", (PAGES / "option.md").read_text(), re.MULTILINE | re.DOTALL
    )
    for file, before, block in (
        ("flags.py", "    # -- scripts, as in pgbench --\n", flag),
        ("plan.py", '    until: str | None = flagged("until")\n', field),
    ):
        path = package / "model" / "plan" / file
        text = path.read_text()
        assert text.count(before) == 1
        path.unlink()
        path.write_text(text.replace(before, block + before))
    paths = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "tests" / "entry_points")))
    env = os.environ | {"PYTHONPATH": paths, "XDG_DATA_HOME": str(tmp_path / "data")}
    words = [sys.executable, "-c", OPTION]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "--pause-after" not in shown["help"]
    assert re.search(
        r"--pause-after TIME +Pause after each measurement\.\s+\[default:\s+none\]", shown["help-all"]
    )
    given = [shown[which] for which in ("neither", "flag", "recipe", "both")]
    assert given == ["0s", "3s", "4s", "3s"]
    assert shown["schema"]["description"] == "Pause after each measurement."
    assert shown["schema"]["default"] == "0s"
    assert "did you mean '--pause-after'?" in shown["mistyped"]
