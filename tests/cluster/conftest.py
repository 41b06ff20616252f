"""A Ray cluster of a head and three nodes, shared by all workers of a test run."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests import clusters
from tests.ray_nodes import RayCluster, shared_cluster


@pytest.fixture(scope="session")
def ray_cluster() -> RayCluster:
    """Returns the shared cluster. Skips the test where Ray has no wheel."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: it has no wheel for this platform")
    return shared_cluster(clusters.shared("ray"), clusters.controller())


@pytest.fixture(scope="module")
def one_at_a_time(ray_cluster: RayCluster) -> Iterator[None]:  # noqa: ARG001 - it makes the place
    """Keeps other modules with this fixture from the cluster's nodes meanwhile."""
    with (clusters.shared("ray") / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def run_name() -> str:
    """Returns a name that no other test's actors have."""
    return f"test-{secrets.token_hex(4)}"
