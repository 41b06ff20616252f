"""Users and containers without a home directory, a user entry, a place to write: errors, no tracebacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakery import WITH_ENGINES

pytestmark = pytest.mark.whole

_UNKNOWN = 54_321  # no such user
# The interpreter of whoever runs the tests may be in a place that this user cannot read.
_AS_UNKNOWN = (
    "setpriv",
    f"--reuid={_UNKNOWN}",
    f"--regid={_UNKNOWN}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
_FAKE = "run cpu --engine fake --dsn fake:cpus=2 --measure 5s --sessions 1"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users: run the tests as root")


def dbdyno(words: str, env: dict[str, str], before: Sequence[str] = (), cwd: str = "/") -> tuple[int, str]:
    done = subprocess.run(
        [*before, sys.executable, "-m", "dbdyno", *words.split()],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", "PYTHONPATH": WITH_ENGINES, **env},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("env", [{}, {"HOME": "relative"}, {"HOME": ""}])
def test_a_user_without_home_is_asked_to_name_a_store(env: dict[str, str]) -> None:
    code, output = dbdyno("runs", env, _AS_UNKNOWN)
    assert code == 2
    assert "DBDYNO_STORE" in output and "docker run --user" in output


@pytest.mark.root
@needs_root
def test_the_root_directory_as_home_is_not_writable() -> None:
    code, output = dbdyno(_FAKE, {"HOME": "/"}, _AS_UNKNOWN)
    assert code == 4 and "/.local/share/dbdyno: Permission denied" in output and "DBDYNO_STORE" in output


@pytest.mark.root
@needs_root
def test_a_user_without_home_runs_with_a_store_that_is_named(open_dir: Path) -> None:
    store = open_dir / "store"
    store.mkdir()
    os.chown(store, _UNKNOWN, _UNKNOWN)
    env = {
        "DBDYNO_STORE": str(store),
        "DBDYNO_STATE_DIR": str(store),
        "TMPDIR": "/nonexistent",
        "TERM": "dumb",
    }
    code, output = dbdyno(_FAKE, env, _AS_UNKNOWN)
    assert code == 0, output
    assert list(store.glob("*/report.html"))


def test_an_unmapped_user_of_a_user_namespace_lists_runs(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "--user", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not permitted here")
    code, output = dbdyno("runs", {"DBDYNO_STORE": str(tmp_path)}, (unshare, "--user"))
    assert code == 0 and "no runs in" in output


@pytest.mark.root
def test_a_read_only_store_is_an_error_with_the_cure(tmp_path: Path) -> None:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path], capture_output=True)
    if done.returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    try:
        code, output = dbdyno(_FAKE, {"DBDYNO_STORE": str(tmp_path), "HOME": str(tmp_path)})
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert code == 4 and "Read-only file system" in output and "--store" in output


def test_a_current_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = ("sh", "-c", f'rmdir "{gone}"; exec "$@"', "sh")
    code, output = dbdyno("runs", {"DBDYNO_STORE": str(tmp_path)}, shell, str(gone))
    assert code == 2 and "current directory" in output
