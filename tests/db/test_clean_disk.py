"""``dbdyno clean`` frees the disk, also a full one: it makes no cluster, and removes what nobody uses."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbdyno.engines.postgres.embedded.cached import in_use
from dbdyno.store.journal import left_over
from tests.db.conftest import PROGRAM, Bench

pytestmark = pytest.mark.db
TEMPLATE = "18.4-0123456789ab"
PATIENCE_S = 120


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """Yields a bench that shares no cluster with other tests, in an empty directory."""
    with tempfile.TemporaryDirectory(prefix="dyno-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        bench = Bench(tmp_path / "home", Path(place, "s"))
        bench.server_dir.mkdir()
        yield bench


def below(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def make(directory: Path, size: int = 10) -> None:
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(bytes(size))


def test_clean_of_an_empty_directory_leaves_it_empty(own: Bench) -> None:
    done = own.here("clean")
    assert (done.returncode, done.stdout) == (0, "nothing to remove\n"), done.stderr
    assert below(own.server_dir) == []


@pytest.fixture
def full_disk(own: Bench) -> Iterator[Bench]:
    """Yields a bench whose file system is filled up, with data of a variant's server and a template in
    it."""
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(own.server_dir)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounts a tmpfs: run the tests as root")
    try:
        make(own.server_dir / "servers/15-89abcdef/data", 300_000)
        make(own.server_dir / "cache/clusters" / TEMPLATE, 300_000)
        with pytest.raises(OSError) as full, (own.server_dir / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        assert full.value.errno == errno.ENOSPC
        yield own
    finally:
        subprocess.run(["umount", "--lazy", str(own.server_dir)], check=True)


def test_clean_works_on_a_full_disk(full_disk: Bench) -> None:
    home = full_disk.server_dir
    done = full_disk.here("clean")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"removed data directory {home}/servers/15-89abcdef/data of a server that variants named",
        f"removed {home}/cache/clusters/{TEMPLATE}, a template of new data",
    ]
    assert not {p.name for p in home.rglob("*")} & {"data", TEMPLATE, "18"}
    assert full_disk.here("clean").stdout == "nothing to remove\n"


def test_what_a_killed_run_was_making_is_removed_unless_a_run_uses_it(own: Bench) -> None:
    clusters = own.server_dir / "cache/clusters"
    with subprocess.Popen([PROGRAM, "server", "start"], env=own.env, stdout=subprocess.DEVNULL) as starting:
        _await(lambda: any(d.suffix == f".{starting.pid}" for d in _directories(clusters)))
        starting.send_signal(signal.SIGSTOP)
        during = own.here("clean").stdout
        starting.send_signal(signal.SIGKILL)
    assert f"{clusters.parent}: a run makes a data directory from it, left alone\n" in during
    (left,) = _directories(clusters)
    make(own.server_dir / "servers/18/data.new")
    make(clusters / "notes")  # nothing of dbdyno's
    printed = own.here("clean").stdout
    assert f"removed {left}, which a killed run left unfinished" in printed
    assert f"removed {own.server_dir}/servers/18/data.new, which a killed run left unfinished" in printed
    assert [d.name for d in _directories(clusters)] == ["notes"]
    assert below(own.server_dir / "servers/18") == ["start.lock"]


def _directories(parent: Path) -> list[Path]:
    return [p for p in parent.iterdir() if p.is_dir()] if parent.is_dir() else []


def _await(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_template_in_use_stays(own: Bench) -> None:
    template = own.server_dir / "cache/clusters" / TEMPLATE
    make(template)
    with in_use(own.server_dir / "cache"):
        assert "left alone" in own.here("clean").stdout
    assert template.exists()
    (template.parent / "17.1-0123456789ab").symlink_to(template)
    own.here("clean")
    assert [p.name for p in template.parent.iterdir()] == ["17.1-0123456789ab"]  # a link stays


def test_settings_of_removed_data_are_forgotten(own: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDYNO_STATE_DIR", own.env["XDG_DATA_HOME"])
    own.env["DBDYNO_STATE_DIR"] = own.env["XDG_DATA_HOME"]
    data = own.server_dir / "servers/15-89abcdef/data"
    make(data)
    killed = [
        "import os, sys",
        "from dbdyno.store.journal import FileJournal",
        "from dbdyno.model.engine.protocols import Undo",
        "undo = Undo(kind='settings', key='k', what='settings file', data={'embedded': sys.argv[1]})",
        "FileJournal('killed').note(undo)",
        "os._exit(9)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(killed), str(data)], env=own.env, check=False)
    (journal,) = left_over().dead
    done = own.here("clean")
    assert done.returncode == 0, done.stderr
    assert (
        f"run killed: nothing to put back: {journal.undos[0].what}; its data directory is gone" in done.stdout
    )
    assert left_over().dead == []
