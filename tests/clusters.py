"""Clusters that initdb has made, for copies: one a version in a run of the tests, shared by its workers."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_PLACE = "DBDYNO_TEST_CLUSTERS"


def share(config: pytest.Config) -> None:
    """Makes the place, until the end of the run; workers inherit its name."""
    if _PLACE in os.environ:
        return
    place = Path(tempfile.mkdtemp(prefix="dyno-clusters-", dir="/tmp"))
    place.chmod(0o755)
    for name in ("embedded", "plain"):
        (place / name).mkdir(mode=0o755)
    os.environ[_PLACE] = str(place)

    def remove() -> None:
        del os.environ[_PLACE]
        shutil.rmtree(place, ignore_errors=True)

    config.add_cleanup(remove)


def shared(kind: str) -> Path:
    """The directory of the embedded servers' clusters, or of plain ones."""
    return Path(os.environ[_PLACE], kind)


def server_dir(place: Path) -> Path:
    """``place``, made a DBDYNO_SERVER_DIR whose servers are copies of these."""
    place.mkdir(mode=0o755)
    (place / "cache").mkdir(mode=0o755)
    (place / "cache" / "clusters").symlink_to(shared("embedded"))
    return place
