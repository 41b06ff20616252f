"""The wheel: installed without Rust by an unprivileged user, in a home with blanks in its name.

``DBDYNO_WHEEL`` names a wheel that was built before (`make wheel`); else one is built for this machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from dbdyno import __version__
from dbdyno.cli import topics
from tests import elsewhere
from tests.unit.cli.test_cli import COMMANDS

ROOT = Path(__file__).parents[2]
MOST_BARE_MB, MOST_MB = 320, 700
INSTALLER = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
"""Packages of an empty virtual environment."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("DBDYNO_WHEEL"):
        return Path(named)
    out = tmp_path_factory.mktemp("wheel")
    programs = Path(sys.executable).parent
    subprocess.run([sys.executable, ROOT / "tools" / "bundle_charts.py"], check=True)
    subprocess.run([sys.executable, ROOT / "tools" / "man_page.py"], check=True)
    subprocess.run(
        [programs / "maturin", "build", "--release", "--locked", "--quiet", "--out", out],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def test_the_wheel_fits_every_python_from_3_11_on_and_older_systems(wheel: Path) -> None:
    assert re.search(r"-cp311-abi3-manylinux_2_\d+_(x86_64|aarch64)\.whl$", wheel.name)


def _processor(wheel: Path) -> str:
    return "aarch64" if "aarch64" in wheel.name else "x86_64"


def test_the_wheel_has_the_agent_of_its_processor_as_a_program(wheel: Path, tmp_path: Path) -> None:
    name = f"dbdyno/remote/programs/dbdyno-agent-{_processor(wheel)}"
    archive = zipfile.ZipFile(wheel)
    assert archive.getinfo(name).external_attr >> 16 & 0o111 == 0o111
    if _processor(wheel) == platform.machine():
        program = Path(archive.extract(name, tmp_path))
        program.chmod(0o755)
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        assert output.startswith(f"dbdyno-agent {__version__} ")


def test_the_wheel_holds_what_a_run_needs_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        "dbdyno/_core.abi3.so",
        "dbdyno/present/assets/vega.js",
        "dbdyno/present/assets/uplot.js",
        "dbdyno/present/assets/uplot.css",
        "dbdyno/web/assets/start.js",
        f"dbdyno/remote/programs/dbdyno-agent-{_processor(wheel)}",
        "dbdyno/model/schema/raw.toml",
        "dbdyno/recipes/demo.toml",
        "dbdyno/workloads/lio.toml",
        "dbdyno/templates/recipe.toml",
        f"dbdyno-{__version__}.data/data/share/man/man1/dbdyno.1",
        f"dbdyno-{__version__}.dist-info/licenses/LICENSE",
        f"dbdyno-{__version__}.dist-info/licenses/THIRD-PARTY-LICENSES.txt",
    }
    assert needed <= names
    assert [n for n in names if re.search(r"(^|/)(tests?|driver|conftest|Cargo)[/.]|\.rs$", n)] == []


def test_the_wheel_holds_the_pages_of_the_documentation_once_and_no_pictures(wheel: Path) -> None:
    names = [n for n in zipfile.ZipFile(wheel).namelist() if re.search(r"(^|/)docs/", n)]
    assert sorted(names) == sorted(f"dbdyno/docs/{topic}.md" for topic in topics.files())


def test_the_manual_page_names_every_command_and_option(wheel: Path) -> None:
    page = zipfile.ZipFile(wheel).read(f"dbdyno-{__version__}.data/data/share/man/man1/dbdyno.1").decode()
    plain = page.replace("\\-", "-")
    for path, command in COMMANDS.items():
        assert f".SS dbdyno {' '.join(path)}\n" in plain
        options = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
        assert [o for p in options for o in p.opts if o not in plain] == []


