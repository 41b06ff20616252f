"""Typical mistakes: one line names the fault, and the last one the cure, with the nearest name first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Servers
from tests.contract.plain_server import PlainServer, plain_server
from tests.db.conftest import SHORT, Bench

pytestmark = pytest.mark.db
BRIEF = ("--sessions", "1", *SHORT)
FILES = {
    "misspelt.toml": 'workload = "lio"\n\nmesure = "5s"\n',
    "text.toml": 'workload = "lio"\nrepeats = "three"\n',
    "twice.toml": 'workload = "lio"\n[variants.a]\n[variants.b]\n[variants.a]\n',
    "weight.toml": 'workload = "lio"\n[variants.a]\nlimits = { weight = -3 }\n[variants.b]\n',
    "unit.toml": 'workload = "lio"\nsettle = "1s"\nmeasure = "5x"\n',
    "syntax.sql": "select 1;\nselect count(*) form pg_class;\n",
    "nosuch.sql": "select * from nosuchtable\n",
    "script.sql": "select 1\n",
    "file": "no directory",
}


class Mistake(NamedTuple):
    words: tuple[str, ...]
    code: int
    message: str  # is in the first line
    cure: str = ""  # begins the line of the cure


MISTAKES = {
    "command": Mistake(("rnu", "lio"), 2, "rnu", "did you mean 'run'"),
    "workload": Mistake(("run", "lia"), 2, "lia", "did you mean 'lio'"),
    "recipe": Mistake(("run", "--recipe", "limts"), 2, "limts", "did you mean 'limits'"),
    "no workload": Mistake(("run",), 2, "nothing to run"),
    "option": Mistake(("run", "lio", "--sesions", "1"), 2, "--sesions", "did you mean '--sessions'"),
    "option without value": Mistake(("run", "lio", "--dsn"), 2, "--dsn"),
    "choice": Mistake(("export", "last", "--to", "xlxs"), 2, "xlxs", "did you mean 'xlsx'"),
    "sessions 0": Mistake(("run", "lio", "--sessions", "0"), 2, "--sessions 0"),
    "sessions down": Mistake(("run", "lio", "--sessions", "9:1"), 2, "--sessions 9:1"),
    "repeats 0": Mistake(("run", "lio", "--repeats", "0"), 2, "--repeats"),
    "measure 0": Mistake(("run", "lio", "--measure", "0"), 2, "--measure 0"),
    "wrong unit": Mistake(("run", "lio", "--measure", "5x"), 2, "--measure"),
    "for 0": Mistake(("observe", "--for", "0"), 2, "--for 0"),
    "parameter": Mistake(("run", "lio", "--param", "tabels=own"), 2, "tabels", "did you mean 'tables'"),
    "value": Mistake(("run", "lio", "--param", "tables=onw"), 2, "onw", "did you mean 'own'"),
    "limit": Mistake(("run", "lio", "--limit", "qota=1"), 2, "qota", "did you mean 'quota'"),
    "negative limit": Mistake(("run", "lio", "--limit", "quota=-1"), 2, "quota"),
    "setting": Mistake(
        ("run", "lio", "--dsn", "DSN", "--setting", "work_men=4MB", *BRIEF),
        2,
        "work_men",
        "did you mean 'work_mem'",
    ),
    "unreachable": Mistake(("run", "lio", "--dsn", "host=127.0.0.1 port=1", *BRIEF), 3, "refused"),
    "no host": Mistake(("run", "lio", "--dsn", "host=nosuch.invalid", *BRIEF), 3, "nosuch.invalid"),
    "no database": Mistake(("run", "lio", "--dsn", "DSN dbname=nosuch", *BRIEF), 3, "nosuch"),
    "wrong password": Mistake(
        ("run", "lio", "--dsn", "DSN user=app password=hunter2hunter2", *BRIEF), 3, "password authentication"
    ),
    "wrong DSN": Mistake(("run", "lio", "--dsn", "host=127.0.0.1 prot=1", *BRIEF), 2, "DSN is not valid"),
    "too many sessions": Mistake(
        ("run", "lio", "--dsn", "DSN", "--sessions", "1,500", *SHORT), 3, "500 sessions"
    ),
    "SQL": Mistake(("run", "--script", "syntax.sql", "--dsn", "DSN", *BRIEF), 2, "syntax.sql:2:22"),
    "no table": Mistake(("run", "--script", "nosuch.sql", "--dsn", "DSN", *BRIEF), 2, "nosuch.sql:1:15"),
    "no script": Mistake(("run", "--script", "scirpt.sql"), 2, "scirpt.sql", "did you mean 'script.sql'"),
    "no recipe": Mistake(("run", "mispelt.toml"), 2, "mispelt.toml", "did you mean 'misspelt.toml'"),
    "recipe key": Mistake(("run", "misspelt.toml"), 2, "misspelt.toml:3: ", "did you mean 'measure'"),
    "recipe type": Mistake(("run", "text.toml"), 2, "text.toml:2: "),
    "recipe unit": Mistake(("run", "unit.toml"), 2, "unit.toml:3: "),
    "variant twice": Mistake(("run", "twice.toml"), 2, "twice.toml:4: "),
    "negative weight": Mistake(("run", "weight.toml"), 2, "weight.toml:3: "),
    "no run": Mistake(("show", "20200101-000000-none-0000"), 4, "no run"),
    "no file": Mistake(("analyze", "ladder.csv"), 2, "ladder.csv"),
    "claim": Mistake(("explain", "knea"), 2, "knea", "did you mean 'knee'"),
    "case": Mistake(("selftest", "convoi", "--dsn", "DSN"), 2, "convoi", "did you mean 'convoy'"),
    "store": Mistake(("run", "lio", "--store", "file/store", *BRIEF), 4, "file/store"),
    "output": Mistake(("run", "lio", "-o", "file/report.html", *BRIEF), 2, "file/report.html"),
    "format": Mistake(("run", "lio", "-o", "report.htlm", *BRIEF), 2, "report.htlm", "did you mean '.html'"),
}


@pytest.fixture(scope="module")
def plain(servers: Servers) -> Iterator[PlainServer]:
    hba = ["local all app scram-sha-256"]
    with plain_server(servers.bin_dir(18), {"max_connections": "30"}, hba) as plain:
        plain.ask("create role app login password 'right'")
        yield plain


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_error_with_its_cure_and_leaves_nothing(
    bench: Bench, plain: PlainServer, name: str
) -> None:
    mistake = MISTAKES[name]
    for file, text in FILES.items():
        (bench.home / file).write_text(text)
    before = _leftovers(bench, plain)
    done = bench.here(*(_with_dsn(word, plain.dsn) for word in mistake.words))
    lines = done.stderr.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("error: "))
    assert (done.returncode, mistake.message in lines[first]) == (mistake.code, True), done.stderr
    assert sum(line.startswith("error: ") for line in lines) == 1, done.stderr
    assert lines[-1].startswith(f"  {mistake.cure}") and lines[-1].strip(), done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stdout + done.stderr.replace("warning", "")
    assert _leftovers(bench, plain) == before


def _with_dsn(word: str, dsn: str) -> str:
    """Returns ``word`` with ``dsn`` in place of ``DSN``. The words after it win over those in it."""
    given, *more = word.split(" ")
    if given != "DSN":
        return word
    named = dict(pair.split("=", 1) for pair in (*dsn.split(" "), *more))
    return " ".join(f"{k}={v}" for k, v in named.items())


def _leftovers(bench: Bench, plain: PlainServer) -> tuple[list[str], list[tuple[str, ...]], int]:
    """Returns files, schemas and sessions."""
    runs = bench.home / "data"
    files = sorted(str(p.relative_to(bench.home)) for p in (*bench.home.iterdir(), *runs.rglob("*")))
    schemas = plain.ask("select nspname from pg_namespace where nspname !~ '^pg_' order by 1")
    sessions = plain.ask("select count(*) from pg_stat_activity where application_name like 'dbdyno%'")
    return [f for f in files if not f.endswith((".lock", "dbdyno", "data"))], schemas, int(sessions[0][0])


def test_a_standby_is_named_before_anything_starts(servers: Servers, bench: Bench) -> None:
    with plain_server(servers.bin_dir(18)) as standby:
        standby.stop("fast")
        signal: Path = standby.data / "standby.signal"
        signal.touch()
        standby.start()
        done = bench.here("run", "lio", "--dsn", standby.dsn, *BRIEF)
    assert (done.returncode, "standby" in done.stderr) == (3, True), done.stderr
    assert "Traceback" not in done.stderr
