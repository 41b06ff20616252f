"""The program, as a user would type it, in other worlds: see tests/elsewhere.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.elsewhere import Elsewhere, Program, a_home, readable_program, test_user
from tests.elsewhere_server import Cluster, make_cluster


@pytest.fixture(scope="session")
def program(server_home: Path) -> Program:
    place = server_home / "readable"
    place.mkdir()
    return readable_program(place)


@pytest.fixture
def theirs(program: Program, server_home: Path) -> Iterator[Elsewhere]:
    """Yields a home of the unprivileged user."""
    with a_home(program, test_user(), server_home) as elsewhere:
        yield elsewhere


@pytest.fixture
def roots(program: Program, server_home: Path) -> Iterator[Elsewhere]:
    """Yields a home of root."""
    with a_home(program, (0, 0), server_home) as elsewhere:
        yield elsewhere


@pytest.fixture(scope="session")
def cluster(servers: Servers, server_home: Path) -> Cluster:
    """Returns a cluster of the packages' version, whose programs every user may run."""
    return make_cluster(servers.bin_dir(15), server_home)