@pytest.mark.parametrize(
    "check", [["groff", "-ww", "-man", "-Tutf8"], ["mandoc", "-T", "lint", "-W", "error"]]
)
def test_the_manual_page_is_laid_out_without_warnings(wheel: Path, check: Sequence[str]) -> None:
    if shutil.which(check[0]) is None:
        pytest.skip(f"no {check[0]} here: apt-get install {check[0]}")
    page = zipfile.ZipFile(wheel).read(f"dbdyno-{__version__}.data/data/share/man/man1/dbdyno.1")
    done = subprocess.run(check, input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def _python() -> str:
    """Returns an interpreter that the user can run, since the present one may be in root's home."""
    for python in (f"{sys.base_prefix}/bin/python3", "/usr/bin/python3"):
        words = "import ensurepip, ssl, sys; sys.exit(sys.version_info < (3, 11))"
        trial = [*elsewhere.as_user(), "sh", "-c", 'exec "$@"', "sh", python, "-c", words]
        if subprocess.run(trial, cwd="/", capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("no Python 3.11 with venv that an unprivileged user can run: apt-get install python3-venv")


class Installed:
    """A virtual environment of the user's own, with the wheel and the locked dependencies. ``bare_mb``: room
    that it took without extras."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.home = home
        for file in (ROOT / "requirements" / "base.lock", ROOT / "requirements" / "runtime.lock", wheel):
            shutil.copy(file, home)  # the user may not be able to read the checkout
        self.run(_python(), "-m", "venv", "a venv")
        pip = (str(home / "a venv" / "bin" / "python"), "-m", "pip", "install")
        pip += ("--quiet", "--no-cache-dir", "--no-compile")  # most of the modules are never loaded
        self.run(*pip, "--require-hashes", "-r", "base.lock")
        self.run(*pip, "--no-deps", wheel.name)
        self.bare_mb = self.mb()
        self.run(*pip, "--require-hashes", "-r", "runtime.lock")

    def run(self, *words: str) -> str:
        """Returns standard output."""
        kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "LANG", "LC_", "PATH"))}
        places = {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "r")}
        done = subprocess.run(
            [*elsewhere.as_user(), *words],
            env=kept | places,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def mb(self) -> float:
        """Returns the room that dbdyno and its dependencies take."""
        (site,) = (self.home / "a venv" / "lib").glob("python*/site-packages")
        files = (p for p in site.rglob("*") if not p.is_symlink() and p.is_file())
        own = (p for p in files if p.relative_to(site).parts[0].split("-")[0] not in INSTALLER)
        return sum(p.stat().st_blocks * 512 for p in own) / 1e6

    def dbdyno(self, *words: str) -> str:
        return self.run(str(self.home / "a venv" / "bin" / "dbdyno"), *words)


@pytest.fixture(scope="module")
def user(wheel: Path, server_home: Path) -> Installed:
    home = server_home / "home with blanks"
    for place in (home, home / "r"):
        place.mkdir(mode=0o700)
        os.chown(place, *elsewhere.test_user())
    return Installed(home, wheel)


@pytest.mark.db
def test_an_unprivileged_user_installs_the_wheel_and_runs_lio(user: Installed) -> None:
    output = user.dbdyno(
        *("run", "lio", "--sessions", "1,2", "--measure", "1s", "--settle", "200ms"),
        *("--call-target", "20ms", "--think", "60ms", "--json", "-o", "a report.html"),
    )
    assert [rung["sessions"] for rung in json.loads(output)["rungs"]] == [1, 2]
    assert "vega" in (user.home / "a report.html").read_text(encoding="utf-8")
    (run,) = json.loads(user.dbdyno("runs", "--json"))
    assert run["status"] == "complete"
    assert (user.home / "a venv" / "share" / "man" / "man1" / "dbdyno.1").is_file()


def test_the_installed_program_shows_the_pages_of_the_documentation(user: Installed) -> None:
    assert {*topics.files()} - {"index"} <= set(user.dbdyno("help").split())
    assert "Security" in user.dbdyno("help", "cluster", "security")


def test_the_wheel_takes_no_more_room_than_stated(user: Installed) -> None:
    assert user.bare_mb <= MOST_BARE_MB
    assert user.mb() <= MOST_MB
