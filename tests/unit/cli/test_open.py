"""Pages in the browser: ``dbdyno open`` and ``--open``, with a browser that writes down what it is given."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.fakery import climb
from tests.on_terminal import on_terminal, unset
from tests.waiting import eventually

from dbdyno import conduct
from dbdyno.store import RunStore


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    store = RunStore(tmp_path_factory.mktemp("store of runs"))
    run = store.create(climbed.plan, workloads=climbed.info.workloads)
    run.write_environment(climbed.environment)
    for cell in climbed.cells:
        run.write_cell(cell)
    run.finish("complete")
    conduct.rebuild(run)
    return run.path


class Browser:
    """A browser that notes its process and its argument, then stays until the test ends."""

    def __init__(self, folder: Path, run: Path) -> None:
        self.noted = folder / "noted"
        program = folder / "fake browser"
        program.write_text(
            f'#!/bin/sh\necho "$$ $*" > {folder}/new; mv {folder}/new {self.noted}; exec sleep 600\n'
        )
        program.chmod(0o700)
        self.env = {
            **dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"), ""),
            "BROWSER": f"no-such-browser:{shlex.quote(str(program))}",
            "DBDYNO_STORE": str(run.parent),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def opened(self) -> Path:
        """Returns the path of the page that the browser was given, and checks that the browser still runs."""
        pid, address = eventually(lambda: self.noted.exists() and self.noted.read_text()).split(maxsplit=1)
        os.kill(int(pid), 0)
        assert address.startswith("file:///")
        return Path(unquote(urlsplit(address.strip()).path))

    def end(self) -> None:
        if self.noted.exists():
            os.kill(int(self.noted.read_text().split()[0]), signal.SIGKILL)


@pytest.fixture
def browser(tmp_path: Path, run: Path) -> Iterator[Browser]:
    browser = Browser(tmp_path, run)
    yield browser
    browser.end()


def test_open_gives_the_page_of_the_run_to_the_browser_and_does_not_wait(browser: Browser, run: Path) -> None:
    code, shown = on_terminal("open", "last", columns=200, env=browser.env)
    assert code == 0 and shown.strip() == str(run / "report.html")
    assert browser.opened() == run / "report.html"


def test_open_writes_a_page_that_is_missing_or_older_than_the_results(browser: Browser, run: Path) -> None:
    page = run / "report.html"
    for spoil in (page.unlink, lambda: (page.write_text("old"), os.utime(page, (1, 1)))):
        spoil()
        subprocess.run(
            [sys.executable, "-m", "dbdyno", "open"],
            env={**unset(), **browser.env},
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert "<html" in page.read_text("utf-8")[:500]
    before = page.stat().st_mtime_ns
    on_terminal("open", env=browser.env)
    assert page.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["report", "last", "--open"], "report.html"),
        (["analyze", "last", "--open"], "cache/dbdyno/pages/analyze.html"),
        (["analyze", "last", "--open", "-o", "mine.html"], "mine.html"),
    ],
)
def test_a_written_page_is_opened(
    words: list[str], name: str, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert on_terminal(*words, env=browser.env)[0] == 0
    page = browser.opened()
    assert str(page).endswith(name) and "<html" in page.read_text("utf-8")[:500]


def test_json_and_a_program_that_reads_the_output_open_nothing(browser: Browser, run: Path) -> None:
    code, shown = on_terminal("analyze", "last", "--open", "--json", env=browser.env)
    assert code == 0 and shown.lstrip().startswith(("{", "["))
    command = [sys.executable, "-m", "dbdyno", "open", "last"]
    done = subprocess.run(
        command,
        env={**unset(), **browser.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == (str(run / "report.html"), "")
    assert not browser.noted.exists()


def test_a_file_that_is_no_page_is_not_opened(browser: Browser) -> None:
    code, shown = on_terminal("analyze", "last", "--open", "-o", "a.xlsx", env=browser.env)
    assert code == 2 and "--open opens a page" in shown


@pytest.mark.parametrize(
    ("env", "host"),
    [({}, ""), ({"SSH_CONNECTION": "10.0.0.7 5022 10.0.0.1 22"}, "@10.0.0.1:"),
     ({"SSH_CONNECTION": "fe80::7 5022 fe80::1 22"}, "@[fe80::1]:")],
)  # fmt: skip
def test_without_a_browser_the_command_that_copies_the_page_is_shown(
    env: dict[str, str], host: str, browser: Browser, run: Path
) -> None:
    for failing in ("", "no-such-browser", "false"):
        code, shown = on_terminal("open", columns=300, env={**browser.env, "BROWSER": failing, **env})
        *_, copy = shown.strip().splitlines()
        assert code == 0 and "no browser" in shown
        program, source, here = shlex.split(copy)
        assert (program, here) == ("scp", ".") and host in source
        assert source.endswith(f":{run / 'report.html'}")
