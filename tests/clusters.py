"""Resources that the workers of a test run share: clusters to copy, made by initdb, and files made once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

_PLACE, _CONTROLLER = "DBDYNO_TEST_CLUSTERS", "DBDYNO_TEST_CONTROLLER"


def share(config: pytest.Config) -> None:
    """Makes the shared place until the end of the run. Workers inherit its name."""
    if _PLACE in os.environ:
        return
    place = Path(tempfile.mkdtemp(prefix="dyno-clusters-", dir="/tmp"))
    place.chmod(0o755)
    for name in ("embedded", "plain", "machines"):
        (place / name).mkdir(mode=0o755)
    os.environ[_PLACE], os.environ[_CONTROLLER] = str(place), str(os.getpid())

    def remove() -> None:
        del os.environ[_PLACE]
        shutil.rmtree(place, ignore_errors=True)

    config.add_cleanup(remove)


def controller() -> int:
    """Returns the process that began the test run and ends it."""
    return int(os.environ[_CONTROLLER])


def shared(kind: str) -> Path:
    """Returns the directory of one kind: the embedded servers' clusters, plain ones, recorded machines, or
    Ray."""
    return Path(os.environ[_PLACE], kind)


def server_dir(place: Path) -> Path:
    """Makes ``place`` a DBDYNO_SERVER_DIR whose servers are copies of the shared ones, and returns it."""
    place.mkdir(mode=0o755)
    (place / "cache").mkdir(mode=0o755)
    (place / "cache" / "clusters").symlink_to(shared("embedded"))
    return place


def in_memory() -> str:
    """Returns a directory for files that are thrown away.

    Tests make a hundred thousand files, for which a disk takes ten times as long. Returns /tmp if no
    directory in memory has room, or none lets programs start from it.
    """
    place, room = "/dev/shm", 4 << 30
    usable = os.path.ismount(place) and os.access(place, os.W_OK | os.X_OK)
    usable = usable and not os.statvfs(place).f_flag & os.ST_NOEXEC
    return place if usable and shutil.disk_usage(place).free > room else "/tmp"


def shared_file(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Returns the file of that name, which ``make`` writes for the first worker that asks for it.

    A ``make`` that fails leaves nothing, so that the next worker tries.
    """
    worker = "PYTEST_XDIST_WORKER" in os.environ
    place = (factory.getbasetemp().parent if worker else factory.getbasetemp()) / "shared"
    place.mkdir(exist_ok=True)
    wanted = place / name
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not wanted.exists():
            making = place / f"making-{name}"
            make(making)
            making.rename(wanted)
    return wanted
