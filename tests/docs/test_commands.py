"""Every console line of the documentation runs, in order, as a reader would type it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests import in_process
from tests.clusters import server_dir
from tests.db.conftest import LIGHT_CALLS

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if _BLOCK.search(p.read_text())
]


def commands(page: Path) -> list[str]:
    """Returns the lines after a ``$ ``."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


_ALONE = ("observe", "server", "workload")
"""Commands that are more than what they say: processes of their own; and the first that runs."""
_BRIEF = {"--measure": "1s", "--settle": "100ms", "--for": "1s"}
"""A reader's measurements may last longer."""
_LOADED = re.compile(r"dbdyno run (?:lio|cpu|(order-entry|-f \S+)) (?!.*--dry-run)")
"""With the CPUs for itself, as a reader's load is, each would keep them from the tests beside it."""


def run_line(
    command: str, cwd: Path, env: dict[str, str], alone: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Runs a line as a shell does. Commands that only read run in this process, since loading takes long."""
    for option, brief in _BRIEF.items():
        command = re.sub(rf"{option} \S+", f"{option} {brief}", command)
    if loaded := _LOADED.match(command):
        command = " ".join((command, *(LIGHT_CALLS[2:] if loaded[1] else LIGHT_CALLS)))
    words = shlex.split(command)
    if words[0] == "dbdyno" and words[1] not in alone and not set(command) & set("|<>$"):
        return in_process.dbdyno(tuple(words[1:]), env, cwd)
    return subprocess.run(
        command, shell=True, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.db
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_works(page: Path, tmp_path: Path, server_home: Path) -> None:
    servers = server_dir(server_home / tmp_path.name)
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "DBDYNO_SERVER_DIR": str(servers),
    }
    (tmp_path / "run").mkdir(mode=0o700)
    assert commands(page)
    alone = (*_ALONE, "run") if page.name == "README.md" else _ALONE
    for command in commands(page):
        done = run_line(command, tmp_path, env, alone)
        alone = _ALONE if command.startswith("dbdyno run") else alone
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
